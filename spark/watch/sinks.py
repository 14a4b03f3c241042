"""Outputs for alarms that are in the journal: lines on a stream, a webhook, Prometheus metrics.

The line sink and the webhook each keep their own cursor beside the journal, so neither waits for the other.
Owner: `query.Watch`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from spark.watch.checkpoint import Checkpoint, Cursor, Journal
from spark.watch.judge import Judge

Line = dict[str, Any]
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds between two attempts while the webhook does not answer 2xx; doubled each time."""
TIMEOUT = 10.0


class LineSink:
    """Writes a line for each alarm to standard output.

    If the watch is killed after it writes a line and before it saves the cursor, the line comes twice.
    """

    def __init__(self, checkpoint: Checkpoint, form: str, stream: TextIO | None = None) -> None:
        self._journal = checkpoint.journal
        self._cursor = Cursor(checkpoint.folder / "printed")
        self._json = form == "json"
        self._stream = stream or sys.stdout
        self.losses = 0
        """Number of loss alarms written, including those left over from an earlier run."""
        self.emit(self._journal.after(self._cursor.n))

    def emit(self, lines: list[Line]) -> None:
        for line in lines:
            print(json.dumps(line) if self._json else as_text(line), file=self._stream)
        if lines:
            self._stream.flush()
            self.losses += sum(line["severity"] == "loss" for line in lines)
            self._cursor.move(lines[-1]["n"])


def as_text(line: Line) -> str:
    when = datetime.fromtimestamp(line["ts_us"] / 1e6, UTC).isoformat(timespec="milliseconds")
    return f"{when} {line['severity'].upper()} {line['kind']}: {line['sentence']} [{line['key']}]"


class Webhook:
    """POSTs alarms in order, each until the answer is 2xx. `Idempotency-Key` marks repetitions.

    Has its own thread. Delivers at least once: after a kill, the last alarm may come again with the same key.
    """

    def __init__(self, url: str, journal: Journal, cursor: Path, *, first_retry: float = FIRST_RETRY) -> None:
        self._url = url
        self._journal = journal
        self._cursor = Cursor(cursor)
        self._first_retry = first_retry
        self._more = threading.Event()
        self._more.set()
        self._stop = threading.Event()
        self._draining = False
        self.failures = 0
        self.trouble = ""
        """Why the last attempt failed; empty if it succeeded."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="webhook", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        return self._journal.last - self._cursor.n

    def emit(self, _lines: list[Line]) -> None:
        self._more.set()

    def close(self, seconds: float) -> int:
        """Deliver the remaining alarms within about `seconds`. Returns how many are left; they stay in the
        journal.
        """
        self._draining = True
        self._more.set()
        self._thread.join(seconds)
        self._stop.set()
        self._more.set()
        self._thread.join(TIMEOUT + 1)
        return self.pending

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while not self._stop.is_set():
                await asyncio.to_thread(self._more.wait)
                self._more.clear()
                for line in self._journal.after(self._cursor.n):
                    if not await self._deliver(session, line):
                        return
                if self._draining and not self.pending:
                    return

    async def _deliver(self, session: aiohttp.ClientSession, line: Line) -> bool:
        """Deliver one alarm, with retries. Returns False if the webhook is stopped first."""
        pause = self._first_retry
        while not self._stop.is_set():
            try:
                async with session.post(
                    self._url, json=line, headers={"Idempotency-Key": line["key"]}
                ) as response:
                    if 200 <= response.status < 300:
                        self.trouble = ""
                        self._cursor.move(line["n"])
                        return True
                    self.trouble = f"HTTP status {response.status}"
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self.trouble = str(error) or type(error).__name__
            self.failures += 1
            await asyncio.to_thread(self._stop.wait, pause)
            pause = min(pause * 2, LAST_RETRY)
        return False


class Metrics:
    """Prometheus metrics at their own address. Counters of alarms and lost messages start from the journal,
    so they survive restarts.
    """

    def __init__(self, journal: Journal) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"understudy_watch_{name}", text, registry=self.registry)

        self._alarms = Counter(
            "understudy_watch_alarms", "Alarms raised, by kind", ["kind", "severity"], registry=self.registry
        )
        self._lost = Counter(
            "understudy_watch_lost_messages", "Messages alarmed as lost", registry=self.registry
        )
        self.batches = Counter("understudy_watch_batches", "Batches taken", registry=self.registry)
        self.records = gauge("records", "Ledger records read in total")
        self.behind = gauge("behind_bytes", "Bytes of ledgers not read yet")
        self.time = gauge("last_batch_timestamp_seconds", "Unix time of the last batch")
        self.rows = gauge("state_rows", "Ranges and other entries in the live state")
        self.size = gauge("state_bytes", "Size of the saved state in bytes")
        self.live = gauge("writers", "Writers that are neither sealed nor known to have ended")
        self.silent = gauge("silent_writers", "Writers that are silent without an explanation")
        self.forgotten = gauge(
            "forgotten_messages", "Confirmed messages without a fate that are no longer judged"
        )
        self.webhook = gauge("webhook_pending", "Alarms that the webhook has not accepted yet")
        self.webhook_failures = gauge("webhook_failures", "Failed attempts of the webhook since the start")
        self.emit(journal.after(0))

    def emit(self, lines: list[Line]) -> None:
        for line in lines:
            self._alarms.labels(line["kind"], line["severity"]).inc()
            if line["severity"] == "loss":
                self._lost.inc(line.get("count", 0))

    def update(self, judge: Judge, state_bytes: int) -> None:
        """Update the metrics after a batch."""
        live = judge.live
        writers = [w for w in live.writers.values() if not (w.sealed or w.ended)]
        self.batches.inc()
        self.records.set(live.records)
        self.behind.set(judge.behind)
        self.time.set(live.now / 1e6)
        self.rows.set(live.rows)
        self.size.set(state_bytes)
        self.live.set(len(writers))
        self.silent.set(sum(w.silent for w in writers))
        self.forgotten.set(live.forgotten)

    def update_webhook(self, hook: Webhook) -> None:
        self.webhook.set(hook.pending)
        self.webhook_failures.set(hook.failures)

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics. Returns the port; raises OSError if it cannot listen."""
        server, _thread = start_http_server(port, host, registry=self.registry)
        return int(server.server_port)
