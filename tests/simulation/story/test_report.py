"""What a reader is shown of a failure: the story, the picture, the files, and what the command says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.simulation import __main__ as command
from tests.simulation.checker_tests.checked import Pair
from tests.simulation.faults.plan import Fault
from tests.simulation.harness.machines.machine import Death
from tests.simulation.harness.plan import Plan, draw_plan
from tests.simulation.harness.runner import Outcome, run_plan, run_seed
from tests.simulation.mutants import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.story import plan_file
from tests.simulation.story.overheard import Ear, Event, Item
from tests.simulation.story.picture import mermaid, svg
from tests.simulation.story.progress import Lines
from tests.simulation.story.report import ROOT, Report, commit, in_words, report
from tests.simulation.story.story import Fold, Story, _from_note, _line, tell, transcript

SEEDS = 100
PLANTED, FROM = "release without recording", 14
"""No earlier seed finds it."""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def mutant() -> Iterator[Mutant]:
    found = next(mutant for mutant in MUTANTS if mutant.name == PLANTED)
    with found.applied():
        yield found


@pytest.fixture(scope="module")
def failure(mutant: Mutant) -> Outcome:
    outcomes = (run_seed(seed) for seed in range(FROM, SEEDS + 1))
    return next(outcome for outcome in outcomes if outcome.invariant in mutant.found_as)


@pytest.fixture(scope="module")
def told(mutant: Mutant, failure: Outcome) -> Report:
    return report(failure, mutant=mutant.name, most_seconds=1e9, most_runs=100)


# -- the story


def test_the_story_is_of_the_same_run() -> None:
    plan = draw_plan(2)
    assert tell(plan).trace_hash == run_plan(plan).trace_hash


def test_a_whole_run_tells_how_a_backup_is_taken_in() -> None:
    plan = draw_plan(2)
    story = tell(plan)
    said = [event.text for event in story.events if event.kind == "say"]
    for word in (
        "join, from epoch",
        "join-ok, record",
        "definitions are whole; history goes on from",
        "guard: from after",
    ):
        assert any(text.startswith(word) for text in said), word
    groups = Counter(event.group for event in story.events)
    assert groups["batches"] and groups["acks"] and groups["publishes"] and groups["confirms"]
    assert {event.text for event in story.events if event.kind == "status"} >= {"joining", "ready", "active"}
    spoken = frozenset().union(*(event.keys for event in story.events))
    published = {key for event in story.events if event.group == "publishes" for key in event.keys}
    assert spoken - {"?", "an event"} <= published


def test_what_is_said_to_a_stopped_node_is_shown_as_held_up() -> None:
    def stops(plan: Plan) -> bool:
        return any(f.kind is Fault.STOP_PROCESS and f.length > 0.5 for f in plan.faults)

    story = tell(next(plan for plan in map(draw_plan, range(1, SEEDS)) if stops(plan)))
    stopped = next(n for n, event in enumerate(story.events) if event.text.startswith("is stopped"))
    node = story.events[stopped].source
    after = [
        event for event in story.events[stopped:] if event.target == node or event.text.startswith("goes")
    ]
    until = next(n for n, event in enumerate(after) if event.kind == "life")
    assert until > 0 and all(event.held for event in after[:until])
    assert not any(event.held for event in story.events[:stopped] if event.source == "operator")


@pytest.mark.system
def test_the_failing_story_can_be_followed(told: Report) -> None:
    lines = transcript(told.story)
    text = "\n".join(lines)
    assert len(lines) <= 90
    (key,) = told.story.keys()
    assert re.search(rf"p\d -> \w: publish to \S+: {key}", text)
    assert lines[-1].endswith(f"VIOLATED: {told.story.failure}")
    assert re.search(rf"\w -> p\d: confirm: .*{key}", lines[-2])
    assert "promoted in epoch 1/" in text
    assert re.search(r"guard: from after \d+ on confirms wait for you", text)
    (node,) = re.findall(r"(\w) -> p\d: confirm", lines[-2])
    killed = max(n for n, line in enumerate(lines) if re.search(r"FAULT: \w is (killed|without)", line))
    saved = [line for line in lines[killed:] if f"{node}: save record" in line]
    assert not saved, "the mutant's very fault: nothing is recorded after the kill, and yet it confirms"
    others = {key for event in told.story.events for key in event.keys} - {key, "?"}
    assert not [line for line in lines if any(re.search(rf"\b{other}\b", line) for other in others)]


def test_what_does_not_matter_is_folded_and_counted() -> None:
    def batch(key: str) -> Event:
        items = [Item(f"{key} to q1", frozenset({key}), frozenset({"q1"}))]
        return Event(1.0, "say", "A", "batch 1", "B", items, group="batches")

    events = [*(batch(f"p1:{n}") for n in range(1, 9)), Event(2.0, "end", "", "invariant 1: p1:7 is lost")]
    story = Story(draw_plan(1), ["A", "B"], events, "invariant 1: p1:7 is lost")
    first, mine, then, end = story.rows()
    assert isinstance(first, Fold) and first.text == "… 6 batches"
    assert isinstance(mine, Event) and mine.text == "batch 1: p1:7 to q1"
    assert isinstance(then, Fold) and then.text == "… 1 batch"
    assert isinstance(end, Event) and end.kind == "end"


def test_bytes_that_nobody_can_read_are_told_and_end_nothing() -> None:
    told: list[Event] = []
    ear = Ear(lambda: 1.0, told.append)
    link = b"\x01\x00\x01" + (12).to_bytes(4, "big") + b"\x00\xfa\x00\x15" + b"\x00\x00\x00\x04junk" + b"\xce"
    ear.hear("link-B#1", "B", "A", b"AMQP\x00\x00\x09\x01" + link)
    (event,) = told
    assert event.text.startswith("(what nobody can read: ")
    assert (event.source, event.target) == ("B", "A")


def test_only_what_is_injected_is_called_a_fault() -> None:
    plan = next(plan for plan in map(draw_plan, range(1, SEEDS)) if plan.authority == "pacemaker")
    clients = {
        of: tuple(replace(one, cut_every=0.0) for one in getattr(plan, of))
        for of in ("publishers", "consumers")
    }
    text = transcript(tell(replace(plan, faults=(), movers=(), **clients)))
    assert any("  cluster: the CIB of " in line for line in text)
    assert not [line for line in text if "FAULT" in line]
    assert any(re.search(r"  cluster: \w promotes \w$", line) for line in text)
    assert any(" -> CIB: swap nothing for record " in line for line in text)
    assert not [line for line in text if "register" in line], "there is none"


def test_whom_others_end_for_a_reason_is_not_called_a_fault() -> None:
    pair = Pair()
    told: list[str] = []
    pair.clock.echo = told.append
    assert pair.world.faults.power_off(pair.b)
    pair.run(3.0)
    assert pair.world.faults.kill(pair.b, Death.POWER)
    shown = [event for line in told if (event := _from_note(line, ["A", "B"])) and "power" in event.text]
    assert [(event.kind, event.source) for event in shown] == [("life", "B"), ("fault", "B")]


@pytest.mark.parametrize(("note", "line"), [
    ("FAULT: cut the link", "FAULT: cut the link"),
    ("FAULT: the connection of A to B breaks (RST)", "FAULT: the connection of A to B breaks (RST)"),
    ("FAULT: the disk of A fails: sync", "FAULT: the disk of A fails: sync"),
    ("FAULT: A is configured to a lease of 3 s", "FAULT: A is configured to a lease of 3 s"),
    ("FAULT: no packet from A reaches B", "FAULT: no packet from A reaches B"),
    ("packets from A reach B again", "packets from A reach B again"),
    ("the disk of A works again", "the disk of A works again"),
    ("A does not start: no room", "A does not start: no room"),
    ("A has its own configuration again", "A has its own configuration again"),
    ("cluster: A fences B", "cluster: A fences B"),
    ("cluster: in force: epoch 70537 revision 1: A", "cluster: in force: epoch 1/5001 revision 1: A"),
    ("A: joining", "A> joining"),
    ("c1: promote A", None),
])  # fmt: skip
def test_a_note_becomes_a_line(note: str, line: str | None) -> None:
    event = _from_note(f"  1.000000  {note}", ["A", "B"])
    assert (None if event is None else _line(event)) == (line and f"  1.000000  {line}")


# -- the picture


@pytest.mark.system
def test_the_picture_shows_each_line_of_the_story(told: Report) -> None:
    root = ElementTree.fromstring(svg(told.story))
    words = " ".join("".join(text.itertext()) for text in root.iter(f"{SVG}text"))
    rows = told.story.rows()
    for lane in told.story.lanes(rows):
        assert re.search(rf"\b{lane}\b", words)
    arrows = [path for path in root.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == sum(isinstance(row, Event) and row.kind == "say" for row in rows)
    assert "VIOLATED: invariant 3" in words
    title = root.find(f"{SVG}title")
    assert title is not None and title.text == f"seed {told.plan.seed}: {told.story.failure}"
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(str(text.get("x"))) <= width and 0 <= float(str(text.get("y"))) <= height


@pytest.mark.system
def test_the_diagram_is_mermaid(told: Report) -> None:
    first, *rest = mermaid(told.story).splitlines()
    assert first == "sequenceDiagram"
    names = [m[1] for line in rest if (m := re.fullmatch(r"    participant (\w+) as .*", line))]
    assert set(told.story.nodes) & set(names)
    for line in rest[len(names) :]:
        arrow = re.fullmatch(r"    (\w+)--?>>(\w+): [^;#]+", line)
        note = re.fullmatch(r"    Note over (\w+)(?:,(\w+))?: [^;#]+", line)
        found = arrow or note
        assert found is not None, line
        assert {name for name in found.groups() if name} <= set(names)


# -- the report


@pytest.mark.system
def test_the_report_says_what_where_and_how_to_see_it_again(told: Report, failure: Outcome) -> None:
    text = told.text(Path("x.json"))
    assert f"seed {failure.seed} failed at" in text
    assert failure.failure is not None and failure.failure in text
    assert "A primary never goes on alone in silence." in text
    assert f"commit: {commit()}" in text
    assert f"--seeds 1 --first {failure.seed} --mutant '{PLANTED}' --verbose" in text
    assert f"--plan x.json --mutant '{PLANTED}'" in text
    assert "shrunk: from " in text
    assert "sequenceDiagram" in text


@pytest.mark.system
def test_the_files_replay(
    told: Report, failure: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, picture, page = told.write(tmp_path)
    assert picture.read_text() == svg(told.story)
    assert "```mermaid" in page.read_text() and picture.name in page.read_text()
    again = tmp_path / "again.svg"
    assert command.main(["--plan", str(plan), "--picture", str(again)]) == 1
    out = capsys.readouterr().out
    assert "the run that was recorded" in out
    assert f"add --mutant '{PLANTED}'" in out
    assert again.read_text() == picture.read_text()


def test_every_invariant_has_words() -> None:
    assert all(in_words(number) for number in range(1, 31))
    assert in_words(8).startswith("One node serves. At most one node")
    assert in_words(99) == ""


def test_a_crash_of_the_run_shows_where() -> None:
    outcome = Outcome(2, "KeyError: 3 (x.py:1)", transcript=["Traceback", "KeyError: 3"])
    text = report(outcome, shrink=False).text()
    assert "the run itself broke off" in text
    assert text.count("KeyError: 3") >= 2


# -- the command


def test_the_command_says_what_was_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "3", "--first", "2"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"per 1,000 seeds: [\d,]+ failovers, [\d,]+ joins, [\d,]+ evictions", done.stdout)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("simulation: 3 seeds run (2..4), 0 failures, ")
    assert last.endswith(" seeds/s")


@pytest.mark.system
@pytest.mark.parametrize("how", ["--no-shrink", "--verbose"])
def test_what_was_shrunk_stays_when_the_seed_is_run_as_it_is(
    how: str, told: Report, failure: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in told.write(tmp_path)}
    seed = ["--seeds", "1", "--first", str(failure.seed), "--mutant", PLANTED]
    assert command.main([*seed, how, "--out", str(tmp_path)]) == 1
    assert {path: path.read_bytes() for path in before} == before
    assert plan_file.read(tmp_path / f"seed-{failure.seed}-whole.json").plan == draw_plan(failure.seed)
    assert f"seed-{failure.seed}-whole.json" in capsys.readouterr().out


def test_it_ends_quietly_when_nobody_reads_on() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "1", "--first", "2", "--verbose"],
        cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == -signal.SIGPIPE
    assert done.stderr == b""


@pytest.mark.system
def test_failures_end_it_with_1_and_are_written_down(
    tmp_path: Path, failure: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    failures, out = tmp_path / "failures.txt", tmp_path / "out"
    coverage = tmp_path / "coverage.json"
    code = command.main(
        ["--seeds", "5", "--first", str(failure.seed), "--mutant", PLANTED, "--stop-after", "1",
         "--no-shrink", "--failures", str(failures), "--out", str(out), "--coverage", str(coverage)]
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 1
    assert failures.read_text() == f"{failure.seed}\t{failure.failure}\n"
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".md", ".svg"]
    assert coverage.exists()
    assert "stopped after 1 failures" in shown
    assert shown.splitlines()[-1].startswith(
        f"simulation: 1 seeds run ({failure.seed}..{failure.seed}), 1 fail"
    )


def test_an_interrupt_still_sums_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: object) -> Iterator[Outcome]:
        yield Outcome(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_outcomes", interrupted)
    assert command.main(["--seeds", "5"]) == command.INTERRUPTED
    assert capsys.readouterr().out.splitlines()[-1].startswith("simulation: 1 seeds run (1..1), 0 failures, ")


def test_no_seed_is_begun_when_it_is_late(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "5", "--processes", "1", "--until-time", "0s"]) == 0
    assert "simulation: 0 seeds run" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["--seeds", "0"], ["--until-time", "soon"], ["--mutant", "x"], ["--plan", "/nowhere"]]
)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert refused.value.code == 2
    assert arguments[0].lstrip("-").split("-")[0] in capsys.readouterr().err


def test_progress_off_a_terminal_is_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("tests.simulation.story.progress.time.monotonic", lambda: now[0])
    meter = Lines(2000)
    for n in range(1, 51):
        now[0] += 1.0
        meter.done(n * 10, 0)
    assert capsys.readouterr().out.splitlines() == [
        "200 of 2,000 seeds, 0 failures, 10.0 seeds/s", "400 of 2,000 seeds, 0 failures, 10.0 seeds/s",
    ]  # fmt: skip
