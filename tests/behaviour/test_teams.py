"""Teams that share a memory: each message is captured once with its speaker, and all agents recall for the question."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import (
    AssistantAgent,
    MessageFilterAgent,
    MessageFilterConfig,
    PerSourceFilter,
    SocietyOfMindAgent,
)
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, StopMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage, ModelFamily, ModelInfo, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from toys import is_block, words

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, RecallPolicy, TemporaryStore

TOOLS = ModelInfo(
    vision=False, function_calling=True, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
)
TASK = "Does the engine of the boat work?"
NEXT = "And does the brake of the car work?"


def a_memory(
    store: Any = None, namespace: str = "team/project-a", session: str = "s", **options: Any
) -> PersistentMemory:
    return PersistentMemory(namespace, session=session, store=store or TemporaryStore(), embedding=words(), **options)


def agent(
    name: str, memory: PersistentMemory | list[PersistentMemory], *answers: Any, **options: Any
) -> AssistantAgent:
    client = ReplayChatCompletionClient(
        list(answers) or [f"{name} says thing number {number}" for number in range(40)], model_info=TOOLS
    )
    memories: list[Any] = memory if isinstance(memory, list) else [memory]
    return AssistantAgent(name, model_client=client, memory=memories, **options)


def handoff(to: str, thought: str | None = None) -> CreateResult:
    return CreateResult(
        finish_reason="function_calls",
        content=[FunctionCall(id="1", name=f"transfer_to_{to}", arguments="{}")],
        usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
        cached=False,
        thought=thought,
    )


Memories = Sequence[PersistentMemory]
"""One memory for all agents, or one for each, on the same namespace and session."""


def round_robin(memories: Memories) -> Team:
    return RoundRobinGroupChat(members(memories), max_turns=4)


def selected_by_model(memories: Memories) -> Team:
    selector = ReplayChatCompletionClient(["carol", "ada", "carol", "bob"] * 9)
    return SelectorGroupChat(members(memories), selector, max_turns=4, allow_repeated_speaker=True)


def selected_by_function(memories: Memories) -> Team:
    order = iter(["bob", "bob", "ada", "carol"] * 9)
    return SelectorGroupChat(
        members(memories), ReplayChatCompletionClient([]), max_turns=4, selector_func=lambda _: next(order)
    )


def swarm(memories: Memories) -> Team:
    ada = agent("ada", memories[0], *[handoff("bob"), "ada ends it"] * 9, handoffs=["bob"])
    bob = agent("bob", memories[1], *[handoff("ada", "bob thinks by himself that ada knows")] * 9, handoffs=["ada"])
    carol = agent("carol", memories[2])
    return Swarm([ada, bob, carol], max_turns=3)


def graph(memories: Memories) -> Team:
    """Return a graph: one agent asks two, who answer at the same time, and another combines their answers."""
    start, one, other, end = (
        agent(name, memory)
        for name, memory in zip(("start", "one", "other", "end"), (*memories, memories[0]), strict=True)
    )
    builder = DiGraphBuilder().add_node(start).add_node(one).add_node(other).add_node(end)
    builder.add_edge(start, one).add_edge(start, other).add_edge(one, end).add_edge(other, end)
    return GraphFlow([start, one, other, end], graph=builder.build())


def members(memories: Memories) -> list[ChatAgent | Team]:
    return [agent(name, memory) for name, memory in zip(("ada", "bob", "carol"), memories, strict=True)]


TEAMS = [round_robin, selected_by_model, selected_by_function, swarm, graph]


async def said(stream: AsyncIterable[Any]) -> list[str]:
    """Return the messages of a run, in order."""
    messages = [item async for item in stream if isinstance(item, BaseChatMessage)]
    silent = HandoffMessage, StopMessage
    return [f"{message.source}: {message.to_text()}" for message in messages if not isinstance(message, silent)]


async def captured(*memories: PersistentMemory) -> list[str]:
    for memory in memories:
        await memory.flush()
    return [f"{record.source}: {record.content}" for record in await memories[0].session.messages()]


async def seen(member: Any) -> Sequence[LLMMessage]:
    """Return the last prompt of an agent's model."""
    messages: Sequence[LLMMessage] = member._model_client.create_calls[-1]["messages"]
    return messages


async def blocks(member: Any) -> list[str]:
    return [str(message.content) for message in await seen(member) if is_block(message)]


