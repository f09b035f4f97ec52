"""The suite for stores, run on every store of the package and on a toy that was written by its contract alone."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from toy_store import ToyStore

from autogen_persistent_memory import EmbeddedStore, PersistentMemory, ServerStore, TemporaryStore
from autogen_persistent_memory.storage import protocol
from autogen_persistent_memory.storage.protocol import MemoryStore
from autogen_persistent_memory.testing import StoreConformance, word_embedding


class TestEmbeddedStore(StoreConformance):
    def make_store(self) -> MemoryStore:
        return EmbeddedStore(self.folder / "store")


class TestTemporaryStore(StoreConformance):
    def make_store(self) -> MemoryStore:
        return TemporaryStore(self.namespace)


class TestServerStore(StoreConformance):
    @pytest.fixture(autouse=True)
    def _server(self, chroma_server: tuple[str, int]) -> None:
        self.address = chroma_server

    def make_store(self) -> MemoryStore:
        return ServerStore(*self.address)


class TestToyStore(StoreConformance):
    def make_store(self) -> MemoryStore:
        return ToyStore(self.namespace)


def test_a_backend_has_to_write_twenty_members() -> None:
    required = (protocol.MemoryStore, protocol.Connection, protocol.RecordTable, protocol.ValueTable)
    members = [name for part in required for name in vars(part) if not name.startswith("_")]
    assert len(members) == 20


async def test_a_memory_on_a_store_of_somebody_else_says_why_it_cannot_be_dumped() -> None:
    memory = PersistentMemory("ann", store=ToyStore(uuid.uuid4().hex), embedding=word_embedding())
    with pytest.raises(ValueError, match="only the stores of this package"):
        memory.dump_component()


def test_only_the_suite_needs_pytest(tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("raise ImportError('no pytest here')")
    program = (
        "import autogen_persistent_memory.testing as testing\n"
        "testing.ScriptedModel(['Hello!'])\n"
        "try:\n    testing.StoreConformance\nexcept ImportError as error:\n    print(error)"
    )
    environment = {"PYTHONPATH": f"{tmp_path}:{Path(protocol.__file__).parents[2]}"}
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment
    )
    assert (answer.stdout, answer.stderr) == (
        "StoreConformance needs pytest. Install it with: pip install pytest\n",
        "",
    )
