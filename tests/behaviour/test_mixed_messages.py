"""A fact extracted from a message must not hide the rest of the message."""

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from pathlib import Path

import pytest
from autogen_core import CancellationToken
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, TemporaryStore, memory_tools

MIXED = [
    ("Hi, I'm Ann. My order #4471 hasn't arrived.", "What is my order number?", "4471"),
    ("I'm vegetarian and the restaurant is booked for 19:30 at Luigi's.", "When is the table booked?", "19:30"),
    ("My name is Tom, the wifi password hint is 'first pet plus street'.", "What is the wifi hint?", "first pet"),
    ("I prefer dark mode. The staging server is at 10.0.4.17.", "Where is the staging server?", "10.0.4.17"),
    ("We use PostgreSQL 15. The nightly backup lands in /srv/dumps/nightly.", "Where do the backups go?", "/srv/dumps"),
    ("I live in Porto. The boiler man comes on the 14th between 8 and 10.", "When does the boiler man come?", "14th"),
    ("I'm allergic to peanuts; Mia's birthday party is on Saturday at the pool.", "Where is Mia's party?", "pool"),
    ("My wife is called Elena. Her flight TP1351 lands at 22:10.", "Which flight does she take?", "TP1351"),
    ("I work at Globex. The gate code for the parking garage is 7719.", "What is the garage code?", "7719"),
    ("I like short answers. The invoice from Bergmann over 1,240 euros is unpaid.", "Who is unpaid?", "Bergmann"),
    ("Call me Sam. The dentist moved me to Tuesday, 3 pm.", "When is the dentist appointment?", "Tuesday"),
    ("I'm a nurse. Could you draft a note to Dr. Okafor about room 212?", "Which room was the note about?", "212"),
    ("My favourite colour is green, and the couch we ordered is the Söderhamn.", "Which couch is it?", "Söderhamn"),
    ("I have two kids. The school trip to Bruges costs 85 euros each.", "What does the school trip cost?", "85"),
    ("I speak German. The landlord, Mr. Petersen, wants the keys back by June 30.", "Who is the landlord?", "Petersen"),
    ("We decided to use FastAPI. The demo for Initech is on May 9.", "When is the Initech demo?", "May 9"),
    ("I don't eat pork. Our hotel in Kyoto is the Sakura Terrace.", "Which hotel are we in?", "Sakura Terrace"),
    ("I'm left-handed. The serial number of my amp is JX-20931.", "What is the serial number of the amp?", "JX-20931"),
    (
        "My dog is called Rex. The vet prescribed Apoquel, half a tablet a day.",
        "What did the vet prescribe?",
        "Apoquel",
    ),
    ("I moved to Leeds. My new landlady's number ends in 0082.", "What does the landlady's number end in?", "0082"),
    ("I drive a Skoda. The garage quoted 430 for the brakes.", "What did the garage quote?", "430"),
    ("I always want metric units. The shed is 3.2 by 2.4 metres.", "How big is the shed?", "3.2"),
    ("My boss is Carla. The quarterly figures are due on the 5th.", "When are the figures due?", "5th"),
    ("I play the cello. Rehearsal moved to the chapel on Elm Street.", "Where is the rehearsal?", "Elm Street"),
    ("I hate cilantro. The caterer is Green Fork, their deposit is 300.", "Who is the caterer?", "Green Fork"),
    ("I'm from Ghana. My visa appointment is at window 6.", "Which window is my visa appointment at?", "window 6"),
    ("I use Neovim. The failing test is test_retry_backoff in ci/slow.", "Which test fails?", "test_retry_backoff"),
    ("I'm training for a marathon, and my physio is called Ruben.", "What is my physio called?", "Ruben"),
    (
        "Our team has six people. Sprint 14 ends this Friday with the audit export.",
        "What ends sprint 14?",
        "audit export",
    ),
    ("I'm diabetic. The pharmacy on Mill Road closes at six.", "When does the pharmacy close?", "six"),
    ("I study biology. My thesis advisor wants chapter two by Monday.", "What does my advisor want?", "chapter two"),
    ("I'm 34 years old. The mortgage is with Nordbank at 3.9 percent.", "What is the mortgage rate?", "3.9"),
    ("My son is called Leo. He broke his left wrist at judo.", "What did Leo break?", "wrist"),
    ("I can't stand Jira. The ticket about the login loop is OPS-418.", "Which ticket is the login loop?", "OPS-418"),
    ("I'm a morning person. The standup link is meet.example/daily-42.", "What is the standup link?", "daily-42"),
    ("I love sailing. The boat is moored at berth C12 until autumn.", "Where is the boat moored?", "C12"),
    (
        "We switched to Terraform. The state bucket is called acme-tf-prod.",
        "What is the state bucket called?",
        "acme-tf-prod",
    ),
    ("I prefer window seats. Please keep in mind Aunt Jo brings the tent.", "Who brings the tent?", "Aunt Jo"),
    ("My email is kim@example.org. The locker at the gym is number 88.", "Which gym locker is it?", "88"),
    ("I quit smoking. The spare key is with the neighbour at number 9.", "Where is the spare key?", "neighbour"),
    ("I work from home on Fridays. The printer toner is the TN-243.", "Which toner does the printer take?", "TN-243"),
    ("I'm learning Dutch. Our tutor Joost charges 28 an hour.", "What does the tutor charge?", "28"),
    (
        "I have a cat. The litter subscription renews on the 21st for 18.99.",
        "When does the subscription renew?",
        "21st",
    ),
    ("My pronouns are they/them. The venue fits 120 guests.", "How many guests does the venue fit?", "120"),
]
"""A message with a fact and something else, a question about the latter, and the answer."""


