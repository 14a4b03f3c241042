"""The paths of RabbitMQ's management API that change something: status codes, effects on both nodes, through
a failover, and what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import cycle
from typing import Any

import pytest

from broker.model.vhost.directory import Directory
from ha.adapter.federation.settings import FederationSettings
from ha.adapter.peering.login import PeeringLogin
from tests.ha.client import Client
from tests.ha.pair import Pair
from tests.understudy.http.pair_door import Answer, Doors, doors
from understudy.http.api.changes.routes import routes

Q = "/api/queues/%2F/q"
X = "/api/exchanges/%2F/x"


ENTRIES = (
    ("/api/topic-permissions/%2F/ann", {"exchange": "x", "write": "^w", "read": ""}),
    ("/api/vhost-limits/%2F/max-queues", {"value": 50}),
    ("/api/user-limits/ann/max-channels", {"value": "9"}),
    (
        "/api/operator-policies/%2F/op",
        {"pattern": "^p", "definition": {"max-length": 3}, "apply-to": "queues"},
    ),
)


def visit(pair: Pair, script: Callable[[Doors], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20), doors(pair) as found:
            await script(found)

    asyncio.run(run())


def a_pair() -> Pair:
    pair = Pair()
    pair.up()
    return pair


def test_each_change_holds_after_a_failover(caplog: pytest.LogCaptureFixture) -> None:
    """All kinds in one run: made at the primary, seen and undone at the node that takes over."""
    pair = a_pair()

    async def script(to: Doors) -> None:
        async def status(method: str, path: str, body: Any = None, **more: Any) -> int:
            return (await to.ask(method, path, body, **more))[0]

        # As rabbitmqadmin sends it: truths in strings, names of the path repeated.
        declared = {"vhost": "/", "name": "q", "durable": "true", "auto_delete": False, "arguments": {}}
        assert [await status("PUT", Q, declared) for _ in range(2)] == [201, 204]
        assert await status("PUT", Q, {"durable": False}) == 400
        assert [await status("PUT", X, {"type": "topic", "durable": True}) for _ in range(2)] == [201, 204]
        code, _ = await to.ask("POST", "/api/bindings/%2F/e/x/q/q", {"routing_key": "a/b", "arguments": {}})
        assert code == 201
        routed = {"routing_key": "a/b", "payload": "hello", "payload_encoding": "string",
                  "properties": {"delivery_mode": "2", "headers": {"n": 1}}}  # fmt: skip
        assert await to.ask("POST", f"{X}/publish", routed) == (200, {"routed": True})
        assert await to.ask("POST", f"{X}/publish", routed | {"routing_key": "z"}) == (200, {"routed": False})
        default = routed | {"routing_key": "q", "payload": "aGk=", "payload_encoding": "base64"}
        assert await to.ask("POST", "/api/exchanges/%2F/amq.default/publish", default) == (
            200,
            {"routed": True},
        )
        users = {"password": "secret", "tags": "management,policymaker"}
        assert [await status("PUT", "/api/users/ann", users) for _ in range(2)] == [201, 204]
        assert await status("PUT", "/api/vhosts/other", {"description": "d", "tags": "a,b"}) == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert await status("PUT", "/api/permissions/%2F/ann", everything) == 201
        assert await status("PUT", "/api/permissions/%2F/guest", everything) == 204
        assert await status("PUT", "/api/permissions/none/guest", everything) == 400
        policy = {"pattern": "^p", "definition": {"max-length": 9}, "priority": "1", "apply-to": "queues"}
        assert await status("PUT", "/api/policies/%2F/lim", policy, user=("ann", "secret")) == 201
        assert await status("PUT", "/api/policies/other/lim", policy, user=("ann", "secret")) == 403
        assert await status("PUT", "/api/users/eve", users, user=("ann", "secret")) == 403

        for path, body in ENTRIES:
            new = 204 if "-limits/" in path else 201
            assert [await status("PUT", path, body) for _ in range(2)] == [new, 204], path
        assert await status("PUT", "/api/vhost-limits/%2F/max-connections", {"value": 7}) == 204

        code, whole = await to.ask("GET", "/api/definitions/%2F")
        assert code == 200 and [(q["name"], "vhost" in q) for q in whole["queues"]] == [("q", False)]
        assert [p["name"] for p in whole["policies"]] == ["lim"] and "users" not in whole
        assert (await to.ask("GET", "/api/definitions/none"))[0] == 404

        pair.kill(pair[0])
        b = pair[1]
        answers: list[dict[str, Any]] = []
        b.running.manage("promote", {}, answers.append, pair.now)
        while not answers:
            await asyncio.sleep(0)
        assert answers[0]["ok"]

        directory: Directory = b.running.vhosts.directory
        assert directory.users["ann"].tags == {"management", "policymaker"}
        assert directory.vhosts["other"] == "d" and ("/", "lim") in directory.policies
        peek = {"count": "5", "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": "50000"}
        assert directory.topic_permissions["/", "ann"]["x"].write == "^w"
        assert directory.vhost_limits["/"] == {"max-queues": 50, "max-connections": 7}
        assert (
            directory.user_limits["ann"] == {"max-channels": 9} and ("/", "op") in directory.operator_policies
        )
        code, found = await to.ask("POST", f"{Q}/get", peek, at="b")
        assert [(m["payload"], m["routing_key"], m["exchange"]) for m in found] == [
            ("hello", "a/b", "x"), ("hi", "q", "")
        ]  # fmt: skip
        assert found[0]["properties"] == {"delivery_mode": 2, "headers": {"n": 1}}
        assert await status("PUT", "/api/queues/%2F/t", {"durable": True}, at="b") == 201
        moved = {"moved": 1, "left": 1, "full": False}
        assert await to.ask("POST", f"{Q}/move", {"to": "t", "count": 1}, at="b") == (200, moved)
        assert await status("DELETE", f"{Q}/contents", at="b") == 204
        assert await status("DELETE", "/api/queues/%2F/t?if-empty=true", at="b") == 400
        assert await status("DELETE", "/api/bindings/%2F/e/x/q/q/a%253Fb", at="b") == 404
        assert await status("DELETE", "/api/bindings/%2F/e/x/q/q/a%252Fb", at="b") == 204
        assert await status("POST", f"{Q}/actions", {"action": "sync"}, at="b") == 204
        assert await status("DELETE", "/api/vhost-limits/%2F/max-connections", at="b") == 204
        for path, _ in ENTRIES:
            gone = 204 if "-limits/" in path else 404
            assert [await status("DELETE", path, at="b") for _ in range(2)] == [204, gone], path
        for path in (Q, "/api/queues/%2F/t", f"{X}?if-unused=true", "/api/policies/%2F/lim",
                     "/api/permissions/%2F/ann", "/api/vhosts/other"):  # fmt: skip
            assert [await status("DELETE", path, at="b") for _ in range(2)] == [204, 404], path
        assert await status("POST", "/api/users/bulk-delete", {"users": ["ann"]}, at="b") == 204
        assert not directory.users and not b.running.vhost.queues

    with caplog.at_level(logging.INFO, "understudy.audit"):
        visit(pair, script)
    lines = [record.getMessage() for record in caplog.records if record.name == "understudy.audit"]
    assert any("'guest' from '127.0.0.1': delete queue vhost='/' name='q'" in line for line in lines), lines
    assert not any("secret" in line for line in lines)


def test_an_upstream_in_the_form_of_rabbitmq_is_kept_without_its_password() -> None:
    pair = Pair()
    for host in pair.hosts:
        host.settings = {"federation": FederationSettings("leaf", {"up": PeeringLogin("ann", "x", "")}, ())}
    pair.up()
    there = "/api/parameters/federation-upstream/%2F/"

    async def script(to: Doors) -> None:
        value = {"uri": ["amqp://ann:hidden@hub:5673", "amqp://ann:hidden@[::1]"], "max-hops": 2}
        assert await to.ask("PUT", f"{there}up", {"value": value}) == (201, "")
        made = {"addresses": ["hub:5673", "[::1]:5672"], "login": "up", "vhost": "/", "protocol": "amqp"}
        assert (await to.ask("GET", f"{there}up"))[1]["value"] == made
        for name, uri, why in (
            ("up", 7, "it has no URI"), ("up", "http://hub", "cannot be read"),
            ("up", "amqp://", "no host"), ("other", "amqp://x:hidden@hub", "has no federation.logins"),
            ("up", ["amqp://a@hub", "amqp://b@hub"], "several users"),
        ):  # fmt: skip
            code, said = await to.ask("PUT", there + name, {"value": {"uri": uri}})
            assert code == 400 and why in said["reason"], said
            assert "hidden" not in said["reason"]

    visit(pair, script)


def test_a_delayed_message_waits_at_its_exchange() -> None:
    async def script(to: Doors) -> None:
        arguments = {"x-delayed-type": "fanout"}
        declared = {"type": "x-delayed-message", "durable": True, "arguments": arguments}
        assert (await to.ask("PUT", X, declared))[0] == 201
        message = {"routing_key": "", "payload": "later", "payload_encoding": "string",
                   "properties": {"headers": {"x-delay": 60_000}}}  # fmt: skip
        assert await to.ask("POST", f"{X}/publish", message) == (200, {"routed": True})
        assert (await to.ask("GET", X))[1]["messages_delayed"] == 1

    visit(a_pair(), script)


def test_a_connection_is_closed_with_the_reason_of_a_header() -> None:
    pair = a_pair()
    client = Client("c", pair[0], pair.now)
    pair.run(0.1)
    client.pump(pair.now)

    async def script(to: Doors) -> None:
        reason = {"X-Reason": "no more"}
        name = "127.0.0.1%3A40000%20-%3E%20a"
        assert await to.ask("DELETE", f"/api/connections/{name}", headers=reason) == (204, "")
        assert (await to.ask("DELETE", f"/api/connections/{name}"))[0] == 404

    visit(pair, script)
    assert client.pump(pair.now) == ["c: connection close 320 CONNECTION_FORCED - no more"]


@pytest.mark.parametrize(("method", "path", "body", "status", "reason"), [
    ("PUT", Q, {"durable": "maybe"}, 400, "durable must be true or false"),
    ("PUT", Q, {"arguments": {"x-max-length": "many"}}, 400, "406 PRECONDITION_FAILED"),
    ("PUT", Q, {"arguments": 5}, 400, "arguments must be an object"),
    ("PUT", "/api/queues/none/q", {}, 404, "404 NOT_FOUND - no vhost 'none'"),
    ("PUT", "/api/queues/%2F/amq.q", {}, 403, "403 ACCESS_REFUSED"),
    ("PUT", X, {"type": "x-none"}, 400, "'type' must be one of"),
    ("DELETE", Q, None, 404, "404 NOT_FOUND - no queue 'q' in vhost '/'"),
    ("DELETE", "/api/queues/%2F/%3Cb%3E%00%1B%2F", None, 404, "no queue '<b>\0\x1b/'"),
    ("POST", f"{Q}/get", {"count": -1}, 400, "'count' must be a whole number from 1"),
    ("POST", f"{Q}/get", {"count": "x"}, 400, "count must be a whole number"),
    ("POST", f"{Q}/move", {}, 400, "key_missing: to"),
    ("POST", f"{Q}/actions", {"action": "fly"}, 400, "action must be one of sync"),
    ("POST", f"{X}/publish", {"payload": "", "routing_key": ""}, 400, "404 NOT_FOUND - no exchange 'x'"),
    ("POST", f"{X}/publish", {"payload": ""}, 400, "key_missing: routing_key"),
    ("POST", f"{X}/publish", {"payload": "", "routing_key": 5}, 400, "'routing_key' must be a string"),
    ("POST", "/api/bindings/%2F/e/x/q/q", {}, 404, "404 NOT_FOUND"),
    ("PUT", "/api/users/ann", {"password": "x"}, 400, "key_missing: tags"),
    ("PUT", "/api/users/ann", {"password_hash": "?", "tags": ""}, 400, "password_hash: "),
    ("PUT", "/api/users/guest", {"password": "x", "tags": ""}, 400, "is made in the configuration of a"),
    ("POST", "/api/users/bulk-delete", {"users": []}, 400, "a list of 1 to 100 names"),
    ("PUT", "/api/permissions/%2F/none", {"configure": "", "write": "", "read": "("}, 400, "permission"),
    ("PUT", "/api/policies/%2F/p", {"pattern": "(", "definition": {"max-length": 1}}, 400, "policy 'p'"),
    ("PUT", "/api/policies/%2F/p", {"pattern": "", "definition": "x"}, 400, "definition must be an object"),
    ("PUT", "/api/parameters/shovel/%2F/s", {"value": {}}, 400, "component 'shovel' not found"),
    ("PUT", "/api/vhost-limits/%2F/max-cats", {"value": 1}, 400, "the limit must be one of max-connections"),
    ("PUT", "/api/vhost-limits/%2F/max-queues", {}, 400, "key_missing: value"),
    ("PUT", "/api/vhost-limits/none/max-queues", {"value": 1}, 404, "there is no vhost 'none'"),
    ("PUT", "/api/policies/none/p", {"pattern": "", "definition": {"max-length": 1}}, 404, "no vhost 'none'"),
    ("DELETE", "/api/parameters/shovel/%2F/s", None, 404, "there is no component 'shovel'"),
    ("POST", "/api/users/bulk-delete", {"users": ["nobody"]}, 400, "there is no user 'nobody'"),
    ("DELETE", "/api/topic-permissions/%2F/ann", None, 404, "there is no topic permission of 'ann'"),
    ("DELETE", "/api/vhosts/none", None, 404, "there is no vhost 'none'"),
])  # fmt: skip
def test_what_is_wrong_is_refused(method: str, path: str, body: Any, status: int, reason: str) -> None:
    pair = Pair(1)
    pair.start()

    async def script(to: Doors) -> None:
        code, answer = await to.ask(method, path, body)
        assert (code, reason in answer["reason"]) == (status, True), (code, answer)
        assert answer["error"] and answer["code"] and not answer["ok"]

    visit(pair, script)


def test_a_backup_says_where_the_primary_is() -> None:
    pair = a_pair()

    async def script(to: Doors) -> None:
        async def refused(method: str, path: str, body: Any = None) -> Answer:
            code, answer = await to.ask(method, path, body, at="b")
            return code, answer["reason"]

        for method, path, body in (
            ("PUT", Q, {}), ("DELETE", Q, None), ("POST", f"{Q}/get", {}), ("PUT", "/api/vhosts/v", {}),
            ("POST", f"{X}/publish", {"payload": "", "routing_key": ""}), ("DELETE", "/api/users/u", None),
        ):  # fmt: skip
            code, reason = await refused(method, path, body)
            assert code == 503 and "its primary is a at 127.0.0.1:5000" in reason

    visit(pair, script)


def test_a_program_may_call_its_body_what_it_likes_and_a_page_may_not() -> None:
    """RabbitMQ's clients send JSON under any name. A page can do that too, but not without `Origin`."""
    pair = Pair(1)
    pair.start()

    async def script(to: Doors) -> None:
        await to.ask("PUT", Q, {})
        path, body = "/api/exchanges/%2F/amq.default/publish", {"payload": "x", "routing_key": "q"}
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            called = {"Content-Type": kind}
            assert await to.ask("POST", path, body, headers=called) == (200, {"routed": True})
            own = {"Origin": to.origin("a"), **called}
            assert (await to.ask("POST", path, body, headers=own))[0] == 415
            assert (await to.ask("POST", path, body, headers={"Cookie": "a=b", **called}))[0] == 415

    visit(pair, script)


