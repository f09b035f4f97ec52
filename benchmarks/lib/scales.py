"""How much a run of the benchmark measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.lib.measuring import in_fresh_process

T = TypeVar("T")


@dataclass(frozen=True)
class Scale:
    """The numbers of a run."""

    name: str
    minilm_sizes: tuple[int, ...]
    """Numbers of memories, embedded by MiniLM."""
    word_sizes: tuple[int, ...]
    """Numbers of memories, embedded cheaply, since MiniLM makes about 100 vectors a second."""
    turns: int
    rounds: int
    listed: int
    """Up to so many memories `ListMemory` takes part: it shows all of them in every turn."""
    bulk: int
    one_by_one: int
    users: int
    memories_of_user: int
    users_asked: int
    agents: int
    agent_turns: int
    imports: int
    questions: int
    """How often a store is asked before what it holds in RAM is measured."""
    conversation: int
    """Turns of the long conversation."""
    settling: float = 0
    """Seconds between opening a store and measuring turns, in which ours reads vectors into RAM."""
    isolated: bool = True
    """Whether what has to start afresh does so, in a process of its own, which takes seconds."""

    def apart(self, work: Callable[..., T], *arguments: Any) -> T:
        """The result of work that is not to profit or suffer from what was done before."""
        return in_fresh_process(work, *arguments) if self.isolated else work(*arguments)


WHOLE = Scale(
    name="whole",
    minilm_sizes=(100, 1_000, 10_000),
    word_sizes=(1_000, 10_000, 100_000),
    turns=50,
    rounds=3,
    listed=1_000,
    bulk=1_000,
    one_by_one=100,
    users=1_000,
    memories_of_user=100,
    users_asked=20,
    agents=50,
    agent_turns=4,
    imports=11,
    questions=100,
    conversation=200,
    settling=2,
)
QUICK = Scale(
    name="quick",
    minilm_sizes=(100, 500),
    word_sizes=(500, 2_000),
    turns=20,
    rounds=1,
    listed=100,
    bulk=200,
    one_by_one=30,
    users=20,
    memories_of_user=50,
    users_asked=5,
    agents=50,
    agent_turns=1,
    imports=5,
    questions=20,
    conversation=20,
)
TINY = Scale(
    name="tiny",
    minilm_sizes=(20, 40),
    word_sizes=(40, 80),
    turns=2,
    rounds=1,
    listed=20,
    bulk=20,
    one_by_one=3,
    users=3,
    memories_of_user=10,
    users_asked=2,
    agents=3,
    agent_turns=1,
    imports=1,
    questions=2,
    conversation=10,
    isolated=False,
)
SCALES = {scale.name: scale for scale in (WHOLE, QUICK, TINY)}
