"""`understudy quarantine republish` under faults: a full disk, two runs at once, damage, missing
destinations, interrupts. Every message is noted before it is published."""

from __future__ import annotations

import base64
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amqp
import pytest

from broker.store.files import RealFiles
from ha.adapter.quarantine import Quarantine
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.quarantine.test_reader import ORDERS, entry, run
from understudy.quarantine.journal import NOTED, Notes, NotesError
from understudy.quarantine.reader import QuarantineFolder
from understudy.quarantine.republish import BATCH, Republishing, RepublishOutcome, Way

MANY = 2 * BATCH + 200
PATIENCE = 30.0


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with 1,200 messages of `orders` in quarantine."""
    Quarantine(RealFiles(), str(tmp_path), 3).export(
        ORDERS, "orders", [entry(number, b"%d" % number) for number in range(1, MANY + 1)]
    )
    return tmp_path


@pytest.fixture
def broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        declare(broker)
        yield broker


def declare(broker: BrokerThread) -> None:
    with amqp.Connection(f"{broker.address}") as connection:
        connection.channel().queue_declare("orders", durable=True, auto_delete=False)


def bodies(broker: BrokerThread, queue: str = "orders") -> list[int]:
    """The bodies of all messages in the queue."""
    with amqp.Connection(f"{broker.address}") as connection:
        channel, found = connection.channel(), []
        while (message := channel.basic_get(queue, no_ack=True)) is not None:
            found.append(int(message.body))
        return found


def command(data: Path, broker: str, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "understudy",
        "quarantine",
        "republish",
        "-d",
        str(data),
        "-b",
        broker,
        *more,
    ]


def counts(data: Path) -> tuple[int, int]:
    """How many messages are noted as republished, and how many are in doubt."""
    found = QuarantineFolder(data).summary()
    return sum(row.republished for row in found), sum(row.in_doubt for row in found)


# -- no publish without a note


@pytest.mark.parametrize("before", [0, 300])
def test_a_full_disk_lets_nothing_be_published(data: Path, broker: BrokerThread, before: int) -> None:
    """`before`: octets of notes that exist already, and free octets after them."""
    note = data / "quarantine" / NOTED
    if before:
        note.write_bytes(b'{"queue": "%b", "epoch": 9, "ids": []}\n' % (b"0" * 32))
    size = note.stat().st_size if before else 0
    process = subprocess.run(
        command(data, str(broker.address)), capture_output=True, text=True, timeout=PATIENCE, check=False,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},  # a cut .pyc would break later runs
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size + before, size + before)),
    )  # fmt: skip
    assert (process.returncode, process.stdout) == (1, "0 of 1,200 messages republished and confirmed\n")
    assert process.stderr == (
        f"understudy: stopped: {note}: File too large (0 confirmed, 0 noted, 0 in doubt, 1,200 not sent) "
        "(republish-stopped)\n"
    )
    assert bodies(broker) == []
    assert (note.stat().st_size, counts(data)) == (size, (0, 0))


def test_the_room_for_the_outcome_is_taken_before_anything_is_published(data: Path) -> None:
    """A batch takes most space if each message gets a note of its own."""
    messages = list(QuarantineFolder(data).messages())[:BATCH]
    notes = Notes(data / "quarantine")
    with notes.writing():
        notes.begin(messages, "here")
        room = notes.path.stat().st_size
        notes.settle(messages[::2], messages[1::2], "here")
        assert notes.path.stat().st_size == room
    assert notes.path.read_bytes().endswith(b"}\n"), "what is left of the room is given back"
    assert counts(data) == (BATCH // 2, 0)


def test_notes_that_cannot_be_written_are_named(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    note = data / "quarantine" / NOTED
    target = data / "elsewhere" / "notes"
    note.symlink_to(target)
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(broker.address))
    assert (code, out, err) == (
        1,
        "",
        f"understudy: {note}: No such file or directory (quarantine-unreadable)\n",
    )
    assert bodies(broker) == []


def test_a_confirm_that_cannot_be_noted_is_in_doubt_and_told(
    data: Path, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = QuarantineFolder(data)
    todo, outcome = list(folder.messages()), RepublishOutcome(MANY)
    assert folder.notes is not None

    def fails(*_: Any) -> None:
        raise NotesError("the notes: Input/output error")

    monkeypatch.setattr(folder.notes, "settle", fails)
    with folder.notes.writing():
        Republishing(folder.notes, outcome, way(broker), lambda: "").run(todo, lambda _: None)
    assert (outcome.confirmed, outcome.noted, outcome.in_doubt, outcome.not_sent) == (BATCH, 0, BATCH, 700)
    assert outcome.why == "the notes: Input/output error"
    assert counts(data) == (0, BATCH)


def way(broker: BrokerThread, **more: Any) -> Way:
    return Way(str(broker.address), "guest", "guest", 10.0, **more)


# -- one at a time


def test_a_second_republish_of_one_quarantine_is_refused(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    with Notes(data / "quarantine").writing():
        code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(broker.address))
    assert (code, out) == (1, "") and "another republish is running" in err and NOTED in err
    assert bodies(broker) == []
    assert run(capsys, "republish", "-d", str(data), "-b", str(broker.address))[0] == 0
    assert bodies(broker) == list(range(1, MANY + 1))


def test_two_at_once_publish_each_message_once(data: Path, broker: BrokerThread) -> None:
    both = [
        subprocess.Popen(
            command(data, str(broker.address)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in both]
    assert bodies(broker) == list(range(1, MANY + 1)), said
    assert counts(data) == (MANY, 0)


# -- damage


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"frames": "AAAA"}, "'frames': invalid frame at octet 0"),
        ({"frames": "%%"}, "'frames': "),
        ({"routing_key": "x" * 256}, "'routing_key' is not a short string of AMQP"),
        ({"name": "\ud800"}, "'name' is not a short string of AMQP"),
        ({"epoch": True}, "'epoch' is not a int"),
        ({"sequence": -1}, "'sequence' is not from 0 to 9223372036854775807"),
        ({"enqueued_ms": 10**18}, "'enqueued_ms' is not from 0 to 253402300799999"),
        ({"queue": "\x1b[2J"}, "'queue' is not 32 hexadecimal digits"),
        ("[" * 100_000, ""),
        ("[]", "not a JSON object"),
        ("\xff", ""),
        ("cut body", "'frames': a body of 0 octets, but 1 are announced"),
        ("bad header", "'frames': invalid properties: "),
    ],
)
def test_it_goes_on_behind_a_record_that_cannot_be_read(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str], change: Any, why: str
) -> None:
    (path,) = (data / "quarantine").iterdir()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = spoilt(lines[2], change)
    path.write_bytes(b"".join(lines))
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(broker.address))
    assert (code, out) == (1, "1,199 of 1,199 messages republished and confirmed\n")
    place = f"understudy: {path}:3, octet {len(lines[0] + lines[1])}: not a message in quarantine: "
    assert err.startswith(place + why) and err.count("\n") == 1
    assert bodies(broker) == [number for number in range(1, MANY + 1) if number != 3]
    for command_ in ("list", "show"):
        code, out, again = run(capsys, command_, "-d", str(data))
        assert (code, out != "", "\x1b" in out) == (1, True, False)
        if command_ == "list":
            assert again == err


def spoilt(line: bytes, change: Any) -> bytes:
    record = json.loads(line)
    frames = base64.b64decode(record["frames"])
    match change:
        case dict():
            record |= change
        case "cut body":
            record["frames"] = base64.b64encode(frames[: int.from_bytes(frames[3:7], "big") + 8]).decode()
        case "bad header":
            record["frames"] = base64.b64encode(frames[:19] + b"\xff\xff" + frames[21:]).decode()
        case _:
            return change.encode("latin-1") + b"\n"
    return json.dumps(record).encode() + b"\n"


def test_a_torn_end_is_told_until_the_node_has_exported_again(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (data / "quarantine").iterdir()
    path.write_bytes(path.read_bytes()[:-20])
    code, _, err = run(capsys, "republish", "--dry-run", "-d", str(data))
    assert code == 1
    assert f"{path}:1200, octet " in err and "torn: the node was stopped during the export" in err
    Quarantine(RealFiles(), str(data), 4).export(ORDERS, "orders", [entry(MANY, b"%d" % MANY)])
    assert run(capsys, "republish", "--dry-run", "-d", str(data)) == (
        0, "1,200 messages would be republished\n", ""
    )  # fmt: skip


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (data / "quarantine" / "folder.jsonl").mkdir()
    (data / "quarantine" / "gone.jsonl").symlink_to(data / "nowhere")
    code, out, err = run(capsys, "list", "-d", str(data), "--format", "json")
    assert (code, json.loads(out)["queues"][0]["messages"]) == (1, MANY)
    assert f"{data}/quarantine/folder.jsonl:1, octet 0: not a file\n" in err
    assert f"{data}/quarantine/gone.jsonl:1, octet 0: not a file\n" in err


# -- missing destinations, and refused messages


@pytest.mark.parametrize(
    ("options", "what"), [(("--route",), "exchange 'news'"), (("--to", "spare"), "queue 'spare'")]
)
def test_a_place_that_is_not_there_is_told_before_anything_is_published(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], what: str
) -> None:
    news = [entry(MANY + 1, b"0", exchange="news")]
    Quarantine(RealFiles(), str(data), 4).export(ORDERS, "orders", news)
    code, out, err = run(capsys, "republish", *options, "-d", str(data), "-b", str(broker.address))
    assert (code, out) == (1, "0 of 1,201 messages republished and confirmed\n")
    assert err == (
        f"understudy: stopped: {what} does not exist (0 confirmed, 0 noted, 0 in doubt, 1,201 not sent) "
        "(republish-stopped)\n"
    )
    assert (bodies(broker), counts(data)) == ([], (0, 0))


def test_what_is_returned_is_told_and_not_noted(
    tmp_path: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = []
    for number in range(1, 5):
        entries.append(entry(number, b"%d" % number, key=f"key{number % 2}", exchange="news"))
    Quarantine(RealFiles(), str(tmp_path), 3).export(ORDERS, "orders", entries)
    with amqp.Connection(f"{broker.address}") as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "direct", auto_delete=False)
        channel.queue_bind("orders", "news", "key1")
    code, out, err = run(capsys, "republish", "--route", "-d", str(tmp_path), "-b", str(broker.address))
    assert (code, out) == (1, "2 of 4 messages republished and confirmed\n")
    assert err == "understudy: 2 refused: exchange 'news', key 'key0': no_route\n"
    assert (bodies(broker), counts(tmp_path)) == ([1, 3], (2, 0))


def test_further_keys_in_cc_bring_it_to_no_other_queue(
    tmp_path: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each queue had its own copy, and each copy is in quarantine."""
    copies = {"CC": ["other"]}
    Quarantine(RealFiles(), str(tmp_path), 3).export(
        ORDERS, "orders", [entry(1, b"1", application_headers=copies)]
    )
    with amqp.Connection(f"{broker.address}") as connection:
        channel = connection.channel()
        channel.queue_declare("other", auto_delete=False)
        assert run(capsys, "republish", "-d", str(tmp_path), "-b", str(broker.address))[0] == 0
        assert bodies(broker, "other") == []
        headers = channel.basic_get("orders", no_ack=True).properties["application_headers"]
        assert headers == {"x-quarantined": f"{ORDERS.hex()} 7-1", "x-quarantined-cc": ["other"]}
        again = ("--again", "--route", "-d", str(tmp_path), "-b", str(broker.address))
        assert run(capsys, "republish", *again)[0] == 0
        assert (bodies(broker, "other"), bodies(broker)) == ([1], [1])


