"""`python -m tests.hostile.fuzz [--seconds N] [--seed S] [--protocol 0-9-1|1.0] [--where machines|sockets]`

Holds conversations until the time is over, by turns of each protocol, on machines and over sockets. A failure
names its seed, and the run goes on; exit 1 if there was one. `--only SEED` holds a single one.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tests.hostile.fuzz.machines import WORDS, hold
from tests.hostile.fuzz.sockets import process

AGAIN = "python -m tests.hostile.fuzz"
MACHINES, SOCKETS = "machines", "sockets"
TOLD_EVERY = 10.0
"""Seconds."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first conversation")
    parser.add_argument("--only", type=int, default=None, metavar="SEED", help="hold this one alone")
    parser.add_argument("--protocol", choices=sorted(WORDS), action="append")
    parser.add_argument("--where", choices=[MACHINES, SOCKETS], action="append")
    options = parser.parse_args()
    protocols = options.protocol or sorted(WORDS)
    where = options.where or [MACHINES, SOCKETS]
    first = secrets.randbelow(10**9) if options.seed is None else options.seed
    seeds = [first] if options.only is None else [options.only]
    failures = 0
    for place in where:
        with _holding(place) as talk:
            every = seeds if options.only is not None else _until(options.seconds / len(where), first)
            failures += _run(place, talk, protocols, every)
    return 1 if failures else 0


@contextmanager
def _holding(place: str) -> Iterator[Callable[[str, int], None]]:
    if place == MACHINES:
        yield hold
    else:
        with process() as broker:
            yield broker.hold


def _until(seconds: float, first: int) -> Iterator[int]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield first
        first += 1


def _run(place: str, talk: Callable[[str, int], None], protocols: list[str], seeds: Iterable[int]) -> int:
    held = failures = 0
    told = time.monotonic()
    for seed in seeds:
        for protocol in protocols:
            try:
                talk(protocol, seed)
            except Exception:
                failures += 1
                print(f"{place}, {protocol}, seed {seed}:\n{traceback.format_exc()}", flush=True)
                print(f"  again: {AGAIN} --only {seed} --protocol {protocol} --where {place}", flush=True)
            held += 1
        if time.monotonic() > told + TOLD_EVERY:
            told = time.monotonic()
            print(f"{place}: {held:,} conversations, up to seed {seed}, {failures} failures", flush=True)
    print(f"{place}: {held:,} conversations, {failures} failures", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
