"""The daemon speaks AMQP 1.0 where its engine is installed, and says so once where it is not."""

from __future__ import annotations

import logging
import sys

import pytest

from tests.broker.amqp091.wire import World
from understudy.daemon import speak_amqp10

HEADERS = {b"AMQP\0\1\0\0", b"AMQP\3\1\0\0"}


def test_it_is_spoken_where_the_engine_is_installed() -> None:
    pytest.importorskip("proton")
    broker = World().broker
    speak_amqp10(broker)
    assert set(broker.protocols) == HEADERS


def test_without_the_engine_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "broker.amqp10.connection", None)
    broker = World().broker
    with caplog.at_level(logging.INFO):
        speak_amqp10(broker)
    assert not broker.protocols
    assert [record.message for record in caplog.records] == [
        "no AMQP 1.0: python-qpid-proton is not installed (pip install 'understudy[amqp10]')"
    ]
