"""What durability costs, and what it gives: `python -m bench.durable [commit|stalls|start|return|space ...]`.

Real brokers as real processes on real files, below `--data` (a temporary folder if not given). All figures
have the file system's name with them. `--quick` is a glance of some seconds a part, with smaller loads, whose
figures say little; `--large` adds 10,000,000 messages to *start*; `--write` replaces the parts' tables in
bench/README.md. Data folders are removed at the end.

    commit   persistent messages confirmed by one disk, and by both of a pair
    stalls   how long the event loop stands still while much is written
    start    from exec to the first answer, with many messages or many queues on disk
    return   a killed backup comes back and fetches only what is missing
    space    what stays on disk of messages that were consumed long ago
    backlog  a queue deeper than memory
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bench import brokers
from bench.durable.backlog import backlog
from bench.durable.commit import commit
from bench.durable.nodes import file_system
from bench.durable.rejoin import comes_back
from bench.durable.report import Findings
from bench.durable.space import space
from bench.durable.stalls import SIZES, stalls
from bench.durable.start import begin
from bench.loads import LoadError
from bench.run import machine
from bench.wire import WireError

PARTS: dict[str, Callable[[argparse.Namespace], Findings]] = {
    "commit": commit,
    "stalls": stalls,
    "start": begin,
    "return": comes_back,
    "space": space,
    "backlog": backlog,
}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.durable", description=__doc__.split("\n")[0])
    parser.add_argument("part", nargs="*", help=", ".join(PARTS) + " (all)")
    parser.add_argument("--data", type=Path, help="a folder on the disk that is measured")
    parser.add_argument("--quick", action="store_true", help="a glance")
    parser.add_argument("--large", action="store_true", help="start: also with 10,000,000 messages")
    parser.add_argument("--write", action="store_true", help="put the tables into bench/README.md")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="commit: interleaved")
    parser.add_argument("--seconds", type=float, default=4, help="commit: of one run, at most")
    parser.add_argument("--mib", type=int, default=1024, help="stalls: written a run")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="stalls: bytes of body")
    parser.add_argument("--hertz", type=float, default=1000, help="stalls: questions a second")
    parser.add_argument("--deep", type=int, default=1_000_000, help="start, return: messages on disk")
    parser.add_argument("--queues", type=int, default=10_000, help="start: durable queues")
    parser.add_argument("--cold", action="store_true", help="start: its files dropped from the page cache")
    parser.add_argument("--messages", type=int, default=10_000_000, help="space: that pass through")
    parser.add_argument("--interval", type=float, default=1.0, help="space: seconds between two samples")
    parser.add_argument("--backlog", type=int, default=2_000_000, help="backlog: messages of 1 KiB")
    options = parser.parse_args(argv)
    if unknown := set(options.part) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))} (there are {', '.join(PARTS)})")
    if options.quick and options.write:
        parser.error("--quick says too little to be written down")
    if options.quick:
        options.repeats, options.seconds, options.interval = 1, 0.5, 0.2
        options.mib, options.deep, options.queues, options.messages = 64, 50_000, 500, 300_000
        options.backlog = 100_000
    return options


def main(argv: list[str] | None = None) -> int:
    options = arguments(argv)
    console, progress = Console(), Console(stderr=True)
    where = file_system(options.data or Path(tempfile.gettempdir()))
    about = machine()
    place = f"{about['when']}: {about['cores']} cores ({about['cpu']}), CPython {about['python']}, {where}"
    if not options.json:
        console.print(place, highlight=False)
    missed: list[str] = []
    for part in options.part or PARTS:
        began = time.monotonic()
        try:
            with progress.status(f"{part} ..."):
                findings = PARTS[part](options)
        except (brokers.BrokerError, WireError, LoadError, OSError) as error:
            print(f"bench.durable {part}: {error}", file=sys.stderr)
            return 1
        findings.notes.append(f"{place}.")
        if options.json:
            print(json.dumps(findings.as_json()), flush=True)
        else:
            console.print(findings.for_terminal(), f"took {time.monotonic() - began:.0f} s\n")
        if options.write:
            findings.write()
        missed += findings.missed
    for one in missed:
        progress.print(f"over target: {one}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
