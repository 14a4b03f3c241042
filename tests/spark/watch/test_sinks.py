"""Sinks for alarms: each alarm arrives once, whatever the receiver does."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from spark.watch.checkpoint import Checkpoint
from spark.watch.sinks import LineSink, Metrics, Webhook

WAIT = 20


def alarm(n: int, kind: str = "lost", count: int = 3) -> dict[str, Any]:
    return {
        "n": n, "key": f"w-{n}", "ts_us": 1_700_000_000_000_000, "kind": kind,
        "severity": "loss" if kind == "lost" else "warning", "sentence": f"sentence {n}", "count": count,
    }  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path: Path) -> Iterator[Checkpoint]:
    made = Checkpoint(tmp_path)
    yield made
    made.close()


class Receiver:
    """An HTTP server that gives the given answers, then 200."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver.arrived:
                    receiver.got.append((self.headers["Idempotency-Key"], body))
                    answer = receiver.answers.pop(0) if receiver.answers else 200
                    receiver.arrived.notify_all()
                self.send_response(answer)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/alarms"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.got) >= count, WAIT), self.got
            return list(self.got)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_a_webhook_is_retried_until_it_accepts_in_order(checkpoint: Checkpoint) -> None:
    receiver = Receiver(503, 500, 200, 429)
    hook = Webhook(receiver.url, checkpoint.journal, checkpoint.folder / "posted", first_retry=0.01)
    hook.emit(checkpoint.journal.append([alarm(1), alarm(2)]))
    keys = [key for key, _ in receiver.wait(5)]
    assert keys == ["w-1", "w-1", "w-1", "w-2", "w-2"]
    assert hook.close(WAIT) == 0
    assert [body["sentence"] for _, body in receiver.got[2:4]] == ["sentence 1", "sentence 2"]
    receiver.close()


def test_undelivered_alarms_wait_for_the_next_run(checkpoint: Checkpoint) -> None:
    receiver = Receiver()
    receiver.close()
    hook = Webhook(receiver.url, checkpoint.journal, checkpoint.folder / "posted", first_retry=0.01)
    hook.emit(checkpoint.journal.append([alarm(1), alarm(2)]))
    assert hook.close(0.2) == 2
    assert hook.trouble
    second = Receiver()
    again = Webhook(second.url, checkpoint.journal, checkpoint.folder / "posted")
    assert [key for key, _ in second.wait(2)] == ["w-1", "w-2"]
    assert again.close(WAIT) == 0
    third = Webhook(second.url, checkpoint.journal, checkpoint.folder / "posted")
    assert third.close(WAIT) == 0
    assert len(second.got) == 2
    second.close()


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_are_written_once_across_restarts(checkpoint: Checkpoint, form: str) -> None:
    out = io.StringIO()
    sink = LineSink(checkpoint, form, out)
    sink.emit(checkpoint.journal.append([alarm(1)]))
    checkpoint.journal.append([alarm(2)])  # the watch was killed before it wrote this one
    assert LineSink(checkpoint, form, out).losses == 1
    assert LineSink(checkpoint, form, out).losses == 0
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    if form == "json":
        assert [json.loads(line) for line in lines] == [alarm(1), alarm(2)]
    else:
        assert lines[0] == "2023-11-14T22:13:20.000+00:00 LOSS lost: sentence 1 [w-1]"


def test_counters_start_from_the_journal(checkpoint: Checkpoint) -> None:
    checkpoint.journal.append([alarm(1, count=4), alarm(2, kind="silent", count=0)])
    metrics = Metrics(checkpoint.journal)
    metrics.emit(checkpoint.journal.append([alarm(3, count=6)]))
    port = metrics.serve("127.0.0.1", 0)
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT) as answer:
        text = answer.read().decode()
    assert 'understudy_watch_alarms_total{kind="lost",severity="loss"} 2.0' in text
    assert 'understudy_watch_alarms_total{kind="silent",severity="warning"} 1.0' in text
    assert "understudy_watch_lost_messages_total 10.0" in text
