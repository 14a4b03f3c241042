"""The HTML reports: one file each, no network, readable on a phone, light or dark.

`render` takes a result (of the reconciling job, or of `understudy report`; its JSON) and returns the page,
`write` puts it into a file and the JSON beside it. Called by `understudy reconcile --output`, by `understudy
report --output` and, through the former, by the demo.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark.insight.words import length as short_length
from understudy.report.page import render

__all__ = ["beside", "render", "short_length", "write"]


def beside(page: Path) -> Path:
    """Where the JSON of a report goes: report.html -> report.json."""
    return page.with_suffix(".json") if page.suffix != ".json" else page.with_suffix(".report.json")


def write(answer: Mapping[str, Any], page: Path) -> None:
    """The page, and beside it the JSON that it was made of. Raises OSError."""
    page.write_text(render(answer), encoding="utf-8")
    beside(page).write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
