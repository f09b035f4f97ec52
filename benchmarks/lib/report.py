"""What a part of the cost benchmark found (tables, targets, curves), and how it is printed and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_TURN = (
    "ours searches two indexes, by keywords as well, ranks 300 candidates and renders a block, none of which the floor does; moving the "
    "embedding to a thread and back, which keeps the event loop free, takes half a millisecond, and on two cores the model, which uses both, "
    "evicts the caches: see where the time goes"
)
REASONS = {
    "/ embedding and one raw query": _TURN,
    "/ `ChromaDBVectorMemory`'s": _TURN,
    "turn cost at 100,000": "1,000 memories are searched in RAM within half a millisecond; 100,000 are searched by two of Chroma's indexes at "
    "once, and their keywords take two milliseconds: the ratio is large because the smaller cost is small",
    "agents reading": "AutoGen's own work for that many agents at once stalls the loop, too (see the row without memory), and busy threads "
    "compete with it for the interpreter's lock",
    "import of the package": "the package has many modules, and a third of the time goes into the Pydantic models of the configuration; "
    "everything else is imported on first use",
    "ours in bulk, MiniLM": "nearly all of the time is MiniLM's, which is hardly faster for many texts than for one: see Chroma alone",
    "ours in bulk, cheap": "an embedded Chroma holds the interpreter's lock while it writes, so ours writes 64 memories at a time, and looks "
    "for restatements before",
}
"""Why a target is missed, by words of its name."""
COLOURS = {"ours": "#1a7f37", "ours, capturing": "#7bc48d", "ChromaDBVectorMemory": "#c0392b"}
FLOOR_COLOUR = "#888888"

Cell = str | int | float | None


def shown(cell: Cell) -> str:
    """Format a cell: figures with three significant digits, None as nothing."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


@dataclass(frozen=True)
class Table:
    """Rows under columns; the first column names the row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *([shown(cell) for cell in row] for row in self.rows)]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{self.title}:\n\n{table}" if self.title else table

    def text(self) -> str:
        lines = [list(self.columns), *([shown(cell) for cell in row] for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        aligned = (
            "  ".join(
                cell.ljust(width) if column == 0 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        return "\n".join([*([self.title] if self.title else []), *aligned])


@dataclass(frozen=True)
class Bar:
    """A figure with its target: an upper or a lower limit."""

    what: str
    limit: float
    figure: float
    at_most: bool

    @property
    def is_met(self) -> bool:
        return self.figure <= self.limit if self.at_most else self.figure >= self.limit

    @property
    def reason(self) -> str:
        """Why the target is missed, where that is known."""
        return next((reason for words, reason in REASONS.items() if words in self.what), "")

    @property
    def row(self) -> list[Cell]:
        limit = f"{'≤' if self.at_most else '≥'} {self.limit:g}"
        outcome = ["met", ""] if self.is_met else ["**missed**", self.reason]
        return [self.what, limit, f"{self.figure:.2f}", *outcome]


Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Points to draw, by the name of their line."""


@dataclass(frozen=True)
class Section:
    """The findings of one part of the benchmark."""

    title: str
    about: str
    tables: Sequence[Table]
    bars: Sequence[Bar] = ()
    curves: Curves = field(default_factory=dict)


def chart(panels: int, name: str, **options: Any) -> tuple[Any, Any]:
    """Return a figure with panels side by side; the same figures give the same SVG file."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": name, "font.size": 10}
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, panels, layout="constrained", **options)
    for panel in axes:
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def draw(sections: Sequence[Section], folder: Path) -> str:
    """Draw the charts, and return a line that says where they are."""
    if find_spec("matplotlib") is None:
        return "No pictures: they need matplotlib (pip install --group benchmarks)."
    figure, panels = chart(3, "bench", figsize=(14, 4.4))
    by_title = {section.title: section for section in sections}
    turn_cost(panels[0], by_title["Turn cost"])
    stages = by_title["Where the time goes"].tables[0].rows
    horizontal_bars(panels[1], "p50 of a turn's stages, ms", [(str(row[0]), row[1], COLOURS["ours"]) for row in stages])
    stalls = [row for row in by_title["Event loop"].tables[0].rows if row[1] in COLOURS]
    of_many_agents = [(f"{row[0]}: {row[1]}", row[2], COLOURS[str(row[1])]) for row in stalls[len(stalls) // 2 :]]
    horizontal_bars(panels[2], "longest stall of the event loop, ms", of_many_agents, xscale="log")
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


def horizontal_bars(panel: Any, title: str, bars: Sequence[tuple[str, Cell, str]], **scale: str) -> None:
    """Draw labels, figures and colours, the first on top."""
    labels, figures, colours = zip(*reversed(bars), strict=True)
    panel.barh(labels, figures, color=colours)
    panel.set(title=title, xlabel="ms", **scale)
