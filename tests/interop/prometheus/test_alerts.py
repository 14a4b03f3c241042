"""deploy/prometheus over a run with a failover: a real Prometheus scrapes a pair whose primary is killed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.deploy.tools import DEPLOY
from tests.failover.nodes.pair import Pair
from tests.interop.prometheus.server import Prometheus, prometheus
from tests.ports import free_ports

RULES = (DEPLOY / "prometheus" / "understudy.rules").read_text()
_SPAN = re.compile(r"for: (\d+)([sm])")
_FASTER = 60


def quick(rules: str) -> str:
    """With a sixtieth of each time that a fault must last."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[1]) * (60 if found[2] == "m" else 1)
        return f"for: {max(1000 * seconds // _FASTER, 250)}ms"

    return _SPAN.sub(shorter, rules)


@pytest.mark.system
def test_a_failover_raises_the_alerts_of_its_faults_and_clears_them(tmp_path: Path) -> None:
    with Pair(tmp_path / "pair") as pair:
        ports = free_ports(2)
        places = {name: f"127.0.0.1:{port}" for name, port in zip(("left", "right"), ports, strict=True)}
        pair.own = {name: (f"broker.http={place}",) for name, place in places.items()}
        pair.whole()
        (folder := tmp_path / "prometheus").mkdir()
        jobs = {"/metrics": list(places.values())}
        with prometheus(folder, jobs, quick(RULES), {"pair": "p"}) as server:
            pair.until(server.answers, "Prometheus")
            pair.until(lambda: len(server.values("understudy_serving")) == 2, "both to be scraped")
            pair.until(lambda: server.firing() == set(), "no alert")
            assert serves(server) == {places["left"]}
            pair.kill("left")
            dead = {"UnderstudyNodeDown", "UnderstudyNotOnePrimary"}
            pair.until(lambda: server.firing() >= dead, "alerts of the killed primary")
            assert pair.ask("right", "promote")["ok"]
            alone = {"UnderstudyNodeDown", "UnderstudyNoBackupInSync"}
            pair.until(lambda: alone <= server.firing() and dead - alone - server.firing() != set(), "no gap")
            assert serves(server) == {places["right"]}
            pair.start("left")
            pair.wait_for("left", "ready")
            pair.until(lambda: not server.firing() & (alone | dead), "a whole pair again")
            assert server.scrape_errors() == []


def serves(server: Prometheus) -> set[str]:
    return {name for name, value in server.values("understudy_serving").items() if value == 1}
