"""`understudy quarantine`: reads what the real writer wrote, torn and damaged files included, and republishes
each message once. The way through real brokers is in tests/failover/test_quarantine.py."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import amqp
import pika
import pytest

from broker.amqp091.codec.frames import HEADER, body_frames, frame
from broker.amqp10.conversion import incoming
from broker.model.history.records import Entry, Envelope
from broker.model.octets import as_text
from broker.store.files import RealFiles
from ha.adapter.quarantine import Quarantine
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.cli.test_main import closed_port, understudy
from understudy.quarantine.journal import NOTED, Notes
from understudy.quarantine.message import Message
from understudy.quarantine.reader import QuarantineFolder
from understudy.shared.amqp10.types import Described, ULong, write

ORDERS = bytes(range(16))
OTHERS = bytes(range(16, 32))


def raw(body: bytes, **properties: Any) -> bytes:
    """A message as a publisher frames it, on channel 1."""
    content = amqp.Message(body, **properties)
    head = (60).to_bytes(2, "big") + bytes(2) + len(body).to_bytes(8, "big")
    return frame(HEADER, 1, head + content._serialize_properties()) + b"".join(body_frames(1, body, 4096))


def entry(
    sequence: int, body: bytes, key: str = "orders", epoch: int = 7, exchange: str = "", **properties: Any
) -> Entry:
    envelope = Envelope(
        epoch,
        exchange,
        key,
        persistent=True,
        wall_ms=1_700_000_000_000 + sequence,
        channel=1,
        largest_frame=4096,
    )
    return sequence, envelope, raw(body, delivery_mode=2, **properties)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with 3 messages of `orders` in quarantine, one of them twice, and 1 of `others`."""
    writer = Quarantine(RealFiles(), str(tmp_path), 3)
    head: dict[str, Any] = {"application_headers": {"colour": "red", "n": 5}, "message_id": "m-1"}
    writer.export(ORDERS, "orders", [entry(1, b"one", **head), entry(2, b"two")])
    writer.export(ORDERS, "orders", [entry(2, b"two"), entry(9, b"\xff\x00", epoch=8)])
    writer.export(OTHERS, "others", [entry(1, b"x" * 9000, "others", user_id="ann")])
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return understudy(capsys, "quarantine", *arguments)


def listed(capsys: pytest.CaptureFixture[str], data: Path) -> dict[str, tuple[int, int]]:
    """By queue: the number of messages, and how many of them were republished."""
    code, out, err = run(capsys, "list", "-d", str(data), "--format", "json")
    assert (code, err) == (0, "")
    return {row["name"]: (row["messages"], row["republished"]) for row in json.loads(out)["queues"]}


