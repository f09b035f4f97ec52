"""What it costs to start: importing the package, and the first recall on a store that is there."""

from __future__ import annotations

import asyncio
import re
import statistics
import subprocess
import sys

from contestants import EmbeddingName, ours, theirs
from measuring import seconds_until
from results import Bar, Cell, Section, Table
from scales import Scale
from stores import Stores
from tqdm import tqdm

PACKAGE, AGENTS, BARE = "autogen_persistent_memory", "autogen_agentchat.agents", "autogen_agentchat"
HEAVY = ("chromadb", "numpy", "onnxruntime", "tokenizers", "tiktoken", "snowballstemmer", "tqdm")
ABOUT = (
    f"Imports by `-X importtime`, each in a process of its own, in turns. `{BARE}` alone imports next to nothing of AutoGen, "
    f"so the bar is measured against `{AGENTS}`, without which there is no agent. The first recall opens the store, loads "
    "MiniLM and reads the namespace, in a process that has imported everything; then comes the second."
)


def import_times(module: str) -> dict[str, float]:
    """The ms until a module was imported, by module: what it imported is part of it."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)$", report, re.MULTILINE)
    return {name: int(microseconds) / 1000 for microseconds, name in lines}


def first_recall(folder: str, embedding: EmbeddingName, is_ours: bool) -> tuple[float, float]:
    """The ms of the first and of the second question."""

    async def asking() -> tuple[float, float]:
        memory = ours(folder, embedding) if is_ours else theirs(folder, embedding)
        first = await seconds_until(memory.query("Who works on the billing service?"))
        second = await seconds_until(memory.query("When will we paint the kitchen?"))
        await memory.close()
        return 1000 * first, 1000 * second

    return asyncio.run(asking())


def measure(scale: Scale, stores: Stores) -> Section:
    modules = (PACKAGE, AGENTS, BARE)
    imports: dict[str, list[dict[str, float]]] = {module: [] for module in modules}
    for _ in tqdm(range(scale.imports), desc="importing", leave=False, disable=None):
        for module in modules:
            imports[module].append(import_times(module))
    took = {module: statistics.median(times[module] for times in imports[module]) for module in modules}
    relative = statistics.median(
        mine[PACKAGE] / agents[AGENTS] for mine, agents in zip(imports[PACKAGE], imports[AGENTS], strict=True)
    )
    eager = sorted(name for name in HEAVY if name in imports[PACKAGE][0])
    rows: list[list[Cell]] = [[module, took[module], took[module] / took[AGENTS]] for module in modules]
    importing = Table(["import", "ms", f"/ {AGENTS}"], rows, "Imports")
    lazy = Table(
        ["of the package's imports", ""],
        [
            ["heavy modules that it imports at once", ", ".join(eager) or "none"],
            ["its own slowest parts, ms with what they import", slowest_parts(imports[PACKAGE][0])],
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
    bar = Bar(f"import of the package / import of {AGENTS}", 1.15, relative, at_most=True)
    return Section("Cold start", ABOUT, [importing, lazy, opening], [bar])


def slowest_parts(times: dict[str, float]) -> str:
    """The slowest modules that the package imports directly or itself consists of."""
    inside = {name: ms for name, ms in times.items() if name.startswith(f"{PACKAGE}.")}
    slowest = sorted(inside, key=lambda name: inside[name], reverse=True)[:5]
    return ", ".join(f"{name.removeprefix(PACKAGE)[1:]} {inside[name]:.0f}" for name in slowest)
