"""From lines to rows: which records are joined, which keep their order, and which are invalid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark.watch.judge import Judge, Limits
from spark.watch.lines import ROW, condense, read_stretch
from spark.watch.tail import WHOLE, Stretch
from tests.ha.federation.net_ledgers import NetWithLedgers

PATH = "/ledgers/a%2Fb-7-0.ledger.jsonl"
QUEUE = "0b" * 16
HEAD = {"v": 2, "writer": "a/b", "incarnation": 7, "ts_us": 5, "view": 65537}


def record(wseq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {**HEAD, "wseq": wseq, "kind": kind, **fields}


def run(wseq: int, kind: str, first: int, last: int, **fields: Any) -> dict[str, Any]:
    return record(wseq, kind, queue=QUEUE, epoch=65537, first=first, last=last, **fields)


def rows(*records: Any) -> list[tuple[Any, ...]]:
    """Kind, at, first and last of each row."""
    found = condense(records, PATH)
    return [(row["kind"], row.get("at"), row.get("first"), row.get("last")) for row in found]


def test_adjacent_ranges_are_joined_across_other_kinds() -> None:
    got = rows(
        run(3, "enqueue", 1, 5, prod="p", pfirst=11, n=1), record(4, "replicated", first=1, last=1, epoch=1),
        run(5, "enqueue", 6, 9, prod="p", pfirst=16, n=2),
        run(6, "enqueue", 10, 10, prod="p", pfirst=30, n=3),
    )  # fmt: skip
    assert got == [
        ("point-end", 3, None, None), ("enqueue", 3, 1, 9), ("enqueue", 3, 10, 10), ("chain", 3, 3, 6),
    ]  # fmt: skip


def test_what_a_queue_left_out_settles_its_tags() -> None:
    again = {"queue": QUEUE, "name": "shop", "number": 7, "last": 9}
    rest = [{**record(4, "duplicate", first=8, **again)}, record(3, "duplicate", prod="p", first=5, **again)]
    found = [row for row in condense(rest, PATH) if row["kind"] == "unrouted"]
    assert [(row["prod"], row["queue"], row["first"], row["last"]) for row in found] == [("p", None, 5, 9)]


def test_nothing_is_joined_across_a_promotion_or_an_inventory() -> None:
    got = rows(
        run(0, "dequeue", 1, 2, reason="acked"), record(1, "promote", peer="b"),
        run(2, "dequeue", 3, 4, reason="acked"), run(3, "quiesce", 5, 9, name="1.1"),
        run(4, "quiesce", 12, 12, name="1.1"), run(5, "dequeue", 5, 6, reason="acked"),
    )  # fmt: skip
    assert got == [
        ("point-end", 0, None, None), ("dequeue", 0, 1, 2), ("promote", 1, None, None), ("dequeue", 2, 3, 4),
        ("quiesce", 3, 5, 9), ("quiesce", 4, 12, 12), ("point-end", 5, None, None), ("dequeue", 5, 5, 6),
        ("chain", 0, 0, 5),
    ]  # fmt: skip


def test_a_hole_in_the_numbers_makes_two_chains() -> None:
    assert rows(record(0, "heartbeat"), record(1, "heartbeat"), record(3, "heartbeat"))[1:] == [
        ("chain", 0, 0, 1),
        ("chain", 3, 3, 3),
    ]


def test_pruned_ledgers_give_horizons() -> None:
    before = condense([
        record(0, "open", name="broker"), record(6, "pruned", first=1, last=6),
        run(7, "enqueue", 40, 49, prod="p", pfirst=11, n=3), record(8, "pruned", first=8, last=8),
    ], "/ledgers/a%2Fb-7-2.pruned.ledger.jsonl")  # fmt: skip
    got = [(r["kind"], r.get("queue") or r.get("prod"), r.get("first"), r.get("last")) for r in before]
    assert got[2:] == [("horizon", QUEUE, None, 49), ("horizon", "p", None, 20), ("chain", None, 0, 8)]
    lost = record(6, "pruned", first=1, last=6, reason="damaged")
    assert rows(record(0, "open"), lost)[-2:] == [("chain", 0, 0, 0), ("chain", 6, 6, 6)]


@pytest.mark.parametrize(
    "bad",
    [
        None, {}, record(0, "enqueue"), run(0, "dequeue", 5, 4), record(0, "confirmed", first=1, last=2),
        run(0, "acked", 1, 2 << 53), record(0, "promote") | {"wseq": "0"},
        run(0, "acked", 1, 2) | {"queue": 7}, record(0, "heartbeat") | {"writer": None},
        record(0, "seal") | {"view": None},
    ],
)  # fmt: skip
def test_invalid_lines_are_counted_by_file_and_writer(bad: dict[str, Any] | None) -> None:
    (row,) = condense([bad], PATH)
    assert (row["kind"], row["writer"], row["file"], row["last"]) == ("unreadable", "a/b", PATH, 1)


def test_another_schema_version_is_reported_and_not_read() -> None:
    (row,) = condense([{"v": 3, "writer": "a", "incarnation": 1, "shape": "new"}], PATH)
    assert (row["kind"], row["writer"], row["first"]) == ("version", "a", 3)


def kinds(stretch: Stretch) -> list[str]:
    return [kind for batch in read_stretch(stretch) for kind in batch.column("kind").to_pylist()]


def test_every_form_of_a_ledger_gives_the_same_rows(tmp_path: Path) -> None:
    records = [record(0, "open", name="broker"), run(1, "enqueue", 1, 3, n=1), record(2, "seal")]
    text = "".join(json.dumps(each) + "\n" for each in records).encode()
    (tmp_path / "a-7-0.ledger.jsonl").write_bytes(text)
    names = sorted({name for each in records for name in each})
    table = pa.Table.from_pylist([dict.fromkeys(names) | each for each in records])
    pq.write_table(table, tmp_path / "a-7-1.ledger.parquet", compression="zstd")
    with pa.output_stream(str(tmp_path / "a-7-2.ledger.jsonl.zst"), compression="zstd") as file:
        file.write(text)
    wanted = ["open", "enqueue", "seal", "chain"]
    assert [
        k for k in kinds(Stretch(str(tmp_path / "a-7-0.ledger.jsonl"), 0, len(text))) if k in wanted
    ] == wanted
    for name in ("a-7-1.ledger.parquet", "a-7-2.ledger.jsonl.zst"):
        assert [k for k in kinds(Stretch(str(tmp_path / name), 0, WHOLE)) if k in wanted] == wanted
    (tmp_path / "a-7-1.ledger.jsonl").unlink(missing_ok=True)
    vanished = Stretch(str(tmp_path / "a-7-1.ledger.jsonl"), 10, 20)
    assert [k for k in kinds(vanished) if k in wanted] == wanted  # compacted in the meantime


def test_a_missing_or_broken_file_is_reported(tmp_path: Path) -> None:
    assert kinds(Stretch(str(tmp_path / "a-1-0.ledger.jsonl"), 0, 9)) == ["vanished"]
    (tmp_path / "a-1-1.ledger.parquet").write_bytes(b"PAR1 torn")
    assert kinds(Stretch(str(tmp_path / "a-1-1.ledger.parquet"), 0, WHOLE)) == ["vanished"]


def test_a_replaced_file_is_reported_before_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "a-1-0.ledger.jsonl"
    path.write_text(json.dumps(record(0, "heartbeat")) + "\n")
    assert kinds(Stretch(str(path), 0, path.stat().st_size, replaced=True)) == [
        "replaced",
        "point-end",
        "chain",
    ]


def test_what_came_over_a_link_has_no_publisher_who_waits() -> None:
    link = f"link:{QUEUE}:7"
    lines = [
        record(0, "open", name="broker"), record(1, "link", name="hub", peer="leaf", reason="takes"),
        run(2, "enqueue", 1, 3, prod=link, pfirst=11, n=1),
        record(3, "unrouted", prod=link, first=14, last=15, reason="refused"),
        record(4, "unrouted", prod=f"{link}/1", first=1, last=2),
    ]  # fmt: skip
    made = [row for row in condense(lines, PATH) if row["kind"] in ("enqueue", "unrouted", "unreadable")]
    assert [(row["kind"], row["prod"], row["first"], row["last"]) for row in made] == [
        ("enqueue", None, 1, 3),
        ("unrouted", f"{link}/1", 1, 2),
    ]


def test_a_watched_node_of_a_net_raises_no_alarm(tmp_path: Path) -> None:
    net = NetWithLedgers(tmp_path, hub=2, leaf=1)
    net.up()
    net.exchange("hub", "leaf")
    net.queue("leaf", "q", "#")
    net.federate("leaf", "hub")
    net.runs("leaf", "hub")
    net.publish_confirmed("hub", "k", "123")
    net.gets("leaf", "q", "123")
    net.end()
    for folders in (("hub", "clients"), ("leaf",)):
        judge, now = Judge(Limits()), net.now_us()
        files = [file for name in folders for file in sorted((tmp_path / name).iterdir())]
        told = [
            dict.fromkeys(("at", *ROW.names)) | row for file in files
            for row in condense(map(json.loads, file.read_text().splitlines()), str(file))
        ]  # fmt: skip
        for rows_ in (told, [], []):
            now += 10**7
            tick = dict.fromkeys(("at", *ROW.names)) | {"kind": "tick", "ts_us": now, "first": 0}
            assert judge.batch([tick, *rows_]) == [], folders
        assert judge.live.ids, folders
