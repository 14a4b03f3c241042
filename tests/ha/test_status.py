"""What `status` shows of the members: this node itself, and who cannot be reached."""

from __future__ import annotations

from typing import Any

from tests.ha.pair import Host, Pair


def members(host: Host) -> dict[str, dict[str, Any]]:
    return {line["name"]: line for line in host.running.status()["members"]}


def test_a_node_is_among_its_own_members() -> None:
    pair = Pair()
    pair.up()
    pair.run(0.5)
    for host in pair.hosts:
        shown = members(host)
        assert {name: line["self"] for name, line in shown.items()} == {
            other.name: other is host for other in pair.hosts
        }
        assert shown[host.name]["status"] == host.status
        assert all(line["in_sync"] for line in shown.values())


def test_who_cannot_be_reached_is_shown_as_such_whatever_it_said_last() -> None:
    pair = Pair(3)
    pair.up()
    a, b, c = pair.hosts
    pair.kill(c)
    pair.run(3.0)
    assert members(a)["c"]["status"] == members(b)["c"]["status"] == "unreachable"
    assert not members(a)["c"]["in_sync"]
    pair.start(c)
    pair.until(lambda: c.status == "ready")
    pair.run(1.5)
    assert members(a)["c"]["status"] == members(b)["c"]["status"] == "ready"
