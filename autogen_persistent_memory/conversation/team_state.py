"""The states that AutoGen's teams and agents save: as text, do two fit each other, where does a conversation stand. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.checks import encode_json

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
