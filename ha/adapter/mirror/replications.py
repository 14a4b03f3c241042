"""Replications: queue mirrors between brokers of different clusters, at both ends.

Owner: Node, for its life. As a source it feeds each follower (`QueueFeeds`). As a follower it has a
`QueueCopy` for each queue here that follows another broker's, with its own connections to all addresses of
the source. The queue itself remembers what it follows (`broker.model.queue.origin`): there is no other file.

The HA identity of this broker (`ha.username`) logs in at the source; no other is asked for or kept. The user
who starts a mirror names the address, and need not know that password. The password is sent over TLS, on this
machine, or where `auth.allow_plain_without_tls` allows it: the same rule as for passwords that listeners
take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from broker.model.queue.origin import follows, origin_of
from broker.model.values import Position
from broker.model.vhost.ad_hoc_replica import end_replica
from broker.security.loopback import is_loopback
from ha.adapter import codes
from ha.adapter.inbox import Arrived, DialFailed, DialOpen, Inbox, PeerLost
from ha.adapter.mirror.copy_vhost import CopyVhost
from ha.adapter.mirror.source_vhost import SourceNode, SourceVhost
from ha.core.deadlines import earliest
from ha.core.membership import Status
from ha.core.mirror.follower import CopyState, QueueCopy
from ha.core.mirror.source import QueueFeeds
from ha.core.mirror.wire import CopyMethod
from understudy.shared.codes import Coded
from understudy.shared.octets import cut

if TYPE_CHECKING:
    from broker.model.queue.queue import Queue
    from broker.store.store import Store
    from ha.adapter.dials import Dials
    from ha.adapter.ha_hooks import HaHooks
    from ha.adapter.settings import HaSettings

COPY_METHODS = frozenset(CopyMethod)
PATIENCE = 10.0
"""Seconds that an operator waits for the source's first word."""
MOST_ADDRESSES = 16
LONGEST_HOST = 255
IN_CLEAR = (
    "ha.password would go there in the clear: set ha.tls for this broker, or, on a network that you trust, "
    "auth.allow_plain_without_tls"
)
CHANNEL = 1
Reply = Callable[[dict[str, Any]], None]


@dataclass(slots=True, eq=False)
class _Copying:
    """A queue here that follows another one, or is about to."""

    model: CopyVhost
    copy: QueueCopy
    inbox: Inbox
    reply: Reply | None = None
    """The operator who waits for it to come to be, up to `until`."""
    until: float = 0.0
    told: tuple[CopyState, str] = field(default=(CopyState.CONNECTING, ""))
    """What the log said last."""


@dataclass(slots=True, eq=False)
class _Owed:
    """An answer to an operator that waits for the disk. `since`: the batch that it waits for, once that is
    flushed."""

    reply: Reply
    reason: str
    since: Position | None = None


class _OwnInbox(Inbox):
    """Messages of some of the node's dials, numbered with all of them."""

    def __init__(self, numbers: Inbox) -> None:
        super().__init__()
        self._numbers = numbers

    def new_peer(self) -> int:
        return self._numbers.new_peer()


class MirrorNode(SourceNode, Protocol):
    """The node, as far as queue mirrors concern it."""

    dials: Dials
    hooks: HaHooks
    settings: HaSettings

    @property
    def log(self) -> Callable[[Coded], None]: ...


