"""Renders a result as HTML, with the templates beside this file. All text is escaped; nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from understudy.report import run, survey
from understudy.report.advice import advice
from understudy.report.scale import spell, when

SHOWN_RANGES = 12


def ranges(pairs: Sequence[Sequence[int]], pieces: int) -> str:
    """The first inclusive ranges as text. `pieces` is the number of all ranges."""
    shown = ", ".join(f"{a}–{b}" if a != b else f"{a}" for a, b in pairs[:SHOWN_RANGES])
    more = pieces - min(len(pairs), SHOWN_RANGES)
    return f"{shown} and {more:,} more" if more > 0 else shown


def milliseconds(value: float | None) -> str:
    """A duration in ms, as text."""
    return "–" if value is None else spell(value * 1000)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("understudy.report", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update({
        "number": lambda value: f"{value:,}", "when": when, "ms": milliseconds, "advice": advice,
        "duration": lambda us: "–" if us is None else spell(us),
        "percent": lambda share: "0" if not share else f"{100 * share:.2g} %",
        "slug": lambda text: text.replace(" ", "-"),
    })  # fmt: skip
    environment.globals["ranges"] = ranges
    return environment


def render(answer: Mapping[str, Any]) -> str:
    """The whole page of a result, of a run or of a survey."""
    if answer.get("kind") == "survey":
        template, view = "survey.html", survey.view(answer)
    else:
        template, view = "run.html", run.view(answer)
    return _environment().get_template(template).render(r=answer, **view)
