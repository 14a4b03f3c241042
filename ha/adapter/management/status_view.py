"""The answers to `status` and `query`, each one JSON object. Called by Node; reads only."""

from __future__ import annotations

from typing import Any

from broker.model.values import LEVEL_NAMES, Position
from broker.model.vhost.vhosts import QueueInfo, VirtualHosts
from ha.core import codes
from ha.core.ha_broker import HaBroker
from ha.core.membership import Member, Status
from ha.core.record.in_sync_record import ALL_DISKS, ALL_MEMORY
from ha.core.role import OwnIdentity
from ha.core.wire.link import VERSION
from understudy.shared.codes import Coded
from understudy.shared.compiled_modules import Build

READY = ("ready", "active", "standalone", "recovering")
"""Statuses of a node that serves, or could at once."""
QUERY_AT_ONCE = 1000
"""Queues in one answer: clients wait meanwhile."""
FENCED = (
    "its leadership lease has expired, so confirms and deliveries are paused; next: let it reach the "
    "authority or its backup"
)
LAG_FIELDS = ("phase", "lag", "lag_bytes", "applied", "durable", "queues_left", "in_sync")


def status_of(
    core: HaBroker, me: OwnIdentity, vhosts: VirtualHosts, position: Position, trouble: Coded | None = None
) -> dict[str, Any]:
    """The state of the node now. `trouble`: with the authority. `dequeues`: how many wait to be written to
    store and link, and the longest wait of any, in seconds."""
    promotable, why = core.promotable()
    if promotable and trouble is not None and core.automatic is not None and not core.status.serves:
        promotable, why = False, f"nobody is promoted while the authority does not answer: {trouble.sentence}"
    return {
        "name": me.name,
        "node_id": me.node_id,
        "incarnation": me.incarnation,
        "cluster_id": core.cluster_id,
        "status": core.status.value,
        "epoch": core.epoch,
        "link": _link(core),
        "members": [_myself(core, me, position), *_members(core)] if core.backup or core.primary else [],
        "promotable": promotable,
        "reason": _with_troubles(core, _reason(core, promotable, why), trouble),
        "position": list(position),
        "queues": len(vhosts.queues_by_uuid),
        "paged": vhosts.paged,
        "version": VERSION,
        "build": Build.name,
        "primary": _primary(core, me),
        "withheld": core.output_fenced,
        "promoting": core.promotion.active,
        "owner": core.record.owner_name if core.record is not None else None,
        "producers": {
            "known": len(vhosts.directory.producers),
            "connected": len(vhosts.producers.sessions),
            "forgotten": vhosts.producers.forgotten,
            "duplicates": vhosts.producers.duplicates,
            "known_ids": vhosts.known_ids,
        },
        "dequeues": {
            "waiting": vhosts.history.waiting,
            "longest_lag": vhosts.history.longest_lag,
            "left": {reason.ledger_name: many for reason, many in vhosts.history.left.items()},
        },
    }


def confirm_of(core: HaBroker, vhosts: VirtualHosts) -> dict[str, Any]:
    """What confirms of persistent messages wait for. `default`: `ha.confirm`; `least`: the weakest that a
    confirm may go by now, None while this node does not serve; `record`: the same by the record."""
    record, floor = core.record, core.confirm_floor
    return {
        "default": LEVEL_NAMES[vhosts.history.confirm],
        "least": LEVEL_NAMES[floor] if core.primary is not None else None,
        "record": record.confirm if record is not None else None,
    }


def confirm_words(core: HaBroker) -> str:
    """For people, behind the reason of the node's state; empty where all disks are waited for."""
    record = core.record
    if record is None or record.confirm == ALL_DISKS:
        return ""
    if core.primary is not None and not (record.in_sync or core.primary.in_sync_names()):
        return f"; under {record.confirm}, but alone: confirms wait for this node's disk"
    lack = "this node's disk" if core.primary is None or record.confirm == ALL_MEMORY else "a backup's disk"
    return f"; under {record.confirm}: {lack} may lack the last confirmed messages"


