"""What a process pays: importing the package, the first recall on an existing store, RAM and disk."""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from autogen_core.model_context import BufferedChatCompletionContext
from autogen_ext.models.replay import ReplayChatCompletionClient
from tqdm import tqdm

from benchmarks.lib.report import Bar, Cell, Section, Table
from benchmarks.lib.stores import MESSAGES, QUESTIONS, Scale, Stores, Writer
from benchmarks.lib.systems import (
    OURS,
    RAW,
    THEIRS,
    EmbeddingName,
    agent_with,
    embed,
    our_largest_collection,
    ours,
    raw_query,
    run_task,
    theirs,
)
from benchmarks.lib.timing import megabytes_in, ratio, resident, seconds_until, typical

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
ABOUT_START = (
    "Imports in CPU time, each in a process of its own, in turns, with compiled sources as after an installation, and without "
    "Python's garbage collector: it would scan everything that AutoGen has imported during whichever import comes next, which takes "
    "half as long as the package itself. "
    f"`autogen_agentchat` alone imports next to nothing of AutoGen, so the target is relative to `{AGENTS}`, which every agent "
    "needs. The first recall opens the store, loads MiniLM and reads the namespace, in a process that has imported Chroma; then "
    "comes the second."
)
ABOUT_FOOTPRINT = (
    "Each store is opened and queried in a process of its own, whose RAM is then read. Cheap embedding. KB a memory are relative to "
    "a process that has imported the same and opened nothing. Chroma alone is another process on our folder."
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


def measure_start(scale: Scale, stores: Stores) -> Section:
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
        [[name, *(statistics.median(times) for times in zip(*pairs, strict=True))] for name, pairs in started.items()],
        "First recall on an existing store",
    )
    bar = Bar(f"import of the package / import of {AGENTS}", 1.15, ratio(rounds, PACKAGE, AGENTS), at_most=True)
    return Section("Cold start", ABOUT_START, [importing, lazy, opening], [bar])


def slowest_parts(times: dict[str, float]) -> str:
    """Name the slowest modules of the package."""
    inside = {name: ms for name, ms in times.items() if name.startswith(f"{PACKAGE}.")}
    slowest = sorted(inside, key=lambda name: inside[name], reverse=True)[:5]
    return ", ".join(f"{name.removeprefix(PACKAGE)[1:]} {inside[name]:.0f}" for name in slowest)


def ram_of(folder: str | None, system: str, questions: int) -> float:
    """Return the MB of a process that queried a store; without a folder, of one that only imported everything."""
    writer = Writer(seed=8)

    async def asking() -> float:
        if folder is None:
            embed("words", [writer.fill(QUESTIONS)])
        elif system == RAW:
            collection = our_largest_collection(folder)
            for _ in range(questions):
                raw_query(collection, embed("words", [writer.fill(QUESTIONS)]))
        else:
            memory = ours(folder, "words") if system == OURS else theirs(folder, "words")
            for _ in range(questions):
                await memory.query(writer.fill(QUESTIONS))
            megabytes = resident()
            await memory.close()
            return megabytes
        return resident()

    return asyncio.run(asking())


async def converse(turns: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each turn of a captured conversation, and the MB on disk after each tenth."""
    seconds: list[float] = []
    sizes: list[float] = []
    said = Writer(seed=9).texts(MESSAGES, turns)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        client = ReplayChatCompletionClient([f"I see, and what about this: {text.lower()}" for text in said])
        async with ours(folder, "minilm", capture=True) as memory:
            context = BufferedChatCompletionContext(buffer_size=20)
            agent = agent_with(memory, client, model_context=context)
            await memory.recall("Warm up")
            for number, text in enumerate(tqdm(said, desc="conversation", leave=False, disable=None), start=1):
                seconds.append(await seconds_until(run_task(agent, text)))
                if number % max(1, turns // 10) == 0:
                    sizes.append(await asyncio.to_thread(megabytes_in, folder))
    return seconds, sizes


def conversation(turns: int) -> tuple[list[float], list[float]]:
    return asyncio.run(converse(turns))


def conversation_table(scale: Scale) -> Table:
    turns = scale.conversation
    seconds, sizes = scale.apart(conversation, turns)
    tenth, half = max(1, turns // 10), len(sizes) // 2
    return Table(
        [f"{turns} turns, captured, MiniLM", "at first", "at last"],
        [
            [
                "p50 of a turn, first and last tenth, ms",
                *(1000 * statistics.median(part) for part in (seconds[:tenth], seconds[-tenth:])),
            ],
            [
                "KB on disk a message, first and second half",
                kilobytes(sizes[: half + 1], tenth),
                kilobytes(sizes[half:], tenth),
            ],
        ],
        "A long conversation",
    )


def kilobytes(sizes: Sequence[float], turns_between: int) -> float:
    """Return the KB a message between the first and the last size; each turn has two messages."""
    return 1000 * (sizes[-1] - sizes[0]) / max(1, (len(sizes) - 1) * turns_between * 2)


def measure_footprint(scale: Scale, stores: Stores) -> Section:
    empty = scale.apart(ram_of, None, RAW, 0)
    rows: list[list[Cell]] = []
    ram: dict[str, dict[int, float]] = {name: {} for name in (OURS, RAW, THEIRS)}
    disk: dict[str, dict[int, float]] = {name: {} for name in ram}
    for size in tqdm(scale.word_sizes, desc="footprint", leave=False, disable=None):
        for name in ram:
            folder = stores.theirs("words", size) if name == THEIRS else stores.ours("words", size)
            ram[name][size] = scale.apart(ram_of, folder, name, scale.questions)
            disk[name][size] = megabytes_in(folder)
            rows.append(
                [
                    f"{size:,}",
                    name,
                    ram[name][size],
                    1000 * (ram[name][size] - empty) / size,
                    disk[name][size],
                    1000 * disk[name][size] / size,
                ]
            )
    small, large = scale.word_sizes[0], scale.word_sizes[-1]
    growth: list[list[Cell]] = [
        [name, *(1000 * (of[name][large] - of[name][small]) / (large - small) for of in (ram, disk))] for name in ram
    ]
    tables = [
        Table(["memories", "", "RAM, MB", "KB a memory", "disk, MB", "KB a memory on disk"], rows),
        Table([f"from {small:,} to {large:,}, KB a further memory", "RAM", "disk"], growth, "Growth"),
        conversation_table(scale),
    ]
    return Section("Footprint", ABOUT_FOOTPRINT, tables)
