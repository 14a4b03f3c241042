"""`python -m tests.simulation`: run seeds, or one plan again; what failed is shrunk and told.

The last line says what was run; exit 0 only without failures. See docs/contributing/simulation.md.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime, timedelta
from pathlib import Path

from tests.simulation.harness.coverage import reached
from tests.simulation.harness.coverage.replacing import is_compiled
from tests.simulation.harness.runner import Outcome, run_chunk, run_plan, run_seed, run_seeds
from tests.simulation.harness.world import World
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.story import plan_file
from tests.simulation.story.progress import Meter, meter
from tests.simulation.story.report import Report, report
from tests.simulation.story.story import tell
from tests.simulation.story.tally import Tally

SHOWN = 3
"""Failures that are shrunk and told; the rest by one line each."""
TABLE_FROM = 50
"""Seeds from which on the table of coverage says something."""
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.seeds < 1:
        parser.error("--seeds must be 1 or more")
    mutant = _mutant(parser, options.mutant)
    with mutant.applied() if mutant is not None else nullcontext():
        if options.plan is not None:
            return _replay(parser, options)
        return _run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description="Run seeded simulations of a cluster."
    )
    add = parser.add_argument
    add("--seeds", type=int, default=1000, metavar="N", help="how many seeds to run (default 1000)")
    add("--first", type=int, default=1, metavar="K", help="the first seed (default 1)")
    add("--processes", type=int, metavar="P", help="default: one a core")
    add(
        "--verbose",
        action="store_true",
        help="print every event; one process; a failure is told as it is, as with --no-shrink",
    )
    add("--stop-after", type=int, metavar="N", help="end after so many failures")
    add(
        "--until-time",
        type=_until,
        metavar="T",
        help="begin no seed after 90s, 10m, 2h from now, or at HH:MM",
    )
    add("--coverage", type=Path, metavar="FILE", help="save the ledger of coverage as JSON")
    add("--check-coverage", action="store_true", help="fail if a built thing was never reached")
    add("--failures", type=Path, metavar="FILE", help="append each failing seed and its failure to FILE")
    add("--out", type=Path, default=Path("simulation-failures"), metavar="DIR", help="of plans and pictures")
    add("--picture", type=Path, metavar="FILE.svg", help="draw the (first) failure, or the plan, there")
    add(
        "--no-shrink",
        action="store_true",
        help="tell failures as they are; their files are DIR/seed-N-whole.*, so that those of the shrunk "
        "ones, DIR/seed-N.*, stay",
    )
    add("--plan", type=Path, metavar="FILE", help="run a plan from a file again, and tell it")
    add(
        "--mutant", default="", metavar="NAME", help="with this breakage of the product in place; one process"
    )
    return parser


def _until(text: str) -> float:
    """Seconds of `time.time` at which no seed is begun any more."""
    if found := re.fullmatch(r"(\d+)([smh])", text):
        return time.time() + int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]
    try:
        at = datetime.strptime(text, "%H:%M")
    except ValueError as error:
        raise argparse.ArgumentTypeError("90s, 10m, 2h or HH:MM") from error
    end = datetime.now().replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return (end if end > datetime.now() else end + timedelta(days=1)).timestamp()


def _mutant(parser: argparse.ArgumentParser, name: str) -> Mutant | None:
    found = next((mutant for mutant in MUTANTS if mutant.name == name), None)
    if name and found is None:
        parser.error(f"there is no mutant {name!r}")
    if found is not None and is_compiled(World):
        parser.error("a mutant replaces what is compiled here: run it without COMPILED=1")
    return found


# -- seeds


def _run(options: argparse.Namespace) -> int:
    tally = Tally()
    code = 0
    with meter(options.seeds) as screen:
        try:
            for outcome in _outcomes(options):
                tally.add(outcome)
                screen.done(tally.runs, len(tally.failures))
                if outcome.failure is not None:
                    _failed(options, tally, outcome, screen)
                elif options.verbose:
                    done = f"no failure, {outcome.events} events, trace {outcome.trace_hash}"
                    screen.say(f"seed {outcome.seed}: {done}")
                if options.stop_after is not None and len(tally.failures) >= options.stop_after:
                    screen.say(f"stopped after {len(tally.failures)} failures")
                    break
        except KeyboardInterrupt:
            screen.say("interrupted")
            code = INTERRUPTED
    if tally.runs >= TABLE_FROM:
        print("\n".join(reached.lines(tally.coverage)))
    if options.coverage is not None:
        reached.save(tally.coverage, options.coverage, first=options.first, seeds=tally.runs)
    missing = reached.faults_of(tally.coverage, tally.runs) if options.check_coverage else []
    print("\n".join([*missing, *tally.summary()]))
    print(tally.last_line(options.first), flush=True)
    return 1 if tally.failures or missing else code


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    def late() -> bool:
        return options.until_time is not None and time.time() >= options.until_time

    seeds = range(options.first, options.first + options.seeds)
    if options.verbose:
        for seed in seeds:
            if late():
                return
            yield run_seed(seed, echo=print)
    elif options.mutant:
        for seed in seeds:
            if late():
                return
            yield from run_chunk([seed])
    else:
        yield from run_seeds(options.first, options.seeds, options.processes, late)


def _failed(options: argparse.Namespace, tally: Tally, outcome: Outcome, screen: Meter) -> None:
    if options.failures is not None:
        with options.failures.open("a") as file:
            file.write(f"{outcome.seed}\t{outcome.failure}\n")
    if len(tally.failures) > SHOWN:
        screen.say(f"seed {outcome.seed} failed: {outcome.failure}")
        return
    shrink = not (options.no_shrink or options.verbose)
    told = report(outcome, shrink=shrink, mutant=options.mutant, told=screen.aside)
    paths = told.write(options.out)
    screen.say(told.text(paths[0]))
    _draw(options, told, first=len(tally.failures) == 1)
    screen.say(f"written: {', '.join(map(str, paths))}\n")


def _draw(options: argparse.Namespace, told: Report, *, first: bool) -> None:
    if options.picture is not None and first:
        told.draw(options.picture)


# -- one plan


def _replay(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    try:
        known = plan_file.read(options.plan)
    except plan_file.BadPlan as error:
        parser.error(str(error))
    if known.mutant and known.mutant != options.mutant:
        print(f"note: this plan failed with the mutant {known.mutant!r}: add --mutant '{known.mutant}'")
    outcome = run_plan(known.plan, echo=print if options.verbose else None)
    told = Report(outcome, known.plan, outcome, tell(known.plan), "", options.mutant, options.plan)
    _draw(options, told, first=True)
    print(told.text())
    same = outcome.trace_hash == known.trace_hash and outcome.failure == known.failure
    print(
        f"trace {outcome.trace_hash}: "
        + ("the run that was recorded" if same else f"not the run of {known.commit}")
    )
    return 1 if outcome.failure is not None else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads the output may go: `| head`
    sys.exit(main())
