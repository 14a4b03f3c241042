"""`python -m tests.simulation --seeds N --first K [--verbose]`.

The last line says what was run; exit 0 only without failures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from functools import partial

from tests.simulation import coverage
from tests.simulation.runner import Outcome, report, run_seed, run_seeds
from tests.simulation.tally import Tally

SHOWN = 5
"""Failures printed in full; the rest by one line each."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Run seeded simulations of a pair."
    )
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="how many seeds to run (default 1000)"
    )
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first seed (default 1)")
    parser.add_argument("--verbose", action="store_true", help="print every event; one process")
    parser.add_argument("--processes", type=int, default=None, metavar="P", help="default: one a core")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds must be 1 or more")
    tally = Tally()
    outcomes: Iterable[Outcome]
    if options.verbose:
        outcomes = map(partial(run_seed, echo=print), range(options.first, options.first + options.seeds))
    else:
        outcomes = run_seeds(options.first, options.seeds, options.processes)
    for outcome in outcomes:
        tally.add(outcome)
        if outcome.failure is not None:
            if len(tally.failures) <= SHOWN:
                print(report(outcome), end="\n\n", flush=True)
            else:
                print(f"seed {outcome.seed} failed: {outcome.failure}", flush=True)
        elif options.verbose:
            print(f"seed {outcome.seed}: no failure, {outcome.events} events, trace {outcome.trace_hash}")
    print("\n".join([*coverage.lines(tally.coverage), *tally.summary()]))
    print(tally.last_line(options.first), flush=True)
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
