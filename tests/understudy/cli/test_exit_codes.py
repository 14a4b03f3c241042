"""Which exit code each command ends with: the tables of docs/reference/exit-codes.md."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

import spark.reconcile.job
from resource_agent import launch
from spark.session import SparkUnavailable
from tests.understudy.cli.test_main import closed_port
from tests.understudy.serving import PATIENCE, Serving, serving
from understudy.cli import exit_codes
from understudy.cli.exit_codes import DONE, FAILED, FOUND, JUDGES, NOTHING, SUMMARY, UNDONE, WRONG
from understudy.cli.main import _COMMANDS, cli, run
from understudy.ledger.writer import LedgerWriter

ROOT = Path(__file__).parents[3]
PAPER = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()

GROUPS = {
    "definitions": ("export", "import"), "vhost": ("list", "add", "limit", "delete"),
    "user": ("list", "add", "delete", "password", "tags", "limit"),
    "permission": ("list", "set", "clear", "list-topic", "set-topic", "clear-topic"),
    "policy": ("list", "set", "clear"), "quarantine": ("list", "show", "republish"),
    "agent": ("install", "metadata"), "deploy": ("list", "show"),
    "ledger": ("check", "compact", "prune", "convert"),
    "declare": ("queue", "exchange", "binding"), "delete": ("queue", "exchange", "binding"),
    "federate": ("upstream", "agent", "list", "pause", "resume", "remove", "trace", "map", "attach"),
}  # fmt: skip
EACH = [[name] for name in _COMMANDS] + [[name, inner] for name in GROUPS for inner in GROUPS[name]]

NODE = [
    ["status"], ["status", "--expect", "standalone"], ["ready"], ["query"], ["ping"],
    ["definitions", "export"], ["vhost", "list"], ["user", "list"], ["permission", "list"],
    ["policy", "list"], ["policy", "list", "--operator"], ["permission", "list-topic"],
    ["replicate", "--list"], ["federate", "list"],
    ["federate", "trace", "amq.topic", "k"], ["federate", "trace", "--net", "amq.topic", "k"],
    ["federate", "map"], ["declare", "queue", "q"], ["get", "q"], ["publish", "q", "x"], ["list", "queues"],
    ["purge", "q", "--yes"], ["close", "--of", "nobody"],
]  # fmt: skip
"""What a node on its own answers with success."""
REFUSED = [
    ["status", "--expect", "ready"], ["demote"], ["switchover"], ["replicate", "--stop", "none"],
    ["vhost", "delete", "none"], ["user", "delete", "none"], ["permission", "clear", "none"],
    ["policy", "clear", "none"], ["policy", "clear", "none", "--operator"],
    ["vhost", "limit", "/", "--clear"], ["permission", "clear-topic", "none", "amq.topic"],
    ["federate", "trace", "none", "k"],
    ["purge", "none", "--yes"], ["get", "none"], ["publish", "none", "x"], ["move", "none", "none"],
    ["close", "none"], ["delete", "queue", "none"], ["delete", "exchange", "none"],
    ["delete", "binding", "amq.topic", "none"], ["declare", "exchange", "amq.none"],
    ["declare", "binding", "none", "none"],
    ["federate", "trace", "none", "k", "--net"],
    ["federate", "attach", "^none$", "--upstream", "hub"],
    ["federate", "attach", "^none$", "--upstream", "hub", "--format", "json"],
    ["federate", "pause", "x", "none"], ["federate", "resume", "x", "none"],
    ["federate", "remove", "agent", "x", "none"], ["federate", "remove", "upstream", "none"],
]  # fmt: skip
UNREACHABLE = [
    *NODE, ["trace"], ["promote"], ["demote"], ["switchover"], ["replicate", "127.0.0.1:1", "orders"],
    ["definitions", "import", "{definitions}"], ["vhost", "add", "new"], ["user", "delete", "joe"],
    ["user", "tags", "joe"], ["user", "limit", "joe", "--clear"],
    ["vhost", "limit", "/", "--max-queues", "1"],
    ["permission", "set-topic", "joe", "amq.topic", ".*", ".*"],
    ["permission", "set", "joe", ".*", ".*", ".*"],
    ["policy", "set", "all", ".*", '{"max-length": 1}'],
    ["federate", "upstream", "hub", "--addresses", "127.0.0.1:1", "--login", "net"],
    ["federate", "agent", "--exchange", "x", "--upstream", "hub"],
]  # fmt: skip
FILES: list[tuple[list[str], int]] = [
    (["serve", "--config", "{garbage}"], WRONG),
    (["serve", "--config", "{absent}"], WRONG),
    (["serve", "--set", "broker.nonsense=1"], WRONG),
    (["serve", "--data-dir", "{garbage}"], WRONG),
    (["passwd", "no name"], WRONG),
    (["status", "-b", "1:2:3"], WRONG),
    (["status", "-b", "amqps://a", "--tls-ca", "{absent}"], WRONG),
    (["status", "--timeout", "soon"], WRONG),
    (["policy", "set", "all", ".*", "{{"], WRONG),
    (["federate", "upstream", "hub", "--addresses", "nowhere", "--login", "net"], WRONG),
    (["federate", "list", "--links", "--upstreams"], WRONG),
    (["federate", "attach", "(", "--upstream", "hub"], WRONG),
    (["definitions", "import", "{garbage}"], WRONG),
    (["definitions", "import", "{absent}"], WRONG),
    (["quarantine", "list", "{empty}"], WRONG),
    (["backup", "{absent}", "{empty}/copy"], WRONG),
    (["restore", "{empty}", "{absent}"], WRONG),
    (["agent", "install", "--root", "{empty}", "--python", "{absent}"], WRONG),
    (["agent", "install", "--root", "{garbage}", "--python", sys.executable], FAILED),
    (["deploy", "show", "settings", "--output", "{empty}/deploy"], DONE),
    (["deploy", "show", "haproxy", "--settings", "{garbage}"], WRONG),
    (["deploy", "show", "haproxy", "--output", "{garbage}"], WRONG),
    (["demo", "--rate", "nan"], WRONG),
    (["demo", "--federation", "--rate", "0"], WRONG),
    (["demo", "--federation", "--authority", "pair"], WRONG),
    (["demo", "--dir", "{closed}"], WRONG),
    (["ledger", "check", "{whole}"], DONE),
    (["ledger", "check", "{open}"], NOTHING),
    (["ledger", "check", "{damaged}"], FOUND),
    (["ledger", "prune", "{whole}", "--keep", "soon"], UNDONE),
    (["ledger", "convert", "{rows}", "--writer", "w", "--role", "producer", "--format", "csv"], FOUND),
    (["ledger", "convert", "{absent}", "--writer", "w", "--role", "producer", "--format", "csv"], UNDONE),
    (["reconcile", "{whole}", "--output", "{absent}/page.html"], UNDONE),
    (["report", "{whole}", "--since", "soon"], UNDONE),
    *(([*command, "{empty}"], NOTHING) for command in (["reconcile"], ["report"], ["ledger", "check"])),
    *(
        ([*command, "{absent}"], NOTHING)
        for command in (["reconcile"], ["report"], ["watch"], ["ledger", "check"], ["ledger", "compact"])
    ),
    *(
        ([*command, "{closed}"], UNDONE)
        for command in (["reconcile"], ["report"], ["watch"], ["ledger", "check"], ["ledger", "compact"])
    ),
]  # fmt: skip


def code_of(arguments: list[str]) -> int:
    try:
        return run(cli.main, arguments)
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("places")
    found = {name: root / name for name in ("empty", "whole", "open", "damaged", "closed")}
    for folder in found.values():
        folder.mkdir()
    for name in ("whole", "damaged"):
        LedgerWriter(str(found[name]), "p", "producer", incarnation=1).close()
    LedgerWriter(str(found["open"]), "p", "producer", incarnation=1).abandon()
    (ledger,) = found["damaged"].iterdir()
    ledger.write_text(f"nonsense\n{ledger.read_text()}")
    (found["closed"] / "p-1-0.ledger.jsonl").mkdir()
    found |= {name: root / f"{name}.txt" for name in ("garbage", "rows", "definitions", "absent")}
    found["garbage"].write_text("= neither TOML nor JSON")
    found["rows"].write_text("time,event,session,tag\nyesterday,sent,a/1,1\n")
    found["definitions"].write_text('{"queues": [{"name": "q", "vhost": "/", "durable": true}]}')
    return found


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.cli.watch._hold_signals", lambda: None)


def test_each_command_is_looked_at() -> None:
    told = set(re.findall(r"`([a-z]+)", PAPER))
    assert set(_COMMANDS) - told - {"passwd"} == set()
    for name, inner in GROUPS.items():
        group = cli.get_command(None, name)  # type: ignore[arg-type]
        assert set(getattr(group, "commands", {})) == set(inner), name


@pytest.mark.parametrize("command", EACH, ids=" ".join)
def test_an_unknown_option(command: list[str]) -> None:
    assert code_of([*command, "--nonsense"]) == (UNDONE if command[0] in JUDGES else WRONG)


@pytest.mark.parametrize("command", GROUPS)
def test_an_unknown_command_of_a_group(command: str) -> None:
    assert code_of([command, "nonsense"]) == (UNDONE if command in JUDGES else WRONG)
    assert code_of([command]) == (UNDONE if command in JUDGES else WRONG)


def test_no_command_and_an_unknown_one() -> None:
    assert (code_of([]), code_of(["nonsense"]), code_of(["--help"])) == (WRONG, WRONG, DONE)


@pytest.mark.parametrize("command", NODE, ids=" ".join)
def test_a_node_that_answers(command: list[str], node: Serving) -> None:
    assert code_of([*command, "-b", str(node.amqp)]) == DONE


@pytest.mark.parametrize("command", REFUSED, ids=" ".join)
def test_a_node_that_refuses(command: list[str], node: Serving) -> None:
    assert code_of([*command, "-b", str(node.amqp)]) == FAILED


def test_a_picture_that_cannot_be_written_is_named(
    node: Serving, places: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    picture = places["absent"] / "net.svg"
    assert code_of(["federate", "map", "-b", str(node.amqp), "--svg", str(picture)]) == FAILED
    assert capsys.readouterr().err.endswith(f"{picture}: No such file or directory (file-unusable)\n")


@pytest.mark.parametrize("command", NODE, ids=" ".join)
def test_a_wrong_password(command: list[str], node: Serving) -> None:
    assert code_of([*command, "-b", str(node.amqp), "--password", "wrong"]) == FAILED


@pytest.mark.parametrize("command", UNREACHABLE, ids=" ".join)
def test_a_node_that_is_not_reachable(command: list[str], places: dict[str, Path]) -> None:
    given = [part if part.startswith('{"') else part.format(**places) for part in command]
    assert code_of([*given, "-b", f"127.0.0.1:{closed_port()}"]) == FAILED


@pytest.mark.parametrize(("command", "code"), FILES, ids=lambda one: str(one))
def test_files_and_values(command: list[str], code: int, places: dict[str, Path]) -> None:
    assert code_of([part.format(**places) for part in command]) == code


@pytest.mark.parametrize("module", ["py4j.protocol", "pyspark.errors", "spark.session"])
def test_a_spark_that_fails(
    module: str,
    places: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An error of each of the modules whose errors are Spark's."""

    def fails(*_: object, **__: object) -> NoReturn:
        raise error("no master 'nonsense'")

    error = SparkUnavailable if module == "spark.session" else type("Error", (Exception,), {})
    error.__module__ = module
    monkeypatch.setattr("spark.session.open_session", fails)
    assert code_of(["reconcile", str(places["whole"])]) == UNDONE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("no master 'nonsense'")


