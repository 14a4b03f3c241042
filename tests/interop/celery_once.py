"""The tasks of docs/how-to/celery.md that see that they have run. One process of the worker is killed."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from celery.signals import task_postrun

from tests.interop.celery_tasks import PAPER, settings_of

sys.modules["celeryconfig"] = SimpleNamespace(**settings_of(0))  # type: ignore[assignment]
_told: dict[str, Any] = {"__name__": __name__}
exec(re.findall(r"^```python\n(# tasks\.py.*?)^```", PAPER.read_text(), re.DOTALL | re.MULTILINE)[0], _told)
app, book = _told["app"], _told["book"]
app.conf.update(broker_url=os.environ.get("INTEROP_BROKER"), result_backend=os.environ.get("INTEROP_RESULTS"))
app.set_default()


@task_postrun.connect
def die_once(**_rest: object) -> None:
    """In the process of the pool: its parent has not acked yet, and gives the task back."""
    mark = Path("died")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