def test_list_counts_each_message_once_and_names_its_ids(
    capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    assert listed(capsys, data) == {"orders": (3, 0), "others": (1, 0)}
    code, out, _ = run(capsys, "list", "-d", str(data / "quarantine"))
    assert code == 0
    assert "7-1..2, 8-9" in out
    assert "9,000" in out


def test_show_tells_route_properties_and_body(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    code, out, _ = run(capsys, "show", "orders", "-d", str(data))
    assert code == 0
    assert "orders 7-1\n" in out
    assert 'application_headers: {"colour": "red", "n": 5}' in out
    assert 'body, 3 octets: "one"' in out
    assert "body, 2 octets: ff 00" in out
    code, out, _ = run(capsys, "show", "--id", "8-9", "-d", str(data), "--format", "json")
    (message,) = json.loads(out)["messages"]
    assert (message["id"], message["body"], message["body_hex"]) == ("8-9", None, "ff00")
    code, out, _ = run(capsys, "show", "--limit", "1", "-d", str(data), "--format", "json")
    assert (len(json.loads(out)["messages"]), json.loads(out)["more"]) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("list", "-d", "{data}/nowhere"), 2, "{data}/nowhere: no such folder"),
        (("list", "-d", "/dev/null"), 2, "/dev/null: not a folder"),
        (("show", "--id", "seven", "-d", "{data}"), 2, "'seven' is not EPOCH-SEQUENCE, such as 65537-12"),
        (("show", "nobody", "-d", "{data}"), 1, "no messages of queue 'nobody' in {data}/quarantine"),
        (("show", "--id", "7-3", "-d", "{data}"), 1, "no message 7-3 in {data}/quarantine"),
        (
            ("republish", "nobody", "others", "--id", "7-3", "-d", "{data}"),
            1,
            "no message 7-3 of queue 'nobody' or 'others' in {data}/quarantine",
        ),
        (("republish", "--to", "q", "--route", "-d", "{data}"), 2, "--to and --route cannot be combined"),
        (
            ("republish", "-b", "a:1,nonsense", "-d", "{data}"),
            2,
            "Invalid value for '-b' / '--broker': 'nonsense' is not an address HOST:PORT",
        ),
        (
            ("republish", "-b", ",", "-d", "{data}"),
            2,
            "Invalid value for '-b' / '--broker': at least one address HOST:PORT is needed",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], data: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    found, _, err = run(capsys, *(a.replace("{data}", str(data)) for a in arguments))
    line = f"understudy: {said.replace('{data}', str(data))}"
    assert found == code and err.removesuffix("\n").partition(" (quarantine-")[0] == line


def test_nothing_in_quarantine_is_no_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text("{}")
    code, out, _ = run(capsys, "list", "-d", str(tmp_path))
    assert (code, out) == (0, f"nothing in quarantine in {tmp_path}/quarantine\n")
    assert run(capsys, "show", "-d", str(tmp_path)) == (code, out, "")
    assert run(capsys, "republish", "-d", str(tmp_path)) == (code, out, "")


def test_binary_keys_and_properties_are_shown_and_republished_unchanged(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    octets = b"\xff\0\xed\xa0\x80"
    writer = Quarantine(RealFiles(), str(tmp_path), 3)
    head: dict[str, Any] = {"correlation_id": octets}
    writer.export(ORDERS, "orders", [entry(1, b"one", as_text(octets), exchange="amq.direct", **head)])
    writer.export(OTHERS, "others", [entry(1, b"two", as_text(octets), **head)])
    code, out, err = run(capsys, "show", "-d", str(tmp_path))
    assert (code, err) == (0, "")
    assert r"key \xff\x00\xed\xa0\x80" in out
    code, out, err = run(capsys, "show", "-d", str(tmp_path), "--format", "json")
    assert (code, err) == (0, "")
    line = json.loads(out)["messages"][0]
    assert line["routing_key_base64"] == base64.b64encode(octets).decode()
    assert line["routing_key"] == octets.decode(errors="replace")
    with BrokerThread() as broker:
        address = str(broker.address)
        port = int(address.rpartition(":")[2])
        where = ("--route", "-d", str(tmp_path), "-b", address)
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as reader:
            channel = reader.channel()
            channel.queue_declare("orders")
            channel.queue_bind("orders", "amq.direct", octets)
            assert run(capsys, "republish", "orders", *where)[0] == 0
            method, properties, body = channel.basic_get("orders", auto_ack=True)
        code, _, err = run(capsys, "republish", "others", *where)
    assert (method.routing_key, properties.correlation_id, body) == (octets, octets, b"one")
    assert (code, err.count("\n")) == (1, 1)
    assert err.endswith("does not exist (0 confirmed, 0 noted, 0 in doubt, 1 not sent) (republish-stopped)\n")


FORGED = "orders\n\x1b[2Junderstudy: all is well\u202e"


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("republish",)])
def test_names_of_clients_forge_no_lines_of_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    head: dict[str, Any] = {"application_headers": {FORGED: FORGED}, "message_id": FORGED}
    forged = entry(1, FORGED.encode(), FORGED, exchange=FORGED, **head)
    Quarantine(RealFiles(), str(tmp_path), 3).export(ORDERS, FORGED, [forged])
    with BrokerThread() as broker:
        more = ("-b", str(broker.address)) if arguments[0] == "republish" else ()
        _, out, err = run(capsys, *arguments, *more, "-d", str(tmp_path))
    assert "all is well" in out + err
    assert not set("\x1b\u202e") & set(out + err)
    assert not any(line.startswith("understudy: all") for line in (out + err).splitlines())


