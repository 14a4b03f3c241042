"""Result -> HTML, by the template next to this file. All text is escaped; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from understudy.report import picture

WORDS = {"proven": "Proven", "violated": "Violated", "not provable": "Not provable"}
TOTALS = (
    ("published", "published", "messages, each counted once however often it was sent"),
    ("confirmed", "confirmed", "of these, confirmed to their producer"),
    ("received", "received", "ids that a consumer received at least once, over all queues"),
    ("lost", "lost", "confirmed and gone"),
    ("duplicated", "duplicated", "received more than once, allowed or not"),
    ("in_doubt", "in doubt", "sent, and never answered"),
)
SHOWN_RANGES = 12


def ranges(pairs: list[list[int]], pieces: int) -> str:
    """Inclusive ranges as text, the first few of them."""
    shown = ", ".join(f"{a}–{b}" if a != b else f"{a}" for a, b in pairs[:SHOWN_RANGES])
    more = pieces - min(len(pairs), SHOWN_RANGES)
    return f"{shown} and {more:,} more" if more > 0 else shown


def render(answer: Mapping[str, Any]) -> str:
    """The whole page. `answer` is the result of the reconciling job."""
    environment = Environment(
        loader=PackageLoader("understudy.report", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["when"] = picture.when
    environment.globals["ranges"] = ranges
    template = environment.get_template("report.html")
    lead = answer["sentence"].removeprefix(f"{WORDS[answer['verdict']]}: ")
    lead = lead[:1].upper() + lead[1:]
    return template.render(
        r=answer, p=picture.draw(answer), g=picture, lead=lead, word=WORDS[answer["verdict"]], totals=TOTALS
    )
