"""`python -m scripts.compiled FOLDER`: compile the modules of brokers and nodes of this checkout.

A process with `UNDERSTUDY_COMPILED=FOLDER` uses them, until their source changes. Object files of equal C are
used again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from scripts.compiled.build import CannotCompile
from scripts.compiled.product import build

ROOT = Path(__file__).parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.compiled", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="compilers at once"
    )
    parser.add_argument("folder", type=Path, help="where the compiled modules go")
    options = parser.parse_args()
    try:
        build(ROOT, options.folder.absolute(), ROOT / "build" / "compiling", options.jobs)
    except CannotCompile as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
