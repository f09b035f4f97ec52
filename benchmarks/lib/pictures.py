"""The pictures of a run, drawn from its figures alone; needs matplotlib, from the dependency group `benchmarks`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.lib.results import Section

COLOURS = {"ours": "#1a7f37", "ours, capturing": "#7bc48d", "ChromaDBVectorMemory": "#c0392b"}
FLOOR_COLOUR = "#888888"


def draw(sections: Sequence[Section], folder: Path) -> str:
    """Draw what there is to draw; one line about what became of it."""
    if find_spec("matplotlib") is None:
        return "No pictures: they need matplotlib (pip install --group benchmarks)."
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "bench", "font.size": 10}
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    by_title = {section.title: section for section in sections}
    turn_cost(panels[0], by_title["Turn cost"])
    bars_of(panels[1], by_title["Where the time goes"], "p50 of a turn's stages, ms")
    stall_bars(panels[2], by_title["Event loop"])
    for panel in panels:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    picture = folder / "bench.svg"
    figure.savefig(picture, metadata={"Date": None})
    return f"Pictures: {picture}"


def turn_cost(panel: Any, section: Section) -> None:
    for label, points in section.curves.items():
        name, _, embedding = label.rpartition(", ")
        panel.plot(
            *zip(*points, strict=True),
            color=COLOURS.get(name, FLOOR_COLOUR),
            linestyle="-" if embedding == "MiniLM" else "--",
            marker="o",
            markersize=3,
            label=label,
        )
    panel.set(xscale="log", xlabel="memories", ylabel="ms", title="added to a turn, p50", ylim=(0, None))
    panel.legend(fontsize=7, frameon=False)


def bars_of(panel: Any, section: Section, title: str) -> None:
    rows = section.tables[0].rows
    panel.barh([str(row[0]) for row in reversed(rows)], [row[1] for row in reversed(rows)], color=COLOURS["ours"])
    panel.set(title=title, xlabel="ms")


def stall_bars(panel: Any, section: Section) -> None:
    rows = [row for row in section.tables[0].rows if row[1] in COLOURS]
    rows = rows[len(rows) // 2 :]  # those with many agents
    panel.barh(
        [f"{row[0]}: {row[1]}" for row in reversed(rows)],
        [row[2] for row in reversed(rows)],
        color=[COLOURS[str(row[1])] for row in reversed(rows)],
    )
    panel.set(title="longest stall of the event loop, ms", xscale="log", xlabel="ms")
