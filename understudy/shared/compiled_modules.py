"""Compiled modules in place of Python's own, if they were built from the very same source.

The folder `understudy/_compiled` of a wheel, or the one that `UNDERSTUDY_COMPILED` names, has extension
modules and a manifest; `scripts/compiled` builds both. Modules that are compiled together know each other's
memory layout, and values of the modules that are not compiled, so either all of them are used or none. None
is used with `UNDERSTUDY_PURE=1`, by another Python than they were built for, or if one file of `PACKAGES` has
changed since. These packages call `install` before any of their modules is loaded.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
"""The folder of the packages."""
IN_WHEEL = ROOT / "understudy" / "_compiled"
MANIFEST = "manifest.json"
PACKAGES = ("broker", "ha", "understudy/ledger", "understudy/shared")
"""Folders of all that the compiled modules rely on."""


class Build:
    """What runs. `name`: `compiled` or `pure`. `reason`: why it is pure; empty if it is compiled."""

    name = "pure"
    reason = ""


class _Finder:
    """Finds the compiled modules, and the library that they share."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def install() -> None:
    """Use the compiled modules, if they are there and may be used. `Build` then says so."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if os.environ.get("UNDERSTUDY_PURE") == "1":
        Build.reason = "UNDERSTUDY_PURE=1"
        return
    folder = Path(os.environ.get("UNDERSTUDY_COMPILED") or IN_WHEEL).absolute()
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        suffix, names = manifest["suffix"], [*manifest["modules"], *manifest["libraries"]]
        files = {name: folder / f"{name.replace('.', '/')}{suffix}" for name in names}
        Build.reason = _unusable(manifest, files)
    except OSError:
        Build.reason = f"no compiled modules in {folder}"
    except (ValueError, LookupError, TypeError, AttributeError):
        Build.reason = f"{folder / MANIFEST} is damaged"
    if not Build.reason:
        sys.meta_path.insert(0, _Finder(files))
        Build.name = "compiled"


def _unusable(manifest: dict[str, Any], files: dict[str, Path]) -> str:
    """Why the modules of this manifest, which are in `files`, cannot be used; empty if they can."""
    if manifest["suffix"] not in EXTENSION_SUFFIXES:
        return f"the compiled modules are for another Python ({manifest['suffix']})"
    if early := [name for name in files if name in sys.modules]:
        return f"{early[0]} was loaded before"
    expected, present = dict(manifest["sources"]), sources(ROOT)
    for name in sorted(expected.keys() | present.keys()):
        if expected.get(name) != present.get(name):
            return f"{name} has changed since the modules were compiled"
    if missing := [file for file in files.values() if not file.is_file()]:
        return f"{missing[0]} is missing"
    return ""


def sources(root: Path) -> dict[str, str]:
    """Digests of all files of `PACKAGES` below `root`, by their paths from there."""
    return {
        file.relative_to(root).as_posix(): blake2b(file.read_bytes(), digest_size=16).hexdigest()
        for package in PACKAGES
        for file in sorted((root / package).rglob("*.py"))
    }
