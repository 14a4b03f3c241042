"""Peers: the other brokers' addresses, the peer met at each, and what each peer said of itself last.

A member of `ha.brokers` has one address or several, its routes: one for each network between the nodes. All
of them are dialed at the same time. What is asked of a member is answered over all its routes: it is heard if
it is heard on one, and gone only if each of them says so.

Owner: HaBroker, which reports the results of dials and hellos. Calls nothing; decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ha.core import codes
from ha.core.record.authority import PeerAnswer
from ha.core.wire.hello import COPY
from understudy.shared.codes import Coded

_LOGIN_REFUSED = "403 ACCESS_REFUSED - Login was refused"
_SAME = "; ha.username and ha.password have to be the same on all nodes"
THIS = "this very node"
NO_ANSWER = "does not answer"
ROUTE = "|"
"""Between the addresses of one member, as in `ha.brokers`."""
NEVER = float("-inf")


def explained(refusal: str) -> str:
    """What a broker said to the login of this node. Of a refused password, a client may not learn more."""
    if refusal.startswith(_LOGIN_REFUSED):
        return f"login refused with 403{_SAME}"
    return f"{refusal}{_SAME}" if refusal.startswith("403") else refusal


@dataclass(slots=True)
class PeerAddress:
    """One configured address, and what is known of the broker there."""

    address: str
    peer: int | None = None
    node_id: str | None = None
    incarnation: int = 0
    life: str = ""
    """Of the process that was met there."""
    is_self: bool = False
    copy_of: str = ""
    """Whose identity it has besides its owner: what it says counts for nothing. "" for its own."""
    stray: bool = False
    """Another node than on the other routes of this member: what it says counts for nothing."""
    answered_at: float = NEVER
    heard_at: float = NEVER
    """The same, whatever it was asked."""
    failed_at: float = NEVER
    refused_at: float = NEVER
    """When its kernel last said that nobody listens there."""
    trouble: str = ""
    """What is wrong with the broker that is there, or with the name, other than silence; "" for nothing."""

    def heard_since(self, asked_at: float) -> bool:
        """This node itself, or it has answered since, or could not be reached since, or will not count."""
        unreachable = self.failed_at >= asked_at and self.peer is None
        return self.is_self or self.counts_not or self.answered_at >= asked_at or unreachable

    @property
    def counts_not(self) -> bool:
        return bool(self.copy_of) or self.stray

    @property
    def nobody_listens(self) -> bool:
        """By the last word of its kernel."""
        return self.refused_at >= self.failed_at > NEVER


class PeerMember:
    """One member: its routes, and what follows from all of them. `address`: as `ha.brokers` has it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.routes = [PeerAddress(route) for route in address.split(ROUTE)]

    @property
    def is_self(self) -> bool:
        return any(route.is_self for route in self.routes)

    @property
    def peers(self) -> list[int]:
        """Connections to it that this node dialed."""
        return [route.peer for route in self._counting() if route.peer is not None]

    @property
    def peer(self) -> int | None:
        return next(iter(self.peers), None)

    @property
    def node_id(self) -> str | None:
        """Of the node that was met there last."""
        return next((route.node_id for route in self._counting() if route.node_id is not None), None)

    @property
    def answered_at(self) -> float:
        return max(route.answered_at for route in self.routes)

    @property
    def refused_at(self) -> float:
        """When the last of the routes on which it was met said that nobody listens."""
        return min(route.refused_at for route in self._met())

    @property
    def nobody_listens(self) -> bool:
        """By the last word of its kernel, on each route on which it was met. An interface that went down
        with its address, or a firewall, refuses on one."""
        return all(route.nobody_listens for route in self._met())

    @property
    def trouble(self) -> str:
        return next((route.trouble for route in self._counting() if route.trouble), "")

    def heard_since(self, asked_at: float) -> bool:
        """It has answered since on one route, or cannot on any, or will not count."""
        routes = self.routes
        if any(route.is_self or route.answered_at >= asked_at for route in routes):
            return True
        return all(route.heard_since(asked_at) for route in routes)

    def silence(self) -> str:
        """For a sentence on why nothing is known of it: each route, and how it is."""
        told: dict[str, list[str]] = {}
        for route in self.routes:
            told.setdefault(route.trouble or NO_ANSWER, []).append(route.address)
        return " and ".join(f"{ROUTE.join(routes)} {how}" for how, routes in told.items())

    def _counting(self) -> list[PeerAddress]:
        """All of them, if none counts."""
        return [route for route in self.routes if not route.counts_not] or self.routes

    def _met(self) -> list[PeerAddress]:
        """The routes on which the newest process of its node was met; all, if it was on none."""
        node_id = self.node_id
        there = [route for route in self._counting() if node_id is not None and route.node_id == node_id]
        if not there:
            return self.routes
        newest = max(there, key=lambda route: route.incarnation)
        return [route for route in there if route.life == newest.life]


