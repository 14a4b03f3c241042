"""The Celery application that `test_celery` and its worker process share; not a test."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("interop", broker=os.environ.get("INTEROP_BROKER"), backend=os.environ.get("INTEROP_RESULTS"))
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"confirm_publish": True},
    result_chord_retry_interval=0.1,
    task_acks_late=True,
    task_publish_retry_policy={
        "max_retries": 200,
        "interval_start": 0.1,
        "interval_step": 0.05,
        "interval_max": 0.2,
    },
    worker_prefetch_multiplier=4,
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
