"""Build hook: the client kit's part of `understudy`, from the repository that this folder is in.

In an sdist it is here already.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PARTS = (
    "understudy/__init__.py", "understudy/py.typed", "understudy/client", "understudy/client_tls.py",
    "understudy/ledger/__init__.py", "understudy/ledger/codes.py", "understudy/ledger/ranges.py",
    "understudy/ledger/writer.py",
    "understudy/shared",
)  # fmt: skip


class Parts(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `PARTS`, and the licence, to the wheel and to the sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        here = Path(self.root)
        if (here / "understudy").exists():
            return
        for part in PARTS:
            build_data["force_include"][str(here.parents[1] / part)] = part
        if self.target_name == "sdist":
            build_data["force_include"][str(here.parents[1] / "LICENSE")] = "LICENSE"
