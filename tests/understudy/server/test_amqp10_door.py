"""The daemon speaks AMQP 1.0 where its engine is installed, and says so once where it is not."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import pytest

from tests.broker.amqp091.wire import World
from tests.failover.nodes.cluster import Cluster, local_places
from understudy import codes
from understudy.server.daemon import speak_amqp10

SASL_HEADER = b"AMQP\3\1\0\0"
HEADERS = {b"AMQP\0\1\0\0", SASL_HEADER}


def test_it_is_spoken_where_the_engine_is_installed() -> None:
    pytest.importorskip("proton")
    broker = World().broker
    speak_amqp10(broker)
    assert set(broker.protocols) == HEADERS


@pytest.mark.parametrize(("setting", "answer"), [("true", SASL_HEADER), ("false", b"AMQP\0\0\x09\x01")])
def test_a_node_speaks_it_unless_it_is_turned_off(tmp_path: Path, setting: str, answer: bytes) -> None:
    pytest.importorskip("proton")
    with Cluster(tmp_path, local_places(("one",)), f"broker.amqp10={setting}") as node:
        node.start("one", brokers="")
        address = node.addresses["one"]
        with socket.create_connection((address.host, address.port), 20) as client:
            client.sendall(SASL_HEADER)
            assert client.recv(8) == answer


def test_without_the_engine_the_log_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "broker.amqp10.connection", None)
    broker = World().broker
    with caplog.at_level(logging.INFO):
        speak_amqp10(broker)
    assert not broker.protocols
    assert [record.msg for record in caplog.records] == [codes.NO_AMQP10.say()]