def three(store: TemporaryStore, *, shared: bool) -> list[PersistentMemory]:
    """Return one memory three times, or three memories of one session."""
    return [a_memory(store)] * 3 if shared else [a_memory(store) for _ in range(3)]


@pytest.mark.parametrize("observed", [False, True], ids=["unobserved", "observed"])
@pytest.mark.parametrize("shared", [True, False], ids=["one memory", "a memory each"])
@pytest.mark.parametrize("make_team", TEAMS)
async def test_every_kind_of_team_is_captured_once_in_order_with_speakers(
    make_team: Callable[[Memories], Team], shared: bool, observed: bool
) -> None:
    memories = three(TemporaryStore(), shared=shared)
    team = make_team(memories)
    expected: list[str] = []

    async def run(task: str) -> None:
        stream = team.run_stream(task=task)
        expected.extend(await said(memories[0].observe(stream) if observed else stream))

    async def check() -> None:
        found = await captured(*memories)
        if make_team is graph:  # agents that run at the same time speak in any order
            assert [line for line in found if not line.startswith(("one", "other"))] == [
                line for line in expected if not line.startswith(("one", "other"))
            ]
            assert Counter(found) == Counter(expected)
        else:
            assert found == expected

    await run(TASK)
    await run(NEXT)
    await run(NEXT)
    await team.load_state(await team.save_state())
    await run(TASK)
    await check()
    await team.reset()
    await run(TASK)
    await run(TASK)
    await check()
    assert len(expected) >= 10
    for memory in memories:
        await memory.close()


async def test_a_team_resumed_in_a_new_process_continues() -> None:
    store, state, expected = TemporaryStore(), None, []
    for task in (TASK, NEXT, TASK):
        memories = three(store, shared=False)
        team = round_robin(memories)
        if state is not None:
            await team.load_state(state)
        expected += await said(team.run_stream(task=task))
        state = await team.save_state()
        for memory in memories:
            await memory.close()
    assert await captured(a_memory(store)) == expected


async def test_a_stream_that_lags_behind_its_team_captures_nothing_twice_and_everything_in_order() -> None:
    memory = a_memory()
    team = round_robin([memory] * 3)

    async def late() -> AsyncIterator[Any]:
        items = [item async for item in team.run_stream(task=TASK)]
        for item in items:
            yield item

    expected = await said(memory.observe(late()))
    assert len(expected) == 5
    assert await captured(memory) == expected
    await memory.close()


async def test_messages_missed_by_a_silent_agent_are_not_captured_again() -> None:
    memory = a_memory()
    ada = agent("ada", memory, *(f"ada says thing number {number}" for number in range(300)))
    order = iter(["bob", *["ada"] * 150, "bob"])
    team = SelectorGroupChat(
        [ada, agent("bob", memory)],
        ReplayChatCompletionClient([]),
        max_turns=152,
        selector_func=lambda _: next(order),
        allow_repeated_speaker=True,
    )
    assert await said(team.run_stream(task=TASK)) == await captured(memory)
    await memory.close()


async def test_concurrent_teams_in_sessions_of_one_namespace_stay_separate() -> None:
    store = TemporaryStore()
    memories = [a_memory(store, session=f"run-{number}") for number in range(len(TEAMS))]
    runs = [make_team([memory] * 3).run_stream(task=TASK) for make_team, memory in zip(TEAMS, memories, strict=True)]
    for expected, memory in zip(await asyncio.gather(*map(said, runs)), memories, strict=True):
        assert Counter(await captured(memory)) == Counter(expected)
    for memory in memories:
        await memory.close()


CHATTER = "Who left the coffee machine in the kitchen without water? Somebody has to descale it!"


async def reminding(**policy: Any) -> PersistentMemory:
    memory = a_memory(policy=RecallPolicy(limit=1, **policy))
    await memory.remember_many(
        ["The release of version four is planned for March", "The coffee machine in the kitchen is descaled on Fridays"]
    )
    return memory


