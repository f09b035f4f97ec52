"""Two namespaces: no operation on one shows or changes the other."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from toys import words

from autogen_persistent_memory import PersistentMemory, TemporaryStore

NAMES = ("a", "a/b")
WHO = st.sampled_from(NAMES)
WORD = st.sampled_from(["tea", "coffee", "milk", "Oslo", "Rome"])
KEY = st.sampled_from([None, "home", "drink"])


class TwoNamespaces(RuleBasedStateMachine):
    """Calls the whole API of both, and compares them with a dictionary of what each should hold."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        store = TemporaryStore()
        self.memories = {name: PersistentMemory(name, session="s", store=store, embedding=words()) for name in NAMES}
        self.current: dict[str, dict[str, str]] = {name: {} for name in NAMES}
        self.said: dict[str, list[str]] = {name: [] for name in NAMES}
        self.values: dict[str, dict[str, Any]] = {name: {} for name in NAMES}

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        for memory in self.memories.values():
            self.run(memory.close())
        self.loop.close()

    def text(self, name: str, word: str) -> str:
        return f"{name.replace('/', '-')} has {word}"

    @rule(name=WHO, word=WORD, key=KEY)
    def remember(self, name: str, word: str, key: str | None) -> None:
        text = self.text(name, word) + (f" as {key}" if key else "")
        self.run(self.memories[name].remember(text, key=key))
        slot = key or text
        self.current[name][slot] = text

    @rule(name=WHO, word=WORD)
    def append(self, name: str, word: str) -> None:
        self.run(self.memories[name].session.append("user", self.text(name, word)))
        self.said[name].append(self.text(name, word))

    @rule(name=WHO, word=WORD, value=st.none() | st.integers() | st.text(max_size=3))
    def set(self, name: str, word: str, value: Any) -> None:
        self.run(self.memories[name].set(word, value))
        self.values[name][word] = value
        if value is None:
            del self.values[name][word]

    @rule(name=WHO, key=st.sampled_from(["home", "drink"]))
    def forget_key(self, name: str, key: str) -> None:
        assert self.run(self.memories[name].forget(key=key)) == (key in self.current[name])
        self.current[name].pop(key, None)

    @rule(name=WHO, word=WORD)
    def forget_text(self, name: str, word: str) -> None:
        to_delete = [slot for slot, text in self.current[name].items() if word in text]
        assert self.run(self.memories[name].forget(containing=word)) == len(to_delete)
        for slot in to_delete:
            del self.current[name][slot]

    @rule(name=WHO)
    def forget_session(self, name: str) -> None:
        assert self.run(self.memories[name].forget(session="s")) == len(self.said[name])
        self.said[name].clear()

    @rule(name=WHO)
    def clear(self, name: str) -> None:
        self.run(self.memories[name].clear())
        self.current[name].clear()
        self.said[name].clear()
        self.values[name].clear()

    @rule(name=WHO)
    def close(self, name: str) -> None:
        self.run(self.memories[name].close())

    @rule(name=WHO, word=WORD)
    def recall(self, name: str, word: str) -> None:
        everything = [*self.current[name].values(), *self.said[name]]
        found = self.run(self.memories[name].recall(self.text(name, word), limit=1000))
        assert sorted(hit.record.content for hit in found) == sorted(everything)
        shown = self.run(self.memories[name].context(self.text(name, word)))
        other = NAMES[1 - NAMES.index(name)].replace("/", "-")
        assert f"{other} has" not in shown

    @invariant()
    def each_holds_its_own(self) -> None:
        for name, memory in self.memories.items():
            profile = self.run(memory.profile.records(limit=1000))
            assert sorted(record.content for record in profile) == sorted(self.current[name].values())
            assert {record.namespace for record in profile} <= {name}
            assert [record.content for record in self.run(memory.session.messages())] == self.said[name]
            assert self.run(memory.values()) == self.values[name]
            assert self.run(memory.count()) == len(self.current[name]) + len(self.said[name])


TwoNamespaces.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None, database=None)
TestTwoNamespaces = TwoNamespaces.TestCase
