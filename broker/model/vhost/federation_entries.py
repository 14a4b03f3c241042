"""Directory entries of federation: upstreams, agents, how far each agent has taken, and whose the link queues
are. Values and checks.

An upstream says where another cluster is, and by which login of the configuration. No entry has a secret. An
agent belongs to one exchange, and takes from, or gives to, the exchange of the same name at one upstream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from broker.model.routing.node_routes import NODES
from broker.model.values import LINK_LIMITS
from understudy.shared.addresses import without_login

AT = "@"
"""Between the exchange and the upstream in the name of an agent."""
UPSTREAM, AGENT, CURSOR = "federation-upstream", "federation-agent", "federation-cursor"
SEEN = "federation-seen"
HOME = "federation-home"
"""Kind, and name, of the only entry of its kind. It is of no virtual host."""
MOST_ADDRESSES = 16
LONGEST_HOST = 255
LONGEST_NODE = 100
MOST_HOPS = 32
MODES = ("all", "none")
FORWARD_MODES = ("all", "unmatched", "none")
ON_OUTAGE = ("queue", "drop")
PROTOCOLS = ("understudy", "amqp")
"""`amqp`: any broker of AMQP 0-9-1. It gets at least once what others get once."""
GIB = 1 << 30
AGENT_KEYS = (
    "exchange", "upstream", "consume-mode", "forward-mode", "copy", "on-outage", "max-length-bytes",
    "message-ttl", "expires", "max-hops", "paused",
)  # fmt: skip
BOUNDS = (
    ("max-length-bytes", 1, 2**62), ("message-ttl", 0, 2**32 - 1), ("expires", 1, 2**32 - 1),
    ("max-hops", 1, MOST_HOPS),
)  # fmt: skip
"""Of an agent's numbers: the least and the most."""

Value = Mapping[str, object]


@dataclass(slots=True, frozen=True)
class Upstream:
    """`login`: in `federation.logins` of the configuration. `vhost`: the virtual host there. `routes`:
    messages for queues of other nodes (`QUEUE@NODE`) go there and come from there. `protocol`: one of
    PROTOCOLS."""

    addresses: tuple[str, ...]
    login: str
    vhost: str
    routes: bool
    protocol: str = "understudy"

    @property
    def plain(self) -> bool:
        return self.protocol == "amqp"


@dataclass(slots=True, frozen=True)
class FederationAgent:
    """Sizes in octets, times in milliseconds; None: no limit."""

    exchange: str
    upstream: str
    consume_mode: str
    forward_mode: str
    copy: int
    on_outage: str
    max_length_bytes: int
    message_ttl: int | None
    expires: int | None
    max_hops: int
    paused: bool

    @property
    def limits(self) -> dict[str, int]:
        """The arguments of its link queue."""
        found = zip(LINK_LIMITS, (self.max_length_bytes, self.message_ttl, self.expires), strict=True)
        return {key: number for key, number in found if number is not None}


@dataclass(slots=True, frozen=True)
class Cursor:
    """Messages of the link queue `uuid` are taken up to this id, but for those in holes. `holes`: epoch,
    first and last sequence of each, one after another."""

    uuid: bytes
    epoch: int
    sequence: int
    holes: tuple[int, ...] = ()

    def value(self) -> dict[str, object]:
        value: dict[str, object] = {"uuid": self.uuid.hex(), "epoch": self.epoch, "sequence": self.sequence}
        return value | {"holes": list(self.holes)} if self.holes else value


def seen_name(exchange: str, node: str, epoch: int, number: int) -> str:
    """Of an entry with a segment of what has come of that node."""
    return f"{exchange}@{node}@{epoch}.{number}"


class SeenAt(NamedTuple):
    exchange: str
    node: str
    epoch: int
    number: int


def seen_at(name: str) -> SeenAt:
    """The parts of such a name. No node has an `@` in its name."""
    exchange, node, place = name.rsplit("@", 2)
    epoch, _, number = place.partition(".")
    return SeenAt(exchange, node, int(epoch), int(number))


@dataclass(slots=True, frozen=True)
class Home:
    """Of link queues. `owner`: the id of the cluster that has them, or of the broker, if that is in none. A
    broker that was restored from a copy has those of another owner, which may go on with them. So `salt`, the
    id of the first owner after the last restore, makes other queues of them; "" if there was no restore."""

    owner: str
    salt: str = ""

    def told(self, uuid: bytes) -> bytes:
        """The uuid of a link queue, as other nodes hear it."""
        return sha256(self.salt.encode() + uuid).digest()[: len(uuid)] if self.salt else uuid

    def value(self) -> dict[str, object]:
        return {"owner": self.owner, "salt": self.salt}


NO_HOME = Home("")


def agent_name(exchange: str, upstream: str) -> str:
    """Of its entry. No upstream has an `@` in its name."""
    return f"{exchange}{AT}{upstream}"


def received_name(exchange: str, node: str) -> str:
    """Of the cursor of what a node downstream gives. No upstream has a name that begins with `>`."""
    return f"{exchange}@>{node}"


def routes_by(upstream: str) -> FederationAgent:
    """The agent that an upstream has for `amq.nodes`, without an entry."""
    return FederationAgent(NODES, upstream, "all", "all", 1, "queue", GIB, None, None, MOST_HOPS, False)


def by_policy(exchange: str, upstream: str) -> FederationAgent:
    """The agent that a policy makes, without an entry."""
    return FederationAgent(exchange, upstream, "all", "none", 1, "queue", GIB, None, None, 8, False)