_STORE = TemporaryStore()


def lines_of(block: str) -> list[str]:
    return [line for line in block.splitlines() if line.startswith("- ")]


async def after(*messages: str, namespace: str) -> PersistentMemory:
    """Return a memory that captured these messages in an earlier conversation."""
    memory = PersistentMemory(f"mixed/{namespace}", session="earlier", store=_STORE)
    for message in messages:
        await memory.extract(message)
    return memory


@pytest.mark.parametrize(("message", "question", "answer"), MIXED)
async def test_the_rest_of_a_message_is_shown_and_nothing_twice(message: str, question: str, answer: str) -> None:
    memory = await after(message, namespace=answer.strip("/"))
    recall_tool = next(tool for tool in memory_tools(memory) if tool.name == "recall")
    block = await memory.context(question)
    found = await memory.recall(question)
    told_by_tool = await recall_tool.run_json({"query": question}, CancellationToken())
    for text in (block, found.text, told_by_tool):
        (line,) = lines_of(text)  # the message, or one fact that covers it, never both
        assert answer in line
    await memory.close()


async def test_a_message_covered_by_its_facts_is_not_shown() -> None:
    memory = await after("Hello! My name is Sarah and I prefer TypeScript. Can you help me?", namespace="covered")
    lines = lines_of(await memory.context("What is my name, and which language do I prefer?"))
    assert sorted(line.split(" (")[0] for line in lines) == [
        "- The user prefers TypeScript.",
        "- The user's name is Sarah.",
    ]
    assert {hit.record.kind for hit in await memory.recall("my name and language")} == {"fact", "preference"}


async def test_a_fact_is_shown_if_its_message_does_not_fit() -> None:
    memory = await after("Hi, I'm Ann. " + "The parcel went by way of Rotterdam. " * 60, namespace="long")
    assert "The user's name is Ann." in await memory.context("What is my name?")


OUTDATED = "I live in Berlin, but my piano stands in Potsdam."


async def test_the_superseded_part_of_a_message_is_hidden_and_the_rest_is_shown() -> None:
    memory = await after(OUTDATED, "I moved to Lisbon.", namespace="superseded")
    question = "Where do I live, and where does my piano stand?"
    for text in (await memory.context(question), (await memory.recall(question)).text):
        assert "Berlin" not in text
        assert "- user: … but my piano stands in Potsdam." in text
        assert "Lisbon" in text
    hit = next(hit for hit in await memory.recall(question) if "piano" in hit.content)
    assert hit.content == "… but my piano stands in Potsdam."
    assert hit.record.content == OUTDATED  # the captured message is unchanged


async def test_the_ended_or_forgotten_part_of_a_message_is_hidden_and_the_rest_is_shown() -> None:
    memory = await after("I work at Globex. The gate code is 7719.", "I quit my job at Globex.", namespace="ended")
    assert "7719" in (block := await memory.context("What is the gate code at work?"))
    assert "I work at Globex" not in block
    memory = await after("My cat is called Tom. The vet is Dr. Okafor.", namespace="forgotten")
    assert await memory.forget(containing="Tom", kinds=["fact"]) == 1
    assert "Okafor" in (block := await memory.context("Who is the vet of my cat, Tom?"))
    assert "Tom" not in block


async def test_recall_in_the_past_shows_whole_messages() -> None:
    memory = await after(OUTDATED, namespace="then")
    then = datetime.now(timezone.utc)
    await memory.extract("I moved to Lisbon.")
    assert "Berlin" in (await memory.recall("Where does the piano stand?", at=then)).text