@pytest.mark.parametrize("arguments", [("list",), ("show",), ("republish", "--dry-run")])
def test_a_folder_of_no_broker_has_not_nothing_in_quarantine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """For a mistyped folder, an empty list would claim that nothing was set aside."""
    code, out, err = run(capsys, *arguments, "-d", str(tmp_path))
    assert (code, out) == (2, "")
    assert str(tmp_path) in err and err.endswith("(quarantine-unreadable)\n")


def test_a_torn_end_is_left_out_and_damage_is_named(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    first = sorted((data / "quarantine").iterdir())[0]
    whole = first.read_bytes()
    first.write_bytes(whole[:-20])
    assert listed(capsys, data) == {"orders": (3, 0), "others": (1, 0)}, (
        "the torn one is in the second export"
    )
    first.write_bytes(b"{}\n" + whole)
    code, out, err = run(capsys, "list", "-d", str(data), "--format", "json")
    assert (code, err) == (1, f"understudy: {first}:1, octet 0: not a message in quarantine: no 'queue'\n")
    assert sum(row["messages"] for row in json.loads(out)["queues"]) == 4


def test_republish_puts_them_back_once_as_they_were(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    with BrokerThread() as broker, amqp.Connection(f"{broker.address}") as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, auto_delete=False)
        code, out, err = run(capsys, "republish", "-b", str(broker.address), "-d", str(data))
        assert (code, out) == (1, "3 of 4 messages republished and confirmed\n")
        assert err == "understudy: 1 refused: queue 'others': does not exist\n"
        assert listed(capsys, data) == {"orders": (3, 3), "others": (1, 0)}

        channel.queue_declare("spare", durable=True, auto_delete=False)
        code, out, _ = run(capsys, "republish", "--to", "spare", "-b", str(broker.address), "-d", str(data))
        assert (code, out) == (0, "1 of 1 messages republished and confirmed\n")
        last = max(json.loads(line)["at"] for line in (data / "quarantine" / NOTED).read_text().splitlines())
        code, out, err = run(capsys, "republish", "-b", str(broker.address), "-d", str(data))
        assert (code, err) == (0, "")
        assert out == (
            f"nothing to publish: all 4 messages were republished before, the last at {last}; "
            f"--again republishes them\n"
        )
        assert run(capsys, "republish", "--dry-run", "-d", str(data)) == (0, out, "")
        told = json.loads(run(capsys, "republish", "--dry-run", "-d", str(data), "--format", "json")[1])
        assert (told["messages"], told["before"], told["last_at"]) == (0, 4, last)

        found = [channel.basic_get("orders", no_ack=True) for _ in range(4)]
        assert [message and message.body for message in found] == [b"one", b"two", b"\xff\x00", None]
        headers = found[0].properties["application_headers"]
        assert (headers["colour"], headers["n"]) == ("red", 5)
        assert headers["x-quarantined"] == f"{ORDERS.hex()} 7-1"
        assert found[0].properties["message_id"] == "m-1"
        assert found[0].properties["delivery_mode"] == 2
        spare = channel.basic_get("spare", no_ack=True)
        assert (len(spare.body), "user_id" in spare.properties) == (9000, False)
        assert spare.properties["application_headers"]["x-quarantined-user-id"] == "ann"


def test_what_was_confirmed_is_noted_although_the_end_was_not_reached(
    capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    nobody = f"127.0.0.1:{closed_port()}"
    code, out, err = run(capsys, "republish", "-b", nobody, "--timeout", "200ms", "-d", str(data))
    assert (code, out) == (1, "0 of 4 messages republished and confirmed\n")
    assert err.startswith("understudy: stopped: gave up while no broker served")
    assert err.endswith("(0 confirmed, 0 noted, 0 in doubt, 4 not sent) (republish-stopped)\n")
    assert listed(capsys, data) == {"orders": (3, 0), "others": (1, 0)}


def test_a_torn_note_costs_no_more_than_itself(data: Path) -> None:
    messages = [m for m in QuarantineFolder(data).messages() if m.name == "orders"]
    note_confirmed(data, messages[:1])
    note = data / "quarantine" / "republished.jsonl"
    note.write_bytes(note.read_bytes() + b'{"queue": "000')
    assert noted(data, messages) == [True, False, False]
    note_confirmed(data, messages[1:2])
    assert noted(data, messages) == [True, True, False]


def note_confirmed(data: Path, messages: list[Message]) -> None:
    notes = Notes(data / "quarantine")
    with notes.writing():
        notes.begin(messages, "here")
        notes.settle(messages, [], "here")


def noted(data: Path, messages: list[Message]) -> list[bool]:
    notes = Notes(data / "quarantine")
    return [notes.is_republished(message) for message in messages]


def test_a_damaged_note_lets_nothing_be_published(capsys: pytest.CaptureFixture[str], data: Path) -> None:
    note = data / "quarantine" / "republished.jsonl"
    note.write_bytes(b"nonsense\n")
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", f"127.0.0.1:{closed_port()}")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"understudy: {note}:1: not a valid note; if you remove the line")
    code, out, err = run(capsys, "list", "-d", str(data), "--format", "json")
    assert (code, len(json.loads(out)["queues"])) == (1, 2)
    assert err.startswith(f"understudy: {note}:1: not a valid note")


def test_a_queue_of_another_virtual_host_is_told_apart_and_goes_back_there(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = Quarantine(RealFiles(), str(data), 4)
    writer.export(bytes(16), "orders", [entry(1, b"abroad")], "abroad")
    assert listed(capsys, data)["abroad/orders"] == (1, 0) and listed(capsys, data)["orders"] == (3, 0)
    with (
        BrokerThread(vhosts=("abroad",)) as broker,
        amqp.Connection(f"{broker.address}", virtual_host="abroad") as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("orders", auto_delete=False)
        code, out, _ = run(capsys, "republish", "abroad/orders", "-b", str(broker.address), "-d", str(data))
        assert (code, out) == (0, "1 of 1 messages republished and confirmed\n")
        assert channel.basic_get("orders").body == b"abroad"
    assert listed(capsys, data)["abroad/orders"] == (1, 1)


def test_amqp_1_0_messages_are_republished_as_0_9_1_clients_get_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sections = [(0x70, [True]), (0x73, ["m-1"]), (0x74, {"colour": "red"}), (0x75, b"one"), (0x75, b"two")]
    came = incoming(b"".join(write(Described(ULong(code), value)) for code, value in sections))
    envelope = Envelope(7, "", "orders", persistent=True, wall_ms=1, channel=0, largest_frame=came.largest)
    Quarantine(RealFiles(), str(tmp_path), 4).export(ORDERS, "orders", [(1, envelope, came.raw)])
    (file,) = (tmp_path / "quarantine").iterdir()
    assert json.loads(file.read_text())["body"] == "onetwo"
    (message,) = QuarantineFolder(tmp_path).messages()
    assert (message.body, message.frames) == (b"onetwo", came.raw)
    assert "onetwo" in run(capsys, "show", "orders", "-d", str(tmp_path))[1]
    with BrokerThread() as broker, amqp.Connection(f"{broker.address}") as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, auto_delete=False)
        code, out, _ = run(capsys, "republish", "-b", str(broker.address), "-d", str(tmp_path))
        assert (code, out) == (0, "1 of 1 messages republished and confirmed\n")
        found = channel.basic_get("orders", no_ack=True)
        assert (found.body, found.properties["message_id"]) == (b"onetwo", "m-1")
        assert found.properties["delivery_mode"] == 2
        assert found.properties["application_headers"]["colour"] == "red"
