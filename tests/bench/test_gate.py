"""The gate against getting slower: what it compares, what fails it, and one real slice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.gate import __main__ as gate
from bench.gate import baseline, reference
from bench.gate.measure import ROWS, OtherBuild, Slices, figures, measure

KEY = "pure-" + ".".join(gate.platform.python_version_tuple()[:2])
FIGURES = {row.name: float(10 + at) for at, row in enumerate(ROWS)}
SLOWER = "mix-persistent"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    baseline.store(path, KEY, FIGURES, gate.machine())
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, float]]:
    """The figures of the runs to come; each takes the first, the last one stays."""
    runs = [dict(FIGURES)]

    def planted(rows: list[gate.Row], build: str, starts: int, rounds: int) -> Slices:
        run = runs.pop(0) if len(runs) > 1 else runs[0]
        slices = {row.name: [run[row.name]] * 2 for row in rows}
        return Slices(slices, [float(reference.STEPS)] * 2)

    monkeypatch.setattr(gate, "measure", planted)
    monkeypatch.setenv("UNDERSTUDY_PURE", "1")
    return runs


def run(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(gate.main, ["--builds", "pure", *arguments])
    return done.exit_code, done.output.splitlines()


def times(row: str, factor: float) -> dict[str, float]:
    return FIGURES | {row: FIGURES[row] * factor}


def test_passes_up_to_the_tolerance_and_says_each_row(file: Path, measured: list[dict[str, float]]) -> None:
    measured[:] = [times(SLOWER, 1 + baseline.TOLERANCE - 0.01)]
    code, lines = run("--baseline", str(file))
    assert code == 0
    assert [line.split()[1] for line in lines] == list(FIGURES)


def test_a_row_that_is_slower_twice_fails(file: Path, measured: list[dict[str, float]]) -> None:
    measured[:] = [times(SLOWER, 1 + baseline.TOLERANCE + 0.01)]
    code, lines = run("--baseline", str(file))
    assert code == 1
    assert [line.split()[:3] for line in lines if "slower" in line] == [["slower:", KEY, SLOWER]]
    assert run("--baseline", str(file), "--tolerance", "0.4")[0] == 0


def test_a_row_that_was_slow_once_passes(file: Path, measured: list[dict[str, float]]) -> None:
    measured[:] = [times(SLOWER, 3), FIGURES]
    assert run("--baseline", str(file))[0] == 0


def test_another_processor_gets_twice_the_tolerance(tmp_path: Path, measured: list[dict[str, float]]) -> None:
    path = tmp_path / "baseline.json"
    baseline.store(path, KEY, FIGURES, {"cpu": "another"})
    for more, expected in (
        (2 * baseline.TOLERANCE - 0.01, 0),
        (2 * baseline.TOLERANCE + 0.01, 1),
    ):
        measured[:] = [times(SLOWER, 1 + more)]
        code, lines = run("--baseline", str(path))
        assert code == expected and "from another processor (another)" in lines[0]


def test_stores_one_build_and_leaves_others(file: Path, measured: list[dict[str, float]]) -> None:
    baseline.store(file, "compiled-3.11", FIGURES, {})
    measured[:] = [times(SLOWER, 2)]
    assert run("--store", "--baseline", str(file))[0] == 0
    stored = baseline.load(file)
    assert stored[KEY].rows[SLOWER] == 2 * FIGURES[SLOWER] and stored["compiled-3.11"].rows == FIGURES


def having(value: object) -> str:
    return json.dumps({"builds": {"x": {"machine": {}, "rows": FIGURES | {SLOWER: value}}}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file or directory; make one with --store"),
        ("{", "is not a file of baselines"),
        ("[]", "is not a file of baselines"),
        ('{"builds": {"pure-3.11": {"rows": []}}}', "is not a file of baselines"),
        ('{"builds": {"pure-3.11": {"rows": {}}}}', "pure-3.11 has no figure for alike-transient"),
        (having(0), f"{SLOWER} is 0, and not a"),
        (having("9"), f"x has no figure for {SLOWER}"),
    ],
)  # fmt: skip
def test_a_bad_baseline_is_one_clear_line(
    text: str | None, says: str, tmp_path: Path, measured: list[dict[str, float]]
) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    code, lines = run("--baseline", str(path))
    assert (code, len(lines)) == (2, 1)
    assert says in lines[0]


def test_another_python_is_not_compared(tmp_path: Path, measured: list[dict[str, float]]) -> None:
    path = tmp_path / "baseline.json"
    baseline.store(path, "pure-2.7", FIGURES, {})
    code, lines = run("--baseline", str(path))
    assert (code, len(lines)) == (0, 1)
    assert f"{KEY}: not compared, there is no baseline" in lines[0]


def test_the_stored_baseline_can_be_used() -> None:
    assert all(set(each.rows) == set(baseline.ROWS) for each in baseline.load().values())


def test_figures_are_the_fastest_slices_in_steps_of_the_reference() -> None:
    times = [9.0, 3.0, 5.0, *[7.0] * 17]
    slices = Slices({"one": times}, [8.0, 400.0, 12.0])
    assert figures(slices) == {"one": 4.0 / (10.0 / reference.STEPS)}


def test_clocks_every_row_of_a_real_node_and_knows_its_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_PURE", "1")
    slices = measure(ROWS, "pure", starts=1, rounds=2)
    assert {row: len(times) for row, times in slices.rows.items()} == dict.fromkeys(FIGURES, 2)
    assert len(slices.reference) == 2 * len(ROWS) and min(figures(slices).values()) > 0
    with pytest.raises(OtherBuild, match="modules are pure: UNDERSTUDY_PURE=1"):
        measure(ROWS[:1], "compiled", starts=1, rounds=1)
