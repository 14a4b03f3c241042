"""Commands on queues, exchanges, bindings, messages and connections, with a real pair: through a failover,
and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pika
import pika.exceptions
import pytest

from tests.failover.nodes.pair import Pair, channel_of
from tests.understudy.command_line import command
from understudy.cli.main import cli
from understudy.cli.objects.tracing import Trace


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair")) as made:
        made.whole()
        yield made


class Shell:
    """Commands that are given the address of one node."""

    def __init__(self, pair: Pair, at: str) -> None:
        self.address = str(pair.addresses[at])

    def run(self, *arguments: str, typed: str = "") -> tuple[int, str, str]:
        return command(*arguments, "-b", self.address, typed=typed)

    def done(self, *arguments: str, typed: str = "") -> str:
        """What it prints, without the address of the primary."""
        code, out, err = self.run(*arguments, typed=typed)
        assert (code, err) == (0, ""), (arguments, out, err)
        return out.partition(": ")[2].rstrip("\n")

    def answer(self, *arguments: str) -> Any:
        code, out, err = self.run(*arguments, "--format", "json")
        assert (code, err) == (0, ""), (arguments, out, err)
        return json.loads(out)

    def refused(self, *arguments: str, code: int = 1) -> str:
        found, out, err = self.run(*arguments)
        assert (found, out) == (code, ""), (arguments, out, err)
        assert err.startswith("understudy: ") and err.count("\n") == 1
        return err


def until(trace: Trace) -> list[dict[str, Any]]:
    """The next events."""
    while not (found := trace.passed()):
        pass
    return found


@pytest.fixture
def shell(pair: Pair) -> Shell:
    """Given the backup, so that each command looks for the primary."""
    return Shell(pair, "right")


def test_what_is_wrong_ends_in_one_line(shell: Shell) -> None:
    assert "NOT_FOUND - no queue 'none' in vhost '/' (operation-refused)" in shell.refused(
        "purge", "none", "--yes"
    )
    assert r"no queue 'a\x1b[2Jb<i>'" in shell.refused("get", "a\x1b[2Jb<i>")
    assert "'--argument': 'x' is not KEY=VALUE" in shell.refused(
        "declare", "queue", "q", "--argument", "x", code=2
    )
    assert "'name' is longer than 255 octets" in shell.refused("declare", "queue", "x" * 256, code=2)
    assert "nothing is done without --yes" in shell.refused("purge", "none", code=2)
    assert "give NAME, or --of USER, or --vhost NAME" in shell.refused("close", code=2)
    assert "no connection 'nobody'" in shell.refused("close", "nobody")
    assert "(message-unrouted)" in shell.refused("publish", "nowhere", "x")
    assert "delivery_mode must be a number" in shell.refused(
        "publish", "q", "x", "--property", "delivery_mode=x", code=2
    )
    assert "no vhosts have the column 'colour'" in shell.refused(
        "list", "vhosts", "--columns", "colour", code=2
    )
    code, _, err = command("purge_queue")
    assert (code, "Did you mean 'understudy purge'?" in err) == (2, True)


def test_commands_hold_through_a_failover(pair: Pair, shell: Shell, tmp_path: Path) -> None:
    assert shell.done("declare", "queue", "q", "--argument", "x-max-length=100") == "queue 'q' exists"
    assert shell.done("declare", "queue", "q", "--argument", "x-max-length=100") == "queue 'q' exists already"
    assert shell.done("declare", "queue", "rest") == "queue 'rest' exists"
    assert shell.done("declare", "exchange", "x", "--type", "topic") == "exchange 'x' exists"
    assert shell.done("declare", "binding", "x", "q", "a.*") == "queue 'q' is bound to 'x' with key 'a.*'"
    assert shell.answer("publish", "a.b", "one\x1b", "--exchange", "x", "--header", "n=1", "--property",
                        "correlation_id=5")["routed"]  # fmt: skip
    (bound,) = [line for line in shell.answer("list", "bindings") if line["source"] == "x"]
    assert (bound["destination"], bound["routing_key"], bound["properties_key"]) == ("q", "a.*", "a.%2A")
    (tmp_path / "body").write_bytes(b"\xff\0")
    assert shell.done("publish", "q", "--file", str(tmp_path / "body")) == "the message is published"
    assert shell.done("publish", "q", typed="three") == "the message is published"
    with channel_of(pair, "left") as channel:
        method, properties, body = channel.basic_get("q", auto_ack=False)
        assert (method.exchange, properties.headers, body) == ("x", {"n": 1}, b"one\x1b")
        assert (properties.correlation_id, properties.delivery_mode) == ("5", 2)
        (line,) = shell.answer("list", "connections")
        assert (line["user"], line["vhost"], line["channels"]) == ("guest", "/", 1)
        assert shell.refused("close", "none") and line["name"] in shell.run("list", "channels")[1]
        assert shell.done("close", "--of", "guest", "--reason", "by test") == "1 connection closed"
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="CONNECTION_FORCED - by test"):
            channel.connection.process_data_events(5)
    code, out, _ = shell.run("get", "q", "--count", "5")
    assert code == 0 and r"one\x1b" in out and "base64 /wA=" in out and "\x1b" not in out
    assert shell.done("move", "q", "rest", "--count", "1") == "1 message moved to 'rest'"

    login = {"user": "guest", "password": "guest", "timeout": 30.0, "form": "table"}
    with click.Context(cli):
        trace = Trace({"address": pair.addresses["right"], **login}, "/", 16)
    assert trace.passed() == []
    shell.done("publish", "rest", "seen")
    (seen,) = until(trace)
    assert (seen["queues"], seen["payload"]) == (["rest"], "seen")
    assert "no vhost 'none'" in shell.refused("trace", "--vhost", "none", code=2)

    pair.kill("left")
    code, _, err = pair.command("promote", "right")
    assert code == 0, err

    with click.Context(cli):
        while trace.session_at != pair.addresses["right"]:
            assert trace.passed() == []
    assert [m["payload"] for m in shell.answer("get", "q", "--count", "5")] == ["/wA=", "three"]
    assert shell.done("move", "rest", "q", "--count", "1") == "1 message moved to 'q'"
    assert {(e["event"], e.get("reason")) for e in until(trace)} == {("enqueued", None), ("left", "moved")}
    assert [m["payload"] for m in shell.answer("get", "rest")] == ["seen"]
    found = shell.run("list", "queues", "--columns", "name,messages")[1].splitlines()
    assert [line.split() for line in found] == [["queues"], ["name", "messages"], ["q", "3"], ["rest", "1"]]
    for kind in ("exchanges", "consumers", "users", "vhosts", "policies", "permissions", "parameters"):
        code, out, err = shell.run("list", kind)
        assert (code, err) == (0, "") and out, kind
    assert shell.done("purge", "rest", "--yes") == "queue 'rest': 1 message removed"
    assert shell.answer("move", "q", "rest", "--count", "2")["moved"] == 2
    whole = {"ok": True, "reason": "", "moved": 2, "left": 0, "full": False}
    assert shell.answer("move", "rest", "q") == whole
    (taken,) = shell.answer("get", "q", "--count", "1", "--then", "take")
    assert taken["payload"] == "one\x1b"
    assert "queue 'q' has 2 messages: nothing is done without --yes" in shell.refused(
        "delete", "queue", "q", code=2
    )
    assert shell.done("purge", "q", "--yes") == "queue 'q': 2 messages removed"
    assert shell.done("get", "q") == "queue 'q' has no ready message"
    assert shell.done("delete", "binding", "x", "q", "a.*") == (
        "queue 'q' is no longer bound to 'x' with key 'a.*'"
    )
    assert shell.done("delete", "exchange", "x", "--if-unused") == "exchange 'x' is deleted"
    assert shell.done("delete", "queue", "q", "--if-empty") == "queue 'q' is deleted, with 0 ready messages"
    assert "no queue 'q'" in shell.refused("delete", "queue", "q")
