"""Saving the state of a team or an agent, also while it runs, and continuing from it in another process."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from autogen_core import AgentId, TopicId
from typing_extensions import Self

from ..core.checks import encode_json
from ..core.errors import PersistentMemoryError
from ..runtime.background_task import CLOSING_SECONDS, BackgroundTask, within
from ..runtime.reporting import notices
from ..runtime.threads import in_thread
from . import autogen_compat as compat
from .autogen_compat import State

logger = logging.getLogger("autogen_persistent_memory")

_DELIVERY_STEPS = 5
_REMEDY = "Build it with the same participants as when it was saved, or start a new session."
_LONG = 64 * 1024
_PACKED = "zlib:"


class Resumable(Protocol):
    """An AutoGen team or agent: it can save its state and load it again."""

    async def save_state(self) -> State:
        """Return everything needed to continue."""

    async def load_state(self, state: State) -> None:
        """Continue from there."""


# At rest


async def state_at_rest(of: Resumable) -> State:
    """Return the state of a team or agent that is not running.

    Raises:
        PersistentMemoryError: It is running. AutoGen would save a state in which the current speaker has had a turn, but
            said nothing.
    """
    if compat.is_running(of):
        raise PersistentMemoryError(
            f"This {type(of).__name__} is running, and cannot continue from a state saved in the middle of a turn. Save it "
            "when its run has ended, or while it runs with memory.observe(team.run_stream(...), save=team)."
        )
    return await of.save_state()


async def restore(into: Resumable, text: str, session: str) -> State:
    """Load a saved state into a team or agent built the same way, and return it.

    If that fails, the team or agent is as it was before.

    Raises:
        PersistentMemoryError: It is running, or the state is damaged or does not fit.
    """
    name = type(into).__name__
    if compat.is_running(into):
        raise PersistentMemoryError(
            f"This {name} is running; no state can be loaded into it. Load it when its run has ended, or into a new one."
        )
    try:
        saved = await in_thread(lambda: from_text(text))
    except (ValueError, RecursionError) as error:
        raise PersistentMemoryError(
            f"The state saved in session {session!r} is damaged ({error}). Save it again, or start a new session."
        ) from error
    misfit = f"The state saved in session {session!r} does not fit this {name}"
    before = await into.save_state()
    if reasons := differences(saved, before):
        raise PersistentMemoryError(f"{misfit}: {'; '.join(reasons)}. {_REMEDY}")
    try:
        await into.load_state(saved)
    except Exception as error:
        await into.load_state(before)
        raise PersistentMemoryError(f"{misfit}: {error!r}. {_REMEDY}") from error
    return saved  # type: ignore[no-any-return]


# While it runs


class Saving:
    """Saves a team after every turn while the `async with` block lasts; an agent when the block ends.

    A state that AutoGen saves in the middle of a turn is useless: the current speaker is passed over, and hears
    everything twice. So the state is taken between two turns, when the next speaker is chosen but not asked yet, and the choice
    is undone in it. The last state saved is that of the team at rest or, if the run was aborted, before the aborted turn.

    AutoGen may take `seconds` to save a state. Nothing here raises: failures are logged, with the namespace and session that
    `whose` names.
    """

    def __init__(self, of: Resumable, write: Callable[[State], Awaitable[None]], seconds: float, whose: str) -> None:
        self._of = of
        self._whose = whose
        self._write = write
        self._seconds = seconds
        self._newest: State | None = None
        self._writing = BackgroundTask(self._write_newest)
        self._names = compat.participants_of(of)
        self._runtime = compat.runtime_of(of) if self._names else None
        self._state: State | None = None
        self._asked: list[str] = []
        self._answered: set[str] = set()
        self._previous: str | None = None
        self._has_ended = False

    async def __aenter__(self) -> Self:
        """Begin. AutoGen's intervention handlers see the same messages, but make it warn of every empty response."""
        if self._runtime is not None:
            self._publish = self._runtime.publish_message
            self._runtime.publish_message = self._see
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._has_ended = True
        if self._runtime is not None and self._runtime.publish_message == self._see:
            self._runtime.publish_message = self._publish  # else a later watcher passes messages on to this one
        if kind is None or self._runtime is None:
            state = await self._current_state()
            if state is not None:
                self._save(state)
        if not await self._writing.wait(CLOSING_SECONDS):
            self._writing.cancel()
            logger.warning("The state of %s could not be saved within %g seconds.", self._whose, CLOSING_SECONDS)

    async def _see(self, message: Any, topic_id: TopicId, *, sender: AgentId | None = None, **options: Any) -> None:
        """Look at a message by which the team runs, and publish it."""
        kind = type(message).__name__
        try:
            if self._has_ended:
                pass
            elif kind == compat.REQUEST and topic_id.type in self._names:
                await self._before_turn_of(self._names[topic_id.type])
            elif kind in compat.RESPONSES and sender is not None and sender.type in self._names:
                self._answered.add(self._names[sender.type])
        except Exception:
            logger.exception("Saving the state of %s between two turns failed; please report this.", self._whose)
        await self._publish(message, topic_id, sender=sender, **options)

    async def _before_turn_of(self, speaker: str) -> None:
        if self._answered.issuperset(self._asked):  # else several speak at once, and one of them may have begun
            self._previous = self._asked[-1] if self._asked else None
            self._asked, self._answered = [], set()
            for _ in range(_DELIVERY_STEPS):  # the last message is on its way to the participants
                await asyncio.sleep(0)
            self._state = await self._current_state()
        self._asked.append(speaker)
        if self._state is not None:
            self._save(compat.before_turn(self._state, self._asked, self._previous))

    async def _current_state(self) -> State | None:
        try:
            return await within(self._seconds, self._of.save_state())
        except Exception as error:
            notices.warn(self._whose, "The state of %s cannot be saved: %r", self._whose, error)
            return None

    def _save(self, state: State) -> None:
        """Write a state in the background; of several that come while one is being written, only the newest."""
        self._newest = state
        self._writing.start()

    async def _write_newest(self) -> None:
        while self._newest is not None:
            state, self._newest = self._newest, None
            try:
                await self._write(state)
                notices.settle(self._whose)
            except (PersistentMemoryError, ValueError) as error:
                notices.warn(self._whose, "The state of %s cannot be saved for now: %s", self._whose, error)
            except Exception:
                logger.exception("Saving the state of %s failed; please report this.", self._whose)


