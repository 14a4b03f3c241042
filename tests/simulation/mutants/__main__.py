"""`python -m tests.simulation.mutants [--seeds N] [--only PART OF A NAME]`: is every mutant found?

Prints each finding as it comes and a table at the end; exit 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.hunt import SEEDS, Finding, hunt_all


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.mutants",
        description="Break the product by hand, and see whether the checkers of the simulation find it.",
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"for each mutant ({SEEDS})")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants with TEXT in their names")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="P")
    options = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if not mutants:
        parser.error(f"no mutant has {options.only!r} in its name")
    started = time.monotonic()
    findings: dict[str, Finding] = {}
    for finding in hunt_all(mutants, options.seeds, options.processes):
        findings[finding.mutant] = finding
        print(f"{len(findings):>3}/{len(mutants)}  {finding}", flush=True)
        if finding.seed is None:
            for sample in finding.sample.values():
                print(f"         {sample}", flush=True)
    print_table([findings[mutant.name] for mutant in mutants])
    survivors = sum(finding.seed is None for finding in findings.values())
    print(f"{len(findings)} mutants, {survivors} survive, {time.monotonic() - started:.0f} s", flush=True)
    return 1 if survivors else 0


def print_table(findings: list[Finding]) -> None:
    width = max(len(finding.mutant) for finding in findings)
    print(f"\n{'mutant':<{width}}  checker  seeds needed")
    for finding in findings:
        checkers = "/".join(map(str, finding.found_as))
        print(f"{finding.mutant:<{width}}  {checkers:>7}  {finding.seed if finding.seed else 'SURVIVES':>12}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # `... | head`: nobody reads on; nor is there anything to flush at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
