"""The picture of the transition table, `docs/states.svg`. `python -m tests.ha.states` draws it anew.

Places and words are set by hand here; which arrows there are is the table's word alone.
"""

from __future__ import annotations

from math import hypot
from pathlib import Path
from typing import NamedTuple

from ha.core.membership import TRANSITIONS, Status

PICTURE = Path(__file__).parents[2] / "docs" / "states.svg"
WIDTH, HEIGHT = 1060, 530
BOX = (140, 46)
LETTER = 7
"""About the width of one, in the font of the words."""


class Place(NamedTuple):
    x: float
    y: float


class Arrow(NamedTuple):
    """`bend`: how far the middle is off the straight line, to the left of its direction. `at`: where on the
    arrow its words are, 0..1.
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


def drawn() -> str:
    """The whole picture."""
    arrows = [(old, new) for old, targets in TRANSITIONS.items() for new in sorted(targets, key=_order)]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">',
        "<title>The statuses of a node, and how one follows another</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" '
        'orient="auto">'
        '<path d="M0 1 10 5 0 9z" style="fill:#445;stroke:none;marker-end:none"/></marker></defs>',
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}"/>',
        '<text class="title" x="20" y="28">The statuses of a node. Green: it serves clients. '
        "Any other change than these stops the node.</text>",
        *(_path(old, new) for old, new in arrows),
        *(_words(old, new) for old, new in arrows),
        *(_box(status) for status in Status),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _order(status: Status) -> int:
    return list(Status).index(status)


def _box(status: Status) -> str:
    x, y = PLACES[status]
    width, height = BOX
    return (
        f"<g{' class=' + chr(34) + 'serves' + chr(34) if status.serves else ''}>"
        f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="8"/>'
        f'<text class="name" x="{x:g}" y="{y - 2:g}" text-anchor="middle">{status.value}</text>'
        f'<text class="note" x="{x:g}" y="{y + 14:g}" text-anchor="middle">{NOTES[status]}</text></g>'
    )


def _curve(old: Status, new: Status) -> tuple[Place, Place, Place]:
    """Start at the edge of one box, control point, end at the edge of the other."""
    arrow = ARROWS[old, new]
    start, end = _sum(PLACES[old], arrow.start), _sum(PLACES[new], arrow.end)
    dx, dy = end.x - start.x, end.y - start.y
    length = hypot(dx, dy)
    middle = Place(
        (start.x + end.x) / 2 + 2 * arrow.bend * dy / length,
        (start.y + end.y) / 2 - 2 * arrow.bend * dx / length,
    )
    return _edge(PLACES[old], start, middle), middle, _edge(PLACES[new], end, middle)


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


def _path(old: Status, new: Status) -> str:
    start, middle, end = _curve(old, new)
    points = [f"{p.x:.0f} {p.y:.0f}" for p in (start, middle, end)]
    return f'<path d="M{points[0]} Q{points[1]} {points[2]}"/>'


def _words(old: Status, new: Status) -> str:
    arrow = ARROWS[old, new]
    start, middle, end = _curve(old, new)
    t = arrow.at
    x = (1 - t) ** 2 * start.x + 2 * t * (1 - t) * middle.x + t * t * end.x
    y = (1 - t) ** 2 * start.y + 2 * t * (1 - t) * middle.y + t * t * end.y
    width = LETTER * len(arrow.words) + 4
    return (
        f'<rect class="ground" x="{x - width / 2:.0f}" y="{y - 10:.0f}" width="{width:.0f}" height="20"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{arrow.words}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn())
    print(f"drawn: {PICTURE}")
