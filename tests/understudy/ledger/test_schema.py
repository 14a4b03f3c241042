"""The JSON schema, real writers and `spark/README.md` agree on kinds, fields and reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kombu.entity
import pytest
from jsonschema import Draft202012Validator

from broker.model.history.records import Commit, Duplicate, EntryDelete, Numbering
from broker.model.values import Reason
from tests.ha.pair import Host, Pair
from tests.understudy.broker_thread import BrokerThread
from tests.understudy.ledger.memory import MemoryFolder
from tests.understudy.ledger.schema import COMMON, KINDS, SCHEMA, check_all, faults
from understudy.client import Consumer, Publisher
from understudy.ledger.batches import LedgerSink
from understudy.ledger.writer import SCHEMA_VERSION

README = (Path(__file__).parents[3] / "spark" / "README.md").read_text(encoding="utf-8")
OF_BROKERS = {
    "open", "definition", "enqueue", "backup_enqueue", "unrouted", "dequeue", "backup_dequeue", "replicated",
    "durable", "commit", "duplicate", "forgotten", "promote", "demote", "insync", "quiesce", "present",
    "quarantine", "heartbeat", "seal",
}  # fmt: skip
OF_CLIENTS = {"sent", "confirmed", "returned", "received", "acked", "nacked"}


def example(kind: str) -> dict[str, Any]:
    """A record of this kind with the required fields only."""
    found: dict[str, Any] = dict.fromkeys(COMMON, 1) | {"v": 2, "writer": "w", "kind": kind}
    for name in SCHEMA["$defs"][kind]["required"]:
        rule = SCHEMA["$defs"][kind]["properties"][name]
        texts = {"queue": "ab" * 16, "prod": "p/1", "name": "1.2" if kind == "quiesce" else "broker"}
        found[name] = rule["enum"][0] if "enum" in rule else texts.get(name, "" if _is_text(rule) else 1)
    return found


def _is_text(rule: dict[str, Any]) -> bool:
    return rule.get("type") == "string"


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA_VERSION in SCHEMA["properties"]["v"]["enum"]
    assert [Reason(reason).ledger_name for reason in Reason] and sorted(
        reason.ledger_name for reason in Reason
    ) == sorted(SCHEMA["$defs"]["dequeue"]["properties"]["reason"]["enum"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_malformed_is_rejected(kind: str) -> None:
    whole = example(kind)
    assert not faults(whole)
    for name in whole:
        assert faults({key: value for key, value in whole.items() if key != name}), f"without {name}"
        for wrong in (None, [], {}, 1.5, True, -2, 2**53, "no such", "" if name in ("v", "kind") else 2**70):
            if isinstance(wrong, str) and isinstance(whole[name], str) and name in ("writer", "name", "peer"):
                continue  # any text is valid
            if name == "number" and wrong == 2**53:
                continue
            if isinstance(wrong, str) and name == "reason" and kind in ("open", "demote"):
                continue
            assert faults(whole | {name: wrong}), f"{name}={wrong!r}"
    if "prod" in whole:
        assert not faults(whole | {"prod": f"link:{'ab' * 16}:7"}), "it came by a federation link"
    assert faults(whole | {"colour": 1})
    assert faults(whole | {"durable": 1}) or kind in ("enqueue", "backup_enqueue")
    assert faults(whole | {"v": 3})
    assert bool(faults(whole | {"v": 1})) == (
        kind in ("durable", "commit", "duplicate", "forgotten", "pruned")
    )


def test_a_session_and_its_tag_come_together_and_durable_is_one() -> None:
    run = example("enqueue")
    assert not faults(run | {"prod": "p/1", "pfirst": 1, "durable": 1})
    for wrong in ({"prod": "p/1"}, {"pfirst": 1}, {"durable": 0}, {"durable": True}, {"durable": 1, "v": 1}):
        assert faults(run | wrong), wrong


# -- real writers


class Ledgers:
    """Ledgers in memory for the nodes of a pair."""

    def __init__(self, tmp_path: Path) -> None:
        self.place = str(tmp_path)
        self.folder = MemoryFolder()
        self.lives = 0

    def open(self, host: Host) -> None:
        self.lives += 1
        host.ledger = LedgerSink(
            self.place, host.name, "broker", incarnation=self.lives, open_file=self.folder.open,
            clock=self.folder.clock,
        )  # fmt: skip


def test_every_record_of_a_pair_through_failover_and_quarantine(tmp_path: Path) -> None:
    ledgers = Ledgers(tmp_path)
    pair = Pair()
    a, b = pair.hosts
    for host in pair.hosts:
        ledgers.open(host)
    pair.up()
    pair.declare(a, "q")
    pair.publish(a, "q", "abc")
    pair.publish(a, "nowhere", "d")
    for record in (
        Commit("p/1", 1, 3), Duplicate(b"q" * 16, "p/1", 4, 4, Numbering("p", 0, 9)),
        EntryDelete("producer", "/", "p"),
    ):  # fmt: skip
        a.running.vhost.history.append(record)
    pair.consume(a, "q", 1)
    pair.run(6.0)
    pair.kill(b)
    pair.run(0.1)
    position = pair.publish(a, "q", "ef")
    pair.until(lambda: pair.confirmed(a, position))
    pair.kill(a)
    ledgers.open(b)
    pair.start(b)
    pair.run(0.5)
    assert pair.ask(b, "promote", force_lossy=True)["ok"]
    ledgers.open(a)
    pair.start(a)
    pair.until(lambda: a.status == "ready")
    pair.publish(b, "q", "g")
    pair.run(0.2)
    assert pair.ask(b, "demote")["ok"]
    a.ledger.beat()
    a.ledger.beat()
    for host in (b, a):
        host.running.stop(pair.now)
    rows = ledgers.folder.rows()
    assert check_all(rows) >= OF_BROKERS, OF_BROKERS - {row["kind"] for row in rows}
    assert {row["durable"] for row in rows if "durable" in row} == {1}


def test_every_record_of_the_client_kit(tmp_path: Path) -> None:
    orders: Any = getattr(kombu.entity, "Queue")(  # noqa: B009 (kombu is half typed)
        "orders", max_length=2, queue_arguments={"x-overflow": "reject-publish"}
    )
    with BrokerThread() as broker:
        with Publisher(str(broker.address), "shop", tmp_path, declare=[orders]) as shop:
            for _ in range(4):
                shop.publish(b"x", "orders")
            shop.publish(b"y", "nowhere", mandatory=True)
        with Consumer(str(broker.address), "orders", "billing", tmp_path) as billing:
            first = billing.receive(5.0)
            assert first is not None
            billing.reject(first, requeue=True)
            for count, _ in enumerate(billing.deliveries(), 1):
                if count == 2:
                    break
            billing.flush()
    rows = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert check_all(rows) >= OF_CLIENTS, OF_CLIENTS - {row["kind"] for row in rows}
    assert "redelivered" in {row.get("reason") for row in rows if row["kind"] == "received"}


# -- the document


def rows_of(title: str) -> list[list[str]]:
    """Cells of the table whose header begins with `title`."""
    _, _, rest = README.partition(f"\n| {title} |")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_the_paper_has_the_same_kinds_and_fields() -> None:
    told = [kind for row in rows_of("kind") for kind in re.findall(r"`(\w+)`", row[0])]
    assert sorted(told) == sorted(KINDS)
    fields = {name for row in rows_of("field") for name in re.findall(r"`(\w+)`", row[0])}
    known = {name for kind in KINDS for name in SCHEMA["$defs"][kind]["properties"]}
    assert fields == known | set(COMMON)
    durable = next(row for row in rows_of("field") if row[0] == "`durable`")
    assert re.findall(r"`(\w+)`", durable[1]) == [
        kind for kind in KINDS if "durable" in SCHEMA["$defs"][kind]["properties"]
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_the_paper_names_each_reason(kind: str) -> None:
    rule = SCHEMA["$defs"][kind]["properties"].get("reason", {})
    (text,) = [row[2] for row in rows_of("kind") if f"`{kind}`" in row[0]]
    for reason in rule.get("enum", [rule["const"]] if "const" in rule else []):
        assert reason in text, reason
