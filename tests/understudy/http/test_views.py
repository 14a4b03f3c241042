"""The read side of RabbitMQ's management API: fields and types, pages, order, rights, a backup."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.model.statistics import KEPT, NAMES, Counts
from broker.peer import TlsSuite
from broker.security.authenticator import Login
from broker.security.logins import SOURCES
from tests.ha.client import Client
from tests.ha.pair import Pair
from tests.tls import Authority
from tests.understudy.http.pair_door import Doors, doors

_END = "-----END CERTIFICATE-----"
RATE = {"rate": float}
QUEUE_STATS = dict.fromkeys(
    (
        "publish",
        "deliver",
        "deliver_no_ack",
        "deliver_get",
        "get",
        "get_no_ack",
        "get_empty",
        "ack",
        "redeliver",
    ),
    int,
)
CHANNEL_STATS = QUEUE_STATS | dict.fromkeys(("confirm", "return_unroutable", "drop_unroutable"), int)
LENGTHS = dict.fromkeys(("messages", "messages_ready", "messages_unacknowledged"), int)
PEER = {"name": str, "peer_host": str, "peer_port": int}
FIELDS: dict[str, Mapping[str, Any]] = {
    "/api/queues/%2F/q": {
        "arguments": dict, "auto_delete": bool, "consumer_capacity": float, "consumer_details": list,
        "consumer_utilisation": float, "consumers": int, "deliveries": list, "durable": bool,
        "effective_policy_definition": dict, "exclusive": bool, "exclusive_consumer_tag": None,
        "head_message_timestamp": None, "incoming": list, "memory": int, "message_bytes": int,
        "message_bytes_paged_out": int, "message_bytes_persistent": int, "message_bytes_ram": int,
        "message_bytes_ready": int, "message_bytes_unacknowledged": int, "message_stats": QUEUE_STATS,
        "messages_details": RATE, "messages_paged_out": int, "messages_persistent": int, "messages_ram": int,
        "messages_ready_details": RATE, "messages_ready_ram": int, "messages_unacknowledged_details": RATE,
        "messages_unacknowledged_ram": int, "name": str, "node": str, "operator_policy": None,
        "policy": None, "recoverable_slaves": None, "single_active_consumer_tag": None, "state": str,
        "type": str, "vhost": str, **LENGTHS,
    },
    "/api/exchanges/%2F/amq.default": {
        "arguments": dict, "auto_delete": bool, "durable": bool, "incoming": list, "internal": bool,
        "message_stats": {"publish_in": int, "publish_in_details": RATE, "publish_out": int},
        "name": str, "outgoing": list, "type": str, "user_who_performed_action": str, "vhost": str,
    },
    "/api/connections": {
        "auth_mechanism": str, "channel_max": int, "channels": int, "client_properties": dict,
        "connected_at": int, "frame_max": int, "host": str, "name": str, "node": str,
        "peer_cert_issuer": None, "peer_cert_subject": None, "peer_cert_validity": None, "peer_host": str,
        "peer_port": int, "port": int, "protocol": str, "recv_cnt": int, "recv_oct": int,
        "recv_oct_details": RATE, "send_cnt": int, "send_oct": int, "send_oct_details": RATE,
        "send_pend": int, "ssl": bool, "ssl_cipher": None, "state": str, "timeout": int, "type": str,
        "user": str, "user_who_performed_action": str, "vhost": str,
    },
    "/api/channels": {
        "acks_uncommitted": int, "confirm": bool, "connection_details": PEER, "consumer_count": int,
        "global_prefetch_count": int, "message_stats": CHANNEL_STATS, "messages_unacknowledged": int,
        "messages_uncommitted": int, "messages_unconfirmed": int, "name": str, "node": str, "number": int,
        "pending_raft_commands": int, "prefetch_count": int, "state": str, "transactional": bool,
        "user": str, "user_who_performed_action": str, "vhost": str,
    },
    "/api/consumers": {
        "arguments": dict, "ack_required": bool, "active": bool, "activity_status": str,
        "channel_details": {**PEER, "connection_name": str, "node": str, "number": int, "user": str},
        "consumer_tag": str, "exclusive": bool, "prefetch_count": int,
        "queue": {"name": str, "vhost": str},
    },
    "/api/vhosts/%2F": {
        "cluster_state": dict, "default_queue_type": str, "description": str, "message_stats": CHANNEL_STATS,
        "messages_details": RATE, "metadata": {"description": str, "tags": list}, "name": str, "tags": list,
        "tracing": bool, **LENGTHS,
    },
    "/api/users/guest": {
        "name": str, "password_hash": str, "hashing_algorithm": str, "tags": list, "limits": dict,
    },
    "/api/permissions/%2F/guest": {
        "user": str, "vhost": str, "configure": str, "write": str, "read": str,
    },
    "/api/bindings/%2F/e/amq.direct/q/q/r%252Fk": {
        "source": str, "vhost": str, "destination": str, "destination_type": str, "routing_key": str,
        "arguments": dict, "properties_key": str,
    },
    "/api/overview": {
        "management_version": str, "rates_mode": str, "sample_retention_policies": dict,
        "exchange_types": list, "product_version": str, "product_name": str, "rabbitmq_version": str,
        "cluster_name": str, "erlang_version": str, "erlang_full_version": str, "disable_stats": bool,
        "enable_queue_totals": bool, "message_stats": CHANNEL_STATS,
        "churn_rates": {"channel_closed": int, "channel_closed_details": RATE, "connection_created": int,
                        "queue_declared": int},
        "queue_totals": LENGTHS,
        "object_totals": dict.fromkeys(("channels", "connections", "consumers", "exchanges", "queues"), int),
        "statistics_db_event_queue": int, "node": str, "listeners": list, "contexts": list,
    },
    "/api/nodes/a": {
        "name": str, "type": str, "running": bool, "partitions": list, "os_pid": str, "fd_used": int,
        "fd_total": int, "sockets_used": int, "sockets_total": int, "mem_used": int, "mem_limit": int,
        "mem_alarm": bool, "disk_free": int, "disk_free_limit": int, "disk_free_alarm": bool,
        "proc_total": int, "proc_used": int, "run_queue": int, "processors": int, "uptime": int,
        "rates_mode": str, "exchange_types": list, "auth_mechanisms": list, "applications": list,
        "contexts": list, "log_files": list, "db_dir": str, "config_files": list, "enabled_plugins": list,
        "mem_calculation_strategy": str, "cluster_links": list, "queue_created": int,
    },
    "/api/global-parameters/cluster_name": {"name": str, "value": str},
    "/api/whoami": {"name": str, "tags": list},
    "/api/cluster-name": {"name": str},
    "/api/aliveness-test/%2F": {"status": str},
    "/api/health/checks/node-is-quorum-critical": {"status": str},
}  # fmt: skip
"""What RabbitMQ answers, without what only Erlang has: garbage collection, reductions, Mnesia."""


def visit(pair: Pair, script: Callable[[Doors], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20), doors(pair) as found:
            await script(found)

    asyncio.run(run())


@pytest.fixture
def pair() -> Pair:
    """A queue with a binding and a message that a consumer holds."""
    found = Pair()
    found.up()
    client = Client("c", found[0], found.now)
    client.begin(found.now)
    client.call("queue.declare", found.now, queue="q", durable=True)
    client.call(
        "queue.bind",
        found.now,
        queue="q",
        exchange="amq.direct",
        routing_key="r/k",
        arguments={},
        nowait=True,
    )
    found.run(0.1)
    client.publish("q", "mn", found.now)
    client.consume("q", 1, found.now)
    found.run(0.3)
    return found


def mismatch(value: Any, wanted: Any, path: str = "") -> list[str]:
    if wanted is None:
        return [] if value is None else [f"{path}: {value!r}, and not null"]
    if isinstance(wanted, Mapping):
        if not isinstance(value, dict):
            return [f"{path}: {value!r}"]
        return [
            fault
            for key, inner in wanted.items()
            for fault in (mismatch(value[key], inner, f"{path}.{key}") if key in value else [f"{path}.{key}"])
        ]
    return [] if type(value) is wanted else [f"{path}: {value!r}"]


def test_fields_and_types_are_rabbitmqs(pair: Pair) -> None:
    for now in (0.0, 5.0):
        for _ in pair[0].running.broker.sampler.passes(now):
            pass

    async def script(to: Doors) -> None:
        for path, fields in FIELDS.items():
            code, found = await to.ask("GET", path)
            assert code == 200, (path, found)
            row = found[0] if isinstance(found, list) else found
            assert mismatch(row, fields) == [], path
        _, queue = await to.ask("GET", "/api/queues/%2F/q")
        assert [queue[name] for name in LENGTHS] == [2, 1, 1]
        assert queue["message_bytes"] == 2 * len("m") and queue["consumer_details"][0]["prefetch_count"] == 1
        assert (queue["message_stats"]["publish"], queue["message_stats"]["deliver"]) == (2, 1)

    visit(pair, script)


def test_flows_between_exchanges_channels_and_queues_are_told(pair: Pair) -> None:
    """Of the objects of the fixture, and of a second exchange, a second queue, and basic.get."""
    node, now = pair[0].running, pair.now
    vhost = node.vhost
    vhost.declare_exchange("x", "fanout", durable=True)
    vhost.declare_queue("r", owner=None, durable=True)
    for queue in ("q", "r"):
        vhost.bind_queue(queue, "x", "", owner=None)
    client = Client("flows", pair[0], now)
    client.conn.peer = replace(client.conn.peer, port=40001)
    client.begin(now)
    for exchange, letters in (("x", "abc"), ("", "d"), ("x", "e"), ("x", "f")):
        client.publish("r", letters, pair.now, exchange=exchange)
        pair.run(0.1)
    for _ in range(2):
        client.call("basic.get", pair.now, queue="r", no_ack=True)
    pair.run(0.1)

    async def script(to: Doors) -> None:
        async def whole(path: str) -> Any:
            code, found = await to.ask("GET", path)
            assert code == 200
            return found

        r = await whole("/api/queues/%2F/r")
        assert {one["exchange"]["name"]: one["stats"]["publish"] for one in r["incoming"]} == {"x": 5, "": 1}
        (given,) = r["deliveries"]
        assert given["channel_details"]["number"] == 1 and given["channel_details"]["user"] == "guest"
        assert (given["stats"]["get_no_ack"], given["stats"]["deliver_get"]) == (2, 2)
        assert "publish" not in given["stats"] and given["stats"]["get_no_ack_details"] == {"rate": 0.0}
        q = await whole("/api/queues/%2F/q")
        assert sum(one["stats"]["deliver"] for one in q["deliveries"]) == q["message_stats"]["deliver"] > 0
        x = await whole("/api/exchanges/%2F/x")
        (came,) = x["incoming"]
        assert came["stats"]["publish"] == 5 and came["channel_details"] == given["channel_details"]
        assert {one["queue"]["name"]: one["stats"]["publish"] for one in x["outgoing"]} == {"q": 5, "r": 5}
        name = given["channel_details"]["name"].replace(" ", "%20").replace("/", "%2F")
        channel = await whole(f"/api/channels/{name}")
        assert {one["exchange"]["name"]: one["stats"]["publish"] for one in channel["publishes"]} == {
            "x": 5, "": 1
        }  # fmt: skip
        assert [one["queue"] for one in channel["deliveries"]] == [{"name": "r", "vhost": "/"}]

    visit(pair, script)


def test_a_connection_tells_of_its_tls_and_of_the_clients_certificate(pair: Pair, tmp_path: Path) -> None:
    files = Authority(tmp_path).signed("client", common_name="ann")
    der = ssl.PEM_cert_to_DER_cert(Path(files.certificate).read_text().split("-----END")[0] + _END)
    connection = next(c for c in pair[0].running.broker.connections if c.user == "guest")
    suite = TlsSuite("tlsv1.3", "any", "aes_256_gcm", "aead")
    connection.peer = replace(connection.peer, tls=True, shown=lambda: der, suite=lambda: suite)

    async def script(to: Doors) -> None:
        _, (row,) = await to.ask("GET", "/api/connections")
        told = ("ssl", "ssl_protocol", "ssl_key_exchange", "ssl_cipher", "ssl_hash")
        assert [row[name] for name in told] == [True, *suite]
        assert "CN=ann" in row["peer_cert_subject"] and "O=ca" in row["peer_cert_issuer"]
        moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
        assert re.fullmatch(f"{moment} - {moment}", row["peer_cert_validity"])

    visit(pair, script)


def test_logins_are_told_by_source(pair: Pair) -> None:
    Client("wrong", pair[0], pair.now, "guest:wrong")

    async def script(to: Doors) -> None:
        _, rows = await to.ask("GET", "/api/auth/attempts/a/source")
        assert [row for row in rows if row["username"] != "ha"] == [{
            "remote_address": "127.0.0.1", "username": "guest", "protocol": "amqp091", "auth_attempts": 2,
            "auth_attempts_failed": 1, "auth_attempts_succeeded": 1,
        }]  # fmt: skip
        assert (await to.ask("GET", "/api/auth/attempts/none/source"))[0] == 404

    visit(pair, script)
    logins = pair[0].running.broker.logins
    for at in range(2 * SOURCES):
        logins.ask(Login(f"{at}" + "x" * 10_000, "", "10.0.0.1", loopback=False), lambda *told: None, 0.0)
    assert len(logins.sources) == SOURCES and max(len(one.name) for one in logins.sources) == 80


def test_who_browses_is_among_the_consumers_and_takes_no_part(pair: Pair) -> None:
    client = Client("b", pair[0], pair.now)
    client.begin(pair.now)
    browse = {"queue": "q", "consumer_tag": "b", "no_ack": True, "arguments": {"x-browse": True}}
    client.call("basic.consume", pair.now, **browse)
    pair.run(0.1)

    async def script(to: Doors) -> None:
        _, rows = await to.ask("GET", "/api/consumers")
        assert [(row["consumer_tag"], row["arguments"], row["active"]) for row in rows] == [
            ("c", {}, True), ("b", {"x-browse": True}, True),
        ]  # fmt: skip
        _, queue = await to.ask("GET", "/api/queues/%2F/q")
        assert queue["consumers"] == 1

    visit(pair, script)


def test_rates_and_samples_come_from_the_last_minute(pair: Pair) -> None:
    node = pair[0].running
    node.vhost.declare_queue("idle", owner=None, durable=True)
    for at in range(20):
        for _ in node.broker.sampler.passes(5.0 * at):
            pass
        node.vhost.queues["q"].counts.publish += 10
        node.vhost.counts["amqp091"].ended.publish += 10

    async def script(to: Doors) -> None:
        asked = "msg_rates_age=60&msg_rates_incr=10&lengths_age=60&lengths_incr=60"
        _, queue = await to.ask("GET", f"/api/queues/%2F/q?{asked}")
        found = queue["message_stats"]["publish_details"]
        assert (found["rate"], found["avg_rate"], len(found["samples"])) == (2.0, 2.0, 7)
        assert found["samples"][0]["sample"] - found["samples"][1]["sample"] == 20
        assert [sample["sample"] for sample in queue["messages_details"]["samples"]] == [2, 2]
        assert "idle_since" not in queue, "a queue through which messages go"
        _, idle = await to.ask("GET", "/api/queues/detailed?name=idle&columns=idle_since")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}\+00:00", idle[0]["idle_since"])
        _, whole = await to.ask("GET", f"/api/overview?columns=message_stats.publish_details&{asked}")
        assert whole["message_stats"]["publish_details"]["rate"] == 2.0
        assert list(whole) == ["message_stats"]

    visit(pair, script)


def test_lists_are_paged_sorted_and_cut(pair: Pair) -> None:
    vhost = pair[0].running.vhost
    for number in range(7):
        vhost.declare_queue(f"list/{number}", owner=None, durable=True)

    async def script(to: Doors) -> None:
        async def names(query: str) -> list[str]:
            _, found = await to.ask("GET", f"/api/queues/%2F?{query}")
            return [row["name"] for row in (found["items"] if isinstance(found, dict) else found)]

        _, page = await to.ask("GET", "/api/queues/?page=2&page_size=3&name=list&sort=name&sort_reverse=true")
        assert [row["name"] for row in page.pop("items")] == ["list/3", "list/2", "list/1"]
        assert page == {
            "filtered_count": 7, "item_count": 3, "page": 2, "page_count": 3, "page_size": 3,
            "total_count": 8,
        }  # fmt: skip
        assert await names("page=1&use_regex=true&pagination=false&name=^LIST/[2-4]$&page_size=100") == [
            "list/2", "list/3", "list/4"
        ]  # fmt: skip
        assert (await names("sort=message_stats.publish&sort_reverse=true"))[0] == "q"
        assert (await names(""))[-1] == "q"
        _, rows = await to.ask("GET", "/api/queues?columns=name,message_stats.publish&sort=messages")
        assert rows[-1] == {"name": "q", "message_stats": {"publish": 2}}
        _, rows = await to.ask("GET", "/api/queues?disable_stats=true&enable_queue_totals=true&name=q")
        assert rows[0]["messages"] == 2 and "message_stats" not in rows[0] and rows[0]["type"] == "classic"

    visit(pair, script)


def test_a_user_sees_its_own_virtual_hosts_and_connections(pair: Pair) -> None:
    def entry(kind: str, vhost: str, name: str, **value: Any) -> dict[str, Any]:
        return {"action": "put", "kind": kind, "vhost": vhost, "name": name, "value": value}

    node = pair[0].running

    async def script(to: Doors) -> None:
        for name, tags in (("ann", "management"), ("mon", "monitoring"), ("app", "")):
            assert (await to.ask("PUT", f"/api/users/{name}", {"password": "pw", "tags": tags}))[0] == 201
        assert (await to.ask("PUT", "/api/vhosts/own", {}))[0] == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert (await to.ask("PUT", "/api/permissions/own/ann", everything))[0] == 201
        node.vhosts["own"].declare_queue("mine", owner=None)
        ann, mon, app = (("ann", "pw"), ("mon", "pw"), ("app", "pw"))
        assert [row["name"] for row in (await to.ask("GET", "/api/queues", user=ann))[1]] == ["mine"]
        assert [row["name"] for row in (await to.ask("GET", "/api/vhosts", user=ann))[1]] == ["own"]
        assert (await to.ask("GET", "/api/connections", user=ann))[1] == []
        assert len((await to.ask("GET", "/api/connections", user=mon))[1]) == 1
        assert (await to.ask("GET", "/api/overview", user=ann))[1]["object_totals"]["queues"] == 1
        for path in ("/api/queues/%2F/q", "/api/queues/%2F", "/api/users", "/api/nodes", "/api/parameters",
                     "/api/exchanges/%2F/amq.direct/bindings/source", "/api/aliveness-test/%2F"):  # fmt: skip
            code, refusal = await to.ask("GET", path, user=ann)
            assert (code, refusal["error"]) == (403, "not_authorised"), path
        assert (await to.ask("GET", "/api/whoami", user=app))[0] == 403
        code, refusal = await to.ask("GET", "/api/whoami", user=("ann", "wrong"))
        assert (code, refusal["error"]) == (401, "not_authorised")
        _, attempts = await to.ask("GET", "/api/auth/attempts/a")
        assert [row["auth_attempts_succeeded"] for row in attempts if row["protocol"] == "amqp091"] == [3]

    visit(pair, script)


def test_bindings_by_all_paths(pair: Pair) -> None:
    async def script(to: Doors) -> None:
        for path, keys in (
            ("/api/bindings", ["q", "r%2Fk"]),
            ("/api/bindings/%2F", ["q", "r%2Fk"]),
            ("/api/queues/%2F/q/bindings", ["q", "r%2Fk"]),
            ("/api/exchanges/%2F/amq.direct/bindings/source", ["r%2Fk"]),
            ("/api/exchanges/%2F/amq.direct/bindings/destination", []),
            ("/api/exchanges/%2F/amq.default/bindings/source", ["q"]),
            ("/api/bindings/%2F/e/amq.direct/q/q", ["r%2Fk"]),
            ("/api/bindings/%2F/e/amq.default/q/q", ["q"]),
            ("/api/bindings/%2F/e/amq.direct/e/amq.topic", []),
        ):
            code, found = await to.ask("GET", path)
            assert (code, [row["properties_key"] for row in found]) == (200, keys), path

    visit(pair, script)


def test_a_backup_tells_what_it_has_and_where_the_primary_is(pair: Pair) -> None:
    async def script(to: Doors) -> None:
        _, queue = await to.ask("GET", "/api/queues/%2F/q", at="b")
        assert (queue["messages"], queue["messages_ready"], queue["state"]) == (2, 2, "replica")
        assert (await to.ask("GET", "/api/connections", at="b"))[1] == []
        assert [node["name"] for node in (await to.ask("GET", "/api/nodes", at="b"))[1]] == ["a", "b"]
        code, refusal = await to.ask("GET", "/api/aliveness-test/%2F", at="b")
        assert (code, refusal["error"]) == (503, "service_unavailable") and "its primary is a" in refusal[
            "reason"
        ]

    visit(pair, script)


WRONG = (
    ("/api/queues/none", 404), ("/api/queues/%2F/none", 404), ("/api/queues/%2F/%3Cb%3E%00%1B%2F%252f", 404),
    ("/api/queues?page=x", 400), ("/api/queues?page=0", 400), ("/api/queues?page=1&page_size=501", 400),
    ("/api/queues?page=9", 400), ("/api/queues?page=1&name=(&use_regex=true", 400),
    ("/api/queues?columns=,,.,..name,name.x.y&sort=.&page=", 200), (f"/api/queues?name={'x' * 1001}", 400),
    ("/api/queues?lengths_age=999999999&lengths_incr=-1&msg_rates_age=x", 200),
    ("/api/queues?columns=.,name..x", 200), ("/api/queues/%2F/q?columns=a.b.c,name.x", 200),
    ("/api/queues?page=1&use_regex=true&name=(a%2B)%2B$", 200),
    ("/api/exchanges/%2F/none", 404), ("/api/bindings/%2F/e/none/q/q", 404),
    ("/api/bindings/%2F/e/amq.direct/q/none", 404), ("/api/bindings/%2F/e/amq.direct/q/q/none", 404),
    ("/api/connections/none", 404), ("/api/channels/none", 404), ("/api/vhosts/none", 404),
    ("/api/users/none", 404), ("/api/users/none/permissions", 404), ("/api/permissions/%2F/none", 404),
    ("/api/policies/%2F/none", 404), ("/api/parameters/none", 200), ("/api/nodes/none", 404),
    ("/api/healthchecks/node/none", 404), ("/api/health/checks/port-listener/x", 400),
    ("/api/health/checks/port-listener/1", 503), ("/api/health/checks/protocol-listener/mqtt", 503),
    ("/api/health/checks/certificate-expiration/1/eons", 400), ("/api/none", 404),
    ("/api/health/checks/certificate-expiration/1/months", 200), ("/api/consumers/none", 404),
    ("/api/extensions", 200), ("/api/feature-flags", 200), ("/api/auth", 200), ("/api/users/guest/none", 404),
    ("/api/queues/" + "a/" * 3000, 404), ("/api/operator-policies", 200), ("/api/vhost-limits/%2F", 200),
    ("/api/users/without-permissions", 200), ("/api/topic-permissions", 200), ("/api/user-limits", 200),
)  # fmt: skip


def test_wrong_requests_are_refused_in_json(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    async def script(to: Doors) -> None:
        for path, status in WRONG:
            code, found = await to.ask("GET", path)
            assert code == status, (path, found)
            assert code == 200 or "reason" in found, (path, found)

    visit(pair, script)
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


def test_samples_are_bounded() -> None:
    counts = Counts()
    for at in range(3 * KEPT):
        counts.sample(float(at), (7,))
    assert counts.samples is not None and len(counts.samples) == KEPT
    assert len({id(values) for _, values in counts.samples}) == 1 and len(counts.values()) == len(NAMES)
