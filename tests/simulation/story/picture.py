"""A story as a picture: one lane for each node, client and operator, time downwards; as SVG and as Mermaid.

The lane of a node is coloured by its status, so that one sees at a glance who served when, and which copy
could have been promoted. Pure functions of a story.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from textwrap import wrap

from tests.simulation.story.overheard import Event
from tests.simulation.story.story import Fold, Row, Story

STATUS_COLOURS = {
    "joining": "#cbd5e1",
    "catch-up": "#fcd34d",
    "ready": "#60a5fa",
    "recovering": "#86efac",
    "active": "#22c55e",
    "standalone": "#22c55e",
    "stopped": "#1e293b",
}
STOPPED = "stopped"
ENDS = ("is killed", "is without power", "crashes")
"""How it is said that a process is gone."""
LEFT, TOP, MARGIN = 84, 96, 40
NARROW, BROAD = 150, 330
"""Between two lanes; the broad ones are where nodes speak with nodes, or clients with nodes."""
LINE, GAP = 15, 9
"""Height of a line of text, and what is left free between two rows."""
CHARACTER = 6.3
"""Width of one, on average, in the 12 px of the text."""
NOTE_WIDTH, LABEL_WIDTH, WIDE = 48, 46, 120
"""Characters a line: of what a node says to itself, of an arrow's label, of what goes across."""
HELD = ' stroke-dasharray="5 4"'
INK, GREY, RED, BLUE = "#0f172a", "#64748b", "#b91c1c", "#1d4ed8"


@dataclass(slots=True)
class Canvas:
    """SVG elements in three layers, and how far down it goes."""

    lanes: dict[str, float]
    width: float
    y: float = TOP
    below: list[str] = field(default_factory=list)
    above: list[str] = field(default_factory=list)

    def text(
        self, x: float, y: float, lines: list[str], *, colour: str = INK, anchor: str = "start",
        style: str = "", halo: bool = True,
    ) -> None:  # fmt: skip
        """Lines of text, the first with its base at `y`, on a white ground."""
        widest = max((len(line) for line in lines), default=0) * CHARACTER
        left = {"start": x - 2, "middle": x - widest / 2 - 2, "end": x - widest - 2}[anchor]
        if halo:
            self.above.append(
                f'<rect x="{left:.0f}" y="{y - 11.5:.0f}" width="{widest + 4:.0f}"'
                f' height="{LINE * len(lines)}" fill="#ffffff" fill-opacity="0.88"/>'
            )
        for n, line in enumerate(lines):
            self.above.append(
                f'<text x="{x:.0f}" y="{y + n * LINE:.0f}" text-anchor="{anchor}" fill="{colour}" {style}>'
                f"{escape(line)}</text>"
            )

    def time(self, at: float) -> None:
        self.text(LEFT - 22, self.y + 11, [f"{at:.4f}"], colour=GREY, anchor="end", halo=False)


def svg(story: Story) -> str:
    """The whole picture as one document."""
    rows = story.rows()
    names = story.lanes(rows)
    lanes = _lanes(names, story.nodes)
    width = max(lanes.values(), default=LEFT) + NOTE_WIDTH * CHARACTER + MARGIN
    canvas = Canvas(lanes, width)
    bands = _Bands(canvas, story.nodes)
    for row in rows:
        if isinstance(row, Event):
            bands.see(row)
            if row.kind == "end":
                bands.end()
        _row(canvas, row)
    bands.end()
    return _document(canvas, story, names)


def _lanes(names: list[str], nodes: list[str]) -> dict[str, float]:
    lanes, x = {}, LEFT + NARROW / 2
    for n, name in enumerate(names):
        lanes[name] = x
        x += BROAD if name in nodes or (n + 1 < len(names) and names[n + 1] in nodes) else NARROW
    return lanes