def controller_of(
    core: HaBroker, clients: int, now: float, wall_ms: int, trouble: Coded | None = None
) -> dict[str, Any]:
    """How a node that promotes itself stands. `role`: `ha.role`, None where there is none; `wanted`: what it
    is to be, by what it sees; `clients`: of applications, connected to it; `votes`: clients that tried since
    the other node was heard last; `since`: seconds since 1970 when it came into its state; `reason`: why it
    does not promote itself, or what else is wrong, or ""."""
    automatic, pair = core.automatic, core.pair
    found: dict[str, Any] = {
        "role": pair.role.value if pair is not None else None,
        "state": pair.state.value if pair is not None else _state(core),
        "wanted": pair.wanted(now) if pair is not None else None,
        "clients": clients,
        "votes": pair.votes if pair is not None else 0,
        "peer": None,
        "since": None,
        "running": automatic is not None and not automatic.off,
        "reason": _controller_reason(core, trouble),
    }
    if pair is not None:
        seen, answer = pair.seen(now), pair.answer()
        found["since"] = round(wall_ms / 1000 - (now - pair.since))
        found["peer"] = {
            "name": pair.other_name,
            "role": answer.role if answer is not None else None,
            "state": seen.value if seen is not None else "unknown",
            "clients": answer.clients if answer is not None and pair.online(now) else None,
        }
    return found


def _controller_reason(core: HaBroker, trouble: Coded | None) -> str:
    """Equal roles, and trouble with the authority, are said in every state."""
    fault = core.pair.fault if core.pair is not None else ""
    waits_for = core.automatic.waits_for if core.automatic is not None else ""
    fenced = FENCED if core.output_fenced else ""
    said = [each for each in dict.fromkeys((fault, fenced, waits_for)) if each]
    if trouble is not None and trouble.sentence not in waits_for:
        said.append(f"the authority commits nothing: {trouble.sentence}")
    return "; ".join(said)


def _state(core: HaBroker) -> str:
    if core.status.serves:
        return "active"
    follows = core.backup is not None and core.backup.linked
    return "passive" if follows or core.status is Status.READY or core.known_primary() else "pending"


def _primary(core: HaBroker, me: OwnIdentity) -> str | None:
    """Name and address of the node of the pair that serves, if one is known; this node counts, too."""
    if core.primary is None:
        return core.known_primary()
    address = core.peers.own_address()
    return f"{me.name} at {address}" if address else me.name


def query_of(vhosts: VirtualHosts, begin: int = 0) -> dict[str, Any]:
    """`queue_list`: one line a queue, from number `begin` on; `replicate` is `replica` for one that follows
    another broker's; `policy`: the name of the one that holds for it, or None. Only of a queue with
    `x-single-active-consumer`: tag and address of the active one, or None. `more`: where the next piece
    begins; None: there is none. Queues that come or go between two pieces may be left out, or told twice."""
    found = vhosts.list_queues(begin, QUERY_AT_ONCE)
    lines = [
        {
            "name": q.name,
            "vhost": q.vhost,
            "uuid": q.uuid.hex(),
            "ready": q.ready,
            "unacked": q.unacked,
            "consumers": q.consumers,
            "durable": q.durable,
            "replicate": q.replicate.split(" ")[0],
            "policy": q.policy,
            **(_active(q) if q.single_active else {}),
        }
        for q in found
    ]
    return {"queue_list": lines, "more": begin + len(lines) if len(lines) == QUERY_AT_ONCE else None}


def _active(line: QueueInfo) -> dict[str, Any]:
    """The consumer that gets the messages. The first key is RabbitMQ's."""
    active = line.active
    return {
        "single_active_consumer_tag": active.tag if active is not None else None,
        "single_active_consumer_client": active.sink.client if active is not None else None,
    }


def _link(core: HaBroker) -> str:
    """`up` with a backup in sync, or with the primary; `none` if there never was a link; else `lost`."""
    if core.primary is not None:
        if core.primary.in_sync_names():
            return "up"
        return "lost" if core.primary.had_backup else "none"
    if core.backup is None:
        return "none"
    if core.backup.linked:
        return "up"
    return "lost" if core.backup.link_end is not None else "none"


