"""Checks of quarantine (invariant 15): it holds exactly the messages that no later primary had."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark.ranges import islands, overlap, sweep
from spark.reconcile.ledgers.state import LedgerState

KEYS = ["queue", "epoch"]


def served(events: DataFrame, ledgers: LedgerState) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: quarantined, although a later primary had the message.

    Messages that this primary itself put into quarantine do not count.
    """
    promoted = [(p.node, p.incarnation, p.epoch) for p in ledgers.promotions]
    served = events.sparkSession.createDataFrame(promoted, "writer string, incarnation long, serving long")
    latest = F.broadcast(served.groupBy("writer", "incarnation").agg(F.max("serving").alias("serving")))
    apart = islands(events.where("kind = 'quarantine'"), KEYS)
    kinds = ("enqueue", "backup_enqueue", "quarantine")
    rows = events.where(F.col("kind").isin(*kinds)).select(
        "writer", "incarnation", "view", "kind", "queue", "epoch", "first", "last"
    )
    lines = rows.join(latest, ["writer", "incarnation"]).where("epoch < serving and view <= serving")
    near = overlap(lines, apart, KEYS, small=True)
    own = (F.col("kind") == "quarantine").cast("long")
    counted = near.select(
        "writer", "incarnation", *KEYS, "first", "last", own.alias("own"), (1 - own).alias("put")
    )
    found = sweep(counted, ["writer", "incarnation", *KEYS], ["put", "own"]).where("put > 0 and own = 0")
    return _differs(found, "served")


def returned_owners(ledgers: LedgerState) -> list[int]:
    """Epochs whose primary records its disk, ended, and got in sync again in a later epoch."""
    return sorted(
        promotion.epoch
        for promotion in ledgers.promotions
        if ledgers.notes_disk(promotion)
        and any(
            w.name == promotion.node and w.incarnation > promotion.incarnation
            for w in ledgers.writers.values()
        )
        and any(
            c.peer == promotion.node and c.reason == "included" and c.view > promotion.epoch
            for c in ledgers.changes
        )
    )


def replicated_queues(ledgers: LedgerState) -> list[str]:
    """Queues that are replicated: by their definition, or because more than one broker knows them."""
    brokers = {w.name for w in ledgers.writers.values() if w.role == "broker"}
    known = {queue for queue, names in ledgers.definers.items() if len(names & brokers) > 1}
    return sorted(ledgers.replicated | known)


def missing(events: DataFrame, suspects: DataFrame, ledgers: LedgerState, noted: DataFrame) -> DataFrame:
    """FINDING_SCHEMA by queue and epoch: on the disk of a primary that came back, in no other node's ledger,
    and not in quarantine.

    `suspects`: ids without a fate that only one node ever had. `noted`: the result of `replication.acks`.
    """
    session = events.sparkSession
    queues = session.createDataFrame([(queue,) for queue in replicated_queues(ledgers)], "queue string")
    epochs = session.createDataFrame([(epoch,) for epoch in returned_owners(ledgers)], "epoch long")
    gone = islands(suspects.join(F.broadcast(queues), "queue").join(F.broadcast(epochs), "epoch"), KEYS)
    runs = events.where("kind = 'enqueue' and durable = 1").select(
        "view", F.col("writer").alias("node"), "n", *KEYS, "first", "last"
    )
    near = overlap(runs, gone, KEYS, small=True).alias("r")
    disk = F.broadcast(noted.where("kind = 'durable'").alias("d"))
    safe = F.expr("r.view = d.view and r.node = d.node and r.n between d.first and d.last")
    return _differs(near.join(disk, safe, "left_semi"), "missing")


def _differs(found: DataFrame, note: str) -> DataFrame:
    labelled = found.select(
        F.lit("quarantine-differs").alias("label"), *KEYS, F.lit(note).alias("note"), "first", "last"
    )
    return islands(labelled, ["label", *KEYS, "note"])
