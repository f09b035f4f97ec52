"""What a section of the benchmark found: tables, figures against bars, curves to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Cell = str | int | float | None


def shown(cell: Cell) -> str:
    """A cell as people read it: figures with three digits that count, and nothing for what does not apply."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"


@dataclass(frozen=True)
class Table:
    """Rows under columns, of which the first is what a row is called."""

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
    """A figure that has to be at most, or at least, so much; and why it is not, where that is known."""

    what: str
    limit: float
    figure: float
    at_most: bool
    reason: str = ""

    @property
    def is_met(self) -> bool:
        return self.figure <= self.limit if self.at_most else self.figure >= self.limit

    @property
    def row(self) -> list[Cell]:
        bar = f"{'≤' if self.at_most else '≥'} {self.limit:g}"
        return [self.what, bar, f"{self.figure:.2f}", "met" if self.is_met else "**missed**", self.reason_shown]

    @property
    def reason_shown(self) -> str:
        return "" if self.is_met else self.reason


Curves = Mapping[str, Sequence[tuple[float, float]]]
"""Points to draw, by the name of their line."""


@dataclass(frozen=True)
class Section:
    """One part of the benchmark."""

    title: str
    about: str
    tables: Sequence[Table]
    bars: Sequence[Bar] = ()
    curves: Curves = field(default_factory=dict)