# Whether a state fits


def differences(saved: Any, own: State) -> list[str]:
    """Return why a team or agent cannot continue from a saved state, each reason a clause; empty if it can.

    AutoGen itself accepts much that does not fit: an agent loads a team's state and has an empty context, a team ignores
    missing participants, another order of speakers, and states of a later version. `own` is what it would save now.
    """
    if not isinstance(saved, Mapping) or not saved:
        return ["it is not the state of any team or agent"]
    return list(_differences(saved, own, ""))


def _differences(saved: State, own: State, where: str) -> Iterator[str]:
    members, own_members = compat.members_in(saved), compat.members_in(own)
    if compat.version_of(saved) > compat.version_of(own):
        yield (
            f"{where}it has the state version {saved['version']} of a newer AutoGen, this one reads {own.get('version')}"
        )
    if (members is None) is not (own_members is None) or saved.get("type") != own.get("type", saved.get("type")):
        yield f"{where}it was saved by {_described(saved)}, and this is {_described(own)}"
    elif own_members is not None:
        yield from _differing_teams(members, own_members, where)
    else:
        own_inner = compat.inner_states(own)
        for name, inner in compat.inner_states(saved).items():
            if name in own_inner:
                yield from _differences(inner, own_inner[name], where)


def _differing_teams(saved: Any, own: State, where: str) -> Iterator[str]:
    if not isinstance(saved, Mapping) or not all(isinstance(state, Mapping) for state in saved.values()):
        yield f"{where}it is not the state of any team"
        return
    leader, own_leader = compat.manager_in(saved), compat.manager_in(own)
    if leader != own_leader:
        yield f"{where}it was saved by a team with a {leader}, and this one has a {own_leader}"
    names, own_names = [name for name in saved if name != leader], [name for name in own if name != own_leader]
    if gone := [name for name in names if name not in own]:
        yield f"{where}{_listed(gone)} took part and {'is' if len(gone) == 1 else 'are'} not here"
    if new := [name for name in own_names if name not in saved]:
        yield f"{where}{_listed(new)} did not take part"
    if gone or new or leader != own_leader or leader is None:
        return
    for name in own_names:
        yield from _differences(saved[name], own[name], f"{where}{name!r}: ")
    if compat.takes_turns(own[leader]) and names != own_names:
        yield f"{where}they spoke in the order {_listed(names)}, and here it is {_listed(own_names)}"
    if compat.edges_of(saved[leader]) != compat.edges_of(own[leader]):
        yield f"{where}the graph of who follows whom is different"


def _described(state: State) -> str:
    members = compat.members_in(state)
    if members is None:
        return f"an agent ({state.get('type', 'of an unknown type')})"
    leader = compat.manager_in(members)
    return f"a team of {_listed([name for name in members if name != leader])}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


# As text


def to_text(state: State) -> str:
    """Return a state as JSON; compressed if that is long, since a running team writes it after every turn.

    Raises:
        ValueError: It cannot be written as JSON.
    """
    text = encode_json(dict(state), "the state", halves=True)  # models do write lone surrogates
    if len(text) < _LONG:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode("utf-8"), 1)).decode("ascii")


def from_text(text: str) -> Any:
    """Return the state that `to_text` was given.

    Raises:
        ValueError: The text is damaged.
    """
    if not text.startswith(_PACKED):
        return json.loads(text)
    try:
        return json.loads(zlib.decompress(base64.b64decode(text[len(_PACKED) :], validate=True)))
    except zlib.error as error:
        raise ValueError(str(error)) from error