@pytest.mark.system
def test_a_spark_that_does_not_start(places: dict[str, Path]) -> None:
    """In a process of its own: where a session of another test runs, its master is not asked for."""
    command = [sys.executable, "-m", "understudy", "reconcile", str(places["whole"]), "--master", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE)
    assert done.returncode == UNDONE, done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, DONE), (signal.SIGTERM, DONE)])
def test_a_node_that_is_told_to_stop(number: signal.Signals, code: int, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as running:
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE) == code


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, exit_codes.INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM)]
)
def test_a_command_that_waits_and_is_ended(number: signal.Signals, code: int) -> None:
    """A process that SIGTERM ends has no code of its own; a shell makes 143 of it."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        command = [sys.executable, "-m", "understudy", "ping", "-b", where]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process, listener.accept()[0] as silent:
            assert silent.recv(8)[:4] == b"AMQP"
            process.send_signal(number)
            assert process.wait(PATIENCE) == code


def test_the_job_of_spark_has_the_codes_of_reconcile(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, code in (("empty", NOTHING), ("absent", NOTHING)):
        assert spark.reconcile.job.main([str(places[given])]) == code, given
    assert spark.reconcile.job.main(["--nonsense"]) == UNDONE

    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(spark.reconcile.job, "main", interrupted)
    with pytest.raises(SystemExit) as end:
        spark.reconcile.job.program()
    assert end.value.code == exit_codes.INTERRUPTED


def test_what_others_rely_on() -> None:
    assert launch._MISCONFIGURED == WRONG
    for unit in (ROOT / "deploy" / "systemd").iterdir():
        assert f"RestartPreventExitStatus={WRONG}\n" in unit.read_text()


def test_the_page_and_the_help_have_the_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| `([A-Z_]+)` \|", PAPER, re.MULTILINE)
    assert {name: int(code) for code, name in rows} == {
        name: value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)
    }
    said = subprocess.run(
        [sys.executable, "-m", "understudy", "--help"], capture_output=True, text=True, timeout=PATIENCE
    ).stdout
    assert all(line.strip() in said for line in SUMMARY.replace("\b", "").splitlines())
    assert ", ".join(JUDGES[:-1]) + f" and {JUDGES[-1]}:" in said
