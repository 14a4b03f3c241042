"""The ledger of a real node: it is never silent, and when its disk takes no more, nothing else stops."""

from __future__ import annotations

import resource
from pathlib import Path

import pika

from tests.failover.nodes.cluster import Cluster, local_places, read_ledgers
from tests.failover.nodes.pair import kinds

MESSAGES = 200


def publish(cluster: Cluster, count: int = MESSAGES) -> int:
    """Each is confirmed before the next is sent: how many were."""
    address = cluster.addresses["left"]
    with pika.BlockingConnection(pika.ConnectionParameters(address.host, address.port)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "q", b"x")  # raises unless it is confirmed
    return count


def test_a_full_disk_costs_the_ledger_alone_and_is_seen(tmp_path: Path) -> None:
    """The kernel refuses what goes beyond a file size: only the ledger of this node gets there."""
    settings = ("broker.durable=false", "ledger.heartbeat=150ms")
    with Cluster(tmp_path, local_places(("left",)), *settings) as cluster:
        cluster.start("left", brokers="")
        cluster.until(lambda: "heartbeat" in kinds(cluster.ledger("left")), "a heartbeat")
        publish(cluster)
        (path,) = (tmp_path / "left" / "ledger").iterdir()
        log = tmp_path / "logs"
        assert path.stat().st_size > 10 * max(file.stat().st_size for file in log.iterdir())
        pid = cluster.brokers["left"].pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (path.stat().st_size + 300, before[1]))
        assert publish(cluster) == MESSAGES, "confirms go on"
        health = cluster.answer("left")["ledger"]
        assert health["failing"] and health["failures"] >= 1 and health["lost"] > MESSAGES // 2
        code, out, _ = cluster.command("status", "left")
        assert code == 0 and "the ledger cannot be written" in " ".join(out.split())
        assert "records are missing from it" in cluster.brokers["left"].last_words()
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        cluster.until(lambda: not cluster.answer("left")["ledger"]["failing"], "the ledger to be written")
        code, out, _ = cluster.command("status", "left")
        assert code == 0 and "the ledger is written again" in " ".join(out.split())
        lost = cluster.answer("left")["ledger"]["lost"]
        assert cluster.stop("left") == 0
    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b"" and b'"kind":"seal"' in lines[-2]
    numbers = [record["wseq"] for record in whole_records(tmp_path / "left")]
    missing = sorted(set(range(numbers[-1])) - set(numbers))
    assert lost - 1 <= len(missing) <= lost, "what is missing is counted, and the gap tells where"


def whole_records(folder: Path) -> list[dict[str, object]]:
    """But for the one line that the refusal tore."""
    (path,) = (folder / "ledger").iterdir()
    lines = path.read_text().splitlines()
    whole = [line for line in lines if line.startswith("{") and line.endswith("}")]
    assert len(whole) >= len(lines) - 1
    path.write_text("\n".join(whole) + "\n")
    return read_ledgers(folder)
