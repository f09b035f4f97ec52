import random
import time
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autogen_persistent_memory.retrieval.keyword_index import KeywordIndex, KeywordMatches, words_of
from autogen_persistent_memory.text.words import terms

TERMS = [
    ("What did Caroline paint?", ["carolin", "paint"]),
    ("She was painting and paints", ["paint", "paint"]),
    ("C++ 3.5 and user_42", ["c", "3", "5", "user_42"]),
    ("Die Straße nach München", ["die", "strass", "nach", "münchen"]),
    ("el niño comió paella", ["el", "niño", "comió", "paella"]),
    ("東京タワー", ["東京", "京タ", "タワ", "ワー"]),
    ("茶", ["茶"]),
    ("GPT4と東京", ["gpt4", "と東", "東京"]),
    ("what is it?", []),
    ("", []),
]


@pytest.mark.parametrize(("text", "expected"), TERMS)
def test_the_terms_of_a_text(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def put(index: KeywordIndex, id: str, text: str, *, date: str = "", speaker: str | None = None, **fields: Any) -> None:
    index.insert(id, words_of(text, date=date, speaker=speaker), speaker=speaker, **fields)


def an_index(*texts: str, session: str | None = None) -> KeywordIndex:
    index = KeywordIndex()
    for number, text in enumerate(texts):
        put(index, str(number), text, table="profile", session=session, order=number)
    return index


def signals(
    index: KeywordIndex, ids: Iterable[str], query: str | KeywordMatches = "", nearness: Sequence[float] | None = None
) -> dict[str, list[float]]:
    """Return, for each signal of the index, what it says of each memory."""
    matches = index.search(query) if isinstance(query, str) else query
    slots = np.array([index.slots[id] for id in ids], dtype=np.intp)
    near = np.zeros(len(slots)) if nearness is None else np.array(nearness)
    return {name: values.tolist() for name, values in index.signals(slots, near, matches).items()}


def ids_in(index: KeywordIndex, slots: Iterable[int]) -> list[str | None]:
    id_in = {slot: id for id, slot in index.slots.items()}
    return [id_in.get(slot) for slot in slots]


def best(index: KeywordIndex, query: str, count: int = 10) -> list[str | None]:
    matches = index.search(query)
    found = np.array(matches.best(count, ["profile"], 0.0)["profile"])
    keywords, _ = matches.of(found)
    return ids_in(index, found[np.argsort(-keywords)])


def test_the_memory_that_holds_more_of_the_words_is_better() -> None:
    index = an_index("green tea from Japan", "green apples", "black coffee")
    assert best(index, "Who likes green tea?") == ["0", "1"]
    found = signals(index, ["0", "2"], "green tea")
    (holds_both, holds_none), of_sessions = found["keywords"], found["session"]
    assert holds_both == pytest.approx(0.9, abs=0.15)
    assert holds_none == 0
    assert of_sessions == [0, 0]


def test_half_of_the_words_is_worth_much_less_than_half() -> None:
    index = an_index("green tea", "green apples", "red apples", "blue sky")
    all_words, half = signals(index, ["0", "1"], "green tea")["keywords"]
    assert half < 0.3 * all_words


def test_an_answer_inherits_the_words_of_its_question() -> None:
    index = an_index("Where did you go hiking?", "To the Dolomites!", "Nice", "Anything else", session="s")
    put(index, "elsewhere", "Bread", table="session", session="another")
    found = signals(index, ["0", "1", "2", "3"], "hiking")
    (question, answer, after, later), of_sessions = found["keywords"], found["session"]
    assert question > answer > after > later == 0
    assert of_sessions[3] > 0  # its session holds the word


def test_neighbours_follow_the_order_also_when_told_late_or_removed() -> None:
    index = KeywordIndex()
    for id, order in (("a", 1), ("c", 3), ("b", 2)):
        put(index, id, id, table="profile", session="s", order=order)
    put(index, "elsewhere", "d", table="profile")
    assert signals(index, ["a", "b", "c", "elsewhere"], nearness=[0.5, 0.25, 0.125, 1.0])["neighbours"] == [
        0.25,
        0.625,
        0.25,
        0,
    ]
    index.remove("b")
    assert signals(index, ["a", "c", "elsewhere"], nearness=[0.5, 0.125, 1.0])["neighbours"] == [0.125, 0.5, 0]


def test_a_question_is_put_in_the_words_of_the_speakers_it_names() -> None:
    index = KeywordIndex()
    for number in range(40):
        text = f"Berlin number {number}" if number < 20 else f"number {number}"
        put(index, str(number), text, table="profile", speaker="Ann" if number % 2 else "Bob")
    put(index, "rare", "Oslo is far", table="profile")
    assert index.as_said("What did Ann say about Berlin and Oslo?") == "What did I say about and Oslo?"
    assert index.as_said("What are Ann's plans?") == "What are my plans?"
    assert index.as_said("Wo wohnt Ann?") == "Wo wohnt ?"
    assert index.as_said("Ann?") == "Ann?"
    assert index.speakers_named("Did Ann tell Carl?") == {"Ann"}
    assert index.speakers_named("Did Annabel?") == set()


def test_particulars_are_times_and_names_that_are_not_the_speakers() -> None:
    index = KeywordIndex()
    said = {
        "plain": "I went to the lake",
        "when": "I went yesterday, in 2023",
        "name": "I went to Oslo",
        "both": "I went to Oslo in June",
        "speaker": "I went with Bob",
    }
    for id, text in said.items():
        put(index, id, text, table="session", is_message=True, date="3 May 2024", speaker="Ann")
    put(index, "fact", "Ann went to Oslo in June", table="profile")
    assert signals(index, [*said, "fact"])["particulars"] == [0, 1, 1, 2, 1, 0]
    put(index, "his", "me too", table="session", is_message=True, speaker="Bob")
    assert signals(index, ["speaker"])["particulars"] == [0]


def test_the_signals_of_speakers_and_questions() -> None:
    index = KeywordIndex()
    put(index, "hers", "I went to the lake", table="session", speaker="Ann")
    put(index, "his", "Did you? ", table="session", speaker="Bob")
    put(index, "nobody's", "The lake is cold", table="profile")
    slots, nothing = np.array([0, 1, 2]), index.search("")
    found = index.signals(slots, np.zeros(3), nothing, {"Ann", "Carl"})
    assert found["speaker"].tolist() == [1, 0, 0]
    assert found["question"].tolist() == [0, 1, 0]
    assert index.signals(slots, np.zeros(3), nothing)["speaker"].tolist() == [0, 0, 0]


def test_only_the_given_tables_are_searched() -> None:
    index = an_index("green tea")
    put(index, "said", "green tea", table="session")
    found = index.search("green tea").best(10, ["session", "nowhere"], 0.0)
    assert ids_in(index, found["session"]) == ["said"]
    assert found["nowhere"] == []
    assert KeywordIndex().search("tea").best(10, ["profile"], 0.0) == {"profile": []}


def test_the_matches_of_a_search_stay_valid_while_the_index_changes() -> None:
    index = an_index("green tea", "green apples")
    matches = index.search("green tea")
    put(index, "new", "green tea", table="profile")
    put(index, "1", "green pears", table="profile")
    index.remove("0")
    found = signals(index, ["new"], matches)
    assert (found["keywords"], found["session"]) == ([0], [0])
    assert ids_in(index, matches.best(10, ["profile"], 0.0)["profile"]) == [None, "1"]


WORDS = st.sampled_from(["tea", "coffee", "milk", "green", "black", "cup", "Oslo"])
STEPS = st.lists(st.tuples(st.integers(0, 9), st.lists(WORDS, max_size=4), st.booleans()), max_size=40)


@given(STEPS, st.lists(WORDS, min_size=1, max_size=3))
def test_an_index_that_grew_and_shrank_is_like_one_built_at_once(
    steps: list[tuple[int, list[str], bool]], query: list[str]
) -> None:
    grown, left = KeywordIndex(), dict[str, str]()
    for number, words, keep in steps:
        id = str(number)
        if keep:
            left.pop(id, None)
            left[id] = " ".join(words)
            put(grown, id, left[id], table="profile", session="s", order=number)
        else:
            left.pop(id, None)
            grown.remove(id)
    built = KeywordIndex()
    for id, text in left.items():
        put(built, id, text, table="profile", session="s", order=int(id))
    asked = " ".join(query)
    assert len(grown) == len(built) == len(left)
    ids = list(left)
    worth = [1 + int(id) / 8 for id in ids]
    here, there = signals(grown, ids, asked, worth), signals(built, ids, asked, worth)
    assert here.keys() == there.keys()
    for name in here:
        assert here[name] == pytest.approx(there[name], abs=1e-5)


def test_a_search_among_many_takes_milliseconds() -> None:
    chance = random.Random(0)
    vocabulary = [f"word{number}" for number in range(2000)]
    index = KeywordIndex()
    for number in range(20_000):
        put(index, str(number), " ".join(chance.choices(vocabulary, k=12)), table="profile")
    started = time.thread_time()
    for _ in range(10):
        index.search("word1 word2 word3 word4").best(50, ["profile"], 0.3)
    assert (time.thread_time() - started) / 10 < 0.05


def test_a_memory_without_neighbours_or_session_adds_nothing_to_the_last_one() -> None:
    index = KeywordIndex()
    put(index, "alone", "the cello", table="profile")
    put(index, "first", "the cello again", table="profile", session="s", order=1)
    put(index, "second", "bread", table="profile", session="s", order=2)
    put(index, "elsewhere", "butter", table="profile", session="another", order=1)
    put(index, "last", "rain", table="profile")
    found = signals(index, ["alone", "first", "second", "last"], "cello")
    alone, first, second, last = zip(found["keywords"], found["session"], strict=True)
    assert last == (0, 0)
    assert alone[0] > 0
    assert alone[1] == 0
    assert first[1] == second[1] > 0
    assert first[0] > second[0] > 0


def test_data_of_very_many_different_words_is_found_by_those_at_its_beginning() -> None:
    found = words_of(" ".join(f"number{letters}s" for letters in map("".join, product("abcdefghij", repeat=5)))).counts
    assert len(found) == 50_000
    assert {"numberaaaaa", "numberbjjjj"} <= set(found)  # the first twenty thousand are stemmed
    assert {"numbercaaaas", "numberejjjjs"} <= set(found)


def an_exchange() -> KeywordIndex:
    index = KeywordIndex()
    put(index, "asked", "Which port should my Flask app use?", table="session", session="s", order=1)
    put(
        index, "answered", "Use port 5000 for your Flask app.", table="session", session="s", order=2, is_assistant=True
    )
    put(index, "thanked", "It runs now.", table="session", session="s", order=3)
    put(index, "elsewhere", "Bread and butter", table="session", session="another", order=1)
    return index


def test_an_assistants_words_count_only_if_the_question_asks_for_them() -> None:
    index = an_exchange()
    ids, nearness = ["asked", "answered", "thanked"], [0.1, 0.2, 0.0]
    gated = signals(index, ids, "Flask port", nearness)
    assert gated["keywords"][0] > gated["keywords"][1] == 0
    assert gated["neighbours"] == pytest.approx([0.2, 0, 0])  # nothing flows on from what the assistant said
    assert gated["assistant"] == [0, 0, 0]
    recalled = signals(index, ids, "Which Flask port did you recommend?", nearness)
    assert recalled["keywords"][1] > 0
    assert recalled["neighbours"] == pytest.approx([0.2, 0.1, 0.2])
    assert recalled["assistant"] == [0, 1, 0]


def test_a_standing_instruction_is_the_users() -> None:
    index = KeywordIndex()
    put(index, "user", "Always answer in metric units.", table="session", is_user=True)
    put(index, "agent", "I will always answer in metric units.", table="session", is_assistant=True)
    put(index, "task", "Write a poem about units.", table="session", is_user=True)
    assert signals(index, ["user", "agent", "task"], "How far is it?")["standing"] == [1, 0, 0]


def test_a_question_is_marked_down_only_where_a_speaker_is_named() -> None:
    index = KeywordIndex()
    put(index, "asks", "Could you check my Flask routes?", table="session", speaker="Melanie")
    assert signals(index, ["asks"], "Which routes does Flask have?")["question"] == [0]
    named = index.signals(np.array([0]), np.array([0.5]), index.search("Which routes has Melanie?"), ["Melanie"])
    assert named["question"].tolist() == [1]


def test_a_question_that_names_no_speaker_keeps_its_words() -> None:
    index = an_index(*[f"Flask route number {number}" for number in range(60)])
    assert index.as_said("How do I secure Flask?") == "How do I secure Flask?"