class Replications:
    """Call `tick` before the broker's end of tick, so that what came is history of that tick; call `end_tick`
    after it."""

    def __init__(self, node: MirrorNode, store: Store, numbers: Inbox) -> None:
        self._node = node
        self._store = store
        self._numbers = numbers
        self.feeds = QueueFeeds(SourceVhost(node), self)
        self._copies: dict[str, _Copying] = {}
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
                    self._follow(queue.name, origin.addresses, origin.queue)

    @property
    def _alone(self) -> bool:
        return self._node.core.status is Status.STANDALONE

    # -- the wire (`ha.core.mirror.ports.CopyWire`)

    def send(self, peer: int, method: int, payload: bytes) -> None:
        self.send_pieces(peer, method, [payload])

    def send_pieces(self, peer: int, method: int, parts: list[bytes]) -> None:
        inbound = self._node.hooks.peers.get(peer)
        if inbound is not None:
            for piece in cut(parts, inbound.extension_room):
                inbound.send_extension(CHANNEL, method, piece)
            return
        dial = self._node.dials.open.get(peer)
        if dial is not None and dial.client.opened and not dial.client.wants_close:
            for piece in cut(parts, dial.client.extension_room):
                dial.client.send_extension(method, piece)

    def close(self, peer: int, code: int, text: str) -> None:
        """Close the connection of a peer for what it sent. A follower gets a line of the log; of a source,
        the copy's `error` says it."""
        inbound = self._node.hooks.peers.get(peer)
        dial = self._node.dials.open.get(peer)
        if inbound is not None:
            inbound.expel(code, text)
        elif dial is not None:
            dial.client.close(code, text)

    # -- the source's end

    def hear(self, peer: int, method: int, payload: bytes) -> None:
        """One method of a follower."""
        self.feeds.hear(peer, method, payload)

    def lost(self, peer: int) -> None:
        """An inbound connection is gone."""
        self.feeds.lost(peer)

    # -- ticks

    def tick(self, now: float) -> None:
        """Take what came from the sources."""
        for name, copying in list(self._copies.items()):
            if not self._node.vhost.serving:
                break
            self._hear(copying, now)
            copying.copy.timers(now)
            self._tell(name, copying)
            self._first_word(name, copying, now)

    def end_tick(self, now: float) -> None:
        """History is flushed: followers get their share, and sources are told what was taken."""
        self.feeds.end_tick()
        broker = self._node.broker
        full = "" if not broker.pausing else broker.block_reason if broker.blocked else "paging is behind"
        for name, copying in self._copies.items():
            copying.copy.end_tick(full=full)
            if copying.reply is not None and copying.model.uuid is not None and copying.copy.source:
                reason = f"'{name}' follows '{copying.copy.queue}' of {copying.copy.source}"
                self._owed.append(_Owed(copying.reply, reason))
                copying.reply = None
        history = self._node.vhost.history
        for owed in list(self._owed):
            owed.since = owed.since or Position(history.epoch, history.n)
            if self._store.durable >= owed.since:
                self._owed.remove(owed)
                owed.reply({"ok": True, "reason": owed.reason})

    def next_deadline(self) -> float | None:
        """Without the deadlines of the dials."""
        if self.feeds.hungry:
            return self._node.now
        found: float | None = None
        for copying in self._copies.values():
            waits = copying.until if copying.reply is not None else None
            found = earliest(found, copying.copy.next_deadline(), waits)
        return found

    def _hear(self, copying: _Copying, now: float) -> None:
        copy = copying.copy
        for item in copying.inbox.take():
            match item:
                case DialOpen(peer=peer, address=address):
                    copy.opened(peer, address, now)
                case DialFailed(address=address):
                    copy.failed(address, _failure(item))
                case Arrived(peer=peer, method=method, payload=payload):
                    copy.method(peer, method, payload, now)
                case PeerLost(peer=peer):
                    copy.lost(peer, now)
                case _:
                    pass

    def _tell(self, name: str, copying: _Copying) -> None:
        """Log each change."""
        copy = copying.copy
        if copying.told == (copy.state, copy.error):
            return
        copying.told = (copy.state, copy.error)
        why = f": {copy.error}" if copy.error else f", from {copy.source}" if copy.source else ""
        self._node.log(codes.MIRROR_STATE.say(queue=name, state=copy.state.value, why=why))

    def _first_word(self, name: str, copying: _Copying, now: float) -> None:
        """If nothing came of the request, tell the operator. It is not tried again, except for a queue that
        has followed before and was told to look elsewhere."""
        copy, model = copying.copy, copying.model
        if copying.reply is None or (copy.source and model.uuid is not None):
            return
        refused = copy.state is CopyState.CONNECTING and len(copy.heard) >= len(model.addresses)
        if not (refused or copy.state is CopyState.GONE or now >= copying.until):
            return
        why = copy.error or "the source does not answer"
        moved = model.uuid is not None
        if not moved:
            self._forget(name)
            said = codes.MIRROR_REFUSED.say(why=why)
        else:
            at = ",".join(model.addresses)
            said = codes.MIRROR_NOT_FOUND_YET.say(name=name, queue=copy.queue, addresses=at, why=why)
        copying.reply(said.answer() | ({"changed": True} if moved else {}))
        copying.reply = None

    # -- operators

    def ask(self, command: str, args: dict[str, Any], reply: Reply, now: float) -> None:
        """`replicate` (`source`: addresses, `queue`, `name`: here) or `replicate-stop` (`name`).

        An answer that is not ok, and has `changed`, is no refusal: the copy looks elsewhere from now on, as
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
        source, queue = args.get("source"), args.get("queue")
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
        if told := self._in_clear(addresses):
            return codes.MIRROR_IN_CLEAR.say(address=told[0], fault=IN_CLEAR)
        if str(name).startswith("amq."):
            fault = f"queue name '{name}' contains reserved prefix 'amq.*'"
            return codes.MIRROR_BAD_ARGUMENTS.say(fault=fault)
        old, there = self._copies.get(str(name)), vhost.queues.get(str(name))
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
            CopyVhost(vhost, str(name), origin.addresses, origin.queue).move(addresses)
        copying = self._follow(str(name), addresses, str(queue))
        copying.reply, copying.until = reply, now + PATIENCE
        return None

    def _follow(self, name: str, addresses: tuple[str, ...], queue: str) -> _Copying:
        node = self._node
        model = CopyVhost(node.vhost, name, addresses, queue, node.broker.wall_at)
        me = node.me
        copy = QueueCopy(
            queue, model, self, node_id=me.node_id, name=me.name, cluster_id=node.core.cluster_id or ""
        )
        copying = self._copies[name] = _Copying(model, copy, _OwnInbox(self._numbers))
        closed = self._in_clear(addresses)
        for address in closed:  # of a copy that was begun under other settings
            copy.failed(address, IN_CLEAR)
        node.dials.add([_host_port(address) for address in addresses if address not in closed], copying.inbox)
        node.dials.due(node.now)
        return copying

    def _in_clear(self, addresses: tuple[str, ...]) -> list[str]:
        """The addresses at which no login may be made from here. A name that is looked up later may become
        any address, and the default words `ha`/`ha` are no exception: a copy may outlive them."""
        node = self._node
        if node.settings.tls or node.broker.settings.allow_plain_without_tls:
            return []
        return [address for address in addresses if not _is_near(_host_port(address)[0])]

    def _forget(self, name: str) -> None:
        copying = self._copies.pop(name, None)
        if copying is not None:
            self._node.dials.remove(copying.inbox)

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
            copying = self._copies.get(queue.name)
            copy = copying.copy if copying is not None else None
            lines.append({
                "name": queue.name, "source": ",".join(origin.addresses), "queue": origin.queue,
                "state": copy.state.value if copy is not None else "paused",
                "from": copy.source if copy is not None else "",
                "messages": queue.replica.count, "lag": copy.lag if copy is not None else None,
                "error": copy.error if copy is not None else "this broker belongs to a pair now",
            })  # fmt: skip
        followers = []
        for feed in self.feeds.feeds.values():
            followed = self._node.vhosts.queues_by_uuid.get(feed.queue)
            if followed is not None:
                state = CopyState.FOLLOWING if feed.whole else CopyState.CATCHING_UP
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


_SAME_PASSWORD = "set ha.password, not its default, and ha.username to the same values there and here"


def _failure(dial: DialFailed) -> str:
    """Why a dial did not get in. Only the kernel there can say that nothing listens."""
    if dial.unspoken and not (dial.refusal or dial.distrust):
        return f"somebody listens there, and is no broker that answers: {dial.unspoken}"
    if dial.refusal and dial.refusal.startswith("403 "):
        return f"{dial.refusal} ({_SAME_PASSWORD})"
    silent = "nobody answers there" if dial.nobody else "no answer comes from there"
    return dial.refusal or dial.distrust or dial.unresolved or silent


def _is_near(host: str) -> bool:
    """Does what is sent there stay on this machine?"""
    return host.lower() == "localhost" or is_loopback(host)


def _is_name(text: object) -> bool:
    """May a queue have this name? JSON can contain text that UTF-8 cannot."""
    try:
        return isinstance(text, str) and 0 < len(text.encode()) < 256 and "\0" not in text
    except UnicodeEncodeError:
        return False


def _host_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