class _Bands:
    """The coloured lanes of the nodes: a band for as long as a status lasts, none while it is down."""

    def __init__(self, canvas: Canvas, nodes: list[str]) -> None:
        self._canvas = canvas
        self._since: dict[str, tuple[str, float]] = {}
        self._paused: dict[str, str] = {}
        """What a stopped process was."""
        self._nodes = nodes

    def see(self, event: Event) -> None:
        if event.source not in self._nodes:
            return
        if event.kind == "status":
            self._begin(event.source, event.text)
        elif event.kind not in ("fault", "life"):
            return
        elif event.text.startswith("is stopped"):
            self._paused[event.source] = self._since.get(event.source, ("", 0.0))[0]
            self._begin(event.source, STOPPED)
        elif event.text.startswith(ENDS):
            self._close(event.source)
        elif event.text.startswith("goes on"):
            self._begin(event.source, self._paused.pop(event.source, ""))

    def _begin(self, node: str, status: str) -> None:
        self._close(node)
        self._since[node] = status, self._canvas.y + GAP

    def end(self) -> None:
        for node in list(self._since):
            self._close(node)

    def _close(self, node: str) -> None:
        status, since = self._since.pop(node, ("", 0.0))
        if status:
            x, height = self._canvas.lanes[node], self._canvas.y + GAP - since
            colour = STATUS_COLOURS.get(status, "#e2e8f0")
            self._canvas.below.append(
                f'<rect x="{x - 6:.0f}" y="{since:.0f}" width="12" height="{max(height, 4):.0f}" rx="3"'
                f' fill="{colour}"/>'
            )


def _row(canvas: Canvas, row: Row) -> None:
    if isinstance(row, Fold):
        _across(canvas, wrap(row.text, WIDE), GREY, 'font-style="italic"')
        return
    canvas.time(row.at)
    if row.kind == "say":
        _arrow(canvas, row)
    elif row.kind == "end":
        _verdict(canvas, wrap(f"VIOLATED: {row.text}", WIDE))
    elif row.kind == "around" and row.source not in canvas.lanes:
        _across(canvas, wrap(row.text, WIDE), GREY, "")
    elif row.kind == "fault" and row.source not in canvas.lanes:
        _across(canvas, wrap(f"FAULT: {row.text}", WIDE), RED, 'font-weight="bold"', line=True)
    else:
        _note(canvas, row)


def _arrow(canvas: Canvas, event: Event) -> None:
    start, end = canvas.lanes[event.source], canvas.lanes[event.target]
    room = max(LABEL_WIDTH, int(abs(end - start) / CHARACTER) - 4)
    lines = wrap(event.text, room) or [""]
    canvas.text((start + end) / 2, canvas.y + 11, lines, anchor="middle")
    canvas.y += LINE * len(lines) + 4
    pull = 7 if end > start else -7
    canvas.above.append(
        f'<path d="M{start + pull:.0f} {canvas.y:.0f}H{end - pull:.0f}" stroke="{INK}" stroke-width="1.3"'
        f'{HELD if event.held else ""} fill="none" marker-end="url(#a)"/>'
    )
    canvas.y += GAP


def _note(canvas: Canvas, event: Event) -> None:
    """Beside the lane: a sentence, a status, something done, a kill."""
    x = canvas.lanes[event.source]
    style, colour = {
        "log": ('font-style="italic"', GREY),
        "does": ("", BLUE),
        "status": ('font-weight="bold"', INK),
        "fault": ('font-weight="bold"', RED),
    }.get(event.kind, ("", INK))
    lines = wrap(event.text, NOTE_WIDTH)
    canvas.text(x + 14, canvas.y + 11, lines, colour=colour, style=style)
    middle = canvas.y + 7
    if event.kind == "status":
        colour = STATUS_COLOURS.get(event.text, "#e2e8f0")
        canvas.above.append(
            f'<circle cx="{x:.0f}" cy="{middle:.0f}" r="6.5" fill="{colour}" stroke="{INK}"/>'
        )
    elif event.kind == "fault":
        canvas.above.append(
            f'<path d="M{x - 8:.0f} {middle - 8:.0f}l16 16m0 -16l-16 16" stroke="{RED}" stroke-width="3"/>'
        )
    else:
        canvas.above.append(f'<circle cx="{x:.0f}" cy="{middle:.0f}" r="2.5" fill="{INK}"/>')
    canvas.y += LINE * len(lines) + GAP - 3


