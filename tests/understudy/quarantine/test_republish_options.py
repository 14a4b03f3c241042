"""`understudy quarantine republish`: invalid options, and thousands of destinations."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import amqp
import pytest

from broker.settings import BrokerSettings
from broker.store.files import RealFiles
from ha.adapter.quarantine import Quarantine
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.quarantine.test_reader import ORDERS, entry, run
from tests.understudy.quarantine.test_republish import bodies, declare


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with three messages of `orders` in quarantine."""
    entries = [entry(number, b"%d" % number) for number in range(1, 4)]
    Quarantine(RealFiles(), str(tmp_path), 3).export(ORDERS, "orders", entries)
    return tmp_path


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        declare(broker)
        yield broker


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("", "the queue name is empty"),
        ("x" * 256, "a queue's name has at most 255 octets"),
        ("ö" * 128, "a queue's name has at most 255 octets"),
        (os.fsdecode(b"\xff"), "not UTF-8"),
    ],
)
def test_a_queue_that_can_have_no_such_name_is_a_wrong_option(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str], to: str, why: str
) -> None:
    """With an empty name, as from an unset shell variable, all messages would go to their original queues."""
    code, out, err = run(capsys, "republish", "--to", to, "-d", str(data), "-b", str(broker.address))
    assert (code, out) == (2, "")
    assert f"Invalid value for '--to': {why}" in err
    assert bodies(broker) == []


def test_addresses_of_which_one_speaks_no_tls_are_a_wrong_option(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", "amqps://127.0.0.1:1,127.0.0.1:2")
    assert (code, out) == (2, "")
    assert "Invalid value for '-b' / '--broker': with TLS every address must be amqps://HOST:PORT" in err


def test_a_ledger_that_cannot_be_kept_is_told_in_a_line(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "file").touch()
    folder = str(data / "file" / "ledger")
    code, out, err = run(capsys, "republish", "--ledger", folder, "-d", str(data), "-b", str(broker.address))
    assert (code, out) == (1, "0 of 3 messages republished and confirmed\n")
    assert err.startswith("understudy: stopped: ") and folder in err and err.count("\n") == 1
    assert bodies(broker) == []


def test_thousands_of_queues_that_are_gone_are_in_nobodys_way(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer 404 closes a channel. Its number must become free again, because there are only 2,047."""
    (path,) = (data / "quarantine").iterdir()
    record = json.loads(path.read_bytes().splitlines()[0])
    gone = [record | {"queue": f"{1000 + n:032x}", "name": f"reply-{n}"} for n in range(2100)]
    (path.parent / f"{7:032x}-3-2.jsonl").write_text("".join(json.dumps(one) + "\n" for one in gone))
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(broker.address), "--format", "json")
    told = json.loads(out)
    assert (code, told["republished"], len(told["refused"]), told["reason"]) == (1, 3, 2100, ""), err
    assert bodies(broker) == [1, 2, 3]


def test_headers_too_large_for_a_frame_cost_no_other_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = entry(2, b"2", application_headers={"h": "x" * 5000})
    Quarantine(RealFiles(), str(tmp_path), 3).export(ORDERS, "orders", [entry(1, b"1"), wide, entry(3, b"3")])
    with BrokerThread(settings=BrokerSettings(frame_max=4096)) as broker:
        declare(broker)
        code, out, err = run(capsys, "republish", "-d", str(tmp_path), "-b", str(broker.address))
        assert (code, out) == (1, "2 of 3 messages republished and confirmed\n")
        assert "1 refused: queue 'orders': its headers and properties do not fit into a frame" in err
        with amqp.Connection(str(broker.address)) as connection:
            assert connection.channel().queue_declare("orders", passive=True).message_count == 2