async def test_in_a_graph_every_agent_recalls_for_the_users_question() -> None:
    memory = await reminding()
    start, one, other, end = (agent(name, memory, CHATTER) for name in ("start", "one", "other", "end"))
    builder = DiGraphBuilder().add_node(start).add_node(one).add_node(other).add_node(end)
    builder.add_edge(start, one).add_edge(start, other).add_edge(one, end).add_edge(other, end)
    team = GraphFlow([start, one, other, end], graph=builder.build())
    await team.run(task="When is the release of version four planned?")
    for member in (start, one, other, end):
        (block,) = await blocks(member)
        assert "March" in block
        assert "coffee" not in block
    await memory.close()


async def test_an_agent_without_the_users_message_recalls_for_its_teammates_question() -> None:
    memory = await reminding()
    boss = agent("boss", memory, "When is the release of version four planned?")
    clerk = agent("clerk", memory, "I will look it up for all of you")
    only_the_boss = MessageFilterConfig(per_source=[PerSourceFilter(source="boss", position="last", count=1)])
    filtered = MessageFilterAgent("clerk", wrapped_agent=clerk, filter=only_the_boss)
    builder = DiGraphBuilder().add_node(boss).add_node(filtered)
    team = GraphFlow([boss, filtered], graph=builder.add_edge(boss, filtered).build())
    expected = await said(team.run_stream(task=CHATTER))
    (block,) = await blocks(clerk)
    assert "March" in block
    assert "coffee" not in block
    assert await captured(memory) == expected
    await memory.close()


async def test_an_agent_added_later_recalls_what_the_user_and_teammates_said() -> None:
    memory = a_memory()
    ada = agent("ada", memory, "The harbour crane lifts forty tons at most")
    bob = agent("bob", memory, "The paint of the harbour crane is from Bergen")
    await RoundRobinGroupChat([ada, bob], max_turns=2).run(task="The harbour crane belongs to my uncle Olaf.")
    for question, answer in (
        ("How many tons lifts the harbour crane at most?", "- ada: The harbour crane lifts forty tons at most"),
        ("The paint of the harbour crane is from where?", "- bob: The paint of the harbour crane is from Bergen"),
        ("The harbour crane belongs to which uncle?", "belongs to my uncle Olaf"),
    ):
        carol = agent("carol", memory, "Thank you, that is what I wanted to know")
        await carol.run(task=question)
        (block,) = await blocks(carol)
        assert answer in block
    await memory.close()


async def test_only_the_users_words_become_facts_and_only_once() -> None:
    memory = a_memory()
    members = [agent(name, memory, *["I live in Oslo and I prefer rye bread."] * 3) for name in ("ada", "bob", "carol")]
    team = RoundRobinGroupChat(members, max_turns=6)
    await said(memory.observe(team.run_stream(task="I live in Lisbon and I prefer white bread.")))
    await memory.flush()
    facts = await memory.profile.records()
    assert sorted(fact.content for fact in facts) == ["The user lives in Lisbon.", "The user prefers white bread."]
    assert {fact.source for fact in facts} == {"user"}
    await memory.close()


async def test_a_nested_team_is_captured_once() -> None:
    memory = a_memory()
    inner = RoundRobinGroupChat([agent("ada", memory), agent("bob", memory)], max_turns=2, name="inner")
    team = RoundRobinGroupChat([inner, agent("carol", memory)], max_turns=4)
    expected = await said(memory.observe(team.run_stream(task=TASK)))
    assert [line.split(":")[0] for line in expected] == ["user", "ada", "bob", "carol", "ada", "bob", "carol"]
    assert await captured(memory) == expected
    expected += await said(team.run_stream(task=NEXT))
    assert await captured(memory) == expected
    await memory.close()


async def test_a_society_of_mind_is_captured_once_with_its_speakers() -> None:
    memory = a_memory()
    inner = RoundRobinGroupChat([agent("ada", memory), agent("bob", memory)], max_turns=2)
    model = ReplayChatCompletionClient(["We all think it works", "We all think it does not"])
    society = SocietyOfMindAgent("society", team=inner, model_client=model)
    team = RoundRobinGroupChat([society, agent("carol", memory)], max_turns=4)
    expected = await said(memory.observe(team.run_stream(task=TASK)))
    speakers = ["user", "ada", "bob", "society", "carol"]
    assert [line.split(":")[0] for line in expected] == [*speakers, *speakers[1:]]
    assert await captured(memory) == expected
    await memory.close()


def lines_of(block: str) -> set[str]:
    return {line.rsplit(" (", 1)[0] for line in block.splitlines() if line.startswith("- ")}


