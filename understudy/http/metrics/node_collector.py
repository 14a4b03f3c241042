"""The metrics of a node for Prometheus, at `/metrics`. Owner: `HttpServer`.

Reads the node's status on each request, so that nothing is counted on the message path. The table is in
docs/reference/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from understudy import __version__
from understudy.http.room import TlsState
from understudy.management import SERVING, STATUSES

EVENTS = (
    "promoted", "promoted-lossy", "demoted", "joining", "in-sync", "lost", "excluded", "switchover",
    "queue-reset",
)  # fmt: skip
LEFT_OUT = ("doubles", "looped", "spoilt", "refused", "unrouted")
"""Fields of a federation agent: why a message that came from upstream is in no queue here."""
_LAGS = (
    ("lag", "understudy_backup_lag_batches", "Batches sent to a backup and not yet applied there"),
    ("lag_bytes", "understudy_backup_lag_bytes", "Octets sent to a backup and not yet acknowledged"),
    ("queues_left", "understudy_backup_queues_left", "Queues that a joining backup has not fetched yet"),
)


class NodeCollector(Collector):
    """`status` returns what `Node.status` returns. `tls`: the state of the node's TLS files."""

    def __init__(self, status: Callable[[], dict[str, Any]], tls: TlsState | None = None) -> None:
        self._status = status
        self._tls = tls

    def collect(self) -> Iterator[Metric]:
        found = self._status()
        yield from _identity(found)
        yield _gauge("understudy_serving", "1 while clients are served", found["status"] in SERVING)
        yield _gauge(
            "understudy_withheld",
            "1 while the primary's leadership lease is expired and its output is fenced",
            bool(found.get("withheld")),
        )
        yield _gauge(
            "understudy_promotable",
            "1 while this node serves, or could take over without force",
            found["promotable"],
        )
        yield _gauge("understudy_epoch", "Epoch of this node", found.get("epoch") or 0)
        yield _gauge("understudy_link_up", "1 while the replication link is up", found.get("link") == "up")
        yield _gauge("understudy_queues", "Queues on this node", found.get("queues") or 0)
        yield _gauge("understudy_store_bytes", "Bytes of the store on disk", found.get("stored_bytes") or 0)
        yield CounterMetricFamily(
            "understudy_store_syncs", "Syncs of the store", value=float(found.get("store_syncs") or 0)
        )
        yield _gauge(
            "understudy_paged_messages",
            "Messages of serving queues that are on disk and not in memory",
            found.get("paged") or 0,
        )
        yield _gauge(
            "understudy_authority_ok",
            "1 while the authority commits changes of the in-sync set",
            (found.get("authority") or {}).get("ok", True),
        )
        yield from _alarms(found.get("alarms") or [])
        yield _memory(found.get("memory") or {})
        yield from _members(found.get("members") or [])
        yield from _replications(found.get("replications") or [], found.get("followers") or [])
        yield from _federation((found.get("federation") or {}).get("agents") or [])
        yield from _counts(found)
        yield from _ledger(found.get("ledger"))
        yield from _certificate(self._tls)


def _identity(found: dict[str, Any]) -> Iterator[Metric]:
    info = InfoMetricFamily("understudy_node", "Name, id and version of this node")
    info.add_metric(
        [], {"name": str(found["name"]), "node_id": str(found.get("node_id", "")), "version": __version__}
    )
    yield info
    status = GaugeMetricFamily("understudy_status", "1 for the status the node has now", labels=["status"])
    for name in STATUSES:
        status.add_metric([name], float(found["status"] == name))
    yield status


def _alarms(raised: list[str]) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "understudy_alarm", "1 while this alarm pauses publishers: memory, disk", labels=["alarm"]
    )
    for name in ("memory", "disk"):
        family.add_metric([name], float(name in raised))
    yield family


def _memory(parts: dict[str, int]) -> Metric:
    """The parts at the last measurement of the alarm."""
    family = GaugeMetricFamily(
        "understudy_memory_bytes",
        "Bytes that count for broker.memory_limit, by part",
        labels=["part"],
    )
    for part, octets in parts.items():
        family.add_metric([part], float(octets))
    return family


def _members(members: list[dict[str, Any]]) -> Iterator[Metric]:
    """Only the primary knows lags."""
    in_sync = sum(bool(member.get("in_sync")) for member in members)
    yield _gauge("understudy_members_in_sync", "Nodes in the in-sync set", in_sync)
    others = [member for member in members if not member.get("self")]
    connected = GaugeMetricFamily(
        "understudy_member_connected", "1 while this node can reach the member", labels=["member"]
    )
    for member in others:
        connected.add_metric([str(member["name"])], float(bool(member.get("connected"))))
    yield connected
    clocks = GaugeMetricFamily(
        "understudy_member_clock_ahead_seconds",
        "Seconds that the wall clock of the member is ahead of this node's",
        labels=["member"],
    )
    for member in others:
        if (ahead := member.get("clock_ahead_ms")) is not None:
            clocks.add_metric([str(member["name"])], ahead / 1000)
    yield clocks
    for field, name, text in _LAGS:
        family = GaugeMetricFamily(name, text, labels=["member"])
        for member in others:
            if field in member:
                family.add_metric([str(member["name"])], float(member[field]))
        yield family


