"""Which modules a process runs: compiled ones of the very same source, or those of Python, and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.compiled import product
from scripts.compiled.build import SUFFIX
from understudy.shared import compiled_modules
from understudy.shared.compiled_modules import ROOT

NAME = "broker.model.octets"
GOOD: dict[str, Any] = {
    "suffix": SUFFIX,
    "libraries": [],
    "modules": [],
    "sources": compiled_modules.sources(ROOT),
}
FILE = "broker/model/octets.py"
CHANGED = "has changed since the modules were compiled"


def build_of(folder: Path, **environment: str) -> str:
    shown = "from understudy.shared.compiled_modules import Build; print(Build.name, Build.reason)"
    given = {"UNDERSTUDY_PURE": "", "UNDERSTUDY_COMPILED": str(folder)} | environment
    done = subprocess.run(
        [sys.executable, "-c", f"import {NAME}; {shown}"],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(("changed", "environment", "expected"), [
    ({}, {"UNDERSTUDY_PURE": "1"}, "pure UNDERSTUDY_PURE=1"),
    ({"suffix": ".cpython-27.so"}, {}, "pure the compiled modules are for another Python (.cpython-27.so)"),
    ({"sources": GOOD["sources"] | {FILE: "0"}}, {}, f"pure {FILE} {CHANGED}"),
    ({"sources": GOOD["sources"] | {"ha/gone.py": "0"}}, {}, f"pure ha/gone.py {CHANGED}"),
    ({"modules": [NAME]}, {}, f"pure FOLDER/broker/model/octets{SUFFIX} is missing"),
    ({"sources": 1}, {}, "pure FOLDER/manifest.json is damaged"),
])  # fmt: skip
def test_unusable_modules_are_left_out(
    tmp_path: Path, changed: dict[str, Any], environment: dict[str, str], expected: str
) -> None:
    (tmp_path / compiled_modules.MANIFEST).write_text(json.dumps(GOOD | changed))
    assert build_of(tmp_path, **environment) == expected.replace("FOLDER", str(tmp_path))


def test_without_modules_python_runs(tmp_path: Path) -> None:
    assert build_of(tmp_path) == f"pure no compiled modules in {tmp_path}"


def test_a_module_of_the_manifest_is_loaded_from_its_library(tmp_path: Path) -> None:
    (tmp_path / compiled_modules.MANIFEST).write_text(json.dumps(GOOD | {"modules": [NAME]}))
    library = tmp_path / f"broker/model/octets{SUFFIX}"
    library.parent.mkdir(parents=True)
    library.write_text("no library")
    assert build_of(tmp_path) == f"ImportError: {library}: file too short"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"suffix": 1, "modules": 2}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    manifest = tmp_path / compiled_modules.MANIFEST
    manifest.write_text(text)
    assert build_of(tmp_path) == f"pure {manifest} is damaged"


def test_the_hot_path_is_compiled_and_what_checks_arguments_is_not() -> None:
    names = product.modules(ROOT)
    for name in (
        "broker.amqp091.publishing.publish",
        "broker.engine",
        "ha.core.ha_broker",
        "broker.store.store",
    ):
        assert name in names
    for name in ("broker.model.queue.arguments", "broker.server.shell", "ha.adapter.management.commands"):
        assert name not in names
    assert all((ROOT / f"{name.replace('.', '/')}.py").exists() for name in names)