class Peers:
    """`members`: the configured ones; `by_address`: all their routes; `answers`: by node id; `question`:
    promotions asked for so far.

    `addresses`: of each member, its routes with ROUTE between them. `public`: the same brokers' addresses for
    clients, in the same order; none: the first route of each.
    """

    def __init__(self, addresses: Sequence[str], public: Sequence[str] = (), absent: str = "") -> None:
        self.members = [PeerMember(address) for address in addresses]
        self.by_address = {route.address: route for member in self.members for route in member.routes}
        self._member_of = {route.address: member for member in self.members for route in member.routes}
        firsts = [member.routes[0].address for member in self.members]
        shown = dict(zip(firsts, public or firsts, strict=True))
        self._public = {route: shown[m.routes[0].address] for route, m in self._member_of.items()}
        self.several = len(self.by_address) > len(self.members)
        """A member has more than one route."""
        self.answers: dict[str, PeerAnswer] = {}
        self.listens_since = 0.0
        """Silence is none before that: this process has just started, or stood still."""
        self._heard_at: dict[str, float] = {}
        self.question = 0
        """Goes out with each hello and comes back: an answer to a hello of before is none to the question of
        now."""
        self._over: dict[str, tuple[int, int]] = {}
        """By node id: the epoch that it has handed over, and the last question to it by then."""
        self._dialed: dict[int, str] = {}
        self.absent = absent
        """A sentence if the configuration has no address that could be this node's."""
        self.served: tuple[str, float] | None = None
        """The node that was heard to serve last, by its own word, its link or another node's; and when."""

    # -- dials

    @property
    def dialed(self) -> Collection[int]:
        """Peers that this node dialed and that let it in."""
        return self._dialed.keys()

    def opened(self, peer: int, address: str) -> None:
        entry = self.by_address[address]
        self._dialed[peer] = address
        entry.peer, entry.trouble = peer, ""  # whoever refused us there, this one lets us in
        entry.refused_at = NEVER  # that somebody listens is the later word

    def failed(
        self, address: str, refusal: str, now: float, *, nobody: bool = False, distrust: str = "",
        unresolved: str = "",
    ) -> None:  # fmt: skip
        """`refusal`: what the broker there said to the login; "" if none is there. `nobody`: the kernel there
        says that nothing listens; silence is not enough. `distrust`: why TLS with it failed. `unresolved`:
        why its name gave no address."""
        entry = self.by_address[address]
        entry.failed_at = now
        if nobody:
            entry.refused_at = now
        entry.trouble = f"has no link with this node (TLS: {distrust})" if distrust else ""
        if unresolved:
            entry.trouble = f"is not reached: {unresolved}"
        if refusal:
            entry.trouble = f"refuses this node ({explained(refusal)})"

    def lost(self, peer: int) -> str | None:
        """A connection is gone: the id of the node that was at its other end, if this node had dialed it and
        has no other one. Whether it can be reached again, the next dial tells.
        """
        address = self._dialed.pop(peer, None)
        if address is None:
            return None
        entry, member = self.by_address[address], self._member_of[address]
        entry.peer = None
        if entry.counts_not:
            entry.copy_of = entry.trouble = ""
            entry.stray = False
        return entry.node_id if entry.node_id != member.node_id or member.peer is None else None

    def address_of(self, peer: int) -> str | None:
        return self._dialed.get(peer)

    # -- hellos

    def met_self(self, peer: int, address: str) -> None:
        """At that address is this node, and so at all routes of that member."""
        self.by_address[address].is_self = True
        self._dialed.pop(peer, None)

    def one_node(self, address: str, node_id: str, *, mine: bool = False) -> Coded | None:
        """That node (`mine`: this one) is at `address`. If another one is on another route of that member,
        the later route in the list is a stray: what is said there counts for nothing. Said the first time,
        then None."""
        entry, routes = self.by_address[address], self._member_of[address].routes
        entry.stray, before = False, True
        for route in routes:
            before = before and route is not entry
            connected = route.peer is not None and route.node_id is not None and route.node_id != node_id
            if route is entry or route.counts_not or not (connected or (route.is_self and not mine)):
                continue
            stray, other = (entry, route) if before else (route, entry)
            stray.stray, stray.is_self, stray.node_id, stray.answered_at = True, False, None, NEVER
            return self._troubled(stray.address, codes.ROUTES_DIFFER.say(other=other.address))
        return None

    def is_stray(self, address: str) -> bool:
        return self.by_address[address].stray

    def heard(self, answer: PeerAnswer, now: float) -> None:
        """What a node said of itself, asked or not."""
        self.answers[answer.node_id] = answer
        self._heard_at[answer.node_id] = now
        if answer.serving:
            self.heard_to_serve(answer.name, now)
        elif answer.follows:
            self.heard_to_serve(answer.follows, now)
        elif self.served is not None and self.served[0] == answer.name:
            self.served = None

    def heard_at(self, node_id: str | None) -> float:
        """When that node said something of itself last; if it never has, since when this one listens."""
        return max(self.listens_since, self._heard_at.get(node_id or "", 0.0))

    def heard_to_serve(self, name: str, now: float) -> None:
        """That node serves, as it says, or another one does, or its link tells."""
        self.served = name, now

    def ask_anew(self) -> None:
        """The next hellos are a new question. Only answers to that question count."""
        self.question += 1
        for entry in self.by_address.values():
            entry.answered_at = NEVER

    def over(self, node_id: str, epoch: int) -> None:
        """That node has handed over: it serves no more in that epoch, and never will again."""
        self._over[node_id] = (epoch, self.question)
        self.served = None

    def outdated(self, answer: PeerAnswer, question: object) -> bool:
        """Does its word that it serves come from before it handed over? The handover came first, by another
        connection. Its answer to a later `question` counts."""
        epoch, last = self._over.get(answer.node_id, (0, 0))
        since = isinstance(question, int) and question > last
        return answer.serving and answer.epoch <= epoch and not since

    def answered(self, address: str, answer: PeerAnswer, question: object, now: float) -> None:
        """The node at `address` has answered a hello that went out with `question` (None: an older peer)."""
        entry = self.by_address[address]
        entry.node_id, entry.incarnation, entry.life = answer.node_id, answer.incarnation, answer.life
        entry.heard_at = now
        for route in self._member_of[address].routes:
            if route.node_id != answer.node_id:
                route.node_id = None  # of a node that was there before
        if question in (None, self.question):
            entry.answered_at = now

    def twin(self, answer: PeerAnswer, address: str | None) -> str | None:
        """Another address at which there is another process with this identity. Where this one is may not be
        known (None): then it may have started again at the very same, and has counted that.
        """
        member = self._member_of[address] if address is not None else None
        for entry in self.by_address.values():
            if entry.peer is None or entry.node_id != answer.node_id or entry.life == answer.life:
                continue
            if entry.address != address and self._member_of[entry.address] is member:
                if answer.incarnation == entry.incarnation:  # else one of the two was there before
                    return entry.address
                continue
            if entry.address != address and (address or answer.incarnation <= entry.incarnation):
                return entry.address
        return None

    def earlier(self, answer: PeerAnswer, address: str | None) -> bool:
        """Was this said before its node started again? What is held up on a route that is cut comes late."""
        if address is None:
            return False
        return any(
            route.peer is not None
            and route.node_id == answer.node_id
            and route.incarnation > answer.incarnation
            for route in self._member_of[address].routes
            if route.address != address
        )

    def newest(self, answer: PeerAnswer) -> PeerAnswer:
        """What that process said last: that, or what it said after it, which came by another route."""
        known = self.answers.get(answer.node_id)
        late = known is not None and known.life == answer.life and answer.said < known.said
        return known if known is not None and late and answer.said else answer

    def known_as_copy(self, answer: PeerAnswer) -> bool:
        """Was this process met as one, where it still is? It stays one when the other is no more heard of."""
        return any(entry.copy_of and entry.life == answer.life for entry in self.by_address.values())

    def copied(self, address: str, answer: PeerAnswer, twin: str | None) -> Coded | None:
        """The node at `address` has the identity of the one at `twin` (None: of this one). Said the first
        time, then None.
        """
        entry = self.by_address[address]
        known, entry.copy_of, entry.node_id = entry.copy_of, f"the node at {twin}" if twin else THIS, None
        said = codes.IDENTITY_COPIED.say(other=entry.copy_of, way=COPY)
        entry.life, entry.trouble = answer.life, said.sentence
        return None if known else Coded(said.code, f"{address} {said.sentence}")

    def copies(self, *, mine: bool = False) -> list[str]:
        """Of brokers that are there with an identity that is not theirs alone (`mine`: with this node's): a
        sentence each.
        """
        there = (entry for entry in self.by_address.values() if entry.copy_of and entry.peer is not None)
        return [f"{e.address} {e.trouble}" for e in there if not mine or e.copy_of == THIS]

    def found_foreign(self, address: str, cluster_id: str | None) -> Coded | None:
        """The node at `address` is of another cluster. Said the first time, then None."""
        return self._troubled(address, codes.FOREIGN_CLUSTER.say(cluster=cluster_id))

    def doubted(self, address: str, why: str) -> Coded | None:
        """What the node at `address` says is not believed. Said the first time, then None."""
        return self._troubled(address, codes.PEER_DOUBTED.say(why=why))

    def _troubled(self, address: str, said: Coded) -> Coded | None:
        known = [route.trouble for route in self._member_of[address].routes if route.peer is not None]
        self.by_address[address].trouble = said.sentence
        return None if said.sentence in known else Coded(said.code, f"{address} {said.sentence}")

    def found_ours(self, address: str) -> None:
        """The node at `address` is of this cluster, or of none yet."""
        self.by_address[address].trouble = ""

    # -- looking

    def at(self, node_id: str) -> PeerMember | None:
        """The member as which that node was met last, if it was."""
        return next((member for member in self.members if member.node_id == node_id), None)

    def elsewhere(self, node_id: str, peer: int) -> float:
        """When that node was last heard on a route other than that connection, which is open."""
        return max(
            (
                route.heard_at
                for route in self.by_address.values()
                if route.node_id == node_id and route.peer is not None and route.peer != peer
            ),
            default=NEVER,
        )

    def public(self, address: str) -> str:
        """Where clients and operators find the broker that is at `address` for its peers."""
        return self._public[address]

    def routes_of(self, node_id: str, link: int | None) -> dict[str, str]:
        """Each address of that node, and how it is: `link` if that connection goes over it, `up`, or `down`.
        Empty of a node that has one, or was not met."""
        member = self.at(node_id)
        if member is None or len(member.routes) == 1:
            return {}
        return {
            route.address: "down" if route.peer is None else "link" if route.peer == link else "up"
            for route in member.routes
        }

    def trouble_with(self, node_id: str) -> str:
        """Why there is no connection to a node that was met, where more is known than silence; or ""."""
        entry = self.at(node_id)
        return entry.trouble if entry is not None and entry.peer is None else ""

    def own_address(self) -> str:
        """Where clients find this node, once it has met itself; "" before."""
        own = (member.routes[0] for member in self.members if member.is_self)
        return next((self._public[route.address] for route in own), "")

    def listed_before(self, node_ids: Collection[str]) -> int:
        """How many of these nodes come before this one in the list; all, until it has met itself."""
        many = 0
        for member in self.members:
            if member.is_self:
                break
            many += member.node_id in node_ids
        return many

    def is_self(self, address: str) -> bool:
        return self.by_address[address].is_self

    def all_heard_since(self, asked_at: float, but: str = "") -> bool:
        """Each has answered since, or cannot, or will not count. `but`: id of a node that need not."""
        others = (member for member in self.members if not but or member.node_id != but)
        return all(member.heard_since(asked_at) for member in others)

    def answered_since(self, asked_at: float) -> set[str]:
        """Ids of the other nodes that have."""
        return {
            entry.node_id for entry in self.by_address.values()
            if entry.node_id is not None and entry.answered_at >= asked_at and not entry.is_self
        }  # fmt: skip

    def _others(self) -> list[PeerMember]:
        return [member for member in self.members if not member.is_self]

    def unanswered_since(self, asked_at: float) -> list[str]:
        """Of the others that have not: which, and how."""
        return [member.silence() for member in self._others() if member.answered_at < asked_at]

    def away(self) -> list[str]:
        """Of the others to which there is no connection now: which, and how."""
        return [member.silence() for member in self._others() if member.peer is None]

    def troubles(self) -> list[str]:
        """Of brokers that are there, and do not let this node in, or are not trusted, or are copies, and of
        those whose names give no address: a sentence each. And of each route that has failed, while its
        member is reached on another one.
        """
        away = [
            f"{route.address} {route.trouble or NO_ANSWER}"
            for member in self.members
            for route in member.routes
            if route.peer is None and (route.trouble or self._is_down(member, route))
        ]
        strays = [f"{route.address} {route.trouble}" for route in self.by_address.values() if route.stray]
        return [*away, *strays, *self.copies()]

    def _is_down(self, member: PeerMember, route: PeerAddress) -> bool:
        return member.peer is not None and not member.is_self and route.failed_at > NEVER

    def left_out(self) -> str:
        """How it shows that no address of `ha.brokers` is this node's: another node was met at each, or the
        configuration says so. Else ""."""
        if self.absent and not any(member.is_self for member in self.members):
            return self.absent
        if not self.members or any(member.is_self or member.node_id is None for member in self.members):
            return ""
        return "nobody can be told where it is"

    def foreign_peers(self) -> list[str]:
        """Of brokers that let this node in and are of another cluster: a sentence each."""
        return [
            f"{entry.address} {entry.trouble}"
            for entry in self.by_address.values()
            if entry.peer and entry.trouble and not entry.stray
        ]
