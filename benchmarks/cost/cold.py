"""What starting costs: importing the package, and the first recall on an existing store."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from statistics import median

from tqdm import tqdm

from benchmarks.lib.report import Bar, Cell, Section, Table
from benchmarks.lib.stores import Scale, Stores
from benchmarks.lib.systems import EmbeddingName, ours, theirs
from benchmarks.lib.timing import ratio, seconds_until, typical

PACKAGE, AGENTS = "autogen_persistent_memory", "autogen_agentchat.agents"
MEMORY, AGENT, NOTHING = f"from {PACKAGE} import PersistentMemory", f"from {AGENTS} import AssistantAgent", "pass"
PROGRAMS = {
    PACKAGE: (NOTHING, MEMORY),
    AGENTS: (NOTHING, AGENT),
    f"{PACKAGE}, after {AGENTS}": (AGENT, MEMORY),
    "autogen_agentchat": (NOTHING, "import autogen_agentchat"),
    f"{PACKAGE}, collected": (NOTHING, MEMORY, NOTHING),
    f"{AGENTS}, collected": (NOTHING, AGENT, NOTHING),
}
"""The programs: what is imported before, the measured import, and what is done with the garbage collector."""
HEAVY = ("chromadb", "filelock", "numpy", "onnxruntime", "sqlite3", "tokenizers", "tiktoken", "snowballstemmer", "tqdm")
ABOUT = (
    "Imports in CPU time, each in a process of its own, in turns, with compiled sources as after an installation, and without "
    "Python's garbage collector: it would scan everything that AutoGen has imported during whichever import comes next, which takes "
    "half as long as the package itself. "
    f"`autogen_agentchat` alone imports next to nothing of AutoGen, so the target is relative to `{AGENTS}`, which every agent "
    "needs. The first recall opens the store, loads MiniLM and reads the namespace, in a process that has imported Chroma; then "
    "comes the second."
)


def in_new_process(compiled: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with a folder for compiled sources, whatever the environment says.

    Otherwise our sources may be compiled each time, and those of AutoGen, which pip has compiled, never.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True, env=environment)


def import_time(compiled: str, before: str, statement: str, collector: str = "gc.disable()") -> float:
    """Return the ms of CPU time of an import in a program that has already imported something."""
    clock = "time.process_time()"
    program = f"import gc, time; {collector}; {before}; started = {clock}; {statement}; print({clock} - started)"
    return 1000 * float(in_new_process(compiled, "-c", program).stdout)


def import_times(compiled: str, program: str) -> dict[str, float]:
    """Return the ms of each module's import, including the modules that it was the first to import."""
    report = in_new_process(compiled, "-X", "importtime", "-c", program).stderr
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)$", report, re.MULTILINE)
    return {name: int(microseconds) / 1000 for microseconds, name in lines}


def first_recall(folder: str, embedding: EmbeddingName, is_ours: bool) -> tuple[float, float]:
    """Return the ms of the first and of the second question."""

    async def asking() -> tuple[float, float]:
        memory = ours(folder, embedding) if is_ours else theirs(folder, embedding)
        first = await seconds_until(memory.query("Who works on the billing service?"))
        second = await seconds_until(memory.query("When will we paint the kitchen?"))
        await memory.close()
        return 1000 * first, 1000 * second

    return asyncio.run(asking())


def measure(scale: Scale, stores: Stores) -> Section:
    with tempfile.TemporaryDirectory() as compiled:
        _, parts = (import_times(compiled, f"{AGENT}; {MEMORY}") for _ in ("compiling", "measuring"))
        rounds = [
            {name: import_time(compiled, *program) for name, program in PROGRAMS.items()}
            for _ in tqdm(range(scale.imports), desc="importing", leave=False, disable=None)
        ]
    eager = sorted(name for name in HEAVY if name in parts)
    rows: list[list[Cell]] = [[name, typical(rounds, name), ratio(rounds, name, AGENTS)] for name in PROGRAMS]
    importing = Table(["import", "ms", f"/ {AGENTS}"], rows, "Imports")
    lazy = Table(
        ["of the package's imports", ""],
        [
            ["heavy modules that it imports at once", ", ".join(eager) or "none"],
            ["its own slowest parts, ms with what they import", slowest_parts(parts)],
        ],
        "What is imported at once",
    )
    size = scale.minilm_sizes[-1]
    folders = {
        "ours": (stores.ours("minilm", size), True),
        "ChromaDBVectorMemory": (stores.theirs("minilm", size), False),
    }
    started = {
        name: [scale.apart(first_recall, folder, "minilm", is_ours) for _ in range(scale.rounds)]
        for name, (folder, is_ours) in folders.items()
    }
    opening = Table(
        [f"{size:,} memories, MiniLM", "first recall, ms", "second, ms"],
        [[name, *(median(times) for times in zip(*pairs, strict=True))] for name, pairs in started.items()],
        "First recall on an existing store",
    )
    bar = Bar(f"import of the package / import of {AGENTS}", 1.15, ratio(rounds, PACKAGE, AGENTS), at_most=True)
    return Section("Cold start", ABOUT, [importing, lazy, opening], [bar])


def slowest_parts(times: dict[str, float]) -> str:
    """Name the slowest modules of the package."""
    inside = {name: ms for name, ms in times.items() if name.startswith(f"{PACKAGE}.")}
    slowest = sorted(inside, key=lambda name: inside[name], reverse=True)[:5]
    return ", ".join(f"{name.removeprefix(PACKAGE)[1:]} {inside[name]:.0f}" for name in slowest)
