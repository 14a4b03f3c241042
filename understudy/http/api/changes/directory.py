"""Changes of virtual hosts, users, permissions, policies, parameters and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from aiohttp import web

from broker.model.vhost.directory import OPERATOR_POLICY, TOPIC_PERMISSION
from broker.model.vhost.federation_entries import AGENT, UPSTREAM
from broker.security.authenticator import hash_password
from broker.security.topic_permissions import TOPICAL, topic_name
from understudy.definitions.entries import entry_of
from understudy.definitions.parse import UserDefinition
from understudy.definitions.rabbit_federation import Unfit, upstream_of
from understudy.http.answers import bad
from understudy.http.api.changes.answered import created, delete, listing, missing, operate, put
from understudy.http.api.changes.fields import Fields, whole
from understudy.http.room import Call, Rights, Route

_SHA256 = "rabbit_password_hashing_sha256"
_MOST = 100
"""Users in one deletion."""
_LARGEST = 32 * 1024
_EVERYTHING = ".*"


def routes() -> Iterable[Route]:
    everything, policies = Rights.ADMINISTRATOR, Rights.POLICYMAKER
    return (
        Route("PUT", "/api/vhosts/{name}", _put_vhost, everything),
        Route("DELETE", "/api/vhosts/{name}", _delete_vhost, everything),
        Route("PUT", "/api/users/{name}", _put_user, everything),
        Route("DELETE", "/api/users/{name}", _delete_user, everything),
        Route("POST", "/api/users/bulk-delete", _delete_users, everything),
        Route("PUT", "/api/permissions/{vhost}/{name}", _put_permission, everything),
        Route("DELETE", "/api/permissions/{vhost}/{name}", partial(_delete, "permission"), everything),
        Route("PUT", "/api/topic-permissions/{vhost}/{name}", _put_topic_permission, everything),
        Route("DELETE", "/api/topic-permissions/{vhost}/{name}", _delete_topic_permissions, everything),
        Route(
            "PUT", "/api/operator-policies/{vhost}/{name}", partial(_put_policy, OPERATOR_POLICY), everything
        ),
        Route(
            "DELETE", "/api/operator-policies/{vhost}/{name}", partial(_delete, OPERATOR_POLICY), everything
        ),
        Route("PUT", "/api/policies/{vhost}/{name}", partial(_put_policy, "policy"), policies),
        Route("DELETE", "/api/policies/{vhost}/{name}", partial(_delete, "policy"), policies),
        Route("PUT", "/api/parameters/{component}/{vhost}/{name}", _put_parameter, policies),
        Route("DELETE", "/api/parameters/{component}/{vhost}/{name}", _delete_parameter, policies),
    )


async def _delete(kind: str, call: Call) -> web.Response:
    return await delete(call, kind, call.part("vhost"), call.part("name"))


# -- virtual hosts


async def _put_vhost(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    tags = fields.words("tags") if fields.has("tags") else []
    about = {"description": fields.text("description", ""), "tags": tags}
    return await put(call, "vhost", "", call.part("name"), about)


async def _delete_vhost(call: Call) -> web.Response:
    return await delete(call, "vhost", "", call.part("name"))


# -- users


async def _put_user(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    tags, hashed = fields.words("tags"), ""
    if fields.has("password"):
        hashed = await asyncio.to_thread(hash_password, fields.text("password"))
    elif fields.has("password_hash"):
        hashed = _given_hash(call.part("name"), fields)
    value = {"password_hash": hashed, "tags": tags}
    return await put(call, "user", "", call.part("name"), value)


def _given_hash(name: str, fields: Fields) -> str:
    """RabbitMQ's hash in the form in which the directory keeps it. Raises Refused."""
    given, algorithm = fields.text("password_hash"), fields.text("hashing_algorithm", _SHA256)
    try:
        user = UserDefinition(name=name, password_hash=given, hashing_algorithm=algorithm)
        return str(entry_of(user).value["password_hash"])
    except ValueError as error:
        raise bad(f"password_hash: {error}") from None


async def _delete_user(call: Call) -> web.Response:
    return await delete(call, "user", "", call.part("name"))


