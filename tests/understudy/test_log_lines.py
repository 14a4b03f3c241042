"""One line an event in the node's log."""

from __future__ import annotations

import logging
from pathlib import Path

import amqp
import pytest

from tests.understudy.serving import serving
from understudy.log_lines import OneLine


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


def test_a_client_cannot_write_lines_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        with (
            amqp.Connection(str(node.amqp)) as connection,  # type: ignore[no-untyped-call]
            pytest.raises(amqp.NotFound),  # type: ignore[attr-defined]
        ):
            connection.channel().queue_declare("gone\nstopped", passive=True)
        line = node.until("NOT_FOUND")
        assert r"no queue 'gone\nstopped' in vhost" in line
        assert node.stop() == 0