TELLING = [
    ("Keep in mind the boiler man comes on the 14th.", "When does the boiler man come?"),
    ("Look, the invoice from Bergmann is still unpaid.", "Which invoice is unpaid?"),
    ("Let's settle on weekly releases, every Thursday, because QA needs the time.", "How often do we release?"),
    ("Write the report for the Hamburg branch in British English.", "Which branch is the report for?"),
    ("Has my order 4471 arrived?", "What is my order number?"),
    ("Remind me to call the plumber on Friday", "When do I want to call the plumber?"),
    ("Gate is B7.", "Which gate is it?"),
    ("The code is bluebird", "What is the code?"),
    ("I'm Cyd (they/them).", "Which pronouns does Cyd use?"),
    ("我叫小明，我喜欢喝茶。", "我喜欢喝什么？"),
    ("Room 12", "Which room is it?"),
    ("In the morning.", "Is it in the morning or at night?"),
]
"""A request or a short message that tells a fact, and a question about it."""
EMPTY = [
    "Good morning!",
    "That works for me.",
    "Have a nice day!",
    "ok thanks!",
    "はい",
    "Sounds good!",
    "Hello there",
    "好的，谢谢！",
    "👍",
    "Ja, danke!",
    "What is it?",
    "Tell me more!",
]


@pytest.mark.parametrize(("message", "question"), TELLING)
async def test_requests_and_short_messages_can_tell_facts(message: str, question: str) -> None:
    memory = PersistentMemory(
        f"mixed/telling/{message.encode().hex()[:80]}", session="earlier", store=_STORE, extractor=None
    )
    await memory.extract(message)
    assert message in await memory.context(question)
    assert message in (await memory.recall(question)).text


@pytest.mark.parametrize("message", EMPTY)
async def test_messages_that_tell_nothing_are_stored_and_never_shown(message: str) -> None:
    memory = PersistentMemory(f"mixed/empty/{message.encode().hex()}", session="earlier", store=_STORE, extractor=None)
    await memory.extract(message)
    assert [record.content for record in await memory.session.messages()] == [message]
    assert await memory.context(message.rstrip("?!") + ", what was that?") == ""


VISIBLE = [
    ("I prefer TypeScript", "Which language do I prefer?"),
    ("I work as a nurse. Any tips for the night shift?", "What do I work as?"),
    ("My name is Sarah, and I'm allergic to nuts. What can I cook?", "What am I allergic to?"),
]


@pytest.mark.parametrize(("message", "question"), VISIBLE)
async def test_messages_visible_to_the_model_are_not_in_the_block(message: str, question: str) -> None:
    memory = PersistentMemory(f"mixed/visible/{len(message)}", session="now", store=_STORE)
    context = UnboundedChatCompletionContext([UserMessage(content=message, source="user")])
    assert (await memory.update_context(context)).memories.results == []
    fresh = UnboundedChatCompletionContext([UserMessage(content=question, source="user")])
    assert (await memory.update_context(fresh)).memories.results


async def test_a_fact_noted_in_the_third_person_is_visible_where_the_user_says_it() -> None:
    memory = PersistentMemory("mixed/noted", session="now", store=_STORE, extractor=None)
    await memory.remember("The user prefers TypeScript.")
    context = UnboundedChatCompletionContext(
        [UserMessage(content="Hi! I really prefer TypeScript. Which linter fits?", source="user")]
    )
    assert (await memory.update_context(context)).memories.results == []


async def test_a_session_recap_leaves_out_outdated_statements() -> None:
    memory = await after(OUTDATED, "I moved to Lisbon.", namespace="retold")
    fresh = UnboundedChatCompletionContext([UserMessage(content="Go on, please.", source="user")])
    told = [str(content.content) for content in (await memory.session.update_context(fresh)).memories.results]
    assert told == ["… but my piano stands in Potsdam.", "I moved to Lisbon."]


async def test_a_short_message_that_0_1_stored_without_a_vector_gets_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as as_in_0_1:
        as_in_0_1.setattr("autogen_persistent_memory.text.sentences.tells", lambda text: len(text.strip()) > 20)
        async with PersistentMemory("ann", session="s", store=EmbeddedStore(tmp_path), extractor=None) as memory:
            await memory.extract("The code is bluebird")
    async with PersistentMemory("ann", session="t", store=EmbeddedStore(tmp_path)) as memory:
        for _ in range(300):  # missing vectors are computed in the background
            (hit,) = await memory.recall("password")
            if hit.cosine > 0.2:
                break
            await asyncio.sleep(0.01)
        assert hit.cosine > 0.2
