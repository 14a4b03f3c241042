"""Counters with their rates, and samples for charts, in RabbitMQ's form. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from broker.model.statistics import NAMES, Counts

if TYPE_CHECKING:
    from broker.model.statistics import Sample
    from ha.adapter.management.views.view import Ages, View

LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
"""Gauges in a sample of a queue, a virtual host and the node, after `NAMES`."""
OCTETS = ("recv_oct", "send_oct")
"""Gauges in a sample of a connection."""
_QUEUE = (
    "publish", "deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "ack", "redeliver",
)  # fmt: skip
_CHANNEL = (
    "publish", "confirm", "return_unroutable", "drop_unroutable", "deliver", "deliver_no_ack", "get",
    "get_no_ack", "get_empty", "ack", "redeliver",
)  # fmt: skip
_DELIVERED = ("deliver", "deliver_no_ack", "get", "get_no_ack")
_AT = {name: at for at, name in enumerate(NAMES)}
_DELIVERED_AT = [_AT[name] for name in _DELIVERED]
_PLACES = {name: [at] for name, at in _AT.items()} | {"deliver_get": _DELIVERED_AT}


def queue_stats(counts: Counts, view: View) -> dict[str, Any]:
    return _stats(counts, view, ((name, name) for name in _QUEUE))


def stat_at(counts: Counts, path: Sequence[str]) -> float | None:
    """One number of `message_stats` by its path, to sort many objects by it: a counter or its rate. None:
    another path."""
    match path:
        case [name]:
            found = _PLACES.get(name)
            values = counts.values()
            return None if found is None else sum([values[at] for at in found])
        case [name, "rate"]:
            found, samples = _PLACES.get(name.removesuffix("_details")), counts.samples
            if found is None or samples is None or len(samples) < 2:
                return 0.0
            return _rate((samples[-2], samples[-1]), found)
    return None


def channel_stats(counts: Counts, view: View) -> dict[str, Any]:
    """Also of virtual hosts and the node."""
    return _stats(counts, view, ((name, name) for name in _CHANNEL))


def exchange_stats(counts: Counts, view: View) -> dict[str, Any]:
    found = _stats(counts, view, (("publish_in", "publish"), ("publish_out", "routed")))
    return {name: value for name, value in found.items() if name.startswith("publish")}


def publish_stats(counts: Counts, view: View) -> dict[str, Any]:
    found = _stats(counts, view, (("publish", "publish"),))
    return {name: value for name, value in found.items() if name.startswith("publish")}


def _stats(counts: Counts, view: View, names: Iterable[tuple[str, str]]) -> dict[str, Any]:
    values, samples = counts.values(), list(counts.samples or ())
    found: dict[str, Any] = {}
    for name, field in names:
        at = [_AT[field]]
        found[name] = values[at[0]]
        found[f"{name}_details"] = details(samples, at, view, view.messages)
    found["deliver_get"] = sum([values[at] for at in _DELIVERED_AT])
    found["deliver_get_details"] = details(samples, _DELIVERED_AT, view, view.messages)
    return found


def gauge(counts: Counts, names: Sequence[str], name: str, view: View, ages: Ages | None) -> dict[str, Any]:
    """The `_details` of a gauge, one of `names` in the samples."""
    return details(list(counts.samples or ()), [len(NAMES) + names.index(name)], view, ages)


def details(samples: Sequence[Sample], at: Sequence[int], view: View, ages: Ages | None) -> dict[str, Any]:
    """The rate between the last two samples of the sum of some values; with `ages` also samples."""
    found: dict[str, Any] = {"rate": _rate(samples[-2:], at)}
    if ages is None:
        return found
    shown = _shown(samples, ages)
    found["samples"] = [
        {"sample": _sum(values, at), "timestamp": view.wall_ms - round((view.now - when) * 1000)}
        for when, values in reversed(shown)
    ]
    found["avg_rate"] = _rate([shown[0], shown[-1]] if shown else [], at)
    found["avg"] = sum(_sum(values, at) for _, values in shown) / len(shown) if shown else 0.0
    return found


def _shown(samples: Sequence[Sample], ages: Ages) -> list[Sample]:
    """Of the last `age` seconds, one each `step`, counted from the newest."""
    if not samples:
        return []
    newest = samples[-1][0]
    kept: list[Sample] = []
    for sample in reversed(samples):
        if newest - sample[0] > ages.age + 0.5:
            break
        if not kept or kept[-1][0] - sample[0] > ages.step - 0.5:
            kept.append(sample)
    return kept[::-1]


def _rate(samples: Sequence[Sample], at: Sequence[int]) -> float:
    if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
        return 0.0
    (begin, before), (end, after) = samples[0], samples[-1]
    return (_sum(after, at) - _sum(before, at)) / (end - begin)


def _sum(values: Sequence[int], at: Sequence[int]) -> int:
    return sum([values[one] if one < len(values) else 0 for one in at])
