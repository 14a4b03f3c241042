"""Entry point for spark-submit: `spark-submit spark/submit.py LEDGER_DIR...`.

spark-submit runs a file, not a module, and puts the file's own folder on the path. This script replaces it
with the parent folder, so that the package is found in a clone as well as when installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path[:] = [str(here.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != here)]
    from spark.reconcile.job import program

    program()