async def test_private_and_shared_memory_never_show_the_same_line() -> None:
    store = TemporaryStore()
    mine, team = a_memory(store, "ann"), a_memory(store, "team")
    await mine.remember_many(["Ann keeps a green boat", "The red boat is sold", "The blue boat leaks"])
    await team.remember_many(["The team keeps a green boat", "The red boat is sold", "The blue boat leaks"])
    ada = agent("ada", [mine, team], *(f"Noted, said for the {number}th time" for number in range(20)))
    for task in (
        "Which colour has the boat? The yellow boat needs a new mast by Friday.",
        "Tell me of the green boat",
        "Tell me of the blue boat which leaks",
        "What does the yellow boat need by Friday?",
        "Tell me of the red boat which is sold",
    ):
        await ada.run(task=task)
        await ada.model_context.clear()  # so that only the blocks are visible
        found = [lines_of(block) for block in await blocks(ada)]
        assert 1 <= len(found) <= 2
        assert len(set.union(*found)) == sum(map(len, found))
        if "green" in task:
            assert len(found) == 2
    assert len(await captured(mine)) == len(await captured(team)) == 10
    await mine.close()
    await team.close()


async def test_a_block_that_is_about_to_be_replaced_hides_nothing() -> None:
    store = TemporaryStore()
    mine, team = (a_memory(store, name, policy=RecallPolicy(limit=1), capture=False) for name in ("ann", "team"))
    await mine.remember_many(["The red boat is sold"])
    await team.remember_many(["The red boat is sold", "The blue kite is torn"])
    ada = agent("ada", [team], "Yes", "No", "Perhaps")
    await ada.run(task="Hello, my dear Ada")
    await ada.run(task="Tell me of the red boat which is sold")
    ada._memory = [mine, team]  # AutoGen has no other way to change them
    await ada.run(task="Tell me of the red boat and the blue kite which is torn")
    assert [lines_of(block) for block in await blocks(ada)] == [{"- The red boat is sold"}, {"- The blue kite is torn"}]
    await mine.close()
    await team.close()


@pytest.mark.parametrize("namespaces", [20, 1], ids=["a namespace each", "a session each"])
async def test_twenty_concurrent_teams_on_one_store_lose_mix_and_repeat_nothing(
    namespaces: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="autogen_persistent_memory")
    store = EmbeddedStore(tmp_path / "store")

    def remembering(number: int) -> PersistentMemory:
        # 20 writers wait for each other in Chroma; on a busy machine longer than the default deadline.
        patient = RecallPolicy(deadline=20)
        return a_memory(store, f"team/{number % namespaces}", session=f"run-{number}", policy=patient)

    async def work(number: int) -> list[str]:
        async with remembering(number) as memory:
            members = [
                agent(name, memory, *(f"{name} of team {number} gives answer {turn}" for turn in range(2)))
                for name in ("ada", "bob", "carol")
            ]
            team = RoundRobinGroupChat(members, termination_condition=MaxMessageTermination(7))
            return await said(team.run_stream(task=f"What is the code name of team {number}?"))

    expected = await asyncio.gather(*map(work, range(20)))
    assert [record.message for record in caplog.records if record.name == "autogen_persistent_memory"] == []
    for number, run in enumerate(expected):
        assert len(run) == 7
        async with remembering(number) as memory:
            assert await captured(memory) == run
            whole_namespace = await memory.records(kinds=["interaction"], limit=1000)
            assert len(whole_namespace) == 7 * 20 // namespaces


@pytest.mark.parametrize("observed", [False, True])
async def test_the_profile_can_be_closed_while_a_team_talks(tmp_path: Path, observed: bool) -> None:
    memory = a_memory(EmbeddedStore(tmp_path))
    members = [agent("a", memory, *["ok"] * 4), agent("b", memory, *["ok", "ok", "done", "ok"])]
    team, expected = RoundRobinGroupChat(list(members), max_turns=4), list[str]()
    for task in ("I live in Rome.", "I like tea."):
        stream = team.run_stream(task=task)
        async for item in memory.observe(stream) if observed else stream:
            if isinstance(item, BaseChatMessage):
                expected.append(f"{item.source}: {item.to_text()}")
            await memory.profile.close()
    await memory.flush()
    assert [f"{record.source}: {record.content}" for record in await memory.session.messages()] == expected
    await memory.close()
