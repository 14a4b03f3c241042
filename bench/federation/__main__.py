"""`make bench-federation`: Understudy's federation, and RabbitMQ's federation and shovel, as a table
and a plot.

Each part starts fresh nodes of one system after the other, so that a disturbance of the machine falls on all
alike. Progress goes to standard error; the table is printed last.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

from bench import brokers
from bench.brokers import BrokerError
from bench.compare import modules, rabbitmq
from bench.compare.certificates import Files
from bench.federation.measures import PARTS, QUICK, Effort, Figures, Part
from bench.federation.nets import Net, Rabbits, Understudies
from bench.federation.report import SYSTEMS, svg, table
from bench.loads import LoadError
from bench.run import machine
from bench.table import rewrite
from bench.wire import WireError

PAPER = brokers.ROOT / "bench" / "README.md"
PLOT = brokers.ROOT / "bench" / "federation" / "plot.svg"
BEGIN, END = "<!-- federation: table -->", "<!-- end of federation -->"


@click.command()
@click.option("--quick", is_flag=True, help="A glance of some minutes, whose figures say little.")
@click.option("--only", metavar="REGEX", default="", help=f"Of the parts {', '.join(p.name for p in PARTS)}.")
@click.option("--systems", "names", default=",".join(SYSTEMS), show_default=True, metavar="NAMES")
@click.option("--pure", is_flag=True, help="Understudy in plain Python, also if compiled modules are built.")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1), help="Of the hops.")
@click.option(
    "--out",
    default=Path("build/federation"),
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for table.md, plot.svg and results.json.",
)
def main(quick: bool, only: str, names: str, pure: bool, repeats: int, out: Path) -> None:
    """Measure federation between two nodes.

    A whole run also writes its section of bench/README.md.
    """
    chosen = [name for name in names.split(",") if name]
    if unknown := set(chosen) - set(SYSTEMS):
        raise click.UsageError(
            f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(SYSTEMS)}"
        )
    parts = [part for part in PARTS if re.search(only, part.name)]
    if not parts:
        raise click.UsageError(f"no part is named {only!r}: {', '.join(part.name for part in PARTS)}")
    run = modules.pure() if pure else modules.best()
    try:
        release = rabbitmq.version() if any("rabbitmq" in name for name in chosen) else "-"
    except rabbitmq.MissingBroker as error:
        raise click.ClickException(str(error)) from None
    repeats = 1 if quick else repeats
    about = machine()
    head = (
        f"{about['when']}: {about['cores']} cores ({about['cpu']}), RabbitMQ {release}, "
        f"CPython {about['python']}, modules: {run.name}, median of {repeats} repeats of hops, all else once."
    )
    with tempfile.TemporaryDirectory(prefix="bench-federation-") as folder:
        files = Files.made(Path(folder))
        runs = _measure(parts, chosen, repeats, QUICK if quick else Effort(), files, run.environment)
    text, plot = f"{head}\n\n{table(runs)}", svg(runs, head)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(text + "\n")
    (out / "plot.svg").write_text(plot)
    every = [{"figure": figure, "system": name, "values": values} for (figure, name), values in runs.items()]
    (out / "results.json").write_text(json.dumps({"about": head, "figures": every}, indent=1) + "\n")
    click.echo(f"{out}/table.md, {out}/plot.svg, {out}/results.json", err=True)
    if not (quick or only or pure or set(chosen) != set(SYSTEMS)):
        PLOT.write_text(plot)
        rewrite(PAPER, f"{text}\n\n![Messages a second and CPU time](federation/plot.svg)", BEGIN, END)
        click.echo(f"{PAPER}, {PLOT}", err=True)
    click.echo(text)


def _measure(
    parts: list[Part], chosen: list[str], repeats: int, effort: Effort, files: Files,
    environment: Mapping[str, str],
) -> dict[tuple[str, str], list[float]]:  # fmt: skip
    """Every part on every system in turn. A failure is one line of the progress."""
    runs: dict[tuple[str, str], list[float]] = defaultdict(list)
    for part in parts:
        for repeat in range(repeats if part.repeated else 1):
            for name in (name for name in chosen if name in part.offered):
                click.echo(f"{part.name} {repeat + 1}: {SYSTEMS[name]}", err=True)
                try:
                    with _started(part, name, files, environment) as net:
                        figures: Figures = part.measure(net, effort, name != "understudy")
                except (BrokerError, LoadError, WireError, OSError) as error:
                    click.echo(f"  failed: {error}", err=True)
                    continue
                for figure, value in figures.items():
                    runs[figure, name].append(value)
                    click.echo(f"  {figure}: {value:,.2f}", err=True)
    return dict(runs)


@contextmanager
def _started(part: Part, name: str, files: Files, environment: Mapping[str, str]) -> Iterator[Net]:
    net: Net
    if name == "understudy":
        net = Understudies.start(environment, part.distance, pairs=part.pairs)
    else:
        net = Rabbits.start(files, part.distance, shovel=name == "rabbitmq-shovel")
    try:
        yield net
    finally:
        net.close()


if __name__ == "__main__":
    # So that the brokers are ended, too, when this process is.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    main()
