"""A real Prometheus scrapes a pair, through a failover: the panels of dashboards, and the alerts.

One pair and one Prometheus for all of it: each takes seconds to start.
"""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.tools import DEPLOY
from tests.failover.nodes.pair import Pair, channel_of
from tests.interop.prometheus.overview import EMPTY, MOVING, PANELS, query
from tests.interop.prometheus.server import Prometheus, prometheus
from tests.interop.prometheus.test_dashboards import queries
from tests.ports import free_ports

RULES = (DEPLOY / "prometheus" / "understudy.rules").read_text()
OURS = json.loads((DEPLOY / "grafana" / "understudy-pair.json").read_text())
PATHS = ("/metrics", "/metrics/per-object", "/metrics/detailed")
_SPAN = re.compile(r"for: (\d+)([sm])")
_FASTER = 60
_TURNS = 200
DEAD = {"UnderstudyNodeDown", "UnderstudyNotOnePrimary"}
ALONE = {"UnderstudyNodeDown", "UnderstudyNoBackupInSync"}
QUIET = re.compile(
    "federation|replication|clock_ahead|ledger_lost|messages_left|events_total|changes.understudy_epoch"
)
"""Queries of our dashboard that have no answer in a pair without federation, mirrors, ledgers, faults."""


def quick(rules: str) -> str:
    """With a sixtieth of each time that a fault must last."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[1]) * (60 if found[2] == "m" else 1)
        return f"for: {max(1000 * seconds // _FASTER, 250)}ms"

    return _SPAN.sub(shorter, rules)


@pytest.mark.system
def test_dashboards_have_no_empty_panel_and_a_failover_raises_its_alerts(tmp_path: Path) -> None:
    places = {name: f"127.0.0.1:{port}" for name, port in zip(("left", "right"), free_ports(2), strict=True)}
    jobs = {path: list(places.values()) for path in PATHS}
    with Pair(tmp_path / "pair") as pair:
        (folder := tmp_path / "prometheus").mkdir()
        with prometheus(folder, jobs, quick(RULES), {"pair": "p"}) as server:
            pair.own = {name: (f"broker.http={place}",) for name, place in places.items()}
            pair.whole()
            pair.until(server.answers, "Prometheus")
            pair.until(lambda: len(server.values("understudy_serving")) == 2, "both to be scraped")
            pair.until(lambda: server.firing() == set(), "no alert")
            _panels(pair, server, str(pair.answer("left")["cluster_id"]))
            assert _serves(server) == {places["left"]}
            pair.kill("left")
            pair.until(lambda: server.firing() >= DEAD, "alerts of the killed primary")
            assert pair.ask("right", "promote")["ok"]
            pair.until(lambda: server.firing() & (DEAD | ALONE) == ALONE, "alerts of a primary alone")
            assert _serves(server) == {places["right"]}
            pair.start("left")
            pair.wait_for("left", "ready")
            pair.until(lambda: not server.firing() & (ALONE | DEAD), "a whole pair again")
            assert server.scrape_errors() == []


def _serves(server: Prometheus) -> set[str]:
    return {name for name, value in server.values("understudy_serving").items() if value == 1}


def _panels(pair: Pair, server: Prometheus, cluster: str) -> None:
    """Clients do a little of everything until each panel has shown it."""
    turns, still = count(), set(MOVING)
    with channel_of(pair, "left") as channel, channel_of(pair, "left") as other:
        channel.confirm_delivery()
        channel.basic_consume(_declared(channel, "acked"), lambda c, m, *_: c.basic_ack(m.delivery_tag))
        channel.basic_consume(_declared(channel, "unacked"), lambda *_: None, auto_ack=True)
        _declared(channel, "kept")
        while still:
            turn = next(turns)
            assert turn < _TURNS, f"still: {still}"
            _traffic(channel, other, turn)
            still -= {title for title in still if _total(server, cluster, title)}
    empty = {title for title in PANELS if _total(server, cluster, title) is None}
    assert empty == set(EMPTY)
    for text in queries(OURS):
        if not QUIET.search(text):
            assert server.query(text), text


def _total(server: Prometheus, cluster: str, title: str) -> float | None:
    """Over both nodes. None: the panel is empty."""
    found = [server.query(query(metric, cluster, "10s")) for metric in PANELS[title]]
    if not all(found):
        return None
    return sum(float(line["value"][1]) for lines in found for line in lines)


def _declared(channel: Any, name: str) -> str:
    channel.queue_declare(name, durable=True)
    return name


def _traffic(channel: Any, other: Any, turn: int) -> None:
    for queue in ("acked", "unacked", "kept"):
        channel.basic_publish("", queue, b"x")
    channel.basic_publish("", "nowhere", b"x")
    other.basic_publish("", "nowhere", b"x", mandatory=True)
    other.basic_get("kept", auto_ack=True)
    other.basic_publish("", "kept", b"x")
    method, _, _ = other.basic_get("kept")
    if method is not None and turn % 2:
        other.basic_nack(method.delivery_tag, requeue=True)
    other.queue_declare(f"queue-{turn}", exclusive=True)
    other.basic_get(f"queue-{turn}")
    other.connection.channel().close()
    channel.connection.process_data_events(0.05)
