"""One line an event in the node's log."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import amqp
import pytest

from tests.understudy.serving import serving
from understudy.server.log_lines import JsonLine, OneLine
from understudy.shared.codes import Coded


def _formatted(text: str) -> str:
    return OneLine().format(logging.LogRecord("x", logging.INFO, "x.py", 1, "%s", (text,), None))


@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\x85b", "a\x0bb"])
def test_a_name_cannot_begin_a_line_nor_move_the_cursor(name: str) -> None:
    line = _formatted(f"no queue '{name}'")
    assert line.isprintable()
    assert len(line.splitlines()) == 1


def test_a_traceback_keeps_its_lines_and_none_of_them_looks_like_an_event() -> None:
    lines = _formatted(
        "unexpected error\nTraceback (most recent call last):\n  x\nValueError: b"
    ).splitlines()
    assert lines[0].endswith(" I unexpected error")
    assert [line.strip() for line in lines[1:]] == [
        "Traceback (most recent call last):",
        "x",
        "ValueError: b",
    ]
    assert all(line.startswith("    ") for line in lines[1:])


def test_in_json_each_line_is_one_object() -> None:
    text = "unexpected error\nTraceback (most recent call last):\n  x\nValueError: b\x1b[2J\u2028b"
    line = JsonLine().format(logging.LogRecord("x", logging.WARNING, "x.py", 1, "%s", (text,), None))
    assert line.isprintable() and line.isascii()
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "warning",
        "logger": "x",
        "message": "unexpected error",
        "traceback": "Traceback (most recent call last):\n  x\nValueError: b\x1b[2J\u2028b",
    }


def test_a_code_ends_a_line_and_is_a_key_of_json() -> None:
    said = Coded("some-code", "100 % of\nthat failed")
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, said, (), None)
    assert OneLine().format(record).endswith(" W 100 % of that failed (some-code)")
    found = json.loads(JsonLine().format(record))
    assert (found["message"], found["code"]) == ("100 % of\nthat failed", "some-code")


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        amqp.Connection(str(node.amqp), client_properties={"connection_name": "shop\n1"}).connect()
        assert r"open: user 'guest', virtual host '/', client 'shop\n1', AMQP 0-9-1" in node.until("shop")
        with (
            amqp.Connection(str(node.amqp)) as connection,  # type: ignore[no-untyped-call]
            pytest.raises(amqp.NotFound),  # type: ignore[attr-defined]
        ):
            connection.channel().queue_declare("gone\nstopped", passive=True)
        line = node.until("NOT_FOUND")
        assert r"no queue 'gone\nstopped' in vhost" in line
        assert node.stop() == 0
