"""Logs of other clients become ledgers: ranges in order, nothing lost or invented, one line for an error."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.understudy.ledger.schema import check_all
from understudy.ledger.conversion import FIELDS, Mapped, Unconvertible, convert
from understudy.ledger.writer import LedgerError

Q = "ab" * 16
CONSUMER = Mapped("consumer", "jsonl", {name: name for name in ("time", "event", "id", "redelivered")}, "s")
PRODUCER = Mapped("producer", "jsonl", {name: name for name in FIELDS["producer"]}, "s")


def log(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def ledgers(folder: Path) -> list[dict[str, Any]]:
    paths = sorted(folder.glob("*.ledger.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def got(time: float, sequence: int, event: str = "received", again: bool = False) -> dict[str, Any]:
    return {"time": time, "event": event, "id": f"{Q}:7:{sequence}", "redelivered": again}


def test_a_consumers_rows_become_ranges_in_their_order(tmp_path: Path) -> None:
    rows = [got(1.0, 1), got(1.0, 2), got(1.0, 3), got(1.001, 2, again=True), got(1.001, 5), got(1.001, 4)]
    rows += [got(1.01, n, "acked") for n in (3, 1, 2)]
    done = convert([log(tmp_path / "log", rows)], tmp_path / "out", "billing", CONSUMER)
    found = ledgers(tmp_path / "out")
    assert check_all(found) == {"open", "received", "acked", "seal"}
    assert [(r["first"], r["last"], r.get("reason")) for r in found if r["kind"] == "received"] == [
        (1, 3, None), (2, 2, "redelivered"), (5, 5, None), (4, 4, None),
    ]  # fmt: skip
    assert [(r["first"], r["last"]) for r in found if r["kind"] == "acked"] == [(1, 3)]
    assert (done.rows, done.records, done.first_us) == (9, len(found), 1_000_000)
    assert found[0]["name"] == "consumer" and found[0]["incarnation"] == 1000


def test_a_producers_rows_become_ranges_with_its_own_numbers(tmp_path: Path) -> None:
    def row(time: float, event: str, tag: int, number: int = 0, session: str = "s.1/1") -> dict[str, Any]:
        return {
            "time": time, "event": event, "session": session, "tag": tag, "number": number, "route": "|q",
        }  # fmt: skip

    rows = [row(1, "sent", 1, 1), row(1, "sent", 2, 2), row(1, "sent", 3, 3), row(1.01, "confirmed", 2)]
    rows += [row(1.01, "confirmed", 1), row(2, "sent", 1, 3, "s.2"), row(2.04, "nacked", 1, 3, "s.2")]
    convert([log(tmp_path / "log", rows)], tmp_path, "s", PRODUCER)
    found = ledgers(tmp_path)
    assert check_all(found) == {"open", "sent", "confirmed", "nacked", "seal"}
    sent = [(r["prod"], r["first"], r["last"], r["pfirst"], r["name"]) for r in found if r["kind"] == "sent"]
    assert sent == [("s.1/1", 1, 3, 1, "|q"), ("s.2/1", 1, 1, 3, "|q")]
    assert [(r["prod"], r["first"], r["last"]) for r in found if r["kind"] == "confirmed"] == [
        ("s.1/1", 1, 2)
    ]
    assert [r["ts_us"] for r in found if r["kind"] == "nacked"] == [2_040_000]


events = st.lists(
    st.tuples(st.sampled_from(["received", "acked"]), st.integers(1, 30), st.booleans(), st.integers(0, 80)),
    min_size=1, max_size=60,
)  # fmt: skip


@given(events)
def test_nothing_is_lost_or_invented_and_the_order_stays(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, int, bool, int]]
) -> None:
    folder = tmp_path_factory.mktemp("ledgers")
    now, rows = 10.0, []
    for event, sequence, again, milliseconds in drawn:
        now += milliseconds / 1000
        rows.append(got(now, sequence, event, again and event == "received"))
    convert([log(folder / "log", rows)], folder, "billing", CONSUMER)
    found = ledgers(folder)
    assert [r["wseq"] for r in found] == list(range(len(found)))
    told = [
        (n, r.get("reason"))
        for r in found
        if r["kind"] == "received"
        for n in range(r["first"], r["last"] + 1)
    ]
    assert told == [
        (n, "redelivered" if again else None) for event, n, again, _ in drawn if event == "received"
    ]
    acked = Counter(n for r in found if r["kind"] == "acked" for n in range(r["first"], r["last"] + 1))
    assert acked == Counter(n for event, n, _, _ in drawn if event == "acked")
    assert [r["ts_us"] for r in found] == sorted(r["ts_us"] for r in found)


def test_csv_with_columns_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow(["when", "q", "e", "s", "note"])
        for sequence in (1, 2, 3):
            writer.writerow(["2026-01-31T18:00:00+01:00", Q, 7, sequence, 'a "b",\nc'])
    columns = {"time": "when", "queue": "q", "epoch": "e", "sequence": "s"}
    convert([path], tmp_path, "c", Mapped("consumer", "csv", columns))
    (received,) = [r for r in ledgers(tmp_path) if r["kind"] == "received"]
    assert (received["first"], received["last"], received["ts_us"]) == (1, 3, 1_769_878_800_000_000)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"time": "noon"}, "time 'noon' cannot be read as s"),
        ({"time": None}, "time None"),
        ({"time": float("inf")}, "cannot be read"),
        ({"event": "eaten"}, "event 'eaten' is not one of received, acked"),
        ({"id": "order-17"}, "not of the form QUEUE:EPOCH:SEQUENCE"),
        ({"id": f"{'g' * 32}:1:1"}, "not a UUID"),
        ({"redelivered": "perhaps"}, "neither yes nor no"),
        ({"id": None}, "not of the form"),
    ],
)
def test_a_wrong_row_is_one_line_and_leaves_nothing(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    path = log(tmp_path / "log", [got(1.0, 1), got(1.0, 2) | row])
    with pytest.raises(Unconvertible) as caught:
        convert([path], tmp_path / "out", "billing", CONSUMER)
    assert f"{path}:2: " in str(caught.value) and why in str(caught.value) and "\n" not in str(caught.value)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("tag", ["x", -1, 1.5, 2**53, "", None, "٣"])
def test_a_tag_is_a_number(tmp_path: Path, tag: object) -> None:
    path = log(
        tmp_path / "log", [{"time": 1, "event": "sent", "session": "s", "tag": tag, "number": 1, "route": ""}]
    )
    with pytest.raises(Unconvertible, match="tag is"):
        convert([path], tmp_path / "out", "s", PRODUCER)


@pytest.mark.parametrize("text", ["", "\n\n", "[]\n", "{\n", "\x00\n"])
def test_what_is_no_log_is_said_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "log").write_text(text)
    with pytest.raises(Unconvertible):
        convert([tmp_path / "log"], tmp_path / "out", "s", PRODUCER)


def test_the_same_log_is_not_converted_twice(tmp_path: Path) -> None:
    path = log(tmp_path / "log", [got(1.0, 1)])
    convert([path], tmp_path, "billing", CONSUMER)
    before = ledgers(tmp_path)
    with pytest.raises(LedgerError, match="already have a ledger there"):
        convert([path], tmp_path, "billing", CONSUMER)
    assert ledgers(tmp_path) == before and not list(tmp_path.glob("*.part"))


def test_several_logs_are_one(tmp_path: Path) -> None:
    half = 3000
    paths = [
        log(tmp_path / f"log{part}", [got(part + n / 100, 2 * n + 1) for n in range(half)])
        for part in (0, 30)
    ]  # fmt: skip
    done = convert(paths, tmp_path / "out", "billing", CONSUMER)
    found = ledgers(tmp_path / "out")
    assert done.rows == 2 * half == sum(r["kind"] == "received" for r in found)
    assert [r["wseq"] for r in found] == list(range(done.records))
