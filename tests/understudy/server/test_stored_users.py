"""A stored user of a real node: at every door, until it is deleted."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator

import amqp
import pytest
from amqp.exceptions import AccessRefused, ConnectionForced

from broker.model.history.records import EntryPut
from tests.broker.stored import permission, user
from tests.failover.nodes.cluster import Cluster, local_places, understudy
from understudy.management import Unreachable, ask
from understudy.shared.addresses import HostPort


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("node"), local_places(("one",)), "broker.http=127.0.0.1:0") as made:
        made.start("one", brokers="")
        yield made


def store(address: HostPort, *entries: EntryPut) -> None:
    changes = [
        {"action": "put", "kind": e.kind, "vhost": e.vhost, "name": e.name, "value": dict(e.value)}
        for e in entries
    ]
    answer = ask(address, "define", {"changes": changes})
    assert answer["ok"], answer


def demoted_over_http(node: Cluster, login: str) -> int:
    """The code of the answer; to a node of no pair an operator who is let in says something that fails."""
    (door,) = re.findall(r"HTTP on http://(\S+)", node.brokers["one"].log.read_text())
    request = urllib.request.Request(f"http://{door}/api/demote", method="POST")
    request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_stored_user_is_known_at_every_door_until_it_is_deleted(node: Cluster) -> None:
    address = node.addresses["one"]
    store(
        address, user("ops", "word", "administrator"), permission("ops", configure="^o"),
        user("shop", "word"), permission("shop"),
    )  # fmt: skip
    assert ask(address, "status", user="ops", password="word")["ok"]
    with pytest.raises(Unreachable, match="may not manage this broker"):
        ask(address, "status", user="shop", password="word")
    codes = [demoted_over_http(node, login) for login in ("ops:word", "ops:other", "shop:word", "x:word")]
    assert codes == [409, 401, 403, 401]

    with amqp.Connection(str(address), userid="ops", password="word") as connection:
        connection.channel().queue_declare("orders", durable=True)
        with pytest.raises(AccessRefused, match="configure access to queue 'x' in vhost '/' refused"):
            connection.channel().queue_declare("x")
        assert understudy("user", "delete", "ops", "-b", str(address))[0] == 0
        with pytest.raises(ConnectionForced, match="user 'ops' is deleted"):
            connection.drain_events(timeout=30)
    assert demoted_over_http(node, "ops:word") == 401
    with pytest.raises(Unreachable, match=r"user 'ops': wrong user name or password \(403\)"):
        ask(address, "status", user="ops", password="word")
