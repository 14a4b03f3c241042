"""Health checks as RabbitMQ's management has them: 200 with `{"status": "ok"}`, or 503 with the reason.

`node-is-quorum-critical` asks whether the pair would lose its in-sync copy, or its service, without this
node.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from time import time
from typing import Any

from aiohttp import web

from understudy.http.answers import bad
from understudy.http.api.changes.answered import operate
from understudy.http.api.seen import Seen, not_found, viewed
from understudy.http.room import Call, Route

_SECONDS = {"days": 86400, "weeks": 604800, "months": 30 * 86400, "years": 365 * 86400}
_PROBE = "aliveness-test"


def routes() -> Iterable[Route]:
    for path in ("alarms", "local-alarms"):
        yield Route("GET", f"/api/health/checks/{path}", _alarms)
    for path in ("node-is-mirror-sync-critical", "node-is-quorum-critical"):
        yield Route("GET", f"/api/health/checks/{path}", _critical)
    yield Route("GET", "/api/health/checks/virtual-hosts", _ok)
    yield Route("GET", "/api/health/checks/port-listener/{port}", _port)
    yield Route("GET", "/api/health/checks/protocol-listener/{protocol}", _protocol)
    yield Route("GET", "/api/health/checks/certificate-expiration/{within}/{unit}", _certificate)
    yield Route("GET", "/api/healthchecks/node", _alarms)
    yield Route("GET", "/api/healthchecks/node/{name}", partial(_alarms))
    yield Route("GET", "/api/aliveness-test/{vhost}", _aliveness)


def _answer(fault: str, **more: Any) -> web.Response:
    if fault:
        return web.json_response({"status": "failed", "reason": fault, **more}, status=503)
    return web.json_response({"status": "ok", **more})


async def _ok(_call: Call) -> web.Response:
    return _answer("")


async def _alarms(call: Call) -> web.Response:
    node = viewed(call)
    if call.request.match_info.get("name", node.me.name) != node.me.name:
        raise not_found(f"node {call.part('name')!a:.300}")
    raised = node.broker.alarms
    alarms = [{"node": node.me.name, "resource": alarm} for alarm in raised]
    return _answer(f"alarms: {', '.join(raised)}" if raised else "", **({"alarms": alarms} if raised else {}))


async def _critical(call: Call) -> web.Response:
    """Critical: this node serves, and no other is in sync."""
    status = call.room.status()
    others = [member for member in status["members"] if not member.get("self")]
    if not others:
        return _answer("", reason="single node")
    serves = viewed(call).vhosts.serving
    critical = serves and not any(member["in_sync"] for member in others)
    return _answer("no other node is in sync" if critical else "")


async def _port(call: Call) -> web.Response:
    text = call.part("port")
    if not text.isdecimal() or len(text) > 5:
        raise bad("the port must be a number")
    port, ports = int(text), [one.port for one in call.room.listeners]
    if port in ports:
        return _answer("", port=port)
    return _answer("No active listener", missing=port, ports=ports)


async def _protocol(call: Call) -> web.Response:
    protocol, known = call.part("protocol"), sorted({one.protocol for one in call.room.listeners})
    wanted = {"amqp091": "amqp", "amqps": "amqp/ssl", "https": "https"}.get(protocol, protocol)
    if wanted in known:
        return _answer("", protocol=protocol)
    return _answer("No active listener", missing=protocol, protocols=known)


async def _certificate(call: Call) -> web.Response:
    unit, within = _SECONDS.get(call.part("unit")), call.part("within")
    if unit is None or not within.isdecimal() or len(within) > 6:
        raise bad("say for how long: 30/days, 4/weeks, 1/months or 1/years")
    tls = call.room.tls
    if tls is None or tls.expires_at - time() > int(within) * unit:
        return _answer("")
    return _answer("Certificates expiring", expired=[{"node": viewed(call).me.name}])


async def _aliveness(call: Call) -> web.Response:
    """Declares a queue, publishes a message and gets it again. Raises Refused: a backup refuses."""
    vhost = call.part("vhost")
    Seen(call).check(vhost)
    await operate(call, "declare-queue", vhost=vhost, name=_PROBE, durable=False)
    await operate(
        call, "publish", vhost=vhost, exchange="", routing_key=_PROBE, payload="test_message",
        payload_encoding="string", properties={},
    )  # fmt: skip
    got = await operate(call, "get", vhost=vhost, name=_PROBE, count=1, ackmode="ack_requeue_false")
    return _answer("" if got.get("messages") else "the message that was published is not there")
