"""QueueMirrors: queue mirrors between brokers of different clusters, at both ends.

Owner: Node, for its life. As a source it feeds each follower (`MirrorSource`). As a follower it has a
`MirrorFollower` for each queue here that follows another broker's, with its own connections to all addresses
of the source. The queue itself remembers what it follows (`broker.model.queue.origin`): there is no other
file.

A login of the configuration is used at the source: that of a named peering, or the HA identity of this broker
(`ha.username`). The user who starts a mirror names the address and the peering, and need not know the
password. The password is sent over TLS, on this machine, or where `auth.allow_plain_without_tls` allows it:
the same rule as for passwords that listeners take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from broker.model.queue.origin import follows, origin_of
from broker.model.values import Position
from broker.model.vhost.ad_hoc_replica import end_replica
from ha.adapter import codes
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, Inbox, PeerLost
from ha.adapter.mirror.mirror_vhost import MirrorVhost
from ha.adapter.mirror.source_vhost import SourceNode, SourceVhost
from ha.adapter.peering import wire
from ha.adapter.peering.addresses import is_near, split_address
from ha.adapter.peering.dial_faults import dial_failure
from ha.adapter.peering.peering import PeeringKind
from ha.core.deadlines import earliest
from ha.core.membership import Status
from ha.core.mirror.follower import MirrorFollower, MirrorState
from ha.core.mirror.source import MirrorSource
from ha.core.mirror.wire import MirrorMethod
from understudy.shared.codes import Coded

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.store.store import Store
    from ha.adapter.peering.login import PeeringLogin
    from ha.adapter.peering.peerings import Peerings
    from ha.adapter.settings import HaSettings

MIRROR_METHODS = frozenset(MirrorMethod)
PATIENCE = 10.0
"""Seconds that an operator waits for the source's first word."""
MOST_ADDRESSES = 16
LONGEST_HOST = 255
IN_CLEAR = (
    "ha.password would go there in the clear: set ha.tls for this broker, or, on a network that you trust, "
    "auth.allow_plain_without_tls"
)
PEERING_IN_CLEAR = (
    "peerings.{name}.password would go there in the clear: set peerings.{name}.tls, or, on a network that "
    "you trust, auth.allow_plain_without_tls"
)
UNKNOWN_PEERING = "the configuration of this broker has no peerings.{name}"
Reply = Callable[[dict[str, Any]], None]


@dataclass(slots=True, eq=False)
class _Mirror:
    """A queue here that follows another one, or is about to."""

    model: MirrorVhost
    follower: MirrorFollower
    inbox: Inbox
    peering: str
    reply: Reply | None = None
    """The operator who waits for it to come to be, up to `until`."""
    until: float = 0.0
    told: tuple[MirrorState, str] = field(default=(MirrorState.CONNECTING, ""))
    """What the log said last."""


@dataclass(slots=True, eq=False)
class _Owed:
    """An answer to an operator that waits for the disk. `since`: the batch that it waits for, once that is
    flushed."""

    reply: Reply
    reason: str
    since: Position | None = None


class MirrorNode(SourceNode, Protocol):
    """The node, as far as queue mirrors concern it."""

    peerings: Peerings
    settings: HaSettings

    @property
    def log(self) -> Callable[[Coded], None]: ...


