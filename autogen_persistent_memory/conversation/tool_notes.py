"""What a model notes down and looks up by itself, through its tools. Knows no AutoGen type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ..core.facts import Fact
from ..core.limits import MAX_TAGS
from ..core.records import Draft, MemoryHit, MemoryRecord, Selection, draft
from ..extraction.english import extract_facts
from ..extraction.english.person import first_person
from ..extraction.extractor import ending
from ..extraction.grounding import restates, tidied
from ..retrieval.engine import Engine
from ..runtime.threads import in_thread, in_thread_if_long
from ..storage.protocol import ShelfName
from ..text.passages import could_answer
from ..text.words import terms
from .block import answer

DEFAULT_KIND = "fact"
_COMPARED = 20
_SPARE = 20
_NAME = "user/name"
_WHO = (_NAME, "user/job")
_LONGEST = 10_000
"""Characters. Longer notes are pasted: no rule knows them, and nobody says them again in other words."""
_SENTENCES = re.compile(r"((?<=[.!?])\s+|(?<!\s)\s*\n\s*)")
_CALLED = re.compile(r"\bname is (\w+)")


async def take_note(
    engine: Engine, content: str, *, kind: str, tags: Sequence[str], keep_kind: bool = False
) -> MemoryRecord:
    """Store what a model wants to remember, unless it is known in other words: much of it was captured in the same turn.

    What it tells of the user fills the slot that it would fill if the user had said it, so that it replaces what was
    known there before. A note that tells several such things becomes a memory for each; the first one is returned.
    Where the kind is not to be kept, the rules may know a better one than the default.
    """
    note = draft(content, kind=kind, tags=tags, origin="tool")
    notes = [note] if len(note.content) > _LONGEST else await _as_filed(engine, note, keep_kind)
    return (await engine.remember("profile", notes))[0]


async def _as_filed(engine: Engine, note: Draft, keep_kind: bool) -> list[Draft]:
    """The note as what the rules know and what is known already."""
    hits = await engine.recall(note.content, ["profile"], limit=_COMPARED)
    names = await _names_of_user(engine)

    def filed() -> list[Draft]:
        parts = _parts(note, _as_said(note.content, names), keep_kind)
        return [_as_known(part, sentence, hits) for part, sentence in parts]

    return await in_thread(filed)


async def look_up(engine: Engine, query: str, shelves: Sequence[ShelfName], *, limit: int, selection: Selection) -> str:
    """What a model searches for, a line each: only what is relevant, tells something and fits. It counts as used."""
    hits = await engine.recall(
        query,
        shelves,
        limit=limit + _SPARE,
        selection=selection,
        only_relevant=True,
        unless=lambda record: record.kind == "interaction" and not could_answer(record.content, query),
    )
    answering = partial(answer, hits, limit=limit, policy=engine.policy)
    block = await in_thread_if_long(sum(len(hit.record.content) for hit in hits), answering)
    engine.reinforce(block.hits)
    return block.text


async def _names_of_user(engine: Engine) -> list[str]:
    records = await engine.select(Selection(key=_NAME), ["profile"])
    return [name for record in records for name in _CALLED.findall(record.content)]


def _as_said(content: str, names: Sequence[str]) -> str:
    """A note as the user would say it, sentence by sentence."""
    return "".join(first_person(sentence, names) for sentence in _SENTENCES.split(content))


def _parts(note: Draft, said: str, keep_kind: bool) -> list[tuple[Draft, str]]:
    """What a note is stored as, each with the sentence that it states: `said` is the note as the user would say it.

    A note that tells one fact gets that fact's slot. One that tells several facts, and nothing else, becomes those. Who
    somebody is, told in the first person, takes no slot.
    """
    facts = extract_facts(said)
    tells_no_more = {term for fact in facts for term in terms(fact.content)}.issuperset(terms(said))
    if said == note.content and any(fact.key in _WHO for fact in facts):  # "I am Claude": the model may mean itself
        return [(note, facts[0].content if len(facts) == 1 and tells_no_more else tidied(note.content))]
    if len(facts) == 1:
        return [(_filed(note, facts[0], keep_kind), facts[0].content if tells_no_more else tidied(note.content))]
    if facts and tells_no_more:
        return [(replace(_filed(note, fact, keep_kind), content=fact.content), fact.content) for fact in facts]
    return [(note, tidied(note.content))]


def _filed(note: Draft, fact: Fact, keep_kind: bool) -> Draft:
    """The note with what the rules know of such a fact; its kind is the model's, unless that did not say."""
    kind = fact.kind if note.kind == DEFAULT_KIND and not keep_kind else note.kind
    tags = tuple(dict.fromkeys((*note.tags, *fact.tags)))[:MAX_TAGS]
    return replace(note, kind=kind, tags=tags, key=fact.key, ends=ending(fact))


def _as_known(note: Draft, sentence: str, hits: Sequence[MemoryHit]) -> Draft:
    """The note in the words of a memory that says the same, if there is one, so that it only states it again."""
    short = [hit.record for hit in hits if len(hit.record.content) <= _LONGEST]
    known = next((record for record in short if restates(sentence, record.content)), None)
    return note if known is None else replace(note, content=known.content, key=known.key)
