"""What memory costs an agent in milliseconds, tokens and RAM, compared with the alternatives in the same run.

    make bench            (or: python -m benchmarks.cost.bench)
    make bench QUICK=1    (or: python -m benchmarks.cost.bench --quick)

A whole run writes its figures to benchmarks/: results.json, bench.svg, and the section of README.md between its two markers.
Other runs only print, unless --out names a folder. Times depend on the machine and its load; ratios count, each between systems
that were measured in turns, and the median of all rounds.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from tqdm import tqdm

from benchmarks.cost import load, process, turns, writes
from benchmarks.lib.report import Section, Table, draw
from benchmarks.lib.stores import QUICK, SCALES, WHOLE, Scale, Stores, build, place
from benchmarks.lib.timing import in_fresh_process, processes

HERE = Path(__file__).parents[1]
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PARTS: dict[str, Callable[[Scale, Stores], Section]] = {
    "turns": turns.measure,
    "writes": writes.measure,
    "users": load.measure_users,
    "stalls": load.measure_stalls,
    "cold": process.measure_start,
    "stages": turns.measure_stages,
    "footprint": process.measure_footprint,
}
VERSIONS = ("autogen-core", "autogen-ext", "chromadb", "onnxruntime")


def run(scale: Scale, kept: Path | None, parts: Sequence[str]) -> tuple[list[Section], dict[str, float]]:
    """Run the parts, and return their findings and their seconds."""
    sections: list[Section] = []
    seconds: dict[str, float] = {}
    with place(kept) as stores, processes(1) as shared:
        for name in tqdm(["stores", *parts], desc="bench", disable=None):
            started = time.perf_counter()
            if name == "stores":
                build(stores, scale)
            elif scale.isolated:
                sections.append(in_fresh_process(PARTS[name], scale, stores))
            else:
                sections.append(shared.submit(PARTS[name], scale, stores).result())
            seconds[name] = time.perf_counter() - started
    return sections, seconds


def bars_of(sections: Sequence[Section]) -> Table:
    rows = [bar.row for section in sections for bar in section.bars]
    return Table(["what", "target", "figure", "", "why"], rows)


def about(scale: Scale, seconds: Mapping[str, float]) -> str:
    """Say when, where and with which versions the figures were measured."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    packages = ", ".join(f"{name} {version(name)}" for name in VERSIONS)
    return (
        f"A {scale.name} run of {datetime.now(timezone.utc):%d %B %Y}, {sum(seconds.values()) / 60:.1f} minutes, on "
        f"{os.cpu_count()} cores ({platform.machine()}, load {load:.1f} at its end), Python {platform.python_version()}, "
        f"{packages}."
    )


def markdown(sections: Sequence[Section], introduction: str, *, pictured: bool) -> str:
    lines = [introduction, bars_of(sections).markdown()]
    if pictured:
        lines.append("![What memory adds to a turn, its stages, and the longest stalls of the event loop](bench.svg)")
    for section in sections:
        lines += [f"### {section.title}", section.about, *(table.markdown() for table in section.tables)]
    return "\n\n".join(lines)


def report(sections: Sequence[Section], introduction: str) -> None:
    for section in sections:
        print(f"\n{section.title}\n{'=' * len(section.title)}\n{section.about}")
        for table in section.tables:
            print(f"\n{table.text()}")
    print(f"\nTargets\n=======\n{introduction}\n\n{bars_of(sections).text()}".replace("**", ""))


def update(readme: Path, text: str) -> None:
    """Replace the text between the markers."""
    before, begin, rest = readme.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"{readme} has no markers {BEGIN} and {END} for the figures.")
    readme.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


def write(folder: Path, sections: Sequence[Section], introduction: str, seconds: Mapping[str, float]) -> None:
    """Write the figures to a folder: as JSON, as a chart, and into its README.md, if it has one."""
    found = {
        "benchmark": "bench",
        "about": introduction,
        "seconds": seconds,
        "bars": [
            asdict(bar) | {"reason": bar.reason, "met": bar.is_met} for section in sections for bar in section.bars
        ],
        "sections": [asdict(section) for section in sections],
    }
    (folder / "results.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if len(sections) < len(PARTS):
        return
    print(draw(sections, folder))
    if (folder / "README.md").exists():
        text = markdown(sections, introduction, pictured=(folder / "bench.svg").exists())
        update(folder / "README.md", text)


def main() -> None:
    logging.disable(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small numbers, one round: under two minutes")
    parser.add_argument("--scale", choices=list(SCALES), help="how much to measure (default: whole)")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), help="only these parts")
    parser.add_argument("--out", type=Path, help="the folder to write to (default: benchmarks/, for a whole run only)")
    parser.add_argument("--stores", type=Path, help="keep the filled stores in this folder, and reuse those it has")
    arguments = parser.parse_args()
    scale = SCALES[arguments.scale] if arguments.scale else QUICK if arguments.quick else WHOLE
    parts = [name for name in PARTS if arguments.only is None or name in arguments.only]
    sections, seconds = run(scale, arguments.stores, parts)
    introduction = about(scale, seconds)
    report(sections, introduction)
    print("\n" + ", ".join(f"{name} {taken:.0f} s" for name, taken in seconds.items()))
    is_whole = scale is WHOLE and len(parts) == len(PARTS)
    folder = arguments.out or (HERE if is_whole else None)
    if folder is not None:
        write(folder, sections, introduction, seconds)


if __name__ == "__main__":
    main()
