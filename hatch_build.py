"""Build hook: compiled modules in the wheel, if `UNDERSTUDY_COMPILE=1`. It needs a C compiler."""

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
        return ["mypy[mypyc]>=2.4,<3"] if self._wanted else []

    @property
    def _wanted(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("UNDERSTUDY_COMPILE") == "1"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._wanted or version == "editable":
            return
        sys.path.insert(0, self.root)
        from scripts.compiled.product import build

        self._folder = tempfile.TemporaryDirectory()
        compiled = Path(self._folder.name, "compiled")
        build(Path(self.root), compiled, Path(self._folder.name, "work"), os.cpu_count() or 1)
        build_data["force_include"][str(compiled)] = "understudy/_compiled"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            self._folder.cleanup()