class QueueMirrors:
    """Call `tick` before the broker's end of tick, so that what came is history of that tick; call `end_tick`
    after it."""

    def __init__(self, node: MirrorNode, store: Store, numbers: Inbox) -> None:
        self._node = node
        self._store = store
        self._numbers = numbers
        self.source = MirrorSource(SourceVhost(node), self)
        self._mirrors: dict[str, _Mirror] = {}
        self._owed: list[_Owed] = []
        self._followers: list[Queue] = []
        self._looked_at = -1
        """The generation of definitions in which those were looked for."""

    def start(self) -> None:
        """Follow the queues that were followed before this start."""
        vhost = self._node.vhost
        if self._alone:
            for queue in vhost.queues.values():
                origin = origin_of(queue)
                if origin is not None:
                    self._follow(queue.name, origin.addresses, origin.queue, origin.peering)

    @property
    def _alone(self) -> bool:
        return self._node.core.status is Status.STANDALONE

    # -- the wire (`ha.core.mirror.ports.MirrorWire`)

    def send(self, peer: int, method: int, payload: bytes) -> None:
        self.send_pieces(peer, method, [payload])

    def send_pieces(self, peer: int, method: int, parts: list[bytes]) -> None:
        wire.send_pieces(self._node, peer, method, parts)

    def close(self, peer: int, code: int, text: str) -> None:
        """Close the connection of a peer for what it sent. Of a source, the mirror's `error` says it."""
        wire.expel(self._node, peer, code, text)

    # -- the source's end

    def hear(self, peer: int, method: int, payload: bytes) -> None:
        """One method of a follower."""
        self.source.hear(peer, method, payload)

    def lost(self, peer: int) -> None:
        """An inbound connection is gone."""
        self.source.lost(peer)

    # -- ticks

    def tick(self, now: float) -> None:
        """Take what came from the sources."""
        for name, mirror in list(self._mirrors.items()):
            if not self._node.vhost.serving:
                break
            self._hear(mirror, now)
            mirror.follower.timers(now)
            self._tell(name, mirror)
            self._first_word(name, mirror, now)

    def end_tick(self, now: float) -> None:
        """History is flushed: followers get their share, and sources are told what was taken."""
        self.source.end_tick()
        broker = self._node.broker
        full = "" if not broker.pausing else broker.block_reason if broker.blocked else "paging is behind"
        for name, mirror in self._mirrors.items():
            mirror.follower.end_tick(full=full)
            if mirror.reply is not None and mirror.model.uuid is not None and mirror.follower.source:
                reason = f"'{name}' follows '{mirror.follower.queue}' of {mirror.follower.source}"
                self._owed.append(_Owed(mirror.reply, reason))
                mirror.reply = None
        history = self._node.vhost.history
        for owed in list(self._owed):
            owed.since = owed.since or Position(history.epoch, history.n)
            if self._store.durable >= owed.since:
                self._owed.remove(owed)
                owed.reply({"ok": True, "reason": owed.reason})

    def next_deadline(self) -> float | None:
        """Without the deadlines of the peerings."""
        if self.source.hungry:
            return self._node.now
        found: float | None = None
        for mirror in self._mirrors.values():
            waits = mirror.until if mirror.reply is not None else None
            found = earliest(found, mirror.follower.next_deadline(), waits)
        return found

    def _hear(self, mirror: _Mirror, now: float) -> None:
        follower = mirror.follower
        for item in mirror.inbox.take():
            match item:
                case DialOpen(peer=peer, address=address):
                    follower.opened(peer, address, now)
                case DialFailed(address=address):
                    follower.failed(address, _failure(item, mirror.peering))
                case Arrived(peer=peer, method=method, payload=payload):
                    follower.method(peer, method, payload, now)
                case PeerLost(peer=peer):
                    follower.lost(peer, now)
                case _:
                    pass

    def _tell(self, name: str, mirror: _Mirror) -> None:
        """Log each change."""
        follower = mirror.follower
        if mirror.told == (follower.state, follower.error):
            return
        mirror.told = (follower.state, follower.error)
        source = f", from {follower.source}" if follower.source else ""
        why = f": {follower.error}" if follower.error else source
        self._node.log(codes.MIRROR_STATE.say(queue=name, state=follower.state.value, why=why))

    def _first_word(self, name: str, mirror: _Mirror, now: float) -> None:
        """If nothing came of the request, tell the operator. It is not tried again, except for a queue that
        has followed before and was told to look elsewhere."""
        follower, model = mirror.follower, mirror.model
        if mirror.reply is None or (follower.source and model.uuid is not None):
            return
        refused = follower.state is MirrorState.CONNECTING and len(follower.heard) >= len(model.addresses)
        if not (refused or follower.state is MirrorState.GONE or now >= mirror.until):
            return
        why = follower.error or "the source does not answer"
        moved = model.uuid is not None
        if not moved:
            self._forget(name)
            said = codes.MIRROR_REFUSED.say(why=why)
        else:
            at = ",".join(model.addresses)
            said = codes.MIRROR_NOT_FOUND_YET.say(name=name, queue=follower.queue, addresses=at, why=why)
        mirror.reply(said.answer() | ({"changed": True} if moved else {}))
        mirror.reply = None

    # -- operators

    def ask(self, command: str, args: dict[str, Any], reply: Reply, now: float) -> None:
        """`replicate` (`source`: addresses, `queue`, `name`: here) or `replicate-stop` (`name`).

        An answer that is not ok, and has `changed`, is no refusal: the mirror looks elsewhere from now on, as
        asked, and has found nothing yet.
        """
        if command == "replicate":
            refusal = self._begin(args, reply, now)
            if refusal is not None:
                reply(refusal.answer())
            return
        stopped = self._stop(str(args.get("name")))
        if isinstance(stopped, Coded):
            reply(stopped.answer())
        else:
            self._owed.append(_Owed(reply, stopped))

    def _begin(self, args: dict[str, Any], reply: Reply, now: float) -> Coded | None:
        """Returns why it cannot begin."""
        node, vhost = self._node, self._node.vhost
        source, queue, peering = args.get("source"), args.get("queue"), args.get("peering") or ""
        name = queue if args.get("name") is None else args["name"]
        addresses = _addresses(source)
        if not addresses:
            fault = f"the source is one to {MOST_ADDRESSES} different addresses HOST:PORT"
            return codes.MIRROR_BAD_ARGUMENTS.say(fault=fault)
        for text in (queue, name):
            if not _is_name(text):
                fault = "a queue's name has 1 to 255 octets of UTF-8, and no NUL"
                return codes.MIRROR_BAD_ARGUMENTS.say(fault=fault)
        if not self._alone:
            return codes.MIRROR_IN_PAIR.say(node=node.me.name)
        login = node.settings.login_of(str(peering))
        if login is None:
            return codes.MIRROR_BAD_ARGUMENTS.say(fault=UNKNOWN_PEERING.format(name=peering))
        if told := self._in_clear(addresses, login):
            return codes.MIRROR_IN_CLEAR.say(address=told[0], fault=_in_clear_at(login))
        if str(name).startswith("amq."):
            fault = f"queue name '{name}' contains reserved prefix 'amq.*'"
            return codes.MIRROR_BAD_ARGUMENTS.say(fault=fault)
        old, there = self._mirrors.get(str(name)), vhost.queues.get(str(name))
        if old is not None and old.reply is not None:
            return codes.MIRROR_UNDER_WAY.say(queue=name)
        if there is not None:
            origin = origin_of(there)
            if origin is None:
                return codes.MIRROR_NAME_TAKEN.say(name=name)
            if origin.queue != queue:
                at = ",".join(origin.addresses)
                return codes.MIRROR_FOLLOWS_ANOTHER.say(name=name, queue=origin.queue, addresses=at)
            self._forget(str(name))
            model = MirrorVhost(vhost, str(name), origin.addresses, origin.queue, origin.peering)
            model.move(addresses, login.name)
        mirror = self._follow(str(name), addresses, str(queue), login.name)
        mirror.reply, mirror.until = reply, now + PATIENCE
        return None

    def _follow(self, name: str, addresses: tuple[str, ...], queue: str, peering: str) -> _Mirror:
        """A mirror that was begun under other settings may have no login any more."""
        node = self._node
        model = MirrorVhost(node.vhost, name, addresses, queue, peering, node.broker.wall_at)
        me = node.me
        follower = MirrorFollower(
            queue, model, self, node_id=me.node_id, name=me.name, cluster_id=node.core.cluster_id or ""
        )
        mirror = self._mirrors[name] = _Mirror(model, follower, Inbox(), peering)
        login = node.settings.login_of(peering)
        closed = addresses if login is None else self._in_clear(addresses, login)
        why = UNKNOWN_PEERING.format(name=peering) if login is None else _in_clear_at(login)
        for address in closed:
            follower.failed(address, why)
        if login is not None:
            brokers = [split_address(address) for address in addresses if address not in closed]
            node.peerings.add(brokers, login, mirror.inbox, PeeringKind.MIRROR)
            node.peerings.due(node.now)
        return mirror

    def _in_clear(self, addresses: tuple[str, ...], login: PeeringLogin) -> list[str]:
        """The addresses at which no login may be made from here. A name that is looked up later may become
        any address, and the default words `ha`/`ha` are no exception: a mirror may outlive them."""
        if login.tls or self._node.broker.settings.allow_plain_without_tls:
            return []
        return [address for address in addresses if not is_near(split_address(address)[0])]

    def _forget(self, name: str) -> None:
        mirror = self._mirrors.pop(name, None)
        if mirror is not None:
            self._node.peerings.remove(mirror.inbox)

    def _stop(self, name: str) -> Coded | str:
        """Returns why it cannot stop, or what has become of it."""
        vhost = self._node.vhost
        if not vhost.serving:
            return codes.MIRROR_NOT_SERVING.say(node=self._node.me.name)
        queue = vhost.queues.get(name)
        if queue is None or not follows(queue):
            return codes.MIRROR_NONE.say(queue=name)
        self._forget(name)
        end_replica(vhost, queue, alone=self._alone)
        count = queue.message_count
        return f"'{name}' is an ordinary queue now, with {count} {'message' if count == 1 else 'messages'}"

    def _following(self) -> list[Queue]:
        """Queues that follow another broker's. Searched once after each change of definitions."""
        vhost = self._node.vhost
        if self._looked_at != vhost.generation:
            self._looked_at = vhost.generation
            self._followers = [queue for queue in vhost.queues.values() if follows(queue)]
        return self._followers

    def status(self) -> dict[str, Any]:
        """`replications`: queues here that follow another broker's; `followers`: the brokers that follow
        queues here."""
        lines = []
        for queue in self._following():
            origin = origin_of(queue)
            if origin is None:
                continue
            mirror = self._mirrors.get(queue.name)
            follower = mirror.follower if mirror is not None else None
            lines.append({
                "name": queue.name, "source": ",".join(origin.addresses), "queue": origin.queue,
                "peering": origin.peering,
                "state": follower.state.value if follower is not None else "paused",
                "from": follower.source if follower is not None else "",
                "messages": queue.replica.count, "lag": follower.lag if follower is not None else None,
                "error": follower.error if follower is not None else "this broker belongs to a pair now",
            })  # fmt: skip
        followers = []
        for feed in self.source.feeds.values():
            followed = self._node.vhosts.queues_by_uuid.get(feed.queue)
            if followed is not None:
                state = MirrorState.FOLLOWING if feed.whole else MirrorState.CATCHING_UP
                followers.append({"queue": followed.name, "follower": feed.name, "state": state.value})
        return {"replications": lines, "followers": followers}


