"""`python -m tests.simulation.nets`: run seeds of nets. One that fails is said by its number; exit 1 then."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.harness.runner import begin_worker
from tests.simulation.nets.runner import Outcome, run_net


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    done = failed = 0
    for outcome in _outcomes(options):
        done += 1
        failed += outcome.failure != ""
        if outcome.failure:
            print(f"net {outcome.seed} failed at {outcome.virtual_seconds:.6f} s: {outcome.failure}")
            print(f"  replay: python -m tests.simulation.nets --seeds 1 --first {outcome.seed} --verbose")
    print(f"nets {options.first} to {options.first + done - 1}: {failed} of {done} failed", flush=True)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.nets", description="Run seeds of several clusters in one world."
    )
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="how many (default 20)")
    parser.add_argument("--first", type=int, default=1, metavar="K", help="the first one (default 1)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P")
    parser.add_argument(
        "--outage", type=float, default=0.0, metavar="S", help="one line is down for so many seconds"
    )
    parser.add_argument("--verbose", action="store_true", help="print every event; one process")
    return parser


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    seeds = range(options.first, options.first + options.seeds)
    if options.verbose or options.processes == 1 or options.seeds == 1:
        echo = print if options.verbose else None
        yield from (run_net(seed, options.outage, echo) for seed in seeds)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context, initializer=begin_worker) as pool:
        yield from pool.map(run_net, seeds, [options.outage] * len(seeds))


if __name__ == "__main__":
    sys.exit(main())
