"""Conversations that continue in a new process, with the same team only."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.base import ChatAgent, Handoff, TaskResult, Team
from autogen_agentchat.conditions import TextMentionTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import CancellationToken, FunctionCall, SingleThreadedAgentRuntime
from autogen_core.models import CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import words

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, PersistentMemoryError, TemporaryStore
from autogen_persistent_memory.conversation.team_resume import Saving

NAMES = ("ann", "bob", "carl")


def a_memory(store: Any = None, **options: Any) -> PersistentMemory:
    return PersistentMemory(
        "team/x", session="talk", store=store or TemporaryStore(), embedding=words(), extractor=None, **options
    )


class Script(ReplayChatCompletionClient):
    """A model that replies with the number of messages in its context, which shows whether a context was restored."""

    def __init__(self, name: str, last: int = 100, gate: Callable[[int], Any] | None = None) -> None:
        super().__init__(["never said"])
        self._name = name
        self._last = last
        self._gate = gate

    async def create(self, messages: Sequence[Any], **options: Any) -> CreateResult:
        said = [message for message in messages if getattr(message, "source", "memory") != "memory"]
        if self._gate is not None:
            await self._gate(len(said))
        text = f"This is message {len(said) + 1} by {self._name}" + (
            ", we are DONE" if len(said) + 1 >= self._last else ""
        )
        return CreateResult(finish_reason="stop", content=text, usage=RequestUsage(0, 0), cached=False)


def agents(memory: PersistentMemory | None, *, names: Sequence[str] = NAMES, **options: Any) -> list[ChatAgent | Team]:
    kept = None if memory is None else [memory]
    return [AssistantAgent(name, model_client=Script(name, **options), memory=kept) for name in names]


def round_robin(
    memory: PersistentMemory | None = None, *, max_turns: int | None = None, **options: Any
) -> RoundRobinGroupChat:
    return RoundRobinGroupChat(
        agents(memory, **options), termination_condition=TextMentionTermination("DONE"), max_turns=max_turns
    )


def selector(memory: PersistentMemory | None = None, max_turns: int | None = None, **options: Any) -> SelectorGroupChat:
    """Return a team of two in which no agent speaks twice in a row; the selecting model always chooses ann."""
    always = ReplayChatCompletionClient(["ann"] * 20)
    return SelectorGroupChat(agents(memory, names=("ann", "bob"), **options), always, max_turns=max_turns)


def swarm(memory: PersistentMemory | None = None, max_turns: int | None = None, **options: Any) -> Swarm:
    """Return a team in which ann hands over to bob, and bob never hands back."""
    call = CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name="transfer_to_bob", arguments="{}")],
        usage=RequestUsage(0, 0),
        cached=False,
    )
    info = {"vision": False, "function_calling": True, "json_output": False, "structured_output": False, "family": "x"}
    client = ReplayChatCompletionClient([call, "ann is back"], model_info=info)  # type: ignore[arg-type]
    kept = None if memory is None else [memory]
    ann = AssistantAgent("ann", model_client=client, handoffs=[Handoff(target="bob")], memory=kept)
    return Swarm([ann, *agents(memory, names=("bob", "carl"), **options)], max_turns=max_turns)


def graph(memory: PersistentMemory | None = None, max_turns: int | None = None, **options: Any) -> GraphFlow:
    """Return a graph: ann, then bob and carl at once, then dora."""
    ann, bob, carl, dora = everybody = agents(memory, names=(*NAMES, "dora"), **options)
    builder = DiGraphBuilder()
    for agent in everybody:
        builder.add_node(agent)  # type: ignore[arg-type]
    builder.add_edge(ann, bob).add_edge(ann, carl).add_edge(bob, dora).add_edge(carl, dora)  # type: ignore[arg-type]
    return GraphFlow(everybody, graph=builder.build(), max_turns=max_turns)


TEAMS: dict[str, Callable[..., Any]] = {
    "round robin": round_robin,
    "selector": selector,
    "swarm": swarm,
    "graph": graph,
}


def said(result: TaskResult) -> list[str]:
    return [f"{m.source}: {m.to_text()}" for m in result.messages if isinstance(m, BaseChatMessage)]


async def captured(memory: PersistentMemory) -> list[str]:
    await memory.flush()
    return [f"{record.source}: {record.content}" for record in await memory.session.messages()]


def _comparable(state: Mapping[str, Any]) -> Any:
    """Return what two equal states share: messages without their ids and times."""
    if isinstance(state, Mapping):
        return {key: _comparable(value) for key, value in state.items() if key not in ("id", "created_at")}
    return [_comparable(item) for item in state] if isinstance(state, list) else state


async def in_a_new_process(call: str, *arguments: object) -> Any:
    """Call a function of this module in a process of its own, and return the JSON it prints."""
    code = f"import asyncio, test_resume; asyncio.run(test_resume.{call}(*{arguments!r}))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=Path(__file__).parents[1], stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(out)


async def continue_team(path: str, kind: str) -> None:
    async with a_memory(EmbeddedStore(path)) as memory:
        team = TEAMS[kind](memory, max_turns=1)
        loaded = await memory.session.load(team)
        state = await team.save_state()
        print(json.dumps({"loaded": loaded, "state": state, "said": said(await team.run())}))


@pytest.mark.parametrize("kind", list(TEAMS))
async def test_a_team_is_restored_in_a_new_process_with_its_next_speaker(kind: str, tmp_path: Path) -> None:
    async with a_memory(EmbeddedStore(tmp_path)) as memory:
        team = TEAMS[kind](memory, max_turns=1)
        await team.run(task="Shall we begin with the plan?")
        await memory.session.save(team)
        state = dict(await team.save_state())
    again = await in_a_new_process("continue_team", str(tmp_path), kind)
    assert again["loaded"]
    assert again["state"] == state
    assert "bob: This is message 3 by bob" in again["said"]  # whose context has the earlier messages
    assert not any(line.startswith("ann") for line in again["said"])


# Killed in the middle


async def talk(path: str, kind: str, last: int, slowly: bool) -> None:
    """Continue a conversation to its end, and print each message."""
    async with a_memory(EmbeddedStore(path)) as memory:
        team = TEAMS[kind](memory, last=last, gate=(lambda _: asyncio.sleep(0.05)) if slowly else None)
        task = None if await memory.session.load(team) else "Shall we begin with the plan?"
        async for item in memory.observe(team.run_stream(task=task), save=team):
            if isinstance(item, BaseChatMessage):
                print(f"{item.source}: {item.to_text()}", flush=True)


async def talk_and_be_killed(path: Path, kind: str, last: int, after: int) -> list[str]:
    code = f"import asyncio, test_resume; asyncio.run(test_resume.talk({str(path)!r}, {kind!r}, {last}, True))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=Path(__file__).parents[1], stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    heard = [(await process.stdout.readline()).decode().strip() for _ in range(after)]
    os.kill(process.pid, signal.SIGKILL)
    heard += (await process.stdout.read()).decode().split("\n")[:-1]
    assert await process.wait() == -signal.SIGKILL
    return heard


@pytest.mark.parametrize("after", [1, 2, 5, 9])
async def test_a_killed_team_of_three_continues_where_it_stopped(after: int, tmp_path: Path) -> None:
    whole = ["user: Shall we begin with the plan?"] + [
        f"{NAMES[(number - 2) % 3]}: This is message {number} by {NAMES[(number - 2) % 3]}" for number in range(2, 13)
    ]
    whole[-1] += ", we are DONE"
    heard = await talk_and_be_killed(tmp_path, "round robin", 12, after)
    assert heard == whole[: len(heard)]
    async with a_memory(EmbeddedStore(tmp_path)) as memory:
        team = round_robin(memory, last=12)
        went_on = await memory.session.load(team)
        task = None if went_on else whole[0].removeprefix("user: ")
        result = await team.run(task=task)
        assert said(result) == whole[-len(said(result)) :]
        assert len(said(result)) >= len(whole) - len(heard)
        assert len(said(result)) <= len(whole) - len(heard) + 1  # at most the last message is repeated
        assert await captured(memory) == whole
        state = await team.save_state()
    for name in NAMES:
        context = state["agent_states"][name]["agent_state"]["llm_context"]["messages"]
        told = [message["content"] for message in context if message["source"] != "memory"]
        assert told == [line.split(": ", 1)[1] for line in whole[: len(told)]]
        assert len(told) >= len(whole) - 2


@pytest.mark.parametrize("kind", list(TEAMS))
async def test_every_state_saved_during_a_run_leads_to_the_same_result(kind: str) -> None:
    states: list[Mapping[str, Any]] = []

    async def write(state: Mapping[str, Any]) -> None:
        states.append(json.loads(json.dumps(state)))

    team = TEAMS[kind](max_turns=None if kind == "graph" else 5)
    async with Saving(team, write, 2, "this test"):
        whole = said(await team.run(task="Shall we begin with the plan?"))
    assert len(states) == (4 if kind == "graph" else 6)  # before each turn, and at the end
    assert states[-1] == await team.save_state()
    for state in states[:-1]:
        again = TEAMS[kind](max_turns=None if kind == "graph" else 5)
        await again.load_state(state)
        rest = said(await again.run())
        told = len(whole) - len(rest)
        assert sorted(rest) == sorted(whole[told:])
        assert _comparable(await again.save_state()) == _comparable(states[-1])


async def test_a_message_captured_but_not_in_the_saved_state_is_not_captured_twice() -> None:
    """The last message was captured, but the process was killed before the state with it was saved."""
    store = TemporaryStore()
    async with a_memory(store) as memory:
        team = round_robin(memory, max_turns=2)
        await team.run(task="Shall we begin with the plan?")
        await memory.session.save(team)
        async for _ in memory.observe(team.run_stream()):
            pass
        before = await captured(memory)
    async with a_memory(store) as memory:
        team = round_robin(memory, max_turns=4)
        assert await memory.session.load(team)
        async for _ in memory.observe(team.run_stream()):
            pass
        after = await captured(memory)
    assert after[:5] == before
    assert [line.split()[4] for line in after[1:]] == ["2", "3", "4", "5", "6", "7"]


async def test_uncaptured_messages_of_a_loaded_conversation_are_captured_and_a_repeated_task_is_new() -> None:
    store = TemporaryStore()
    async with a_memory(store) as memory:
        team = round_robin(memory, max_turns=1)
        await team.run(task="Shall we begin with the plan?")
        await memory.flush()
        stranger = round_robin(max_turns=1)  # the same team, without a memory
        await stranger.load_state(await team.save_state())
        await stranger.run()
        await memory.session.save(stranger)
    async with a_memory(store) as memory:
        team = round_robin(memory, max_turns=1)
        assert await memory.session.load(team)
        await team.run(task="Please go on with it now")
        await team.run(task="Please go on with it now")
        assert [line.split(": ")[1] for line in await captured(memory)] == [
            "Shall we begin with the plan?",
            "This is message 2 by ann",
            "This is message 3 by bob",
            "Please go on with it now",
            "This is message 5 by carl",
            "Please go on with it now",
            "This is message 7 by ann",
        ]


# Saving during a run


async def test_leaving_a_stream_early_saves_the_current_state(memory: PersistentMemory) -> None:
    waiting = asyncio.Event()

    async def gate(number: int) -> None:
        if number == 3:
            await waiting.wait()

    team = round_robin(memory, gate=gate, max_turns=4)
    stream = team.run_stream(task="Shall we begin with the plan?")
    async with contextlib.aclosing(memory.observe(stream, save=team)) as observed:
        async for item in observed:
            if getattr(item, "source", "") == "bob" and isinstance(item, BaseChatMessage):
                break
    again = round_robin(memory, max_turns=1)
    assert await memory.session.load(again)
    assert said(await again.run()) == ["carl: This is message 4 by carl"]
    waiting.set()
    await stream.aclose()


async def test_a_cancelled_run_is_saved_before_the_turn_that_was_cancelled(memory: PersistentMemory) -> None:
    token = CancellationToken()

    async def gate(number: int) -> None:
        if number == 3:
            waiting = asyncio.ensure_future(asyncio.Event().wait())
            token.link_future(waiting)
            token.cancel()
            await waiting

    team = round_robin(memory, gate=gate)
    with pytest.raises(asyncio.CancelledError):
        async for _ in memory.observe(team.run_stream(task="Begin!", cancellation_token=token), save=team):
            pass
    again = round_robin(memory, max_turns=1)
    assert await memory.session.load(again)
    assert said(await again.run()) == ["carl: This is message 4 by carl"]


async def test_a_speaker_that_failed_is_asked_again(memory: PersistentMemory) -> None:
    async def gate(number: int) -> None:
        if number == 2:
            raise ConnectionError("the model is down")

    team = round_robin(memory, gate=gate)
    with pytest.raises(RuntimeError, match="the model is down"):
        async for _ in memory.observe(team.run_stream(task="Begin!"), save=team):
            pass
    again = round_robin(memory, max_turns=3)  # ann has received the first
    assert await memory.session.load(again)
    assert [line.split()[0] for line in said(await again.run())] == ["bob:", "carl:"]


async def test_an_agent_is_saved_when_its_stream_has_ended(memory: PersistentMemory) -> None:
    (agent,) = agents(memory, names=["ann"])
    async for _ in memory.observe(agent.run_stream(task="Begin!"), save=agent):
        pass
    (again,) = agents(memory, names=["ann"])
    assert await memory.session.load(again)
    assert said(await again.run(task="Go on!"))[-1] == "ann: This is message 4 by ann"


async def test_a_state_that_cannot_be_saved_fails_only_explicit_saves(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    memory = a_memory(EmbeddedStore(tmp_path / "file" / "store"), capture=False)
    team = round_robin(last=7)
    result = [item async for item in memory.observe(team.run_stream(task="Begin!"), save=team)][-1]
    assert len(said(result)) == 7
    assert [record.message for record in caplog.records if "cannot be saved for now" in record.message] != []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    with pytest.raises(PersistentMemoryError):
        await memory.session.save(team)


async def test_teams_that_share_a_runtime_are_saved_separately() -> None:
    runtime = SingleThreadedAgentRuntime()
    runtime.start()
    memories = [PersistentMemory(name, session="s", store=TemporaryStore(), embedding=words()) for name in ("x", "y")]
    teams = [
        RoundRobinGroupChat(agents(memory), runtime=runtime, max_turns=turns) for memory, turns in zip(memories, (2, 3))
    ]

    async def run(memory: PersistentMemory, team: RoundRobinGroupChat) -> None:
        async for _ in memory.observe(team.run_stream(task=f"Begin, {memory.namespace}!"), save=team):
            pass

    await asyncio.gather(*map(run, memories, teams))
    await runtime.stop_when_idle()
    for memory, speaker in zip(memories, ("carl", "ann")):
        again = RoundRobinGroupChat(agents(memory), max_turns=1)
        assert await memory.session.load(again)
        assert said(await again.run())[0].startswith(speaker)


async def test_a_nested_team_continues(memory: PersistentMemory) -> None:
    def a_team(turns: int) -> RoundRobinGroupChat:
        inner = RoundRobinGroupChat(agents(memory, names=["ann", "bob"]), max_turns=2, name="inner")
        thinking = RoundRobinGroupChat(agents(memory, names=["dora"]), max_turns=1, name="thinking")
        society = SocietyOfMindAgent("society", team=thinking, model_client=Script("society"))
        return RoundRobinGroupChat([inner, society, *agents(memory, names=["carl"])], max_turns=turns)

    team = a_team(1)
    async for _ in memory.observe(team.run_stream(task="Shall we begin with the plan?"), save=team):
        pass
    again = a_team(2)
    assert await memory.session.load(again)
    assert [line.split(":")[0] for line in said(await again.run())] == ["dora", "society", "carl"]
    assert len(await captured(memory)) == len(set(await captured(memory)))


# States that do not match the team


def short(**options: Any) -> RoundRobinGroupChat:
    return round_robin(max_turns=2, **options)


def with_proxy() -> RoundRobinGroupChat:
    return RoundRobinGroupChat(
        [UserProxyAgent("ann", input_func=lambda prompt: "fine"), *agents(None, names=["bob", "carl"])],
        max_turns=2,
    )


def another_graph() -> GraphFlow:
    ann, bob, carl, dora = everybody = agents(None, names=(*NAMES, "dora"))
    builder = DiGraphBuilder()
    for agent in everybody:
        builder.add_node(agent)  # type: ignore[arg-type]
    builder.add_edge(dora, ann).add_edge(ann, bob).add_edge(bob, carl)  # type: ignore[arg-type]
    return GraphFlow(everybody, graph=builder.build())


def nested(name: str) -> RoundRobinGroupChat:
    inner = RoundRobinGroupChat(agents(None, names=["dora", name]), max_turns=1, name="inner")
    return RoundRobinGroupChat([inner, *agents(None, names=["carl"])], max_turns=1)


def one_agent() -> ChatAgent | Team:
    return agents(None, names=["ann"])[0]


MISFITS: list[tuple[Callable[[], Any], Callable[[], Any], str]] = [
    (short, lambda: short(names=("ann", "bob")), "'carl' took part and is not here"),
    (short, lambda: short(names=(*NAMES, "dora")), "'dora' did not take part"),
    (short, lambda: short(names=("ann", "rob", "carl")), "'bob' took part.*'rob' did not"),
    (short, lambda: short(names=("bob", "ann", "carl")), "order 'ann', 'bob', 'carl', and here.*'bob', 'ann'"),
    (short, with_proxy, "'ann': it was saved by an agent \\(AssistantAgentState\\), and this is.*BaseState"),
    (short, lambda: swarm(max_turns=1), "a RoundRobinGroupChatManager, and this one has a SwarmGroupChatManager"),
    (short, one_agent, "a team of 'ann', 'bob', 'carl', and this is an agent"),
    (one_agent, short, "an agent \\(AssistantAgentState\\), and this is a team of 'ann', 'bob', 'carl'"),
    (graph, another_graph, "the graph of who follows whom"),
    (lambda: nested("eve"), lambda: nested("fay"), "'inner': 'eve' took part.*'inner': 'fay' did not"),
]


@pytest.mark.parametrize(("saved", "other", "reason"), MISFITS)
async def test_a_state_of_a_different_team_is_refused_and_changes_nothing(
    saved: Callable[[], Any], other: Callable[[], Any], reason: str, memory: PersistentMemory
) -> None:
    source, target = saved(), other()
    await source.run(task="Shall we begin with the plan?")
    await memory.session.save(source)
    await target.run(task="What else is there to do?")
    before = await target.save_state()
    with pytest.raises(PersistentMemoryError, match=f"does not fit this .*{reason}.*same participants"):
        await memory.session.load(target)
    assert await target.save_state() == before
    assert said(await target.run(task="And then?"))
    assert await memory.session.load(saved())


async def test_the_order_of_participants_of_a_selector_does_not_matter(memory: PersistentMemory) -> None:
    team = selector(max_turns=1)
    await team.run(task="Begin!")
    await memory.session.save(team)
    again = SelectorGroupChat(agents(None, names=("bob", "ann")), ReplayChatCompletionClient(["ann"]), max_turns=1)
    assert await memory.session.load(again)
    assert said(await again.run())[0].startswith("bob")


async def saved_text(memory: PersistentMemory, change: Callable[[str], str]) -> None:
    """Save a team, and change the stored state."""
    team = round_robin(max_turns=1)
    await team.run(task="Begin!")
    await memory.session.save(team)
    values = memory._engine.values
    text = await values.get("state", "today")
    assert text is not None
    await values.put("state", "today", change(text))


DAMAGES: list[tuple[Callable[[str], str], str]] = [
    (lambda text: text[:-20], "is damaged"),
    (lambda text: "[]", "not the state of any team"),
    (lambda text: '{"type": "TeamState", "agent_states": {"ann": 3}}', "not the state of any team"),
    (lambda text: text.replace('"version": "1.0.0"', '"version": "9.1.0"'), "version 9.1.0 of a newer AutoGen.*1.0.0"),
    (lambda text: text.replace('"TextMessage"', '"PoemMessage"'), "Unknown message type: PoemMessage"),
]


@pytest.mark.parametrize(("change", "reason"), DAMAGES)
async def test_a_damaged_or_newer_state_is_refused_and_changes_nothing(
    change: Callable[[str], str], reason: str, memory: PersistentMemory
) -> None:
    await saved_text(memory, change)
    team = round_robin(max_turns=2)
    await team.run(task="What else is there to do?")
    before = await team.save_state()
    with pytest.raises(PersistentMemoryError, match=reason):
        await memory.session.load(team)
    assert await team.save_state() == before
    assert said(await team.run())[0].startswith("carl: This is message 4 ")


async def test_a_running_team_can_neither_be_loaded_nor_saved(memory: PersistentMemory) -> None:
    team = round_robin(max_turns=2)
    await team.run(task="Begin!")
    await memory.session.save(team)
    async for item in team.run_stream():
        if not isinstance(item, TaskResult):
            with pytest.raises(PersistentMemoryError, match=r"is running.*observe\(team.run_stream"):
                await memory.session.save(team)
            with pytest.raises(PersistentMemoryError, match="is running; no state can be loaded"):
                await memory.session.load(team)
    await memory.session.save(team)
    assert await memory.session.load(team)


# Large states


async def test_ten_megabytes_are_saved_and_loaded_without_stalling_the_loop(tmp_path: Path) -> None:
    async with a_memory(EmbeddedStore(tmp_path)) as memory:
        team = round_robin(max_turns=1)
        vocabulary = [secrets.token_hex(random.randint(1, 4)) for _ in range(5000)]
        long = [
            TextMessage(content=f"{number} " + " ".join(random.choices(vocabulary, k=2000)), source="user")
            for number in range(250)
        ]
        await team.run(task=long)
        saving, stall = await stalls_of(lambda: memory.session.save(team))
        assert saving < 30  # a second or two on an idle machine
        assert stall < 2
        assert len(json.dumps(await team.save_state())) > 10_000_000
        again = round_robin(max_turns=1)
        loading, stall = await stalls_of(lambda: memory.session.load(again))
        assert loading < 15
        assert stall < 2
        assert await again.save_state() == await team.save_state()


async def stalls_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds of the work, and its longest stall of the loop."""
    loop = asyncio.get_running_loop()
    begin, longest = loop.time(), 0.0
    task = asyncio.ensure_future(work())
    while not task.done():
        last = loop.time()
        await asyncio.sleep(0.002)
        longest = max(longest, loop.time() - last - 0.002)
    await task
    return loop.time() - begin, longest
