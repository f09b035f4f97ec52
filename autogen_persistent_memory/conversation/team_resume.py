"""The states that AutoGen's teams and agents save: as text, do two fit each other, where does a conversation stand. Pure."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol

from autogen_core import AgentId, TopicId
from typing_extensions import Self

from ..core.checks import encode_json
from ..core.errors import PersistentMemoryError
from ..runtime.deadlines import CLOSING_SECONDS, within
from ..runtime.threads import in_thread

State = Mapping[str, Any]

_TEAM = "agent_states"
_THREAD = "message_thread"
_NEXT = "next_speaker_index"
_LONG = 64 * 1024
_PACKED = "zlib:"


def to_text(state: State) -> str:
    """A state as JSON; packed where that is long, since a team that runs writes it after every turn.

    Raises:
        ValueError: It cannot be written as JSON.
    """
    text = encode_json(dict(state), "the state", halves=True)  # as models may write them
    if len(text) < _LONG:
        return text
    return _PACKED + base64.b64encode(zlib.compress(text.encode("utf-8"), 1)).decode("ascii")


def from_text(text: str) -> Any:
    """The state that `to_text` was given.

    Raises:
        ValueError: It is damaged.
    """
    if not text.startswith(_PACKED):
        return json.loads(text)
    try:
        return json.loads(zlib.decompress(base64.b64decode(text[len(_PACKED) :], validate=True)))
    except zlib.error as error:
        raise ValueError(str(error)) from error


def differences(saved: Any, own: State) -> list[str]:
    """Why a team or agent cannot go on from a saved state, each reason a clause; empty if it can.

    AutoGen itself accepts much that does not fit: an agent takes a team's state and has an empty context, a team ignores
    who is missing, another order of speakers, and states of a later version.

    Args:
        saved: What is to be loaded.
        own: What the team or agent would save now.
    """
    if not isinstance(saved, Mapping) or not saved:
        return ["it is not the state of any team or agent"]
    return list(_differences(saved, own, ""))


def _differences(saved: State, own: State, where: str) -> Iterator[str]:
    if _is_newer(saved, own):
        yield (
            f"{where}it has the state version {saved['version']} of a newer AutoGen, this one reads {own.get('version')}"
        )
    if (_TEAM in saved) is not (_TEAM in own) or not _same_type(saved, own):
        yield f"{where}it was saved by {_described(saved)}, and this is {_described(own)}"
    elif _TEAM in own:
        yield from _differing_teams(saved[_TEAM], own[_TEAM], where)
    else:
        for inner in ("agent_state", "inner_team_state"):
            if isinstance(saved.get(inner), Mapping) and isinstance(own.get(inner), Mapping):
                yield from _differences(saved[inner], own[inner], where)


def _differing_teams(saved: Any, own: State, where: str) -> Iterator[str]:
    if not isinstance(saved, Mapping) or not all(isinstance(state, Mapping) for state in saved.values()):
        yield f"{where}it is not the state of any team"
        return
    leader, own_leader = _manager_in(saved), _manager_in(own)
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
    if _NEXT in own[leader] and names != own_names:
        yield f"{where}they spoke in the order {_listed(names)}, and here it is {_listed(own_names)}"
    if _edges(saved[leader]) != _edges(own[leader]):
        yield f"{where}the graph of who follows whom is another one"


def before_turn(state: State, speakers: Sequence[str], previous: str | None = None) -> dict[str, Any]:
    """The state of a team that has chosen who speaks next, as it was before it chose: so that they will speak next.

    Args:
        state: What the team saves after the choice, and before anybody has begun to speak.
        speakers: Who was chosen.
        previous: Who spoke before, if it is known; else the last participant in the thread.
    """
    states = dict(state[_TEAM])
    leader = _manager_in(states)
    if leader is None:
        return dict(state)
    manager = dict(states[leader])
    names = [name for name in states if name != leader]
    if _NEXT in manager:
        manager[_NEXT] = names.index(speakers[0])
    if "previous_speaker" in manager:
        spoken = (message.get("source") for message in reversed(manager[_THREAD]))
        manager["previous_speaker"] = previous or next((name for name in spoken if name in names), None)
    if "ready" in manager:
        manager["ready"] = list(speakers)
        manager["enqueued_any"] = {name: dict(groups) for name, groups in manager["enqueued_any"].items()}
    return {**state, _TEAM: {**states, leader: manager}}


def thread_of(state: State) -> list[State]:
    """Everything that was said in a team, as AutoGen dumps it; empty for an agent."""
    states = state.get(_TEAM, {})
    leader = _manager_in(states)
    return list(states[leader][_THREAD]) if leader else []


def waiting_in(state: State) -> list[list[State]]:
    """What each participant of a team who has not heard everything will hear with its next turn, as AutoGen dumps it."""
    return [list(part["message_buffer"]) for part in state.get(_TEAM, {}).values() if part.get("message_buffer")]


def _manager_in(states: State) -> str | None:
    return next((name for name, state in states.items() if _THREAD in state), None)


def _same_type(saved: State, own: State) -> bool:
    return "type" not in own or saved.get("type") == own["type"]


def _edges(manager: State) -> dict[str, list[str]]:
    """Who waits for whom in a graph."""
    return {name: sorted(groups) for name, groups in manager.get("remaining", {}).items()}


def _is_newer(saved: State, own: State) -> bool:
    return _numbers(saved.get("version")) > _numbers(own.get("version", "0"))


def _numbers(version: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(version).split(".") if part.isdigit())


def _described(state: State) -> str:
    if _TEAM not in state:
        return f"an agent ({state.get('type', 'of an unknown type')})"
    leader = _manager_in(state[_TEAM])
    return f"a team of {_listed([name for name in state[_TEAM] if name != leader])}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


logger = logging.getLogger("autogen_persistent_memory")

_REQUEST = "GroupChatRequestPublish"
_RESPONSES = ("GroupChatAgentResponse", "GroupChatTeamResponse")
_DELIVERY_STEPS = 5
_REMEDY = "Build it with the same participants as when it was saved, or start a new session."


class Resumable(Protocol):
    """An AutoGen team or agent: what can save its state and load it again."""

    async def save_state(self) -> Mapping[str, Any]:
        """Everything needed to go on."""

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""


async def state_at_rest(of: Resumable) -> State:
    """The state of a team or agent that is not running.

    Raises:
        PersistentMemoryError: It is running. AutoGen would save a state in which whoever speaks just now has had a turn,
            but said nothing.
    """
    if getattr(of, "_is_running", False):
        raise PersistentMemoryError(
            f"This {type(of).__name__} is running, so its state would not be one to go on from. Save it when its run has "
            "ended, or while it runs with memory.observe(team.run_stream(...), save=team)."
        )
    return await of.save_state()


async def restore(into: Resumable, text: str, session: str) -> State:
    """Load a saved state into a team or agent built the same way; the state.

    Whatever fails, the team or agent is as it was.

    Raises:
        PersistentMemoryError: It is running, or the state is damaged or does not fit.
    """
    name = type(into).__name__
    if getattr(into, "_is_running", False):
        raise PersistentMemoryError(
            f"This {name} is running; no state can be loaded into it. Load it when its run has ended, or into a new one."
        )
    try:
        saved = await in_thread(lambda: from_text(text))
    except (ValueError, RecursionError) as error:
        raise PersistentMemoryError(
            f"The state saved in session {session!r} is damaged ({error}). Save it anew, or start a new session."
        ) from error
    before = await into.save_state()
    if reasons := differences(saved, before):
        raise PersistentMemoryError(
            f"The state saved in session {session!r} does not fit this {name}: {'; '.join(reasons)}. {_REMEDY}"
        )
    try:
        await into.load_state(saved)
    except Exception as error:
        await into.load_state(before)
        raise PersistentMemoryError(
            f"The state saved in session {session!r} does not fit this {name}: {error!r}. {_REMEDY}"
        ) from error
    return saved  # type: ignore[no-any-return]


class Saving:
    """Saves a team as it runs, while the `async with` block lasts; an agent when it ends.

    A state that AutoGen saves while a team runs is of no use: whoever is speaking is passed over, and hears everything
    twice. So it is taken between two turns, when the next speaker is chosen but not yet asked, and the choice undone. What
    is saved in the end is the team at rest, or, if the run was broken off, the team before the turn that was.

    Nothing here raises: what cannot be saved is logged.
    """

    def __init__(self, of: Resumable, write: Callable[[State], Awaitable[None]], seconds: float) -> None:
        self._of = of
        self._seconds = seconds
        self._writer = _Writer(write)
        self._turns = _Turns(of, self._state, self._writer.add)

    async def __aenter__(self) -> Self:
        self._turns.watch()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns.leave()
        if kind is None or not self._turns.can_be_watched:
            state = await self._state()
            if state is not None:
                self._writer.add(state)
        await self._writer.finish()

    async def _state(self) -> State | None:
        async def saved() -> State:
            return await self._of.save_state()

        try:
            return await within(self._seconds, saved())
        except Exception as error:
            logger.warning("The state of a conversation cannot be saved: %r", error)
            return None


class _Turns:
    """Sees the messages by which a team runs, and takes its state whenever a turn is over and the next has not begun."""

    def __init__(
        self, team: Resumable, take: Callable[[], Awaitable[State | None]], keep: Callable[[State], None]
    ) -> None:
        self._take = take
        self._keep = keep
        self._runtime: Any = getattr(team, "_runtime", None)
        topics, names = getattr(team, "_participant_topic_types", ()), getattr(team, "_participant_names", ())
        self._names = dict(zip(topics, names))
        self.can_be_watched = bool(self._names) and hasattr(self._runtime, "publish_message")
        """Whether it is a team."""
        self._state: State | None = None
        self._asked: list[str] = []
        self._silent: set[str] = set()
        self._previous: str | None = None

    def watch(self) -> None:
        """Begin. An intervention handler could see the messages as well, but AutoGen warns of every empty response then."""
        if self.can_be_watched:
            self._publish, self._is_over = self._runtime.publish_message, False
            self._runtime.publish_message = self._see

    def leave(self) -> None:
        """End."""
        if self.can_be_watched:
            self._is_over = True
            if (
                self._runtime.publish_message == self._see
            ):  # else somebody watches who came later, and passes it on to us
                self._runtime.publish_message = self._publish

    async def _see(self, message: Any, topic_id: TopicId, *, sender: AgentId | None = None, **options: Any) -> None:
        kind = type(message).__name__
        try:
            if self._is_over:
                pass
            elif kind == _REQUEST and topic_id.type in self._names:
                await self._next(self._names[topic_id.type])
            elif kind in _RESPONSES and sender is not None and sender.type in self._names:
                self._silent.add(self._names[sender.type])
        except Exception:
            logger.exception("Memory failed to save a conversation between two turns; please report this.")
        await self._publish(message, topic_id, sender=sender, **options)

    async def _next(self, speaker: str) -> None:
        if self._silent.issuperset(self._asked):  # else several speak at once, and one of them may have begun
            self._previous = self._asked[-1] if self._asked else None
            self._asked, self._silent = [], set()
            for _ in range(_DELIVERY_STEPS):  # what was said before is under way to those who listen
                await asyncio.sleep(0)
            self._state = await self._take()
        self._asked.append(speaker)
        if self._state is not None:
            self._keep(before_turn(self._state, self._asked, self._previous))


class _Writer:
    """Writes states one after the other; of those that come while one is being written, only the newest."""

    def __init__(self, write: Callable[[State], Awaitable[None]]) -> None:
        self._write = write
        self._newest: State | None = None
        self._task: asyncio.Task[None] | None = None
        self._fails = False

    def add(self, state: State) -> None:
        self._newest = state
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all())

    async def finish(self) -> None:
        """Wait until the newest is written, but not for ever."""
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=CLOSING_SECONDS)
            if not done:
                self._task.cancel()
                logger.warning("The state of a conversation could not be saved in %s seconds.", CLOSING_SECONDS)

    async def _write_all(self) -> None:
        while self._newest is not None:
            state, self._newest = self._newest, None
            try:
                await self._write(state)
                self._fails = False
            except (PersistentMemoryError, ValueError) as error:
                if not self._fails:
                    logger.warning("The state of a conversation cannot be saved for now: %s", error)
                self._fails = True
            except Exception:
                logger.exception("Memory failed to save a conversation; please report this.")