def _federation(agents: list[dict[str, Any]]) -> Iterator[Metric]:
    """Agents of this node. An exchange of that name may be in each virtual host."""
    labels = ["vhost", "exchange", "upstream"]
    runs = GaugeMetricFamily(
        "understudy_federation_running", "1 while this federation agent runs", labels=labels
    )
    interest = GaugeMetricFamily(
        "understudy_federation_interest_bindings", "Bindings that the upstream knows of", labels=labels
    )
    taken = CounterMetricFamily(
        "understudy_federation_messages_taken", "Messages taken from the upstream", labels=labels
    )
    given = CounterMetricFamily(
        "understudy_federation_messages_given", "Messages given to the upstream", labels=labels
    )
    left_out = CounterMetricFamily(
        "understudy_federation_messages_left_out",
        "Messages that came and went into no queue, by reason",
        labels=[*labels, "reason"],
    )
    waiting = GaugeMetricFamily(
        "understudy_federation_waiting_messages", "Messages that the upstream has not taken", labels=labels
    )
    for agent in agents:
        of_it = [str(agent[label]) for label in labels]
        runs.add_metric(of_it, float(agent["state"] == "running"))
        interest.add_metric(of_it, float(agent["interest"]))
        taken.add_metric(of_it, float(agent["taken"]))
        given.add_metric(of_it, float(agent["given"]))
        for reason in LEFT_OUT:
            left_out.add_metric([*of_it, reason], float(agent[reason]))
        waiting.add_metric(of_it, float(agent["waiting"]))
    yield from (runs, interest, taken, given, left_out, waiting)


def _replications(copies: list[dict[str, Any]], followers: list[dict[str, Any]]) -> Iterator[Metric]:
    """Queue mirrors on this node, and mirrors on other brokers that follow this node's queues."""
    follows = GaugeMetricFamily(
        "understudy_replication_following", "1 while this queue mirror follows its source", labels=["queue"]
    )
    lag = GaugeMetricFamily(
        "understudy_replication_lag_messages",
        "Messages this queue is behind its source, as last reported by the source",
        labels=["queue"],
    )
    for copy in copies:
        follows.add_metric([str(copy["name"])], float(copy["state"] == "following"))
        if copy["lag"] is not None:
            lag.add_metric([str(copy["name"])], float(copy["lag"]))
    yield follows
    yield lag
    yield _gauge(
        "understudy_followers",
        "Queue mirrors of other brokers that follow a queue of this one",
        len(followers),
    )


def _counts(found: dict[str, Any]) -> Iterator[Metric]:
    events = found.get("events") or {}
    family = CounterMetricFamily(
        "understudy_events", "Changes of membership that this node decided, since its start", labels=["event"]
    )
    for event in EVENTS:
        family.add_metric([event], float(events.get(event, 0)))
    yield family
    yield CounterMetricFamily(
        "understudy_quarantined_messages",
        "Divergent messages that this node has quarantined, since its start",
        value=float(found.get("quarantined") or 0),
    )
    yield from _producers(found.get("producers") or {})
    dequeues = found.get("dequeues") or {}
    yield _gauge(
        "understudy_dequeues_waiting",
        "Messages that left their queues and are not yet reported to backups and disk",
        dequeues.get("waiting", 0),
    )
    left = CounterMetricFamily(
        "understudy_messages_left",
        "Messages that left queues while this node served, by reason, since the start",
        labels=["reason"],
    )
    for reason, many in (dequeues.get("left") or {}).items():
        left.add_metric([reason], float(many))
    yield left
    yield _gauge(
        "understudy_dequeue_lag_seconds_max",
        "Longest wait of a dequeue before it was reported to backups and disk, since the start",
        dequeues.get("longest_lag", 0),
    )


def _producers(found: dict[str, Any]) -> Iterator[Metric]:
    yield _gauge("understudy_producers", "Producers that number their messages", found.get("known", 0))
    yield CounterMetricFamily(
        "understudy_producers_forgotten",
        "Producers whose numbers were forgotten (producers.most, producers.idle), since the start",
        value=float(found.get("forgotten", 0)),
    )
    yield CounterMetricFamily(
        "understudy_duplicates",
        "Messages sent again with their old numbers that a queue did not take again, since the start",
        value=float(found.get("duplicates", 0)),
    )
    yield CounterMetricFamily(
        "understudy_known_ids",
        "Messages that a queue with x-dedup-window did not take because it knew their ids, since the start",
        value=float(found.get("known_ids", 0)),
    )


def _ledger(found: dict[str, Any] | None) -> Iterator[Metric]:
    """The families have no value if the node keeps no ledger."""
    lost = CounterMetricFamily(
        "understudy_ledger_lost_records",
        "Records missing from the ledger because a write failed, since the start",
    )
    failures = CounterMetricFamily(
        "understudy_ledger_write_failures", "Writes to the ledger that failed, since the start"
    )
    written = GaugeMetricFamily(
        "understudy_ledger_last_write_timestamp_seconds",
        "Time of the last write to the ledger, in seconds since 1970",
    )
    if found is not None:
        lost.add_metric([], float(found["lost"]))
        failures.add_metric([], float(found["failures"]))
        written.add_metric([], float(found["last_write"]))
    yield from (lost, failures, written)


def _certificate(tls: TlsState | None) -> Iterator[Metric]:
    """The families have no value if the node has no TLS."""
    expires = GaugeMetricFamily(
        "understudy_tls_certificate_expires_seconds",
        "Expiry of the certificate in use, in seconds since 1970",
    )
    refused = GaugeMetricFamily(
        "understudy_tls_files_refused",
        "1 while changed TLS files are refused and the previous ones stay in use",
    )
    if tls is not None:
        expires.add_metric([], tls.expires_at)
        refused.add_metric([], float(tls.refused))
    yield from (expires, refused)


def _gauge(name: str, text: str, value: Any) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=float(value))
