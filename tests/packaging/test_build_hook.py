"""When a wheel gets compiled modules, when it is plain, and when its build fails. Nothing is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hatch_build import Compile
from scripts.compiled import product
from scripts.compiled.build import CannotCompile

ROOT = Path(__file__).parents[2]
REQUIRED, AUTOMATIC, NEVER = "1", "", "0"


def hook(monkeypatch: pytest.MonkeyPatch, compile_: str, *, compiler: bool = True) -> Compile:
    monkeypatch.setenv("UNDERSTUDY_COMPILE", compile_)
    if not compiler:
        monkeypatch.setenv("PATH", "")
    else:
        monkeypatch.setattr("scripts.compiled.build.compiler", lambda: "gcc")
    return Compile(str(ROOT), {}, None, None, str(ROOT), "wheel")  # type: ignore[arg-type]


def build(hook: Compile, version: str = "standard") -> dict[str, Any]:
    data: dict[str, Any] = {"force_include": {}}
    hook.initialize(version, data)
    hook.finalize(version, data, "")
    return data


@pytest.mark.parametrize(
    ("compile_", "compiler", "needed"),
    [
        (REQUIRED, True, 1),
        (REQUIRED, False, 1),
        (AUTOMATIC, True, 1),
        (AUTOMATIC, False, 0),
        (NEVER, True, 0),
    ],
)
def test_mypy_is_fetched_only_to_compile(
    monkeypatch: pytest.MonkeyPatch, compile_: str, compiler: bool, needed: int
) -> None:
    assert len(hook(monkeypatch, compile_, compiler=compiler).dependencies()) == needed


@pytest.mark.parametrize("compile_", [REQUIRED, AUTOMATIC])
def test_compiled_modules_are_for_one_python(monkeypatch: pytest.MonkeyPatch, compile_: str) -> None:
    monkeypatch.setattr(product, "build", lambda *_: None)
    data = build(hook(monkeypatch, compile_))
    assert list(data.pop("force_include").values()) == ["understudy/_compiled"]
    assert data == {"pure_python": False, "infer_tag": True}


@pytest.mark.parametrize(("compile_", "version"), [(NEVER, "standard"), (REQUIRED, "editable")])
def test_a_plain_build_does_not_compile(monkeypatch: pytest.MonkeyPatch, compile_: str, version: str) -> None:
    monkeypatch.setattr(product, "build", lambda *_: pytest.fail("it compiles"))
    assert build(hook(monkeypatch, compile_), version) == {"force_include": {}}


def test_what_cannot_be_compiled_is_left_out_and_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(hook(monkeypatch, AUTOMATIC, compiler=False)) == {"force_include": {}}
    line = "modules are not compiled, the wheel is plain Python: there is no C compiler (install gcc)\n"
    assert capsys.readouterr().err == line


def test_what_must_be_compiled_and_cannot_be_fails_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object) -> None:
        raise CannotCompile("broker/engine.py:1: error: wrong\nand more")

    monkeypatch.setattr(product, "build", refuses)
    with pytest.raises(SystemExit) as failed:
        build(hook(monkeypatch, REQUIRED))
    expected = "UNDERSTUDY_COMPILE=1, but modules cannot be compiled: broker/engine.py:1: error: wrong"
    assert str(failed.value) == expected
