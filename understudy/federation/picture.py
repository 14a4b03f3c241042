"""The map of a net as an SVG picture: a box for each node, upstreams above those that take
from them, or give to them.

A link is a line of its node's box, so that no text lies on an arrow. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from understudy.federation.net import AWAY, TAKES, Net, NetLink, NetNode
from understudy.shared.text import shown

WIDTH, GAP, ROW_GAP, MARGIN = 330, 36, 84, 30
MOST_IN_A_ROW = 5
MOST_LINES = 12
"""Links that are named in one box."""
LINE, HEAD, PAD = 17, 30, 10
LONGEST = 47
"""Letters in a line of a box."""
TITLE = 46
LEGEND = 30
_GOOD, _WAITS, _BAD, _OFF = "#2e7d32", "#b26a00", "#c62828", "#78909c"
_COLOURS = {
    "running": _GOOD, "starting": _GOOD, "connecting": _WAITS, AWAY: _WAITS, "paused": _OFF, "off": _OFF,
    "refused": _BAD, "no exchange": _BAD,
}  # fmt: skip
_WORST = (_GOOD, _OFF, _WAITS, _BAD)
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#223}.name{font-weight:bold;font-size:15px}"
    ".title{font-weight:bold;font-size:18px}.small{fill:#556}.bad{fill:#c62828}"
    ".box{fill:#f6f9fc;stroke:#8aa}.lost{fill:#fdf3f2;stroke:#c62828;stroke-dasharray:5 3}"
)


@dataclass(slots=True)
class _Box:
    node: NetNode
    links: list[NetLink]
    label: str
    x: float = 0
    y: float = 0

    @property
    def height(self) -> float:
        return HEAD + LINE * len(self.lines()) + PAD

    def lines(self) -> list[tuple[str, str]]:
        """Class and words of each."""
        found = [
            ("small", _broker(broker.name, broker.address, broker.status)) for broker in self.node.brokers
        ]
        if self.node.reason:
            found.append(("bad", self.node.reason))
        for link in self.links[:MOST_LINES]:
            found.append((_COLOURS.get(link.state, _OFF), ""))
        if len(self.links) > MOST_LINES:
            found.append(("small", f"and {len(self.links) - MOST_LINES} more links"))
        return found


def svg(net: Net) -> str:
    """The whole picture."""
    boxes = {key: _Box(node, [link for link in net.links if link.agent == key], net.label(key))
             for key, node in net.nodes.items()}  # fmt: skip
    width, height = _place(net, boxes)
    running = sum(link.state == "running" for link in net.links)
    title = f"{len(net.nodes):,} nodes, {len(net.links):,} links, {running:,} of them running"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        "<defs>",
        *(_head(colour) for colour in _WORST),
        "</defs>",
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        f'<text class="title" x="{MARGIN}" y="32">{title}</text>',
        *_arrows(net, boxes),
        *(line for box in boxes.values() for line in _drawn(net, box)),
        *_legend(height),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


# -- where everything is


def _place(net: Net, boxes: dict[str, _Box]) -> tuple[float, float]:
    """Each level in rows, each box below those that it has agents for. Returns the size of the picture."""
    above: dict[str, list[str]] = {key: [] for key in boxes}
    for link in net.links:
        above[link.agent].append(link.upstream)
    order: dict[str, float] = {}
    rows: list[list[str]] = []
    for level in net.levels():
        where = {
            key: sum(order[up] for up in ups) / len(ups)
            for key in level if (ups := [up for up in above[key] if up in order])
        }  # fmt: skip
        level.sort(key=lambda key: (where.get(key, 0.0), boxes[key].label))
        order |= {key: at / max(1, len(level) - 1) for at, key in enumerate(level)}
        rows += [level[at : at + MOST_IN_A_ROW] for at in range(0, len(level), MOST_IN_A_ROW)]
    most = max(map(len, rows), default=1)
    width = 2 * MARGIN + most * WIDTH + (most - 1) * GAP
    y = float(MARGIN + TITLE)
    for row in rows:
        x = (width - len(row) * WIDTH - (len(row) - 1) * GAP) / 2
        for key in row:
            boxes[key].x, boxes[key].y = x, y
            x += WIDTH + GAP
        y += max(boxes[key].height for key in row) + ROW_GAP
    return width, y - ROW_GAP + MARGIN + LEGEND


def _arrows(net: Net, boxes: dict[str, _Box]) -> Iterator[str]:
    """One for all links from one node to another, in the colour of the worst."""
    between: dict[tuple[str, str], list[NetLink]] = {}
    for link in net.links:
        between.setdefault((link.source, link.target), []).append(link)
    for (source, target), links in between.items():
        colour = max((_COLOURS.get(link.state, _OFF) for link in links), key=_WORST.index)
        both = (target, source) in between
        yield (
            f'<path d="{_curve(boxes[source], boxes[target], both=both)}" fill="none" stroke="{colour}" '
            f'stroke-width="{min(2 + 0.3 * len(links), 5):g}" marker-end="url(#head{colour[1:]})"/>'
        )


def _curve(one: _Box, other: _Box, *, both: bool) -> str:
    """From box to box. Two that go opposite ways stand beside each other."""
    aside = 14.0 * both * (1 if one.y < other.y or (one.y == other.y and one.x < other.x) else -1)
    if one.y == other.y:  # a row: below the boxes, from the bottom of one to that of the other
        x1, x2 = one.x + 0.85 * WIDTH + aside, other.x + 0.85 * WIDTH + aside
        y1, y2 = one.y + one.height, other.y + other.height + 3
        dip = max(y1, y2) + 44 + aside
        return f"M{x1:g} {y1:g} C{x1:g} {dip:g} {x2:g} {dip:g} {x2:g} {y2:g}"
    down = one.y < other.y
    upper, lower = (one, other) if down else (other, one)
    share = (lower.x - upper.x) / (4 * WIDTH)
    leaves = upper.x + WIDTH / 2 + max(-0.42, min(0.42, share)) * WIDTH + aside
    enters = lower.x + WIDTH / 2 - max(-0.3, min(0.3, share)) * WIDTH + aside
    top, bottom = upper.y + upper.height, lower.y
    mid = (top + bottom) / 2
    if down:
        return f"M{leaves:g} {top:g} C{leaves:g} {mid:g} {enters:g} {mid:g} {enters:g} {bottom - 3:g}"
    return f"M{enters:g} {bottom:g} C{enters:g} {mid:g} {leaves:g} {mid:g} {leaves:g} {top + 3:g}"


# -- what is drawn


def _drawn(net: Net, box: _Box) -> Iterator[str]:
    style = "lost" if box.node.reason else "box"
    yield (
        f'<rect class="{style}" x="{box.x:g}" y="{box.y:g}" width="{WIDTH}" height="{box.height:g}" rx="8"/>'
    )
    yield _text("name", box.x + PAD, box.y + 21, box.label, LONGEST - 19)
    right = box.x + WIDTH - PAD
    yield f'<text class="small" x="{right:g}" y="{box.y + 21:g}" text-anchor="end">{box.node.kind}</text>'
    links = iter(box.links)
    y = box.y + HEAD + 12
    for style, words in box.lines():
        if style.startswith("#"):
            link = next(links)
            yield f'<circle cx="{box.x + PAD + 4:g}" cy="{y - 4:g}" r="4" fill="{style}"/>'
            yield _text("link", box.x + PAD + 14, y, _link(net, link), LONGEST - 2)
        else:
            yield _text(style, box.x + PAD, y, words, LONGEST)
        y += LINE


def _link(net: Net, link: NetLink) -> str:
    arrow = "\u2190" if link.way == TAKES else "\u2192"
    waits = f", {link.waiting:,} waiting" if link.waiting else ""
    rest = f" {arrow} {_cut(net.label(link.upstream), LONGEST // 3)}: {link.state}{waits}"
    return _cut(link.exchange, max(8, LONGEST - 5 - len(rest))) + rest


def _broker(name: str, address: str, status: str) -> str:
    return f"{name} {address}: {status}".strip()


def _text(style: str, x: float, y: float, words: str, most: int) -> str:
    """Words that others chose. What is too long is cut; all of it comes when one points at it."""
    words = shown(words)
    kept = _cut(words, most)
    title = "" if kept == words else f"<title>{escape(words)}</title>"
    return f'<text class="{style}" x="{x:g}" y="{y:g}">{title}{escape(kept)}</text>'


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}\u2026"


def _head(colour: str) -> str:
    return (
        f'<marker id="head{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="11" '
        f'markerHeight="11" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 1 10 5 0 9z" '
        f'fill="{colour}"/></marker>'
    )


def _legend(height: float) -> Iterator[str]:
    x = float(MARGIN)
    words = (
        (_GOOD, "running"),
        (_WAITS, "connecting, not connected"),
        (_BAD, "refused"),
        (_OFF, "paused, off"),
    )
    for colour, text in words:
        yield f'<circle cx="{x + 4:g}" cy="{height - 18:g}" r="4" fill="{colour}"/>'
        yield f'<text class="small" x="{x + 14:g}" y="{height - 14:g}">{text}</text>'
        x += 34 + 6.6 * len(text)
