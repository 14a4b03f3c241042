"""`make bench-steady`: the pauses of a broker's event loop while a deep queue is passed through.

A node alone, and the primary of a pair, as real processes with ledger and metrics. A queue has a million
persistent messages, and half of the most that the broker can take goes in at its end and out at its front. A
probe asks the event loop every two milliseconds, and /metrics is scraped once a second. Exit code 1: a pause
was longer than the goal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import click

from bench import brokers
from bench.durable.nodes import connected, depth, file_system, fill
from bench.hostile.session import ahead, standing
from bench.hostile.watch import Watch
from bench.run import machine
from bench.steady.histogram import Histogram
from bench.steady.probe import Probe
from bench.steady.report import GOAL_MS, Run, long_waits, svg, table
from bench.wire import WireError

QUEUE, BODY = "deep", 256
SYSTEMS = {"alone": "a node alone", "pair": "the primary of a pair"}


class Scraper(threading.Thread):
    """Gets /metrics of all brokers once a second, each on a new connection, until `stop`."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._enough = threading.Event()
        self.count, self.longest_ms = 0, 0.0
        self.start()

    def run(self) -> None:
        while not self._enough.wait(1.0):
            for port in self._ports:
                began = time.monotonic()
                visit = HTTPConnection(brokers.HOST, port, timeout=60)
                try:
                    visit.request("GET", "/metrics")
                    good = visit.getresponse()
                    self.count += bool(good.read() and good.status == 200)
                except (OSError, HTTPException):
                    continue
                finally:
                    visit.close()
                self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - began))

    def stop(self) -> None:
        self._enough.set()
        self.join()


@click.command()
@click.option("--seconds", default=600.0, show_default=True, help="Of the measured part of each system.")
@click.option(
    "--messages", default=1_000_000, show_default=True, type=click.IntRange(1), help="In the queue."
)
@click.option("--share", default=0.5, show_default=True, help="Of the most that the broker can take.")
@click.option("--systems", default="alone,pair", show_default=True, metavar="NAMES")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Folder for the brokers' files."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the brokers.")
@click.option("--ahead", "first", is_flag=True, help="Of other sessions on the cores; for root only.")
@click.option(
    "--out",
    default=Path("build/steady"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for table.md, pauses.svg and results.json.",
)
def main(
    seconds: float,
    messages: int,
    share: float,
    systems: str,
    data: Path | None,
    settings: tuple[str, ...],
    first: bool,
    out: Path,
) -> None:
    """Measure the pauses of the event loop under a steady load."""
    if first:
        rest = [word for word in sys.argv[1:] if word != "--ahead"]
        raise SystemExit(ahead([sys.executable, "-m", "bench.steady", *rest]))
    chosen = systems.split(",")
    if unknown := set(chosen) - set(SYSTEMS):
        raise click.UsageError(f"no such system: {', '.join(sorted(unknown))}; there are alone, pair")
    try:
        runs = [_system(name, seconds, messages, share, data, settings) for name in chosen]
    except (brokers.BrokerError, WireError, OSError) as error:
        raise click.ClickException(str(error)) from None
    about = machine()
    line = f"{about['when']}: {about['cores']} cores ({about['cpu']}), CPython {about['python']}, "
    line += f"{file_system(data or Path('/tmp'))}; {standing()}"
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    (out / "table.md").write_text(f"{line}\n\n{table(runs)}\n")
    (out / "pauses.svg").write_text(svg(runs, line))
    click.echo(f"{out}/table.md, {out}/pauses.svg", err=True)
    click.echo(f"{line}\n\n{table(runs)}")
    missed = [run for run in runs if not run.met]
    for run in missed:
        click.echo(f"{run.title}: a pause of {run.pauses.longest_own:.1f} ms; the goal is {GOAL_MS:g} ms")
    raise SystemExit(1 if missed else 0)


def _system(
    name: str, seconds: float, messages: int, share: float, data: Path | None, settings: tuple[str, ...]
) -> Run:
    start = brokers.pair if name == "pair" else brokers.alone
    with start("ledger.enabled=true", *settings, under=data, http=True) as cluster:
        target = cluster.brokers[0]
        click.echo(f"{name}: {messages:,} messages go in", err=True)
        fill(target.port, QUEUE, messages, BODY)
        most = _most(target)
        click.echo(f"{name}: at most {most:,.0f} messages a second; {share:.0%} for {seconds:g} s", err=True)
        run = _measured(SYSTEMS[name], cluster, most, share * most, seconds)
        wire = connected(target.port)
        left = depth(wire, QUEUE)
        wire.close()
        if left != messages:
            raise brokers.BrokerError(f"{name}: the queue has {left:,} messages, and not {messages:,}")
    click.echo(long_waits(run), err=True)
    return run


def _most(broker: brokers.Broker) -> float:
    """Messages a second through a queue of its own, as fast as the generator can."""
    command = [sys.executable, "-m", "bench.generator", "--port", str(broker.port), "--consume"]
    command += ["--durable", "--persistent", "--window", "1000", "--seconds", "4", "--messages", "4000000"]
    return float(json.loads(_done(command, broker))["rate"])


def _measured(title: str, cluster: brokers.Cluster, most: float, rate: float, seconds: float) -> Run:
    target = cluster.brokers[0]
    found = Histogram()
    probe = Watch(Probe, target.port, target.process.pid)
    scraper = Scraper([broker.http for broker in cluster.brokers if broker.http])
    command = [sys.executable, "-m", "bench.steady.load", str(target.port), QUEUE, str(BODY)]
    command += [str(rate), str(seconds)]
    try:
        with subprocess.Popen(
            command, cwd=brokers.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as load:
            while load.poll() is None:
                found.add(probe.lap())
                time.sleep(0.5)
            output, errors = load.communicate()
            if load.returncode:
                raise brokers.BrokerError(f"{errors.strip()}\n{target.last_words()}")
        found.add(probe.lap())
    except EOFError:
        raise brokers.BrokerError(f"{title}: the probe ended\n{target.last_words()}") from None
    finally:
        probe.close()
        scraper.stop()
    passed = json.loads(output)
    return Run(
        title=title,
        seconds=passed["seconds"],
        rate=passed["confirmed"] / passed["seconds"],
        most=most,
        behind_ms=1000 * passed["behind"],
        scrapes=scraper.count,
        scrape_ms=scraper.longest_ms,
        pauses=found,
    )


def _done(command: list[str], broker: brokers.Broker) -> str:
    done = subprocess.run(command, cwd=brokers.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise brokers.BrokerError(f"{done.stderr.strip()}\n{broker.last_words()}")
    return done.stdout


if __name__ == "__main__":
    main()
