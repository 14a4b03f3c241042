"""The command line: exit codes, and that what is wrong is said in one line."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from understudy.cli.main import _OF_RABBITMQCTL, cli, run
from understudy.client_tls import ClientTls, parse_broker


def understudy(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(cli.main, list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def closed_port() -> int:
    """A port that nobody listens on (somebody could take it; then the connection is closed at once)."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server_that(answer: bytes) -> Iterator[str]:
    """Accepts one connection, answers whatever it is sent with `answer`, and closes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(timeout=10)


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("--nonsense",),
        ("serve", "--nonsense"),
        ("serve", "--config", "/nonexistent/node.toml"),
        ("serve", "--set", "ha.lease=5"),
        ("serve", "--listen", "nowhere"),
        ("serve", "--http", "nowhere"),
        ("serve", "extra"),
        ("status", "-b", "nowhere:"),
        ("status", "--format", "xml"),
        ("status", "--expect", "perfect"),
        ("status", "--timeout", "5"),
        ("ready", "--wait", "long"),
        ("demo", "--messages", "0"),
        ("demo", "--messages", "many"),
        ("demo", "--rate", "-1"),
        ("passwd", "a b"),
        ("passwd", "joe", "--stdin"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    code, out, err = understudy(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("understudy: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "meant"),
    [("stauts", "status"), ("list_queues", "list queues"), ("set_policy", "policy set"), ("zzz", "")],
)
def test_a_word_that_is_no_command_is_told_with_the_one_that_is_meant(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cli.main, [word]) == 2
    hint = f" Did you mean 'understudy {meant}'?" if meant else ""
    assert capsys.readouterr().err == f"understudy: No such command '{word}'.{hint}\n"


@pytest.mark.parametrize(
    ("said", "address"),
    [("h", "h:5672"), ("amqp://h", "h:5672"), ("amqps://h/", "amqps://h:5671"), ("[::1]", "[::1]:5672")],
)
def test_an_address_needs_no_port(said: str, address: str) -> None:
    assert str(parse_broker(said, ClientTls())) == address


@pytest.mark.parametrize("command", ["status", "ready", "promote", "demote", "switchover", "query", "ping"])
def test_an_unreachable_node_is_one_line_and_exit_1(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = closed_port()
    code, out, err = understudy(capsys, command, "-b", f"127.0.0.1:{port}")
    assert code == 1
    assert out == ""
    assert err.count("\n") == 1
    assert f"127.0.0.1:{port}" in err


def test_something_that_is_not_a_broker_is_one_line_and_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    with server_that(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        code, _, err = understudy(capsys, "status", "-b", address, "--timeout", "5s")
    assert code == 1
    assert err.count("\n") == 1
    assert address in err


def test_a_node_that_says_nothing_is_given_up(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = understudy(capsys, "ping", "-b", address, "--timeout", "200ms")
    assert code == 1
    assert "did not answer within 0.2 s" in err


def test_help_and_version_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = understudy(capsys, "--help")
    assert code == 0
    for command in ("serve", "status", "promote", "demote", "switchover", "reconcile", "demo", "passwd"):
        assert command in out
    assert understudy(capsys, "--version")[0] == 0
    assert understudy(capsys, "serve", "--help")[0] == 0


def test_passwd_prints_a_user_for_the_configuration_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from broker.errors import LoginRefused
    from broker.security.authenticator import Authenticator
    from understudy.config.load import load
    from understudy.server.daemon import users_of

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"tell nobody\n")))
    code, out, err = understudy(capsys, "passwd", "joe", "--administrator", "--stdin")
    assert (code, err) == (0, "")
    assert "tell nobody" not in out
    assert tomllib.loads(out)["auth"]["users"]["joe"]["tags"] == ["administrator"]
    path = tmp_path / "node.toml"
    path.write_text(out)
    door = Authenticator(users_of(load(path)))
    assert door.authenticate("joe", "tell nobody", loopback=True).is_administrator
    with pytest.raises(LoginRefused):
        door.authenticate("joe", "wrong", loopback=True)
    with pytest.raises(LoginRefused):
        door.authenticate("guest", "guest", loopback=True)


@pytest.mark.parametrize("meant", sorted(set(_OF_RABBITMQCTL.values())))
def test_what_a_word_of_rabbitmqctl_hints_at_is_there(meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for word in meant.split() if word.islower() and word.isalpha()]
    assert understudy(capsys, *words, "--help")[0] == 0


def test_output_that_cannot_be_written_is_one_line_and_exit_3() -> None:
    for arguments in (["--version"], ["passwd", "joe", "--stdin"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "understudy", *arguments],
                stdout=full, stderr=subprocess.PIPE, input="secret\n", text=True, timeout=60,
            )  # fmt: skip
        assert done.returncode == 3
        assert done.stderr == "understudy: cannot write the output: No space left on device\n"


def test_a_password_without_a_terminal_is_asked_for_by_nobody() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "understudy", "passwd", "joe"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, start_new_session=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "understudy: no terminal to type the password: use --stdin\n"


def test_ready_says_no_in_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = understudy(capsys, "ready", "-b", f"127.0.0.1:{closed_port()}", "--format", "json")
    assert code == 1
    assert json.loads(out)["ready"] is False
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "promotable", "code", "words"),
    [
        ("ready", True, 0, "b is ready: why"),
        ("ready", False, 1, "b is ready, but could not serve now: why"),
        ("active", True, 0, "b is active: why"),
        ("catch-up", False, 1, "b is catch-up: why"),
    ],
)
def test_ready_is_who_could_serve_at_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: str, promotable: bool,
    code: int, words: str,
) -> None:  # fmt: skip
    found = {"name": "b", "status": status, "promotable": promotable, "reason": "why"}
    monkeypatch.setattr("understudy.cli.node.ask", lambda *_, **__: {"ok": True, "status": found})
    found_code, out, err = understudy(capsys, "ready")
    assert found_code == code
    assert (out or err.removeprefix("understudy: ")) == f"{words}{' (node-not-ready)' if code else ''}\n"


def test_a_data_directory_that_is_none_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a directory")
    code, _, err = understudy(
        capsys, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "file" / "data")
    )
    assert code == 2
    assert err.count("\n") == 1
    assert str(tmp_path / "file") in err


def test_a_file_that_fails_in_any_command_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    assert run(lambda **_: missing.read_text()) == 1
    assert capsys.readouterr().err == f"understudy: {missing}: No such file or directory (file-unusable)\n"


@pytest.mark.parametrize(("words", "known"), [
    ("understudy pu", ["publish", "purge"]), ("understudy declare q", ["queue"]),
    ("understudy get --th", ["--then"]), ("understudy get --then ", ["keep", "take", "reject"]),
])  # fmt: skip
def test_the_shell_completes_words(
    words: str, known: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_UNDERSTUDY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit) as end:
        run(cli.main, [])
    assert end.value.code == 0
    assert [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()] == known
