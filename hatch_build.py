"""Build hook: compiled modules in the wheel, if there are a C compiler and Python's headers.

`UNDERSTUDY_COMPILE=1`: the build fails if they cannot be compiled. `UNDERSTUDY_COMPILE=0`: the wheel is plain
Python, for every machine. Otherwise the wheel is plain if they cannot be compiled, and one line says why.
Editable installs run the source, and are always plain.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Compile(BuildHookInterface):  # type: ignore[type-arg]
    """Adds `understudy/_compiled` to a wheel, which then is for one Python and one kind of machine."""

    _folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        if not self._wanted or not (self._required or self._possible()):
            return []
        return ["mypy[mypyc]>=2.4,<3"]

    @property
    def _wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("UNDERSTUDY_COMPILE") != "0"

    @property
    def _required(self) -> bool:
        return os.environ.get("UNDERSTUDY_COMPILE") == "1"

    def _possible(self) -> bool:
        try:
            self._import_compiler()
        except Exception:
            return False  # `initialize` says why
        return True

    def _import_compiler(self) -> Any:
        """`scripts.compiled.product`, if this machine has what it needs, but for mypy."""
        if self.root not in sys.path:
            sys.path.insert(0, self.root)
        from scripts.compiled import build, product

        build.compiler()
        return product

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._wanted or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        compiled = Path(self._folder.name, "compiled")
        try:
            product = self._import_compiler()
            jobs = len(os.sched_getaffinity(0))
            product.build(Path(self.root), compiled, Path(self._folder.name, "work"), jobs)
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            if self._required:
                raise SystemExit(f"UNDERSTUDY_COMPILE=1, but modules cannot be compiled: {reason}") from None
            print(f"modules are not compiled, the wheel is plain Python: {reason}", file=sys.stderr)
            return
        build_data["force_include"][str(compiled)] = "understudy/_compiled"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
