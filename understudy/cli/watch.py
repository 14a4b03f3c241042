"""`understudy watch`: alarms on losses, silent writers and damaged ledgers, while the ledgers grow.

Called by the command line (`understudy.cli.main`). Connects to no broker. PySpark is imported only when the
command runs. docs/how-to/watch.md explains when an alarm is certain.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from understudy.cli.exit_codes import DONE, FOUND, NOTHING, UNDONE
from understudy.cli.options import Judge, duration_value, ledger_folders, no_folder, stop, unreadable

if TYPE_CHECKING:
    from spark.watch.query import Told, Watch
    from spark.watch.sinks import Metrics, Webhook

_fail = partial(stop, "watch")
LAST_WORDS = 5.0
"""Seconds for the last alarms to reach the webhook. Under --once, ONCE_WORDS applies."""
ONCE_WORDS = 30.0


def _url(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not (urlsplit(value).scheme in ("http", "https") and urlsplit(value).hostname):
        raise click.BadParameter(f"{value!r} is not an http or https URL")
    return value


@click.command(name="watch", cls=Judge)
@ledger_folders
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder for the state of the watch. [default: the first LEDGER_DIR with .watch appended]",
)
@click.option(
    "--retention",
    metavar="DURATION",
    callback=duration_value,
    default="1h",
    show_default=True,
    help="How long to watch a message whose fate is unknown.",
)
@click.option(
    "--heartbeat",
    metavar="DURATION",
    callback=duration_value,
    default="5s",
    show_default=True,
    help="Expected ledger heartbeat interval; three missed heartbeats raise an alarm.",
)
@click.option(
    "--grace",
    metavar="DURATION",
    callback=duration_value,
    default="1s",
    show_default=True,
    help="How late a ledger that is copied here may be, compared with others.",
)
@click.option("--webhook", metavar="URL", callback=_url, help="POST each alarm to this URL as JSON.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve Prometheus metrics on this port.")
@click.option("--metrics-listen", metavar="HOST", default="127.0.0.1", show_default=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the lines on standard output.",
)
@click.option("--once", is_flag=True, help="Judge the ledgers as they are, then exit.")
def watch(
    folders: tuple[Path, ...], checkpoint: Path | None, retention: float, heartbeat: float, grace: float,
    webhook: str | None, metrics_port: int | None, metrics_listen: str, form: str, once: bool,
) -> None:  # fmt: skip
    """Watch the ledgers below each LEDGER_DIR while they grow. Raises an alarm when a loss is certain, when a
    writer is silent, or when a ledger is damaged. SIGTERM and SIGINT end it cleanly; the next start
    continues.

    Exit code: 0; under --once 1 a loss was alarmed, 2 nothing could be judged; 3 wrong usage, no Java, or a
    file or Spark failed.
    """
    from spark.session import SparkUnavailable, require_pyspark
    from spark.watch.checkpoint import Checkpoint, CheckpointError
    from spark.watch.judge import Limits
    from spark.watch.query import Watch
    from spark.watch.sinks import LineSink, Metrics, Webhook

    _hold_signals()
    for folder in folders:
        if (why := no_folder(folder)) is not None or not folder.is_dir():
            _fail(f"no ledger: {why or f'{folder}: Not a directory'}", NOTHING)
    if (fault := unreadable(folders)) is not None:
        _fail(fault, UNDONE)
    first = Path(os.path.realpath(folders[0]))
    where = checkpoint or first.with_name(first.name + ".watch")
    limits = Limits(heartbeat=heartbeat, grace=grace, retention=retention)
    try:
        require_pyspark()  # before the checkpoint: a command that cannot run leaves no folder
        kept = Checkpoint(where)
        told = LineSink(kept, form)
        sinks: list[LineSink | Webhook | Metrics] = [told]
        hook = metrics = None
        if webhook is not None:
            hook = Webhook(webhook, kept.journal, where / "posted")
            sinks.append(hook)
        if metrics_port is not None:
            metrics = _serve(Metrics(kept.journal), metrics_listen, metrics_port)
            sinks.append(metrics)
        run = Watch(folders, kept, limits, sinks, once=once, told=_Telling(metrics, hook))
        _run(run)
    except (CheckpointError, SparkUnavailable) as error:
        _fail(str(error), UNDONE)
    left = hook.close(ONCE_WORDS if once else LAST_WORDS) if hook else 0
    if hook is not None and left:
        click.echo(f"understudy watch: {left} alarms have not reached the webhook ({hook.trouble})", err=True)
    kept.close()
    sys.exit(_status(run, folders, told.losses) if once else DONE)


def _serve(metrics: Metrics, host: str, port: int) -> Metrics:
    try:
        found = metrics.serve(host, port)
    except OSError as error:
        _fail(f"cannot serve metrics at {host}:{port}: {error.strerror or error}", UNDONE)
    click.echo(f"understudy watch: metrics at http://{host}:{found}/metrics", err=True)
    return metrics


SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _hold_signals() -> None:
    """Block the signals, also in threads started later, until the watch can end cleanly. The JVM inherits
    that they are ignored: a signal to the whole process group must not end Spark during a batch."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _run(run: Watch) -> None:
    """Run the watch. Signals end it between two batches."""
    from spark.session import said_by_spark
    from spark.watch.checkpoint import CheckpointError

    def end(_number: int, _frame: object) -> None:
        run.stop()

    def ready() -> None:
        for number in SIGNALS:
            signal.signal(number, end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    try:
        run.run(ready)
    except CheckpointError:
        raise
    except Exception as error:
        if (said := said_by_spark(error)) is None:
            raise
        _fail(said, UNDONE)


def _status(run: Watch, folders: tuple[Path, ...], losses: int = 0) -> int:
    """The exit code under --once. If nothing could be judged and no alarm said so, prints why. `losses`: the
    number of losses reported, including those that an earlier run found."""
    ledgers = run.judge.live
    if run.losses or losses:
        return FOUND
    why = ""
    if not run.done:
        why = "stopped before everything was judged"
    elif not ledgers.producers:
        what = "no ledger of a producer" if ledgers.records else "no ledger"
        why = f"nothing to judge: {what} below {', '.join(map(str, folders))}"
    if why:
        click.echo(f"understudy watch: {why} (exit code 2)", err=True)
    return NOTHING if why or run.judge.blind else DONE


class _Telling:
    """Updates the metrics after each batch."""

    def __init__(self, metrics: Metrics | None, hook: Webhook | None) -> None:
        self._metrics = metrics
        self._hook = hook

    def __call__(self, told: Told) -> None:
        if self._metrics is not None:
            self._metrics.update(told.judge, told.state_bytes)
            if self._hook is not None:
                self._metrics.update_webhook(self._hook)
