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
    "sources": {NAME: compiled_modules.digest(ROOT, NAME)},
}


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
    ({"sources": {NAME: "0"}}, {}, f"pure {NAME} has changed since the modules were compiled"),
    ({"sources": {"broker.gone": "0"}}, {}, "pure broker.gone has changed since the modules were compiled"),
])  # fmt: skip
def test_unusable_modules_are_left_out(
    tmp_path: Path, changed: dict[str, Any], environment: dict[str, str], expected: str
) -> None:
    (tmp_path / compiled_modules.MANIFEST).write_text(json.dumps(GOOD | changed))
    assert build_of(tmp_path, **environment) == expected


def test_without_modules_python_runs(tmp_path: Path) -> None:
    assert build_of(tmp_path) == f"pure there are no compiled modules in {tmp_path}"


def test_a_module_of_the_manifest_is_loaded_from_its_library(tmp_path: Path) -> None:
    (tmp_path / compiled_modules.MANIFEST).write_text(json.dumps(GOOD))
    library = tmp_path / f"broker/model/octets{SUFFIX}"
    assert (
        build_of(tmp_path)
        == f"ImportError: {library}: cannot open shared object file: No such file or directory"
    )


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