async def _delete_users(call: Call) -> web.Response:
    """All of them or none: refused if one is not there, as in RabbitMQ."""
    users = Fields(await call.body(named=False)).words("users")
    if not 0 < len(users) <= _MOST:
        raise bad(f"users must be a list of 1 to {_MOST} names")
    known = [line["name"] for line in await listing(call, "users")]
    if unknown := [name for name in users if name not in known]:
        raise bad(f"there is no user {unknown[0]!a:.300}")
    changes = [{"action": "delete", "kind": "user", "vhost": "", "name": name} for name in users]
    await operate(call, "define", changes=changes)
    call.changed("delete users", names=", ".join(users))
    return web.Response(status=204)


async def _put_permission(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    value = {what: fields.text(what) for what in ("configure", "write", "read")}
    vhost, user = call.part("vhost"), call.part("name")
    if set(value.values()) == {_EVERYTHING} and await _is_configured(call, user, vhost):
        return created(False)
    return await put(call, "permission", vhost, user, value)


async def _is_configured(call: Call, user: str, vhost: str) -> bool:
    """Whether it is a user of the configuration, who may do everything in each virtual host. Tools grant
    themselves what they have."""
    found = [line["name"] for line in await listing(call, "users") if line.get("configured")]
    return user in found and vhost in [line["name"] for line in await listing(call, "vhosts")]


async def _put_topic_permission(call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    value: dict[str, Any] = {what: fields.text(what) for what in TOPICAL}
    name = topic_name(call.part("name"), fields.text("exchange"))
    return await put(call, TOPIC_PERMISSION, call.part("vhost"), name, value)


async def _delete_topic_permissions(call: Call) -> web.Response:
    """All of a user in a virtual host."""
    user, vhost = call.part("name"), call.part("vhost")
    found = [line for line in await listing(call, "topic_permissions")
             if (line["user"], line["vhost"]) == (user, vhost)]  # fmt: skip
    if not found:
        raise missing(f"topic permission of {user!a:.300}")
    changes = [
        {"action": "delete", "kind": TOPIC_PERMISSION, "vhost": vhost,
         "name": topic_name(user, line["exchange"])}
        for line in found
    ]  # fmt: skip
    await operate(call, "define", changes=changes)
    call.changed("delete topic permissions", vhost=vhost, name=user)
    return web.Response(status=204)


# -- policies and parameters


async def _put_policy(kind: str, call: Call) -> web.Response:
    fields = Fields(await call.body(named=False))
    definition = fields.any("definition")
    if not isinstance(definition, dict):
        raise bad("definition must be an object")
    value = {
        "pattern": fields.text("pattern"), "definition": definition,
        "priority": whole("priority", fields.number("priority", 0)),
        "apply-to": fields.text("apply-to", "all"),
    }  # fmt: skip
    return await put(call, kind, call.part("vhost"), call.part("name"), value)


async def _put_parameter(call: Call) -> web.Response:
    value = Fields(await call.body(_LARGEST, named=False)).any("value")
    if not isinstance(value, dict):
        raise bad("value must be an object")
    kind, vhost, name = _component(call), call.part("vhost"), call.part("name")
    if kind == UPSTREAM and "uri" in value:
        try:
            value = upstream_of(vhost, name, value).value
        except Unfit as unfit:
            raise bad(f"upstream {name!a:.300}: {unfit}") from None
    return await put(call, kind, vhost, name, value)


async def _delete_parameter(call: Call) -> web.Response:
    if call.part("component") not in _COMPONENTS:
        raise missing(f"component {call.part('component')!a:.100}")
    return await delete(call, _component(call), call.part("vhost"), call.part("name"))


_COMPONENTS = {UPSTREAM: UPSTREAM, AGENT: AGENT}


def _component(call: Call) -> str:
    """The kind of entry. Raises Refused for a component that this broker does not have."""
    name = call.part("component")
    if name not in _COMPONENTS:
        raise bad(f"component {name!a:.100} not found: there are {', '.join(_COMPONENTS)}")
    return str(_COMPONENTS[name])