def _addresses(source: object) -> tuple[str, ...]:
    """The addresses of a list; empty if it is none."""
    if (
        not isinstance(source, list)
        or len(source) > MOST_ADDRESSES
        or len(set(map(str, source))) < len(source)
    ):
        return ()
    for address in source:
        host, colon, port = str(address).rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and len(port) <= 5):
            return ()
        if not 0 < int(port) <= 65535:
            return ()
        if len(host) > LONGEST_HOST or not host.isprintable():
            return ()
    return tuple(map(str, source))


def _in_clear_at(login: PeeringLogin) -> str:
    return PEERING_IN_CLEAR.format(name=login.name) if login.name else IN_CLEAR


_SAME_PASSWORD = "set ha.password, not its default, and ha.username to the same values there and here"


_A_MIRROR = "set peerings.{name}.username and .password to a user of that broker with the tag mirror"


def _limit_of(peering: str) -> str:
    return f"peerings.{peering}.handshake_timeout" if peering else "ha.peering.handshake_timeout"


def _failure(dial: DialFailed, peering: str) -> str:
    """Why a dial did not get in."""
    if dial.refusal.startswith("403 ") and not dial.unspoken:
        return f"{dial.refusal} ({_A_MIRROR.format(name=peering) if peering else _SAME_PASSWORD})"
    return dial_failure(dial, _limit_of(peering))


def _is_name(text: object) -> bool:
    """May a queue have this name? JSON can contain text that UTF-8 cannot."""
    try:
        return isinstance(text, str) and 0 < len(text.encode()) < 256 and "\0" not in text
    except UnicodeEncodeError:
        return False
