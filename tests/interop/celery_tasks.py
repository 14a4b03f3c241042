"""The Celery application of `test_celery` and its worker process, set as docs/how-to/celery.md has it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery import Celery

PAPER = Path(__file__).parents[2] / "docs" / "how-to" / "celery.md"


def settings_of(number: int) -> dict[str, Any]:
    """What the block of Python with that number in the paper sets."""
    found: dict[str, Any] = {}
    exec(re.findall(r"^```python\n(.*?)^```", PAPER.read_text(), re.DOTALL | re.MULTILINE)[number], found)
    return {key: value for key, value in found.items() if not key.startswith("__")}


app = Celery("interop")
app.config_from_object(SimpleNamespace(**settings_of(0)))
app.conf.update(
    broker_url=os.environ.get("INTEROP_BROKER"),
    result_backend=os.environ.get("INTEROP_RESULTS"),
    result_chord_retry_interval=0.1,
)
task: Any = app.task


@task
def add(left: int, right: int) -> int:
    return left + right


@task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@task(bind=True, max_retries=5)
def third_time_lucky(self: Any) -> int:
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return int(self.request.retries)
