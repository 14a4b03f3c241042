"""The reconciling job: ledgers in, verdict out. `python -m spark.reconcile LEDGER_DIR...` prints it as JSON.

Joins the transforms of this package, and is the only module that starts Spark actions. Callers: the command
line (`understudy reconcile`), spark-submit (through `spark/submit.py`) and the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from spark.exit_codes import INTERRUPTED, NOTHING, OF_VERDICT, PROVEN, UNDONE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark.reconcile.input.read import Found
    from spark.reconcile.ledgers.federation import Net
    from spark.reconcile.ledgers.state import LedgerState

SHOWN_RANGES = 200
"""Most ranges to collect for one kind of finding in one place. The totals cover all ranges."""
BLOCK = ("kind", "name", "queue", "epoch", "first", "packed")
"""Columns of events that hold a block. These events are few and large, and processed separately."""
HULLS = ("hull", "receipts", "numbers")
"""Kinds of events that show the driver whether ids and numbers are in plain order."""
CLIENT_KINDS = (
    "sent", "confirmed", "answered", "nacked", "returned", "received", "acked",
)  # fmt: skip
"""Kinds of events of clients."""
SLOTS = 200
"""Approximate number of points of a timeline."""

Progress = Callable[[str], None]


class NoLedgers(Exception):
    """There is no ledger below the given folders. The text is one line."""


def reconcile_folders(
    folders: Sequence[Path],
    *,
    master: str | None = None,
    latency: bool = False,
    progress: Progress = lambda _: None,
) -> dict[str, Any]:
    """Find, read and reconcile the ledgers below `folders`. Starts a Spark session, and stops it.

    `latency` adds confirm latency, which reads the ledgers once more. `progress` is called with a few words
    before each stage. Raises NoLedgers, and `spark.session.SparkUnavailable` if PySpark or Java is missing.
    """
    from spark.session import are_small, open_session, require_pyspark

    require_pyspark()
    from spark.reconcile.input.read import find_ledgers

    found = find_ledgers(folders)
    if not found.ledgers and not found.hidden:
        raise NoLedgers(f"no *.ledger.jsonl below {', '.join(map(str, folders))}")
    progress("starting Spark")
    session = open_session(master, small=are_small(found.ledgers))
    try:
        answer = reconcile(session, found, progress=progress)
        if latency:
            progress("measuring confirm latency")
            answer["latency"] = _latency(session, found, answer)
        return answer
    finally:
        session.stop()


def _latency(session: SparkSession, found: Found, answer: Mapping[str, Any]) -> dict[str, Any] | None:
    from spark.latency.confirms import confirm_latency
    from spark.reconcile.input.read import read_records

    return confirm_latency(read_records(session, found.ledgers), answer["timeline"])


def reconcile(session: SparkSession, found: Found, *, progress: Progress = lambda _: None) -> dict[str, Any]:
    """Like `reconcile_folders`, for ledgers already found and a session already open."""
    from spark.reconcile.input.read import read_records
    from spark.reconcile.verdict import evidence

    progress(f"reading {len(found.ledgers)} ledgers")
    every = _read(session, found)
    if not every.ledgers.writers and not every.ledgers.missing:
        raise NoLedgers("the ledgers are empty")
    net = _net(every)
    if net is None:
        answer = _judge(every, found, progress)
    else:
        answer = _judge_net(session, every, found, net, progress)
    progress("looking up the records that show it")
    evidence.attach(answer["findings"], lambda: read_records(session, found.ledgers, files=True))
    return answer


@dataclass(slots=True)
class Events:
    """Ledgers as they were read. `plain`: events without a block; `packed`: those with one. `few`: those of
    STATE_KINDS; `hulls`: those of HULLS."""

    plain: DataFrame
    packed: DataFrame
    few: list[dict[str, Any]]
    hulls: list[dict[str, Any]]
    ledgers: LedgerState


def _read(session: SparkSession, found: Found) -> Events:
    from spark import schema
    from spark.ranges import settle
    from spark.reconcile.input.read import read_events
    from spark.reconcile.ledgers.assemble import assemble
    from spark.reconcile.ledgers.holes import Places

    every = settle(read_events(session, found.ledgers), large=True)
    plain = settle(every.where("packed is null").drop("packed"))
    packed = settle(every.where("packed is not null").select(*BLOCK), large=True)
    rows = [row.asDict() for row in plain.where(plain["kind"].isin(*schema.STATE_KINDS, *HULLS)).collect()]
    few = [row for row in rows if row["kind"] not in HULLS]
    ledgers = assemble(few, Places(found.ledgers).of_gap, let_go=True)
    _mention(ledgers, found)
    return Events(plain, packed, few, [row for row in rows if row["kind"] in HULLS], ledgers)


def _judge(events: Events, found: Found, progress: Progress) -> dict[str, Any]:
    """The answer about one cluster, without evidence."""
    from spark.reconcile.verdict import result

    return result.result(events.ledgers, _numbers(events, found, progress), _files(found))


def _files(found: Found) -> dict[str, Any]:
    copies = [str(path) for path in found.copies]
    return {"ledgers": len(found.ledgers), "ignored": found.ignored, "copies": copies}


def _net(every: Events) -> Net | None:
    """The federated clusters here; None if no broker has a link."""
    from spark.reconcile.ledgers.federation import net_of

    if not any(row["kind"] == "link" for row in every.few):
        return None
    told = every.plain.where("kind in ('sent', 'unrouted') and prod is not null")
    seen = told.select("writer", "incarnation", "kind", "prod").distinct().collect()
    return net_of([*every.few, *every.hulls], [row.asDict() for row in seen])


def _judge_net(
    session: SparkSession, every: Events, found: Found, net: Net, progress: Progress
) -> dict[str, Any]:
    """Each cluster by itself, with what came from the others; then the links between them."""
    from spark.ranges import settle
    from spark.reconcile.checks import hops
    from spark.reconcile.verdict import result
    from spark.reconcile.verdict.net import add_hops, joined

    queues = [link.queue for link in net.links]
    gone = settle(hops.transferred(every.plain, queues))
    given = settle(hops.given(every.plain, every.packed, queues))
    own = _own_files(found, net) if len(net.clusters) > 1 else [found]
    parts = [_read(session, files) for files in own] if len(own) > 1 else [every]
    lacking = {place: part.ledgers.broken for place, part in enumerate(parts)}
    arrived: dict[str, dict[str, int]] = {}
    answers = []
    for place, (part, files) in enumerate(zip(parts, own, strict=True)):
        if len(parts) > 1:
            progress(f"node {place + 1} of {len(parts)}")
            _add_links(part, place, net, every, given.unionByName(gone), lacking)
        numbers = _numbers(part, files, progress)
        arrived |= numbers.arrived
        answers.append(result.result(part.ledgers, numbers, _files(found)))
    timeline = answers[0]["timeline"]
    if len(parts) > 1:
        from spark.reconcile.input.tallies import unshelve

        timeline = _timeline(unshelve(every.packed, "measured"), every.ledgers)
    answer = joined(answers, timeline)
    add_hops(answer, net, hops.amounts(gone), arrived, lacking)
    return answer


def _own_files(found: Found, net: Net) -> list[Found]:
    """The ledgers of each cluster, with those of its clients."""
    from dataclasses import replace

    from spark.reconcile.ledgers.holes import process_of

    own: list[list[Path]] = [[] for _ in net.clusters]
    at = {process: {place} for place, each in enumerate(net.clusters) for process in each.brokers}
    at |= net.clients
    for path in found.ledgers:
        process = process_of(path)
        for place in at.get(process, range(len(own))) if process else range(len(own)):
            own[place].append(path)
    return [replace(found, ledgers=paths) for paths in own]


def _add_links(
    part: Events, place: int, net: Net, every: Events, told: DataFrame, lacking: Mapping[int, bool]
) -> None:
    """Add to the events of one cluster what its links upstream tell, and leave out what its clients did
    elsewhere."""
    from pyspark.sql import functions as F

    from spark.ranges import settle
    from spark.reconcile.checks import hops
    from spark.reconcile.ledgers.assemble import NO_PRODUCER
    from spark.reconcile.ledgers.federation import origin

    prods, queues = net.strange(place)
    into = {link.queue: link for link in net.into(place)}
    clients = F.col("kind").isin(*CLIENT_KINDS)
    theirs = F.col("prod").isin(*prods) | F.col("queue").isin(*queues)
    plain = part.plain.where(~F.coalesce(clients & theirs, F.lit(False)))
    if into:
        came = F.col("prod").rlike(f"^link:({'|'.join(into)}):")
        known = {row["prod"] for row in every.hulls if (at := origin(row["prod"])) and at[0] in into}
        extra = told.where(came).unionByName(hops.marks(told, known))
        plain = plain.unionByName(extra, allowMissingColumns=True)
        if NO_PRODUCER in part.ledgers.missing:
            part.ledgers.missing.remove(NO_PRODUCER)
    part.plain = settle(plain)
    part.packed = part.packed.where(
        F.col("queue").isNull() | ~F.col("queue").isin(*queues) if queues else F.lit(True)
    )
    part.ledgers.unsure_links = frozenset(
        queue for queue, link in into.items() if link.source is not None and lacking[link.source]
    )
    part.ledgers.queue_names |= {queue: net.names.get(queue, "") for queue in into}


def _mention(ledgers: LedgerState, found: Found) -> None:
    """Note faults of the files that make the ledgers unfit for a proof."""
    for path in found.hidden:
        ledgers.missing.append(f"{path.name} was not read: Spark ignores names that begin with . or _")
    for path in found.empty:
        ledgers.missing.append(f"{path.name} is empty: a ledger begins with a record")
    alien = any("schema version" in text for text in ledgers.missing)
    if found.hidden or found.empty or alien or len(ledgers.clusters) > 1:
        ledgers.broken = True


def _numbers(events: Events, found: Found, progress: Progress) -> Any:
    """Run the table of checks, and collect the findings."""
    from spark.ranges import settle
    from spark.reconcile.checks import hops, table
    from spark.reconcile.input.read import PRUNED
    from spark.reconcile.input.tallies import unshelve
    from spark.reconcile.verdict.result import Numbers

    pruned = any(PRUNED.match(path.name) for path in found.ledgers)
    packed, ledgers = events.packed, events.ledgers
    given = {
        "packed": packed, "plain": events.plain, "ledgers": ledgers, "hulls": events.hulls, "pruned": pruned
    }  # fmt: skip
    facts, frames = table.run(given, progress)
    rows = [row.asDict() for row in findings([settle(frame) for frame in frames]).collect()]
    came = any(row["kind"] == "link" for row in events.few)
    progress("measuring rates and outage")
    timeline, pauses = _over_time(unshelve(packed, "measured"), ledgers)
    return Numbers(
        facts["tag_counts"], facts["logical_counts"], table.ids(facts), rows, timeline, pauses,
        table.described(facts), hops.arrived(facts["tags"]) if came else {}, table.numbered(facts),
    )  # fmt: skip


def _over_time(measured: DataFrame, ledgers: LedgerState) -> tuple[Mapping[str, Any], list[tuple[int, int]]]:
    """The timeline, and the pauses in confirms: from and to, in microseconds since 1970."""
    from spark.rates import pauses

    return _timeline(measured, ledgers), [
        (row["from_us"], row["to_us"]) for row in pauses(measured).collect()
    ]


def findings(frames: Sequence[DataFrame], shown: int = SHOWN_RANGES) -> DataFrame:
    """All findings in FINDING_SCHEMA, at most `shown` ranges for each kind and place.

    Each row has the totals of its group: ids (number of ids) and pieces (number of ranges)."""
    from functools import reduce

    from pyspark.sql import DataFrame, Window
    from pyspark.sql import functions as F

    from spark.schema import FINDING_SCHEMA

    def full(frame: DataFrame) -> DataFrame:
        have = set(frame.columns)
        return frame.select(
            *(
                F.col(f.name) if f.name in have else F.lit(None).cast(f.dataType).alias(f.name)
                for f in FINDING_SCHEMA
            )
        )

    every = reduce(DataFrame.unionByName, map(full, frames))
    group = Window.partitionBy("label", "queue", "epoch", "prod", "note")
    counted = every.select(
        "*", F.sum(F.col("last") - F.col("first") + 1).over(group).alias("ids"),
        F.count("*").over(group).alias("pieces"),
        F.row_number().over(group.orderBy("first")).alias("_place"),
    )  # fmt: skip
    return counted.where(F.col("_place") <= shown).drop("_place")


def _timeline(measured: DataFrame, ledgers: LedgerState) -> Mapping[str, Any]:
    """start_us, slot_us, and the ids per slot for each of sent, confirmed and received."""
    from spark.rates import timeline
    from spark.schema import RATE_BUCKET_US

    begin = min((w.first_us for w in ledgers.writers.values() if w.first_us), default=0)
    end = max((w.last_us for w in ledgers.writers.values()), default=0)
    width = max(1, -(-(end - begin) // (SLOTS * RATE_BUCKET_US))) * RATE_BUCKET_US
    first, last = begin // width, end // width
    series: dict[str, Any] = {name: [0] * (last - first + 1) for name in ("sent", "confirmed", "received")}
    for row in timeline(measured, width).collect():
        series[row["name"]][min(max(row["slot"] - first, 0), last - first)] += row["n"]
    return {"start_us": first * width, "slot_us": width, **series}


def main(arguments: Sequence[str] | None = None) -> int:
    """Reconcile, and print the result as JSON. Exit status: 0 proven, 1 violated, 2 not provable, 3 wrong
    usage or no answer."""
    from spark.session import SparkUnavailable, said_by_spark

    parser = argparse.ArgumentParser(
        prog="spark.reconcile",
        description="Prove by the ledgers below each LEDGER_DIR that nothing confirmed was lost.",
        epilog="Exit status: 0 proven, 1 violated, 2 not provable (or no ledger), 3 no answer: wrong "
        "usage or a failure; 130 Ctrl-C; 141 the reader of the output went away.",
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="LEDGER_DIR")
    parser.add_argument("--master", help="Spark master; by default two local threads, or spark-submit's own")
    parser.add_argument("--format", choices=("json",), default="json", help="output format; only JSON")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as error:
        return UNDONE if error.code else PROVEN
    absent = [str(folder) for folder in options.folders if not folder.exists()]
    if absent:
        print(f"reconcile: no ledger: no such folder: {', '.join(absent)}", file=sys.stderr)
        return NOTHING
    try:
        answer = reconcile_folders(options.folders, master=options.master)
    except NoLedgers as error:
        print(f"reconcile: {error}", file=sys.stderr)
        return NOTHING
    except SparkUnavailable as error:
        print(f"reconcile: {error}", file=sys.stderr)
        return UNDONE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"reconcile: {where}{error.strerror or error}", file=sys.stderr)
        return UNDONE
    except Exception as error:
        if (said := said_by_spark(error)) is None:
            raise
        print(f"reconcile: {said}", file=sys.stderr)
        return UNDONE
    print(json.dumps(answer, indent=1))
    return OF_VERDICT[answer["verdict"]]


def program() -> NoReturn:
    """Run `main` as a process. A failure of the job or its output never exits with 1, which means
    "violated"."""
    from spark.streams import OutputLost, ended, prepare

    prepare()
    try:
        code = main()
    except OutputLost:
        code = UNDONE
    except KeyboardInterrupt:
        print("reconcile: interrupted", file=sys.stderr)
        code = INTERRUPTED
    except Exception:
        traceback.print_exc()
        code = UNDONE
    sys.exit(ended(code, "reconcile"))
