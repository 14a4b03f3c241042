"""Which modules Understudy's nodes run: compiled ones if they are built (`make compiled`), or pure ones."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from bench.brokers import ROOT

BUILT = ROOT / "build" / "compiled"
ASK = "import broker; from understudy.shared.compiled_modules import Build; print(Build.name, Build.reason)"


@dataclass(slots=True, frozen=True)
class Modules:
    """What a node runs with this environment."""

    environment: dict[str, str]
    name: str
    """`compiled` or `pure`."""
    reason: str
    """Why they are pure."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


def pure() -> Modules:
    """Plain Python, whatever is built."""
    return Modules({**os.environ, "UNDERSTUDY_PURE": "1"}, "pure", "")


def best() -> Modules:
    """Those of `UNDERSTUDY_COMPILED`, or else of `make compiled`, if they are built from this source."""
    environment = dict(os.environ)
    if (BUILT / "manifest.json").exists():
        environment.setdefault("UNDERSTUDY_COMPILED", str(BUILT))
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    name, _, reason = done.stdout.strip().partition(" ")
    if reason.startswith("there are no compiled modules"):
        reason = "compiled ones are not built: make compiled"
    return Modules(environment, name, reason)