DEEP: Any = {"a": None}
for _ in range(300):
    DEEP = {"arguments": DEEP}
ODD = (
    None, True, -1, 10**30, 1.5, float("inf"), "\0<script>\x1b[2J", "\ud800", [], [[]], {"$bytes": "?"},
    {"$decimal": "1e999"}, {"$nothing": 1}, DEEP,
)  # fmt: skip
KEYS = (
    "durable", "auto_delete", "arguments", "type", "count", "ackmode", "truncate", "to", "to_vhost",
    "payload", "routing_key", "properties", "payload_encoding", "tags", "password_hash", "description",
    "configure", "exchange", "value", "pattern", "definition", "priority", "users",
)  # fmt: skip
"""Their number has no factor in common with that of the odd values, so that each key meets several."""
GOOD: dict[str, Any] = {
    "ackmode": "ack_requeue_true", "to": "t", "payload": "", "routing_key": "", "tags": [],
    "configure": "", "write": "", "read": "", "exchange": "x", "value": {}, "pattern": "",
    "definition": {}, "users": ["n"], "action": "sync",
}  # fmt: skip


def test_no_body_breaks_a_path() -> None:
    """Each path of a change, with keys of wrong kinds: a status that RabbitMQ's clients know, and JSON."""
    odds = cycle(ODD)
    pair = Pair(1)
    pair.start()
    for name in ("q", "t"):
        pair.declare(pair[0], name)
    paths = [
        (route.method, route.path)
        for route in routes(None)  # type: ignore[arg-type]
        if route.method in ("PUT", "POST") and "parameters" not in route.path
    ]
    values = {"vhost": "%2F", "name": "q", "source": "amq.topic", "destination": "q", "user": "n",
              "limit": "max-connections"}  # fmt: skip

    async def script(to: Doors) -> None:
        for method, path in paths:
            for key in KEYS:
                odd = next(odds)
                code, answer = await to.ask(method, path.format_map(values), GOOD | {key: odd})
                assert code in (200, 201, 204, 400, 403, 404), (method, path, key, odd, code, answer)
                assert code < 300 or set(answer) >= {"error", "reason", "code"}

    visit(pair, script)