def _myself(core: HaBroker, me: OwnIdentity, position: Position) -> dict[str, Any]:
    """This node's own line, with `self` set."""
    record = core.record
    listed = record is not None and (me.who in record.in_sync or record.owner == me.who)
    return {
        "name": me.name,
        "node_id": me.node_id,
        "address": core.peers.own_address(),
        "incarnation": me.incarnation,
        "status": core.status.value,
        "epoch": core.epoch,
        "in_sync": listed,
        "connected": True,
        "applied": list(position),
        "self": True,
    }


def _members(core: HaBroker) -> list[dict[str, Any]]:
    """The other members. One that this node cannot reach has the status `unreachable`, whatever it said last,
    and a `trouble` if the cause is known. `routes`: of one with several addresses, how each is: `link` (this
    node follows it there), `up` or `down`."""
    states = core.primary.member_states() if core.primary is not None else {}
    record = core.record
    found = []
    for node_id, member in sorted(core.membership.members.items(), key=lambda item: item[1].name):
        line = member.as_json()
        if core.primary is not None:
            line["in_sync"] = False
            line.update({k: v for k, v in states.get(node_id, {}).items() if k in LAG_FIELDS})
            if node_id in states and member.status in ("unknown", "joining"):
                line["status"] = {"in-sync": "ready"}.get(states[node_id]["phase"], "catch-up")
        elif record is not None:
            line["in_sync"] = (
                any(i.node_id == node_id for i in record.in_sync) or record.owner.node_id == node_id
            )
        link = core.backup.peer if core.backup is not None else None
        if routes := core.peers.routes_of(node_id, link):
            line["routes"] = routes
        if not member.connected and node_id not in states:
            line["status"] = "unreachable"
        if trouble := core.peers.trouble_with(node_id) or _differs(core, member) or _clock(member):
            line["trouble"] = trouble
        found.append({**line, "self": False})
    return found


def _differs(core: HaBroker, member: Member) -> str:
    """Why a reachable node does not follow this one, which serves; or ""."""
    there = core.primary is not None and member.connected and member.differs
    return f"does not join: {member.differs}" if there else ""


def _clock(member: Member) -> str:
    """A sentence if its clock differs from this node's; or ""."""
    return member.clock.words(member.name).sentence if member.connected and member.clock.apart else ""


def _with_troubles(core: HaBroker, reason: str, authority: Coded | None) -> str:
    """Adds what keeps the running brokers apart, unless the reason says so already; that this node is not in
    its own list; that the roles of the pair are equal; and what keeps the authority from committing."""
    troubles = [each for each in core.peers.troubles() if each not in reason]
    members = core.membership.members.values()
    troubles += [f"{member.name} {differs}" for member in members if (differs := _differs(core, member))]
    troubles += core.not_taken_in
    troubles += [clock for member in members if (clock := _clock(member))]
    left_out = core.peers.left_out()
    if left_out and (said := codes.PROMOTE_NOT_LISTED.say(how=left_out).sentence) not in reason:
        troubles.append(said)
    if core.pair is not None and (fault := core.pair.fault) and fault not in reason:
        troubles.append(fault)
    if authority is not None and authority.sentence not in reason:
        troubles.append(f"the authority commits nothing: {authority}")
    return "; ".join([reason, *troubles])


def _reason(core: HaBroker, promotable: bool, why: str) -> str:
    if changing := core.switchover.reason():
        return changing
    if core.primary is not None:
        return core.primary.reason()
    if core.backup is None:
        return "standalone: it has no ha.brokers"
    if core.backup.linked:
        return core.backup.reason()
    if core.automatic is not None and (waits_for := core.automatic.waits_for):
        return f"{core.backup.reason()}; does not promote itself: {waits_for}"
    return f"{core.backup.reason()}; {'promotable' if promotable else 'not promotable'}: {why}"
