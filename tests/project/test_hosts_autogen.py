"""What we touch of AutoGen beyond its documented API is there in the installed version; else the test says what broke."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import pytest
from autogen_agentchat.agents import AssistantAgent, SocietyOfMindAgent
from autogen_agentchat.base import Handoff, Team
from autogen_agentchat.messages import (
    HandoffMessage,
    MultiModalMessage,
    TextMessage,
    ToolCallSummaryMessage,
)
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat, SelectorGroupChat, Swarm
from autogen_agentchat.teams._group_chat import _events
from autogen_core import FunctionCall, Image
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.model_context import (
    BufferedChatCompletionContext,
    ChatCompletionContext,
    HeadAndTailChatCompletionContext,
    TokenLimitedChatCompletionContext,
    UnboundedChatCompletionContext,
)
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelInfo,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from PIL.Image import new

from autogen_persistent_memory.conversation import autogen_compat as compat

HOST = ", ".join(f"{package} {version(package)}" for package in ("autogen-core", "autogen-agentchat"))


def broken(what: str) -> str:
    return f"{HOST}: {what}. Adapt autogen_persistent_memory/conversation/autogen_compat.py."


def client() -> ReplayChatCompletionClient:
    info = ModelInfo(vision=False, function_calling=True, json_output=False, structured_output=False, family="unknown")
    return ReplayChatCompletionClient(["One.", "Two.", "Three."], model_info=info)


def user(text: str) -> UserMessage:
    return UserMessage(content=text, source="user")


def picture() -> Image:
    return Image.from_pil(new("RGB", (1, 1)))


# Messages


def test_the_union_of_model_messages_has_these_members() -> None:
    known = {SystemMessage, UserMessage, AssistantMessage, FunctionExecutionResultMessage}
    assert set(get_args(get_args(LLMMessage)[0])) == known, broken(
        "LLMMessage has other members; adapt autogen_messages.transcript()"
    )


async def test_a_context_that_skips_messages_says_so_in_these_words() -> None:
    messages: list[LLMMessage] = [user(str(number)) for number in range(5)]
    shown = await HeadAndTailChatCompletionContext(1, 1, initial_messages=messages).get_messages()
    placeholder = shown[1]
    assert isinstance(placeholder, UserMessage)
    assert isinstance(placeholder.content, str)
    assert compat.SKIPPED_TEXT.match(placeholder.content), broken(f"skipped messages are now {placeholder.content!r}")
    assert placeholder.source == compat.SKIPPED_SOURCE, broken(f"skipped messages now come from {placeholder.source!r}")


def test_handoffs_have_these_words() -> None:
    said = Handoff(target="bob").message
    assert compat.HANDOFF_TEXT.match(said), broken(f"a handoff now says {said!r}")
    passed_on = "relevant previous messages"
    assert compat.HANDOFF_TEXT.match(passed_on)
    source = inspect.getsource(SocietyOfMindAgent)
    assert f'"{passed_on}"' in source, broken("SocietyOfMindAgent passes its context on in other words")


@pytest.mark.parametrize(
    "message",
    [
        TextMessage(content="Hi.", source="ann"),
        MultiModalMessage(content=["Hi.", picture()], source="ann"),
        ToolCallSummaryMessage(content="42", source="ann", tool_calls=[], results=[]),
        HandoffMessage(content="Your turn.", source="ann", target="bob"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_chat_messages_are_dumped_with_their_type_and_these_fields(message: TextMessage) -> None:
    dumped = message.dump()
    name = type(message).__name__
    assert dumped["type"] == name, broken(f"a {name} is dumped as {dumped['type']!r}")
    loaded = compat.chat_message(dumped)
    assert loaded is not None
    assert loaded.dump() == dumped, broken(f"a {name} is not loaded as it was dumped")
    fixed = compat.FIXED_FIELDS - {"version", "role", "name", "call_id"}
    expected = (fixed if isinstance(message, HandoffMessage) else fixed - {"target"}) | {"content", "metadata"}
    assert dumped.keys() >= expected, broken(f"a dumped {name} has no {sorted(expected - dumped.keys())}")


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        (FunctionCall(id="1", name="add", arguments="{}"), compat.TOOL_CALL),
        (FunctionExecutionResult(content="", name="add", call_id="1"), compat.TOOL_RESULT | {"content", "name"}),
        (MemoryContent(content="", mime_type=MemoryMimeType.TEXT), compat.MEMORY_CONTENT | {"metadata"}),
        (AssistantMessage(content="", thought="Hm.", source="ann"), compat.SPOKEN_FIELDS - {"metadata"}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_parts_of_states_are_recognised_by_these_fields(part: Any, fields: set[str]) -> None:
    dumped = vars(part) if isinstance(part, FunctionCall) else part.model_dump()
    name = type(part).__name__
    assert dumped.keys() >= fields, broken(f"a dumped {name} has no {sorted(fields - dumped.keys())}")


def test_images_are_dumped_with_nothing_but_their_data() -> None:
    dumped = MultiModalMessage(content=[picture()], source="ann").dump()["content"][0]
    assert dumped.keys() == compat.IMAGE, broken(f"a dumped Image now has {sorted(dumped)}")


# Model contexts

CONTEXTS: list[Callable[[], ChatCompletionContext]] = [
    UnboundedChatCompletionContext,
    lambda: BufferedChatCompletionContext(3),
    lambda: HeadAndTailChatCompletionContext(1, 1),
    lambda: TokenLimitedChatCompletionContext(client(), token_limit=1_000),
]


@pytest.mark.parametrize("make", CONTEXTS)
async def test_contexts_keep_all_messages_in_a_list_and_save_nothing_else(
    make: Callable[[], ChatCompletionContext],
) -> None:
    context, message = make(), user("Hi.")
    name = type(context).__name__
    await context.add_message(message)
    live = compat.live_messages(context)
    assert live == [message], broken(f"{name} keeps its messages elsewhere than in the list `_messages`")
    assert compat.never_waits(context), broken(f"{name} is now defined in {type(context).__module__}")
    assert compat.saves_only_messages(context), broken(f"{name} has save_state() or load_state() of its own")
    saved = await context.save_state()
    assert saved.keys() == {"messages"}, broken(f"{name} now saves {sorted(saved)}")
    other = user("Bye.")
    await compat.replace_messages(context, [other])
    assert compat.live_messages(context) is live, broken(f"the list of {name} cannot be kept when a state is loaded")
    assert await compat.everything_in(context) == await context.get_messages() == [other]


# Teams


def members(*names: str) -> list[Any]:
    return [AssistantAgent(name, client(), handoffs=["bob"] if name == "ann" else None) for name in names]


def round_robin() -> Team:
    return RoundRobinGroupChat(members("ann", "bob"), max_turns=2)


def selector() -> Team:
    return SelectorGroupChat(members("ann", "bob"), client(), selector_func=lambda thread: "ann", max_turns=1)


def swarm() -> Team:
    return Swarm(members("ann", "bob"), max_turns=1)


def graph() -> Team:
    ann, bob = members("ann", "bob")
    return GraphFlow([ann, bob], graph=DiGraphBuilder().add_node(ann).add_node(bob).add_edge(ann, bob).build())


TEAMS = [round_robin, selector, swarm, graph]


@pytest.mark.parametrize("make", TEAMS)
async def test_a_running_team_shows_who_is_asked_and_who_has_answered(make: Callable[[], Team]) -> None:
    team = make()
    name = type(team).__name__
    participants, runtime = compat.participants_of(team), compat.runtime_of(team)
    assert sorted(participants.values()) == ["ann", "bob"], broken(
        f"{name} has no `_participant_names` and `_participant_topic_types`"
    )
    assert runtime is not None, broken(f"{name} has no `_runtime` with publish_message()")
    asked, answered, publish = list[str](), list[str](), runtime.publish_message

    async def see(message: Any, topic_id: Any, *, sender: Any = None, **options: Any) -> None:
        kind = type(message).__name__
        if kind == compat.REQUEST and topic_id.type in participants:
            asked.append(participants[topic_id.type])
        if kind in compat.RESPONSES and sender.type in participants:
            answered.append(participants[sender.type])
        await publish(message, topic_id, sender=sender, **options)

    runtime.publish_message = see
    assert not compat.is_running(team)
    was_running = [compat.is_running(team) async for _ in team.run_stream(task="Hi.")]
    assert was_running[0], broken(f"{name} has no `_is_running` that is true while it runs")
    assert asked[:1] == ["ann"], broken(f"{name} does not publish a {compat.REQUEST} to the topic of who is asked")
    assert answered == asked, broken(f"{name} does not publish one of {compat.RESPONSES} for each that was asked")


def test_these_messages_of_teams_exist() -> None:
    for name in (compat.REQUEST, *compat.RESPONSES):
        assert hasattr(_events, name), broken(f"there is no {name}")


KEYS = {
    round_robin: {compat._NEXT},
    selector: {compat._PREVIOUS},
    swarm: set[str](),
    graph: {compat._READY, compat._ENQUEUED, compat._REMAINING},
}


@pytest.mark.parametrize("make", TEAMS)
async def test_states_of_teams_have_these_keys(make: Callable[[], Team]) -> None:
    team = make()
    name = type(team).__name__
    await team.run(task="Hi.")
    state = await team.save_state()
    found = compat.members_in(state)
    assert isinstance(found, Mapping), broken(f"the state of {name} has no {compat._AGENTS!r}")
    leader = compat.manager_in(found)
    assert leader is not None, broken(f"nothing in the state of {name} has a {compat._THREAD!r}")
    assert [member for member in found if member != leader] == ["ann", "bob"], broken(
        f"the state of {name} does not name its participants in order"
    )
    assert compat.thread_of(state)[0]["content"] == "Hi."
    manager = found[leader]
    assert manager.keys() >= KEYS[make], broken(f"the manager of {name} has no {sorted(KEYS[make] - manager.keys())}")
    for member in ("ann", "bob"):
        assert compat._BUFFER in found[member], broken(f"participants of {name} have no {compat._BUFFER!r}")
        assert "agent_state" in compat.inner_states(found[member]), broken("participants have no 'agent_state'")
    assert compat.version_of(state) >= (1,), broken(f"the state of {name} has no version")
    await make().load_state(compat.before_turn(state, ["ann"]))


async def test_what_a_participant_is_still_to_hear_is_in_its_buffer() -> None:
    team = RoundRobinGroupChat(members("ann", "bob"), max_turns=1)
    await team.run(task="Hi.")
    (waiting,) = compat.waiting_in(await team.save_state())
    assert [message["content"] for message in waiting] == ["Hi.", "One."], broken("buffers hold other messages")


async def test_the_order_and_the_graph_of_a_team_are_in_its_state() -> None:
    turns = compat.members_in(await round_robin().save_state())
    assert compat.takes_turns(turns[compat.manager_in(turns)])
    flow = compat.members_in(await graph().save_state())
    edges = compat.edges_of(flow[compat.manager_in(flow)])
    assert edges == {"bob": ["bob"]}, broken(f"the edges of a GraphFlow are now saved as {edges!r}")


async def test_a_team_within_an_agent_is_in_its_state() -> None:
    agent = SocietyOfMindAgent("inner", round_robin(), client())
    inner = compat.inner_states(await agent.save_state())
    assert "inner_team_state" in inner, broken("a SocietyOfMindAgent has no 'inner_team_state'")
    assert compat.runtime_of(agent) is None
    assert compat.participants_of(agent) == {}


def test_nothing_else_in_the_package_names_them() -> None:
    package = Path(compat.__file__).parents[1]
    private = (compat._AGENTS, compat._THREAD, compat._BUFFER, compat._NEXT, compat.REQUEST, *compat.RESPONSES)
    names = re.compile(rf'"(?:{"|".join(private)})"|_is_running|_participant_|context\._messages|"_messages"')
    found = {path.name for path in package.rglob("*.py") if names.search(path.read_text("utf-8"))}
    assert found == {Path(compat.__file__).name}
