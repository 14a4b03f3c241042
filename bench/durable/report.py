"""What a part of bench/durable found: a table for the terminal and for bench/README.md, with its targets.

A figure over its target is marked in both. Called by the parts, which say them, and by `__main__` (to print).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.table import rewrite

README = Path(__file__).parents[1] / "README.md"


@dataclass(slots=True, frozen=True)
class Figure:
    """One number; `most` and `least` are what it should keep to."""

    value: float | None
    digits: int = 0
    most: float | None = None
    least: float | None = None

    @property
    def missed(self) -> bool:
        if self.value is None:
            return False
        too_much = self.most is not None and self.value > self.most
        return too_much or (self.least is not None and self.value < self.least)

    def __str__(self) -> str:
        return "-" if self.value is None else f"{self.value:,.{self.digits}f}"


Cell = Figure | str


@dataclass(slots=True)
class Findings:
    """The table of one part, its first column in words; `notes` are the sentences below it."""

    part: str
    title: str
    columns: list[str]
    rows: list[list[Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def missed(self) -> list[str]:
        """Every figure over its target, in words."""
        return [
            f"{self.part}: {row[0]}: {column} {cell}"
            for row in self.rows
            for column, cell in zip(self.columns, row, strict=True)
            if isinstance(cell, Figure) and cell.missed
        ]

    def for_terminal(self) -> Table:
        """Turned, so that it fits: a column for each row."""
        table = Table(title=f"{self.part}: {self.title}", title_justify="left", caption_justify="left")
        table.add_column(self.columns[0])
        for row in self.rows:
            table.add_column(str(row[0]), justify="right")
        for at, column in enumerate(self.columns[1:], start=1):
            cells = [row[at] for row in self.rows]
            marked = (f"[red]{c}[/red]" if isinstance(c, Figure) and c.missed else str(c) for c in cells)
            table.add_row(column, *marked)
        table.caption = "\n".join(self.notes)
        return table

    def as_markdown(self) -> str:
        marks = ["---"] + ["--:"] * (len(self.columns) - 1)
        lines = [f"*{self.part}*: {self.title}.", "", _line(self.columns), "|" + "|".join(marks) + "|"]
        for row in self.rows:
            lines.append(_line([f"**{c}**" if isinstance(c, Figure) and c.missed else str(c) for c in row]))
        if self.notes:
            lines += ["", *self.notes]
        return "\n".join(lines)

    def write(self, paper: Path = README) -> None:
        """Replace this part's table in the paper, which has marks for it. Raises ValueError."""
        begin, end = f"<!-- durable: {self.part} -->", f"<!-- end of {self.part} -->"
        text = paper.read_text()
        if not 0 <= text.find(begin) < text.find(end):
            raise ValueError(f"{paper} has no marks for {self.part}")
        rewrite(paper, self.as_markdown(), begin, end)

    def as_json(self) -> dict[str, Any]:
        rows = [
            {
                column: cell.value if isinstance(cell, Figure) else cell
                for column, cell in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]
        return {"part": self.part, "title": self.title, "rows": rows, "notes": self.notes}


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