def _across(canvas: Canvas, lines: list[str], colour: str, style: str, *, line: bool = False) -> None:
    """Over all lanes."""
    if line:
        canvas.above.append(
            f'<path d="M{LEFT - 10} {canvas.y + 7:.0f}H{canvas.width - 10:.0f}" stroke="{colour}"'
            ' stroke-width="1.5" stroke-dasharray="7 4"/>'
        )
    canvas.text(LEFT + 4, canvas.y + 11, lines, colour=colour, style=style)
    canvas.y += LINE * len(lines) + GAP


def _verdict(canvas: Canvas, lines: list[str]) -> None:
    height = LINE * len(lines) + 14
    canvas.above.append(
        f'<rect x="{LEFT - 6}" y="{canvas.y:.0f}" width="{canvas.width - LEFT - 10:.0f}" height="{height}"'
        f' rx="5" fill="#fef2f2" stroke="{RED}" stroke-width="1.5"/>'
    )
    canvas.text(LEFT + 6, canvas.y + 18, lines, colour=RED, style='font-weight="bold"', halo=False)
    canvas.y += height + GAP


def _document(canvas: Canvas, story: Story, names: list[str]) -> str:
    height = canvas.y + 20
    heads = []
    for name in names:
        x, node = canvas.lanes[name], name in story.nodes
        heads.append(
            f'<path d="M{x:.0f} {TOP - 14}V{height - 12:.0f}" stroke="#cbd5e1" stroke-dasharray="3 4"/>'
            f'<rect x="{x - 60:.0f}" y="{TOP - 44}" width="120" height="28" rx="6"'
            f' fill="{"#eff6ff" if node else "#f8fafc"}" stroke="{BLUE if node else GREY}"/>'
            f'<text x="{x:.0f}" y="{TOP - 25}" text-anchor="middle" font-weight="bold" fill="{INK}">'
            f"{escape(name)}</text>"
        )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {canvas.width:.0f} {height:.0f}"'
            f' width="{canvas.width:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="12"'
            ' role="img" aria-labelledby="t">',
            f'<title id="t">{escape(_title(story))}</title>',
            '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9"'
            f' orient="auto"><path d="M0 0 8 4 0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="{canvas.width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
            _legend(),
            *heads,
            *canvas.below,
            *canvas.above,
            "</svg>",
        ]
    )


def _title(story: Story) -> str:
    return f"seed {story.plan.seed}: {story.failure or 'no failure'}"


def _legend() -> str:
    out, x = [], float(LEFT - 6)
    for status in ("joining", "catch-up", "ready", "recovering", "active", STOPPED):
        out.append(
            f'<rect x="{x:.0f}" y="14" width="12" height="12" rx="3" fill="{STATUS_COLOURS[status]}"/>'
        )
        out.append(f'<text x="{x + 17:.0f}" y="24" fill="{GREY}">{status}</text>')
        x += 34 + len(status) * CHARACTER
    out.append(f'<text x="{x + 6:.0f}" y="24" fill="{GREY}">virtual seconds at the left</text>')
    return "".join(out)


# -- Mermaid


def mermaid(story: Story) -> str:
    """A sequence diagram for whatever renders Markdown."""
    rows = story.rows()
    names = story.lanes(rows) or ["nobody"]
    out = ["sequenceDiagram"]
    out += [f"    participant {_id(name)} as {name}" for name in names]
    for row in rows:
        out.append(f"    {_mermaid_row(row, names)}")
    return "\n".join(out)


def _mermaid_row(row: Row, names: list[str]) -> str:
    everybody = _id(names[0]) if len(names) == 1 else f"{_id(names[0])},{_id(names[-1])}"
    if isinstance(row, Fold):
        return f"Note over {everybody}: {_plain(row.text)}"
    if row.kind == "say":
        return f"{_id(row.source)}{'-->>' if row.held else '->>'}{_id(row.target)}: {_plain(row.text)}"
    word = {"status": "is ", "fault": "FAULT: ", "end": "VIOLATED: "}.get(row.kind, "")
    where = _id(row.source) if row.source in names else everybody
    return f"Note over {where}: {_plain(word + row.text)}"


def _id(name: str) -> str:
    """Without what Mermaid would read as syntax."""
    return "".join(c if c.isalnum() else "_" for c in name)


def _plain(text: str) -> str:
    return text.replace(";", ",").replace("#", "no. ").replace("\n", " ")
