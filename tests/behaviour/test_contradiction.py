"""A changed fact replaces the old one, told to an agent in natural language, without keys."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.replay import ReplayChatCompletionClient

from autogen_persistent_memory import MiniLMEmbedding, PersistentMemory, TemporaryStore

DISTRACTORS = (
    "My sister Clara plays the cello.",
    "I have a cat named Tom.",
    "I am allergic to peanuts.",
    "I speak Spanish and Portuguese.",
    "My car is a blue Skoda.",
    "We deploy on Fridays.",
)
SIBLINGS = (
    ("Alice likes jazz.", "Bob likes techno."),
    ("My wife prefers tea.", "My son prefers cocoa."),
    ("My sister lives in Rome.", "My brother lives in Oslo."),
)


@dataclass(frozen=True)
class Change:
    """A statement and its change, a question, and what must and must not be shown for it."""

    told: tuple[str, ...]
    question: str
    now: str
    before: tuple[str, ...] = field(default=())


def chain(templates: tuple[str, ...], values: tuple[str, ...], question: str) -> Change:
    told = tuple(template.format(value) for template, value in zip(templates, values))
    return Change(told, question, values[len(told) - 1], values[: len(told) - 1])


JOBS = ("Acme", "Globex", "Initech", "Umbrella", "Hooli", "Stark Industries")
TOWNS = ("Berlin", "Lisbon", "Osaka", "Toronto", "Nairobi", "Lima")
COLOURS = ("blue", "green", "orange", "purple", "red", "yellow")
DATABASES = ("PostgreSQL", "MySQL", "SQLite", "MongoDB", "Redis", "MariaDB")
FRAMEWORKS = ("React", "Vue", "Angular", "Svelte")
LANGUAGES = ("Python", "TypeScript", "Rust", "Go")
EDITORS = ("Vim", "Emacs", "VS Code", "PyCharm")
STREETS = ("12 Elm Street", "7 Oak Avenue", "99 Main Road", "3 Hill Lane", "41 Lake Drive", "8 Park Row")


def changes() -> list[Change]:
    found: list[Change] = []
    for old, new in itertools.permutations(JOBS[:4], 2):
        found.append(chain(("I work at {}.", "I just started a new job at {}."), (old, new), "Where do I work?"))
        found.append(chain(("I work for {} as an engineer.", "I now work at {}."), (old, new), "Who is my employer?"))
    for old, new in itertools.permutations(TOWNS[:4], 2):
        found.append(chain(("I live in {}.", "We moved to {} last month."), (old, new), "Which city do I live in?"))
    for old, new in itertools.permutations(COLOURS[:4], 2):
        told = ("My favourite colour is {}.", "Actually, my favorite color is {} now.")
        found.append(chain(told, (old, new), "What is my favourite colour?"))
    for old, new in itertools.permutations(DATABASES[:4], 2):
        found.append(
            chain(
                ("We use {} as our database.", "We switched to {}."), (old, new), "Which database does the project use?"
            )
        )
        told = ("We decided to use {} for the database because it is simple.", "We migrated the database to {}.")
        found.append(chain(told, (old, new), "Which database do we use?"))
    for old, new in itertools.permutations(FRAMEWORKS[:3], 2):
        told = ("We use {} for the frontend.", "We replaced it: the frontend now uses {}.")
        found.append(
            chain(
                ("Our frontend is built with {}.", "We switched the frontend to {}."),
                (old, new),
                "Which frontend framework?",
            )
        )
    for old, new in itertools.permutations(LANGUAGES[:3], 2):
        found.append(
            chain(("I prefer {}.", "I prefer {} these days."), (old, new), "Which programming language do I prefer?")
        )
    for old, new in itertools.permutations(EDITORS[:3], 2):
        found.append(chain(("I use {} as my editor.", "I switched to {}."), (old, new), "Which editor do I use?"))
    for first, second, third in zip(STREETS, STREETS[1:], STREETS[2:]):
        told = ("My address is {}.", "My address is {} now.", "My new address is {}.")
        found.append(chain(told, (first, second, third), "What is my address?"))
    for first, second, third in zip(TOWNS, TOWNS[1:], TOWNS[2:]):
        told = ("I live in {}.", "I moved to {}.", "I have moved again, I live in {} now.")
        found.append(chain(told, (first, second, third), "Where is my home?"))
    found += [
        Change(
            ("I'm vegetarian.", "I eat meat again."),
            "What about my diet, meat or vegetarian?",
            "meat",
            ("is vegetarian",),
        ),
        Change(("I am vegan.", "I'm no longer vegan."), "Am I vegan?", "no longer vegan", ("The user is vegan",)),
        Change(
            ("I prefer dark mode.", "I switched to the light theme."), "Which theme do I prefer?", "light", ("dark",)
        ),
        Change(("I prefer light mode.", "I prefer dark mode now."), "Which theme do I prefer?", "dark", ("light",)),
        Change(("I use the dark theme.", "I use the light theme now."), "Which theme do I use?", "light", ("dark",)),
        Change(("I smoke.", "I stopped smoking."), "Do I smoke?", "stopped smoking", ("The user smokes",)),
    ]
    return found


async def shown(memory: PersistentMemory, sentences: tuple[str, ...], question: str) -> str:
    """Return the block before the last answer."""
    client = ReplayChatCompletionClient(["Noted."] * (len(sentences) + 1))
    for sentence in (*sentences, question):
        agent = AssistantAgent("assistant", model_client=client, memory=[memory])  # so that only memory can know it
        await agent.run(task=sentence)
    messages = client.create_calls[-1]["messages"]
    return "\n".join(str(message.content) for message in messages if getattr(message, "source", "") == "memory")


async def test_the_current_fact_is_shown_and_no_superseded_one() -> None:
    cases = changes()
    assert len(cases) >= 100
    chance, store, embedding = random.Random(1), TemporaryStore(), MiniLMEmbedding()
    wrong: list[str] = []
    for number, case in enumerate(cases):
        told = list(case.told)
        for distractor in chance.sample(DISTRACTORS, 2):
            told.insert(chance.randrange(len(told) + 1), distractor)
        async with PersistentMemory(f"user-{number}", store=store, embedding=embedding) as memory:
            block = await shown(memory, tuple(told), case.question)
        facts = [line for line in block.splitlines() if line.startswith("- ")]
        if not any(case.now in fact for fact in facts) or any(old in fact for old in case.before for fact in facts):
            wrong.append(f"{told} -> {case.question}\n{block}")
    assert len(wrong) <= 0.05 * len(cases), f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong)


async def test_facts_about_siblings_survive_a_change() -> None:
    store, embedding = TemporaryStore(), MiniLMEmbedding()
    for number, pair in enumerate(SIBLINGS):
        async with PersistentMemory(f"user-{number}", store=store, embedding=embedding) as memory:
            await shown(memory, pair, "What do they like?")
            await memory.flush()
            everything = await memory.records(include_history=True, limit=100)
        assert not any(record.superseded_by for record in everything)
        told = [record.content for record in everything]
        assert all(sentence in told for sentence in pair)
        about_family = [record for record in everything if "family" in record.tags]
        assert len(about_family) == (0 if "Alice" in pair[0] else 2)
