"""Where alarms go once they are in the journal: lines on a stream, a webhook, Prometheus.

Each sink keeps a cursor of its own beside the journal, so that none waits for another. Owner: `query.Watch`.
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
"""Seconds between two tries of a webhook that does not answer 2xx: doubled each time."""
TIMEOUT = 10.0


class LineSink:
    """A line for each alarm, to standard output. Of a kill between writing and noting it, a line comes
    twice."""

    def __init__(self, checkpoint: Checkpoint, form: str, stream: TextIO | None = None) -> None:
        self._journal = checkpoint.journal
        self._cursor = Cursor(checkpoint.folder / "printed")
        self._json = form == "json"
        self._stream = stream or sys.stdout
        self.losses = 0
        """Alarms of a loss that were written, those that an earlier run left among them."""
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
    """POSTs alarms in order, each until it is answered 2xx; `Idempotency-Key` tells a repetition.

    A thread of its own. At least once: after a kill the last one may come again, under the same key.
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
        """Why the last try failed; empty when it did not."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="webhook", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        return self._journal.last - self._cursor.n

    def emit(self, _lines: list[Line]) -> None:
        self._more.set()

    def close(self, seconds: float) -> int:
        """Deliver what is left, for so long at most; how many are left then. They wait in the journal."""
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
        """False if it is to end first."""
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
    """Prometheus, at an address of its own. Counters go on where the journal ends, also over restarts."""

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
        self.records = gauge("records", "Ledger records read, all in all")
        self.behind = gauge("behind_bytes", "Octets of ledgers that are not read yet")
        self.time = gauge("last_batch_timestamp_seconds", "When ledgers were last looked at, since 1970")
        self.rows = gauge("state_rows", "Ranges and other entries of the live state")
        self.size = gauge("state_bytes", "Octets of the state as it is saved")
        self.live = gauge("writers", "Writers that are neither sealed nor known to have ended")
        self.silent = gauge("silent_writers", "Writers that are silent without a reason")
        self.forgotten = gauge("forgotten_messages", "Confirmed, without a fate, and judged no more")
        self.webhook = gauge("webhook_pending", "Alarms that the webhook has not taken yet")
        self.webhook_failures = gauge("webhook_failures", "Tries of the webhook that failed, since the start")
        self.emit(journal.after(0))

    def emit(self, lines: list[Line]) -> None:
        for line in lines:
            self._alarms.labels(line["kind"], line["severity"]).inc()
            if line["severity"] == "loss":
                self._lost.inc(line.get("count", 0))

    def update(self, judge: Judge, state_bytes: int) -> None:
        """After a batch."""
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
        """The port that it listens at. OSError if it cannot."""
        server, _thread = start_http_server(port, host, registry=self.registry)
        return int(server.server_port)
