"""A node that was asked to do something and does not answer: it may be doing it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from broker.security.authenticator import hash_password
from tests.understudy.serving import PATIENCE, Serving, serving
from understudy import codes
from understudy.cli.main import cli
from understudy.shared.addresses import HostPort


class Between:
    """Passes on what a client and a node say, until a question with `word` has passed: then the node is not
    heard any more, or the client's connection ends (`closing`)."""

    def __init__(self, node: HostPort, word: bytes, *, closing: bool) -> None:
        self._node, self._word, self._closing = node, word, closing
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        """One connection after another, until the listener is shut down."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with client, socket.create_connection(self._node) as node, suppress(OSError):
                    self._pass_on(client, node)

    def _pass_on(self, client: socket.socket, node: socket.socket) -> None:
        back = threading.Thread(target=self._answer, args=(node, client))
        back.start()
        try:
            while data := client.recv(65536):
                if self._word in data:
                    node.shutdown(socket.SHUT_RD)  # what it answers from now on is lost
                    back.join(PATIENCE)
                    node.sendall(data)
                    if self._closing:
                        return
                    continue
                node.sendall(data)
        finally:
            with suppress(OSError):
                node.shutdown(socket.SHUT_RDWR)
            back.join(PATIENCE)

    @staticmethod
    def _answer(node: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := node.recv(65536):
                client.sendall(data)

    def end(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)


@contextmanager
def between(node: HostPort, word: bytes, *, closing: bool = False) -> Iterator[str]:
    found = Between(node, word, closing=closing)
    try:
        yield found.address
    finally:
        found.end()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One that has lost what it was asked before, and still ends cleanly."""
    with serving(tmp_path_factory.mktemp("node")) as node:
        yield node
        assert node.stop() == 0


def said(*arguments: str, timeout: str = "1s") -> str:
    """One line, with exit code 1."""
    done = CliRunner().invoke(cli, [*arguments, "--timeout", timeout])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1), (done, done.output)
    return done.stderr.removeprefix("Error: ")


@pytest.mark.parametrize("command", ["promote", "demote", "switchover"])
@pytest.mark.parametrize("closing", [False, True])
def test_what_is_not_answered_may_have_taken_place(command: str, closing: bool, node: Serving) -> None:
    how = "ended the connection: the server closed the socket" if closing else "did not answer within 1 s"
    with between(node.amqp, f'"{command}"'.encode(), closing=closing) as address:
        text = said(command, "-b", address)
    doubt = f"the node may have done it: check with understudy status --broker {address}"
    said_ = codes.NODE_NO_ANSWER.say(cause=f"{command}: {address} {how}; {doubt}")
    assert text == f"{said_}\n"


def test_of_a_copy_the_list_of_copies_tells(node: Serving) -> None:
    with between(node.amqp, b'"replicate"') as address:
        text = said("replicate", "127.0.0.1:1", "q", "-b", address)
    assert f"check with understudy replicate --list --broker {address} (node-no-answer)\n" in text


def test_what_was_never_asked_did_not_take_place(node: Serving) -> None:
    with between(node.amqp, b"AMQP") as address:
        text = said("promote", "-b", address)
    assert text.endswith("(node-unreachable)\n")


def test_a_status_leaves_nothing_in_doubt(node: Serving) -> None:
    with between(node.amqp, b'"status"') as address:
        for command in (("status",), ("ready",)):
            assert said(*command, "-b", address) == f"{address} did not answer within 1 s (node-no-answer)\n"


def test_who_may_not_ask_has_not_done_it(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'[auth.users.joe]\npassword = "{hash_password("j")}"\ntags = []\n')
    with serving(tmp_path / "data", "--config", str(config)) as node:
        text = said(
            "promote", "-b", str(node.amqp), "--user", "joe", "--password", "j", timeout=f"{PATIENCE}s"
        )
        assert node.stop() == 0
    assert "may not manage this broker" in text and "not known" not in text