# -- interrupts


def test_an_interrupted_republish_is_continued_by_the_next_run(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = QuarantineFolder(data)
    todo, outcome = list(folder.messages()), RepublishOutcome(MANY)
    asked = 0

    def stopping() -> str:
        nonlocal asked
        asked += 1
        return "interrupted" if asked > BATCH + 100 else ""

    assert folder.notes is not None
    with folder.notes.writing():
        Republishing(folder.notes, outcome, way(broker), stopping).run(todo, lambda _: None)
    assert (outcome.why, outcome.in_doubt) == ("interrupted", 0)
    assert BATCH < outcome.confirmed == outcome.noted < 2 * BATCH
    assert outcome.not_sent == MANY - outcome.confirmed
    assert counts(data) == (outcome.noted, 0)
    code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(broker.address))
    left = MANY - outcome.noted
    assert (code, out, err) == (0, f"{left:,} of {left:,} messages republished and confirmed\n", "")
    assert bodies(broker) == list(range(1, MANY + 1))


def test_messages_in_doubt_are_published_again_only_if_asked_for(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = QuarantineFolder(data)
    todo, outcome = list(folder.messages()), RepublishOutcome(MANY)
    asked = 0
    with BrokerThread() as first:
        declare(first)

        def stopping() -> str:
            nonlocal asked
            asked += 1
            if asked == BATCH + 100:
                first.kill()
            return ""

        assert folder.notes is not None
        with folder.notes.writing():
            Republishing(folder.notes, outcome, way(first), stopping).run(todo, lambda _: None)
    assert outcome.why.startswith("the connection was lost: ")
    assert outcome.confirmed == outcome.noted >= BATCH and outcome.in_doubt > 0
    assert outcome.noted + outcome.in_doubt + outcome.not_sent == MANY
    assert counts(data) == (outcome.noted, outcome.in_doubt)
    assert "in doubt" in run(capsys, "list", "-d", str(data))[1]
    with BrokerThread() as second:
        declare(second)
        code, out, err = run(capsys, "republish", "-d", str(data), "-b", str(second.address))
        left = outcome.not_sent
        assert (code, out) == (1, f"{left:,} of {left:,} messages republished and confirmed\n")
        assert err == (
            f"understudy: {outcome.in_doubt:,} left out: an earlier run sent them and got no confirm, so "
            "the broker may have them; --in-doubt republishes them too\n"
        )
        rest = bodies(second)
        assert rest == list(range(MANY - left + 1, MANY + 1))
        assert run(capsys, "republish", "--in-doubt", "-d", str(data), "-b", str(second.address))[0] == 0
        assert len(bodies(second)) == outcome.in_doubt
    assert counts(data) == (MANY, 0)


def test_sigterm_ends_it_and_says_how_far_it_came(data: Path, broker: BrokerThread) -> None:
    with broker.frozen():
        process = subprocess.Popen(
            command(data, str(broker.address)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        until = time.monotonic() + PATIENCE
        while not (data / "quarantine" / NOTED).exists() and time.monotonic() < until:
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (143, "0 of 1,200 messages republished and confirmed\n")
    assert err == (
        "understudy: stopped: interrupted by SIGTERM (0 confirmed, 0 noted, 0 in doubt, 1,200 not sent) "
        "(republish-stopped)\n"
    )


def test_what_a_killed_run_had_begun_is_in_doubt(
    data: Path, broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed run also leaves its reserved space behind the note."""
    notes = Notes(data / "quarantine")
    with notes.writing():
        notes.begin(list(QuarantineFolder(data).messages())[:7], "here")
        left = notes.path.read_bytes()
    notes.path.write_bytes(left)
    assert left.endswith(b"\0") and counts(data) == (0, 7)
    shown = run(capsys, "show", "--limit", "1", "-d", str(data))[1]
    assert shown.startswith("orders 7-1  (in doubt: republished, not confirmed)\n")
    code, out, _ = run(capsys, "republish", "--format", "json", "-d", str(data), "-b", str(broker.address))
    told = json.loads(out)
    assert (code, told["republished"], told["noted"], told["left_in_doubt"]) == (1, 1193, 1193, 7)