# -- read from entries, which were checked before they were put


def upstream_of(value: Value) -> Upstream:
    addresses, protocol = value.get("addresses"), str(value.get("protocol", PROTOCOLS[0]))
    return Upstream(
        tuple(map(str, addresses)) if isinstance(addresses, list) else (), str(value.get("login", "")),
        str(value.get("vhost", "/")), value.get("routes") is not False and protocol != "amqp", protocol,
    )  # fmt: skip


def agent_of(value: Value) -> FederationAgent:
    return FederationAgent(
        str(value.get("exchange", "")), str(value.get("upstream", "")),
        str(value.get("consume-mode", "none")), str(value.get("forward-mode", "none")),
        _number(value, "copy", 1), str(value.get("on-outage", "queue")),
        _number(value, "max-length-bytes", GIB), _optional(value, "message-ttl"), _optional(value, "expires"),
        _number(value, "max-hops", 8), value.get("paused") is True,
    )  # fmt: skip


def cursor_of(value: Value) -> Cursor:
    uuid = bytes.fromhex(str(value.get("uuid", "")))
    holes = value.get("holes")
    return Cursor(
        uuid, _number(value, "epoch", 0), _number(value, "sequence", 0),
        tuple(number for number in holes if isinstance(number, int)) if isinstance(holes, list) else (),
    )  # fmt: skip


def home_of(value: Value) -> Home:
    return Home(str(value.get("owner", "")), str(value.get("salt", "")))


def _number(value: Value, key: str, default: int) -> int:
    found = value.get(key)
    return found if isinstance(found, int) else default


def _optional(value: Value, key: str) -> int | None:
    found = value.get(key)
    return found if isinstance(found, int) else None


# -- checks; each returns what is wrong, as the rest of a sentence, or ""


def upstream_fault(name: str, value: Value) -> str:
    if fault := _unknown(value, ("addresses", "login", "vhost", "routes", "protocol")):
        return fault
    if "@" in name or name.startswith(">"):
        return "its name has an '@', which separates an exchange from its upstream, or begins with '>'"
    addresses, login, vhost = value.get("addresses"), value.get("login"), value.get("vhost", "/")
    if not isinstance(addresses, list) or not 0 < len(addresses) <= MOST_ADDRESSES:
        return f"addresses is a list of 1 to {MOST_ADDRESSES} addresses HOST:PORT"
    for address in addresses:
        if not isinstance(address, str) or not _is_address(address):
            return f"{without_login(address):.80} is no address HOST:PORT"
    if len(set(addresses)) < len(addresses):
        return "addresses has one address twice"
    if not isinstance(login, str) or not login:
        return "login is the name of one of federation.logins of the configuration"
    if not isinstance(vhost, str) or not 0 < len(vhost.encode("utf-8", "replace")) <= 255:
        return "vhost is the name of the virtual host there"
    if not isinstance(value.get("routes", True), bool):
        return "routes is true or false"
    if (protocol := value.get("protocol", PROTOCOLS[0])) not in PROTOCOLS:
        return f"protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r:.80}"
    return ""


def agent_fault(name: str, value: Value) -> str:
    fault = _unknown(value, AGENT_KEYS) or _names_fault(name, value)
    return fault or _modes_fault(value) or _numbers_fault(value)


def _names_fault(name: str, value: Value) -> str:
    exchange, upstream = value.get("exchange"), value.get("upstream")
    if not isinstance(exchange, str) or not isinstance(upstream, str):
        return "exchange and upstream are names"
    if name != agent_name(exchange, upstream):
        return f"its name is {agent_name(exchange, upstream)!r:.300}, of its exchange and its upstream"
    if not exchange:
        return "the default exchange cannot be federated"
    if exchange == NODES:
        return f"exchange '{NODES}' is federated by each upstream that has routes"
    if exchange in ("amq.failover", "amq.peer"):
        return f"exchange '{exchange}' is for the nodes of the pair, and cannot be federated"
    return ""


def _modes_fault(value: Value) -> str:
    for key, choices in (("consume-mode", MODES), ("forward-mode", FORWARD_MODES), ("on-outage", ON_OUTAGE)):
        found = value.get(key, choices[0] if key == "on-outage" else "none")
        if found not in choices:
            return f"{key} is one of {', '.join(choices)}, not {found!r:.80}"
    copy = value.get("copy", 1)
    if type(copy) is not int or copy not in (0, 1):
        return f"copy is 0 or 1, not {copy!r:.80}"
    if copy == 0 and value.get("forward-mode", "none") == "none":
        return "copy 0 sends messages upstream only, and forward-mode none sends none there: set one"
    if not isinstance(value.get("paused", False), bool):
        return "paused is true or false"
    return ""


def _numbers_fault(value: Value) -> str:
    for key, least, most in BOUNDS:
        number = value.get(key, least)
        if type(number) is not int or not least <= number <= most:
            return f"{key} is a whole number from {least} to {most}, not {number!r:.80}"
    return ""


def _unknown(value: Value, known: tuple[str, ...]) -> str:
    strange = sorted(set(value) - set(known))
    return f"{strange[0]!r:.80} is not known; it has {', '.join(known)}" if strange else ""


def _is_address(text: str) -> bool:
    """It is no URI: that may have a password, which would be kept, replicated and shown."""
    host, colon, port = text.rpartition(":")
    fits = bool(host and colon) and len(host) <= LONGEST_HOST and host.isprintable()
    fits = fits and not set(" @/") & set(host) and (":" not in host or host[0] + host[-1] == "[]")
    return fits and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= 65535
