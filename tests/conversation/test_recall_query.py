"""The query of a turn, read from AutoGen's own messages."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_ext.models.replay import ReplayChatCompletionClient
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory import PersistentMemory, RecallPolicy, TemporaryStore
from autogen_persistent_memory.conversation.autogen_messages import block_id_of, opening_of
from autogen_persistent_memory.conversation.recall_query import question as query_of
from autogen_persistent_memory.conversation.recall_query import refers_back


def user(text: str, source: str = "user") -> UserMessage:
    return UserMessage(content=text, source=source)


def agent(text: str) -> AssistantMessage:
    return AssistantMessage(content=text, source="assistant")


def tool(result: str) -> list[LLMMessage]:
    call = AssistantMessage(content=[FunctionCall(id="1", name="search", arguments="{}")], source="assistant")
    answer = FunctionExecutionResult(content=result, name="search", call_id="1", is_error=False)
    return [call, FunctionExecutionResultMessage(content=[answer])]


def question(messages: Sequence[LLMMessage], policy: RecallPolicy) -> str | None:
    query = query_of(messages, policy)
    return query.text if query else None


def asked(*messages: LLMMessage, policy: RecallPolicy = RecallPolicy()) -> list[str]:
    """The lines of the query, each once."""
    return list(dict.fromkeys((question(messages, policy) or "").splitlines()))


REFERRING = [
    "And what about the other one?",
    "and the deadline?",
    "What about Ben?",
    "How long was it?",
    "Which of the two is closer to the office?",
    "The second option then. What was the price with fitting?",
    "Would he be okay with salmon for dinner?",
    "Same for my brother, please, if that is possible",
    "Did we ever talk about that?",
    "Why?",
    "Of course. Size?",
    "Sounds good. Since when, actually?",
    "und der andere?",
    "¿y el otro?",
    "もう一つは？",
    "а другой?",
]
STANDING_ALONE = [
    "When does my flight to Oslo leave on Thursday?",
    "Got it. How many dental cleanings does my insurance pay for?",
    "Which restaurants did I want to try this autumn in Berlin?",
    "I think that my sister would like a book about gardening",
    "There are two approvals needed for a deployment to production, right?",
    "The printer on the second floor is broken. Who is responsible for toner?",
    "She called about the hearing aid that Dad wants to control with his phone, what did he say was important to him?",
    "Something else entirely",
    "By the way, what was her name?",
    "Wie heißt die Tochter meiner Schwester Laura?",
    "私の娘の誕生日はいつですか",
]


@pytest.mark.parametrize("text", REFERRING)
def test_a_message_that_refers_back_or_is_very_short_needs_those_before_it(text: str) -> None:
    assert refers_back(text)


@pytest.mark.parametrize("text", STANDING_ALONE)
def test_a_message_that_says_enough_or_changes_the_topic_stands_alone(text: str) -> None:
    assert not refers_back(text)


WORKTOPS = [user("Which worktops had we shortlisted?"), agent("The granite one and the oak one.")]
CASES: dict[str, tuple[Sequence[LLMMessage], list[str]]] = {
    "a message that stands alone is the question": (
        [*WORKTOPS, user("When does my flight to Oslo leave on Thursday?")],
        ["When does my flight to Oslo leave on Thursday?"],
    ),
    "one that refers back brings the turn before, and leads": (
        [user("My flight leaves at six."), agent("Noted."), *WORKTOPS, user("And what about the other one?")],
        [
            "And what about the other one?",
            "Which worktops had we shortlisted?",
            "The granite one and the oak one.",
        ],
    ),
    "as far back as the turns refer back themselves": (
        [*WORKTOPS, user("And the oven?"), agent("At chest height."), user("Why?")],
        [
            "Why?",
            "And the oven?",
            "At chest height.",
            "Which worktops had we shortlisted?",
            "The granite one and the oak one.",
        ],
    ),
    "nothing was said before": ([user("And the other one?")], ["And the other one?"]),
    "tool calls and their results are not what was said": (
        [
            user("Where is the oak worktop from?"),
            *tool("a log of the web shop"),
            agent("Nordhaus."),
            user("The price?"),
        ],
        ["The price?", "Where is the oak worktop from?", "Nordhaus."],
    ),
    "nor is tool output that the answer quotes": (
        [user("Search for oak worktops"), agent("Found:\n```\nGET /shop 200\n```"), user("The price?")],
        ["The price?", "Search for oak worktops", "Found:"],
    ),
    "nor instructions, nor blocks of memories": (
        [
            SystemMessage(content="You are a kitchen planner."),
            *WORKTOPS,
            user(f"{opening_of('abc')}\n- Likes green tea\n</memory>", source="memory"),
            user("And the price?"),
        ],
        ["And the price?", "Which worktops had we shortlisted?", "The granite one and the oak one."],
    ),
    "teammates who go on talking do not lead": (
        [user("When do we plan to release version four?"), user("who left the coffee machine on?", "Nils")],
        ["When do we plan to release version four?"],
    ),
    "a teammate's answer counts where the agent gave none": (
        [WORKTOPS[0], user("Granite and oak.", "researcher"), user("I agree.", "critic"), user("The second one?")],
        ["The second one?", "Which worktops had we shortlisted?", "Granite and oak."],
    ),
    "with no user in sight a teammate's question leads, not what is said after it": (
        [user("Which database did the user choose last year?", "planner"), user("I go and write the intro.", "writer")],
        ["Which database did the user choose last year?"],
    ),
    "or else what a teammate said last": (
        [user("Hello everybody", "writer"), user("Describe the database of the user", "planner")],
        ["Describe the database of the user"],
    ),
    "a question that the agent has answered is not asked again": (
        [
            user("Which database?", "planner"),
            agent("Postgres."),
            user("Now describe the tables of the user", "planner"),
        ],
        ["Now describe the tables of the user"],
    ),
    "a bare handoff asks nothing": (
        [
            user("Which database did the user choose?", "planner"),
            user("Transferred to writer, adopting the role of writer immediately.", "planner"),
        ],
        ["Which database did the user choose?"],
    ),
    "those who are addressed are not asked about": (
        [agent("Hello."), user("@assistant is the changelog for the next version ready?")],
        ["is the changelog for the next version ready?"],
    ),
    "an empty message is passed over": (
        [user("When does my flight to Oslo leave on Thursday?"), user(" \n ")],
        ["When does my flight to Oslo leave on Thursday?"],
    ),
    "nobody asked": ([agent("Hello.")], []),
}


@pytest.mark.parametrize(("messages", "expected"), CASES.values(), ids=CASES.keys())
def test_the_query_of_a_conversation(messages: Sequence[LLMMessage], expected: list[str]) -> None:
    assert asked(*messages) == expected


def test_the_latest_message_weighs_as_much_as_what_it_refers_to() -> None:
    lines = (question([*WORKTOPS, user("The price?")], RecallPolicy()) or "").splitlines()
    assert lines.count("The price?") > 3
    assert lines[-2:] == ["Which worktops had we shortlisted?", "The granite one and the oak one."]


def test_a_fixed_query_and_another_name_of_the_user_are_respected() -> None:
    assert asked(*WORKTOPS, policy=RecallPolicy(query="the user's kitchen")) == ["the user's kitchen"]
    boss = RecallPolicy(user_sources=frozenset({"boss"}))
    heard = [user("Where is the oak worktop from, and who brings it?", "boss"), user("tea?")]
    assert asked(*heard, policy=boss) == ["Where is the oak worktop from, and who brings it?"]


DOCUMENT = "\n".join(f"Section {number}: the parties agree on clause {number}." for number in range(1200))
ASKING = "Which clauses does my lawyer Ines always want changed?"


@pytest.mark.parametrize(
    "message",
    [
        f"{ASKING}\n\n{DOCUMENT}",
        f"{DOCUMENT}\n\n{ASKING}",
        f"```\n{DOCUMENT}\n```\n{ASKING}",
        f"{ASKING}\n```\n{DOCUMENT}",
    ],
    ids=["question first", "question last", "after code", "before code that never ends"],
)
def test_a_pasted_document_does_not_bury_the_question(message: str) -> None:
    assert asked(*WORKTOPS, user(message)) == [ASKING]


@pytest.mark.parametrize(
    "message",
    [
        f"{{}}\n```\n{'x = 1' * 20_000}",
        f"```\n{'x = 1' * 20_000}\n```\n{{}}",
        f"```\n{'x = 1?' * 9_000}\n```\n{{}}\n```\n{'x = 1?' * 9_000}\n```",
        f"```\na\n```\n{'```b```' * 9_000}\n```\n{'x = 1?' * 9_000}\n```\n{{}}",
    ],
    ids=["before", "after", "between", "among"],
)
def test_a_question_beside_very_long_code_is_asked(message: str) -> None:
    assert asked(user(message.replace("{}", ASKING))) == [ASKING]


def test_a_pasted_document_without_a_question_is_known_by_its_ends() -> None:
    query = asked(*WORKTOPS, user(f"Summarize this contract for Ines\n{DOCUMENT}"))
    assert query[0] == "Summarize this contract for Ines"
    assert len(query) == 2
    (start, end) = asked(user(f"Is it okay?\n{DOCUMENT}"))
    assert start == "Is it okay?"
    assert "clause 1199" in end


def test_a_long_answer_counts_only_by_its_beginning() -> None:
    query = asked(WORKTOPS[0], agent(f"Granite and oak. {DOCUMENT}"), user("The second one?"))
    assert "\n".join(query).startswith("The second one?\nWhich worktops had we shortlisted?\nGranite and oak.")
    assert len("\n".join(query)) < 400


@given(st.lists(st.tuples(st.sampled_from(["user", "mate", "agent"]), st.text(max_size=3000)), max_size=6))
def test_any_conversation_gives_a_bounded_question_or_none(turns: list[tuple[str, str]]) -> None:
    messages = [agent(text) if source == "agent" else user(text, source) for source, text in turns]
    query = question(messages, RecallPolicy())
    heard = [text for source, text in turns if source != "agent" and text.strip()]
    assert (query is None) == (not heard)
    assert query is None or 0 < len(query) < 6000


def test_a_long_conversation_is_read_quickly() -> None:
    messages = [*WORKTOPS * 100, user(f"{DOCUMENT}\nAnd the other one?"), agent(DOCUMENT), user("And that one?")]
    times = []
    for _ in range(20):
        started = time.thread_time()
        question(messages, RecallPolicy())
        times.append(time.thread_time() - started)
    assert min(times) < 0.01  # a tenth of that on an idle machine


async def shown(client: ReplayChatCompletionClient) -> str:
    """The block that the model saw last."""
    (block,) = [message for message in client.create_calls[-1]["messages"] if block_id_of(message)]
    return str(block.content)


async def test_an_agent_recalls_what_the_turn_before_was_about() -> None:
    memory = PersistentMemory("user-42", store=TemporaryStore(), policy=RecallPolicy(limit=2))
    await memory.remember_many(
        [
            "The staging server is a Hetzner machine in Falkenstein",
            "The production server is hosted on AWS in Dublin",
            "The other kitchen fronts will be matt white",
            "One of the user's brothers lives in Bristol",
            "The office plants are watered by Farid",
        ]
    )
    client = ReplayChatCompletionClient(["There are two servers; production is on AWS.", "Staging is at Hetzner."])
    assistant = AssistantAgent("assistant", model_client=client, memory=[memory])
    await assistant.run(task="Where is our production server hosted?")
    await assistant.run(task="And what about the other one?")
    assert "Hetzner" in await shown(client)
    await memory.close()


async def test_everyone_in_a_team_recalls_what_the_user_asked_not_what_a_teammate_says() -> None:
    memory = PersistentMemory("user-42", store=TemporaryStore(), policy=RecallPolicy(limit=1))
    await memory.remember_many(
        ["The release of version 4 is planned for 12 March", "The coffee machine is descaled on Fridays"]
    )
    clients = [ReplayChatCompletionClient(["Who left the coffee machine without water? Descale it!"] * 2) for _ in "ab"]
    members = [
        AssistantAgent(name, model_client=client, memory=[memory])
        for name, client in zip(("nils", "tamara"), clients, strict=True)
    ]
    team = RoundRobinGroupChat(members, max_turns=4)
    await team.run(task="@nils when do we plan to release version 4?")
    for client in clients:
        assert "12 March" in await shown(client)
        assert "coffee" not in await shown(client)
    await memory.close()
