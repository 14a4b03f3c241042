"""Converts the judge's whole state to JSON and back. The checkpoint hands it from one batch to the next."""

from __future__ import annotations

from typing import Any

from spark.watch.judge import Judge, Limits
from spark.watch.live_state import QueueFacts
from spark.watch.queue_ids import QueueIds
from spark.watch.sessions import Session
from spark.watch.writers import LivePromotion, LiveWriter

FORM = 1
"""Version of the state's format. Any other version is refused."""


def freeze(judge: Judge) -> dict[str, Any]:
    live = judge.live
    return {
        "form": FORM, "alarms": judge.alarms, "behind_since": judge.behind_since,
        "behind_told": judge._behind_told, "resumed": judge._resumed, "aged": judge._aged,
        "unsure_until": judge._unsure_until, "told": sorted(judge._told), "strange": sorted(judge._strange),
        "now": live.now, "forgotten": live.forgotten, "records": live.records,
        "producers": live.producers,
        "writers": [writer.state() for writer in live.writers.values()],
        "sessions": {prod: session.state() for prod, session in live.sessions.items()},
        "ids": [[queue, epoch, ids.state()] for (queue, epoch), ids in live.ids.items()],
        "queues": {
            queue: [facts.name, facts.copied, sorted(facts.nodes), sorted(facts.epochs)]
            for queue, facts in live.queues.items()
        },
        "promotions": [promotion.state() for promotion in live.promotions],
        "mentioned": live.mentioned, "clusters": sorted(live.clusters),
        "dormant": [
            [[prod, *each] for prod, each in live.dormant_sessions.items()],
            [[*key, *each] for key, each in live.dormant_ids.items()],
            [[*process, *each] for process, each in live.dormant_writers.items()],
        ],
    }  # fmt: skip


def thaw(state: dict[str, Any], limits: Limits) -> Judge:
    """The judge with this state. Raises ValueError or KeyError if `state` is not valid."""
    if state["form"] != FORM:
        raise ValueError(f"its format is {state['form']}, not {FORM}")
    judge = Judge(limits)
    judge.alarms, judge.behind_since = state["alarms"], state["behind_since"]
    judge._behind_told, judge._resumed = state["behind_told"], state["resumed"]
    judge._aged, judge._unsure_until = state["aged"], state["unsure_until"]
    judge._told, judge._strange = set(state["told"]), set(state["strange"])
    live = judge.live
    live.now, live.forgotten, live.records = state["now"], state["forgotten"], state["records"]
    live.producers = state.get("producers", True)  # absent in states of earlier versions
    for each in state["writers"]:
        writer = LiveWriter.of_state(each)
        live.writers[writer.process] = writer
    live.sessions = {prod: Session.of_state(each) for prod, each in state["sessions"].items()}
    live.ids = {(queue, epoch): QueueIds.of_state(each) for queue, epoch, each in state["ids"]}
    live.queues = {
        queue: QueueFacts(name, copied, set(nodes), set(epochs))
        for queue, (name, copied, nodes, epochs) in state["queues"].items()
    }
    live.promotions = [LivePromotion(**each) for each in state["promotions"]]
    live.mentioned, live.clusters = state["mentioned"], set(state["clusters"])
    sessions, ids, writers = state["dormant"]
    live.dormant_sessions = {prod: (n, since) for prod, n, since in sessions}
    live.dormant_ids = {(queue, epoch): (n, since) for queue, epoch, n, since in ids}
    live.dormant_writers = {(name, life): (n, since) for name, life, n, since in writers}
    return judge
