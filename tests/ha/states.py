"""The pictures of two tables: `docs/states.svg` of the statuses of a node, and `docs/pair-controller.svg` of
the pair controller. `python -m tests.ha.states` draws them anew.

Places are set by hand here, and the words of the statuses. Which arrows there are is the tables' word alone,
and so are the words of the pair controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import hypot
from pathlib import Path
from typing import NamedTuple

from ha.core.election.pair.table import TABLE, PairRole, PairState, Row, Wanted
from ha.core.membership import Status

DOCS = Path(__file__).parents[2] / "docs"
BOX = (140, 46)
LINE = 16
"""Between two lines of words."""
LETTER = 7
"""About the width of one, in the font of the words."""


class Place(NamedTuple):
    x: float
    y: float


class Arrow(NamedTuple):
    """`words`: one line or more. `bend`: how far the middle is off the straight line, to the left of its
    direction. `at`: where on the arrow its words are, 0..1.
    """

    words: str
    bend: float = 0
    at: float = 0.5
    start: Place = Place(0, 0)
    end: Place = Place(0, 0)
    """Off the middles of the two boxes."""


PLACES = {
    Status.JOINING: Place(120, 280),
    Status.CATCH_UP: Place(500, 120),
    Status.READY: Place(920, 120),
    Status.RECOVERING: Place(920, 450),
    Status.ACTIVE: Place(500, 450),
    Status.STANDALONE: Place(120, 480),
}
ARROWS = {
    (Status.JOINING, Status.CATCH_UP): Arrow("a primary takes it in", 30, 0.4, Place(-30, 0), Place(0, 0)),
    (Status.CATCH_UP, Status.JOINING): Arrow("its link ends", 8, 0.3, Place(-20, 8), Place(10, -6)),
    (Status.CATCH_UP, Status.READY): Arrow("complete, and in sync"),
    (Status.READY, Status.CATCH_UP): Arrow("linked again", -34, 0.5, Place(-10, -10), Place(10, -10)),
    (Status.READY, Status.JOINING): Arrow(
        "excluded from the in-sync set", 14, 0.4, Place(-30, 10), Place(20, 0)
    ),
    (Status.READY, Status.RECOVERING): Arrow("promoted"),
    (Status.JOINING, Status.RECOVERING): Arrow(
        "promoted: first of all, or after a cold start, or by force", 40, 0.5, Place(20, 2), Place(-20, -12)
    ),
    (Status.RECOVERING, Status.JOINING): Arrow(
        "demoted, or a higher epoch met", 10, 0.55, Place(-30, -8), Place(20, 12)
    ),
    (Status.RECOVERING, Status.ACTIVE): Arrow("none is awaited"),
    (Status.ACTIVE, Status.JOINING): Arrow(
        "demoted, or a higher epoch met", 30, 0.5, Place(0, 0), Place(-30, 0)
    ),
}
NOTES = {
    Status.STANDALONE: "for good: no ha.brokers",
    Status.JOINING: "serves nobody",
    Status.CATCH_UP: "serves nobody",
    Status.READY: "promotable",
    Status.RECOVERING: "serves; confirms wait",
    Status.ACTIVE: "serves",
}
STYLE = """
  text { font: 13px sans-serif; fill: #223 }
  .name { font-weight: bold; font-size: 15px }
  .note { font-size: 11px; fill: #556 }
  .title { font-size: 14px }
  rect { fill: #fff; stroke: #445; stroke-width: 1.5 }
  .serves rect { fill: #d7f0dc; stroke: #2b7a45 }
  .ground { stroke: none }
  path { fill: none; stroke: #445; stroke-width: 1.5; marker-end: url(#head) }
"""


PAIR_PLACES = {
    PairState.PENDING: Place(130, 110),
    PairState.ACTIVE: Place(930, 290),
    PairState.PASSIVE: Place(130, 330),
    PairState.ORDERED: Place(130, 550),
}
PAIR_NOTES = {
    PairState.PENDING: "clients wait",
    PairState.ACTIVE: "serves",
    PairState.PASSIVE: "clients are refused",
    PairState.ORDERED: "by an operator",
}
PAIR_SHAPES = {
    PairState.PENDING: Arrow("", 20, 0.44, Place(0, 0), Place(-30, -16)),
    PairState.PASSIVE: Arrow("", 0, 0.42),
    PairState.ORDERED: Arrow("", -20, 0.44, Place(0, 0), Place(-30, 16)),
}


@dataclass(frozen=True)
class Picture:
    """`arrows`: from one state to another; `serves`: the states that are green."""

    file: str
    size: tuple[int, int]
    caption: str
    title: str
    places: Mapping[Enum, Place]
    notes: Mapping[Enum, str]
    arrows: Mapping[tuple[Enum, Enum], Arrow]
    serves: Sequence[Enum]

    @property
    def path(self) -> Path:
        return DOCS / self.file


def _seen(row: Row) -> str:
    """The row in words: what it needs to see."""
    if row.seen == (PairState.OFFLINE,):
        return "the other one is gone, and a client comes"
    return "it sees " + " or ".join(state.value for state in row.seen)


def _words_of(state: PairState) -> str:
    """All rows by which that state leads to serving, a line each."""
    lines = []
    for row in TABLE:
        if state not in row.states or row.then not in (Wanted.ACTIVE, Wanted.AFTER_A_TURN):
            continue
        of = "" if len(row.roles) == len(PairRole) else f"{row.roles[0].value}: "
        turn = ", after a turn" if row.then is Wanted.AFTER_A_TURN else ""
        lines.append(f"{of}{_seen(row)}{turn} ({row.source})")
    return "\n".join(lines)


STATUSES = Picture(
    "states.svg", (1060, 530), "The statuses of a node, and how one follows another",
    "The statuses of a node. Green: it serves clients. Any other change than these stops the node.",
    PLACES, NOTES, ARROWS, [status for status in Status if status.serves],
)  # fmt: skip
CONTROLLER = Picture(
    "pair-controller.svg", (1060, 620), "The states of the pair controller, and when a node takes over",
    "When a node of a pair takes over, by what it sees of the other one. Green: it serves clients.",
    PAIR_PLACES, PAIR_NOTES,
    {(s, PairState.ACTIVE): shape._replace(words=_words_of(s)) for s, shape in PAIR_SHAPES.items()},
    [PairState.ACTIVE],
)  # fmt: skip
PICTURES = (STATUSES, CONTROLLER)


def drawn(picture: Picture) -> str:
    """The whole picture."""
    width, height = picture.size
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">',
        f"<title>{picture.caption}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto">'
        '<path d="M0 1 10 5 0 9z" style="fill:#445;stroke:none;marker-end:none"/></marker></defs>',
        f'<rect class="ground" width="{width}" height="{height}"/>',
        f'<text class="title" x="20" y="28">{picture.title}</text>',
        *(_path(picture, old, new) for old, new in picture.arrows),
        *(_words(picture, old, new) for old, new in picture.arrows),
        *(_box(picture, state) for state in picture.places),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box(picture: Picture, state: Enum) -> str:
    x, y = picture.places[state]
    width, height = BOX
    return (
        f"<g{' class=' + chr(34) + 'serves' + chr(34) if state in picture.serves else ''}>"
        f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="8"/>'
        f'<text class="name" x="{x:g}" y="{y - 2:g}" text-anchor="middle">{state.value}</text>'
        f'<text class="note" x="{x:g}" y="{y + 14:g}" text-anchor="middle">{picture.notes[state]}</text></g>'
    )


def _curve(picture: Picture, old: Enum, new: Enum) -> tuple[Place, Place, Place]:
    """Start at the edge of one box, control point, end at the edge of the other."""
    arrow, places = picture.arrows[old, new], picture.places
    start, end = _sum(places[old], arrow.start), _sum(places[new], arrow.end)
    dx, dy = end.x - start.x, end.y - start.y
    length = hypot(dx, dy)
    middle = Place(
        (start.x + end.x) / 2 + 2 * arrow.bend * dy / length,
        (start.y + end.y) / 2 - 2 * arrow.bend * dx / length,
    )
    return _edge(places[old], start, middle), middle, _edge(places[new], end, middle)


def _edge(centre: Place, inside: Place, to: Place) -> Place:
    """Where the line from `inside` a box to a point outside leaves the box."""
    dx, dy = to.x - inside.x, to.y - inside.y
    steps = [1.0]
    if dx:
        steps.append((centre.x + (BOX[0] / 2 + 2) * (1 if dx > 0 else -1) - inside.x) / dx)
    if dy:
        steps.append((centre.y + (BOX[1] / 2 + 2) * (1 if dy > 0 else -1) - inside.y) / dy)
    step = min(steps)
    return Place(inside.x + dx * step, inside.y + dy * step)


def _sum(one: Place, other: Place) -> Place:
    return Place(one.x + other.x, one.y + other.y)


def _path(picture: Picture, old: Enum, new: Enum) -> str:
    start, middle, end = _curve(picture, old, new)
    points = [f"{p.x:.0f} {p.y:.0f}" for p in (start, middle, end)]
    return f'<path d="M{points[0]} Q{points[1]} {points[2]}"/>'


def _words(picture: Picture, old: Enum, new: Enum) -> str:
    arrow = picture.arrows[old, new]
    start, middle, end = _curve(picture, old, new)
    t = arrow.at
    x = (1 - t) ** 2 * start.x + 2 * t * (1 - t) * middle.x + t * t * end.x
    y = (1 - t) ** 2 * start.y + 2 * t * (1 - t) * middle.y + t * t * end.y
    lines = arrow.words.split("\n")
    width = LETTER * max(len(line) for line in lines) + 4
    top = y - LINE * (len(lines) - 1) / 2
    ground = (
        f'<rect class="ground" x="{x - width / 2:.0f}" y="{top - 10:.0f}" width="{width:.0f}" '
        f'height="{20 + LINE * (len(lines) - 1):.0f}"/>'
    )
    return ground + "".join(
        f'<text x="{x:.0f}" y="{top + 4 + LINE * n:.0f}" text-anchor="middle">{line}</text>'
        for n, line in enumerate(lines)
    )


if __name__ == "__main__":
    for each in PICTURES:
        each.path.write_text(drawn(each))
        print(f"drawn: {each.path}")
