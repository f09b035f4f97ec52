"""What the package imports at once, and what only on first use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
PACKAGE = "autogen_persistent_memory"

TRANSFER = {
    "maintenance.transfer.transfer",
    "maintenance.transfer.export_format",
    "maintenance.transfer.streams",
    "maintenance.snapshot",
    "maintenance.import_chroma",
}
REPAIR = {
    "maintenance.doctor",
    "storage.repair.startup_repair",
    "storage.repair.inspect",
    "storage.repair.hnsw_files",
}
SALVAGE = {
    "maintenance.salvage.recovery",
    "maintenance.salvage.salvage",
    "maintenance.salvage.damaged_sqlite",
}
MODELS = {
    "extraction.model_extraction",
    "extraction.grounding",
    "extraction.model_json",
    "memories.tools",
}
RULES = {"extraction.english"}
ON_DEMAND = TRANSFER | REPAIR | SALVAGE | MODELS | RULES | {"cli"}

ONE_TURN = """
import asyncio, sys, threading
from autogen_agentchat.agents import AssistantAgent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from autogen_persistent_memory import EmbeddedStore, PersistentMemory
from toys import words

class OnTheLoop:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            print(name, file=sys.stderr)

async def main(folder):
    context = UnboundedChatCompletionContext()
    await context.add_message(UserMessage(content="My name is Sarah, and I live in Lisbon.", source="user"))
    async with PersistentMemory("ann", store=EmbeddedStore(folder), embedding=words()) as memory:
        await memory.update_context(context)
        await memory.recall("Where does Sarah live?")
        try:
            await memory.import_chroma(folder + "/nothing", "memories")
        except ValueError:
            pass

sys.meta_path.insert(0, OnTheLoop())
asyncio.run(main(sys.argv[1]))
print(*sys.modules)
"""


def in_new_process(code: str, *arguments: str) -> list[str]:
    """Run a program, which must print nothing on stderr, and return the words it prints."""
    program = f"import sys; sys.path.append({TESTS!r})\n{code}"
    answer = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.split()


def imported_besides_autogen(module: str) -> set[str]:
    """Return the modules that an import adds to a program with an agent."""
    report = f"import autogen_agentchat.agents; before = set(sys.modules); import {module}; print(*set(sys.modules) - before)"
    return set(in_new_process(report))


def test_the_package_imports_no_library_that_agents_do_not() -> None:
    added = imported_besides_autogen(PACKAGE)
    assert {f"{PACKAGE}.memories.memory", f"{PACKAGE}.retrieval.engine"} <= added
    others = {name.partition(".")[0] for name in added} - {PACKAGE}
    assert others - sys.stdlib_module_names == set()
    assert others & {"sqlite3", "multiprocessing", "ctypes", "unittest"} == set()


def test_the_package_imports_only_the_parts_that_every_memory_needs() -> None:
    added = imported_besides_autogen(PACKAGE)
    assert {name for name in ON_DEMAND if f"{PACKAGE}.{name}" in added} == set()


def test_importing_the_package_compiles_no_regular_expression() -> None:
    code = f"""
import {PACKAGE}, re
for name, module in list(sys.modules.items()):
    if name.startswith("{PACKAGE}"):
        print(*(f"{{name}}.{{variable}}" for variable, value in vars(module).items() if isinstance(value, re.Pattern)))
"""
    assert in_new_process(code) == []


def test_the_command_line_imports_modules_of_a_command_when_it_runs() -> None:
    code = f"import {PACKAGE}.cli.app; print(*sys.modules)"
    unneeded = {"autogen_agentchat.agents", "autogen_ext", "chromadb", "numpy", "sqlite3", "tqdm"}
    unneeded |= {f"{PACKAGE}.{name}" for name in ON_DEMAND - {"cli"}}
    assert unneeded & set(in_new_process(code)) == set()


def test_imports_of_the_first_turn_run_off_the_event_loop(tmp_path: Path) -> None:
    imported = in_new_process(ONE_TURN, str(tmp_path))
    needed = {
        f"{PACKAGE}.{name}"
        for name in ("extraction.english.facts", "storage.repair.startup_repair", "maintenance.import_chroma")
    }
    assert needed | {"chromadb", "numpy", "filelock", "sqlite3"} <= set(imported)
