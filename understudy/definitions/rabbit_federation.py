"""RabbitMQ's parameters of federation, and of shovels, as upstreams and agents of this broker. Pure.

Role: used by `plan`, before anything else looks at the parameters of a file. RabbitMQ federates by policies,
which name upstreams or sets of them; here each exchange has an agent for each upstream. A URI has a password
in it, which is never kept, nor shown: the report names the login that the configuration needs. What this
broker cannot do is named, one line for each kind.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from broker.model.history.records import EntryPut
from broker.model.patterns import PatternFault, matches
from broker.model.routing.exchange import BUILT_IN, INTERNAL
from broker.model.values import ROOT
from broker.model.vhost.directory import POLICY, VHOST, Directory, EntryFault, check_entry
from broker.model.vhost.federation_entries import AGENT, MOST_ADDRESSES, MOST_HOPS, UPSTREAM, agent_name
from understudy.definitions.parse import Definitions, ExchangeDefinition, ParameterDefinition
from understudy.definitions.unsupported import LeftOut, left

UPSTREAM_SET, SHOVEL = "federation-upstream-set", "shovel"
PURPOSE = "x-internal-purpose"
"""Argument of the queues and exchanges that RabbitMQ's federation makes for itself."""
OWN_NAMES = "federation: "
"""What their names begin with."""
KEYS = ("federation-upstream", "federation-upstream-set", "federation-upstream-pattern")
"""Of policies."""
LOGIN = "no password is imported: set federation.logins.{name} in the configuration of each broker"
OTHER_NAME = "it names another exchange there, and an agent joins exchanges of one name"
OF_QUEUES = "this broker federates exchanges, and follows queues by `understudy replicate`"
BY_KEY = "it moves by one routing key, and an agent by all bindings: use `understudy federate agent`"
FAR = "neither end, or both, is the broker of the file"
PORTS = {"amqp": 5672, "amqps": 5671}
_EVERYTHING = ("", "#")


class Upstream(NamedTuple):
    """`value` of its parameter; `login`: whose login it needs, for people."""

    value: dict[str, Any]
    login: str


class Translated(NamedTuple):
    """`file`: with upstreams and agents in the form of this broker in place of RabbitMQ's parameters."""

    file: Definitions
    left_out: list[LeftOut]


@dataclass(slots=True, frozen=True)
class _There:
    """Where a URI leads. `host` is empty: to the broker of the file itself."""

    host: str
    port: int
    user: str
    vhost: str
    tls: bool


class Unfit(ValueError):
    """What cannot be imported, and why. Never has a URI in it."""


def upstream_of(vhost: str, name: str, value: Mapping[str, Any]) -> Upstream:
    """RabbitMQ's upstream `name` in the form of this broker. Raises Unfit."""
    there = _places(value.get("uri"), vhost)
    if not all(place.host for place in there):
        raise Unfit("its URI leads to the broker itself, as it has no host")
    first = there[0]
    if any((place.user, place.vhost, place.tls) != (first.user, first.vhost, first.tls) for place in there):
        raise Unfit("its URIs have several users, virtual hosts or protocols, and an upstream has one")
    addresses = list(dict.fromkeys(f"{_host(place.host)}:{place.port}" for place in there))
    made = {"addresses": addresses[:MOST_ADDRESSES], "login": name, "vhost": first.vhost, "protocol": "amqp"}
    return Upstream(made, f"user {first.user}{', with tls' if first.tls else ''}")


def translated(file: Definitions) -> Translated:
    """The file as this broker understands it."""
    return _Translation(_without_internals(file)).result()


def _without_internals(file: Definitions) -> Definitions:
    """RabbitMQ's federation makes queues and exchanges for itself. Here nobody would take from them."""
    own = {
        (item.vhost, kind, item.name)
        for kind, items in (("queue", file.queues), ("exchange", file.exchanges))
        for item in items if PURPOSE in item.arguments
    }  # fmt: skip
    known = {(x.vhost, x.name) for x in file.exchanges}
    for binding in file.bindings:  # an export has no internal exchanges, and has their bindings
        ends = [binding.source]
        if binding.destination_type == "exchange":
            ends.append(binding.destination)
        own |= {
            (binding.vhost, "exchange", end) for end in ends
            if end.startswith(OWN_NAMES) and (binding.vhost, end) not in known
        }  # fmt: skip
    if not own:
        return file
    return file.model_copy(
        update={
            "queues": [q for q in file.queues if (q.vhost, "queue", q.name) not in own],
            "exchanges": [x for x in file.exchanges if (x.vhost, "exchange", x.name) not in own],
            "bindings": [
                b for b in file.bindings
                if (b.vhost, b.destination_type, b.destination) not in own
                and (b.vhost, "exchange", b.source) not in own
            ],
        }
    )  # fmt: skip


class _Translation:
    def __init__(self, file: Definitions) -> None:
        self._file = file
        self._upstreams: dict[tuple[str, str], dict[str, Any]] = {}
        """RabbitMQ's values, by virtual host and name."""
        self._sets: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._made: dict[tuple[str, ...], ParameterDefinition] = {}
        self._logins: dict[str, str] = {}
        """By the name of the login: whose it is."""
        self._unfit: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        """By what it is and why it is left out: names."""

    def result(self) -> Translated:
        rest: list[ParameterDefinition] = []
        shovels: list[ParameterDefinition] = []
        for parameter in self._file.parameters:
            key = parameter.vhost, parameter.name
            if parameter.component == SHOVEL:
                shovels.append(parameter)
            elif parameter.component == UPSTREAM_SET:
                self._sets[key] = _dicts(parameter.value)
            elif parameter.component == UPSTREAM and not parameter.is_known:
                self._upstreams[key] = parameter.value if isinstance(parameter.value, dict) else {}
            else:
                rest.append(parameter)
        for vhost, name in self._upstreams:
            self._upstream(vhost, name)
        self._policies()
        for shovel in shovels:
            self._try("shovel", shovel.name, partial(self._shovel, shovel))
        made = self._file.model_copy(update={"parameters": [*rest, *self._made.values()]})
        return Translated(made, self._report())

    def _report(self) -> list[LeftOut]:
        found = [one for (what, why), names in sorted(self._unfit.items()) for one in left(what, names, why)]
        return found + [
            one for name, user in self._logins.items()
            for one in left("password of an upstream", [user], LOGIN.format(name=name), matters=False)
        ]  # fmt: skip

    def _try(self, what: str, name: str, make: Callable[[], None]) -> None:
        try:
            make()
        except Unfit as unfit:
            self._unfit[what, str(unfit)].append(name)

    # -- upstreams

    def _upstream(self, vhost: str, name: str) -> None:
        uris = self._upstreams[vhost, name].get("uri")
        self._try("upstream", name, partial(self._put_upstream, vhost, name, uris))

    def _put_upstream(self, vhost: str, name: str, uris: object) -> None:
        made = upstream_of(vhost, name, {"uri": uris})
        self._put(UPSTREAM, vhost, name, made.value)
        self._logins[name] = made.login

    def _put(self, component: str, vhost: str, name: str, value: dict[str, Any]) -> None:
        made = ParameterDefinition(component=component, name=name, vhost=vhost, value=value)
        self._made.setdefault(made.key, made)

    def _has(self, vhost: str, upstream: str) -> bool:
        return (vhost, UPSTREAM, upstream) in self._made

    # -- policies

    def _policies(self) -> None:
        directory = _policies_of(self._file)
        federating = {
            (policy.vhost, policy.name)
            for policy in self._file.policies
            if any(k in policy.definition for k in KEYS)
        }
        if not federating:
            return
        for vhost, exchange in self._exchanges():
            policy = directory.policy_for(vhost, exchange, "exchanges")
            if policy is not None and (vhost, policy.name) in federating:
                self._agents(vhost, exchange, policy.definition)
        for queue in self._file.queues:
            policy = directory.policy_for(queue.vhost, queue.name, "queues")
            if policy is not None and (queue.vhost, policy.name) in federating:
                self._unfit["federation of a queue", OF_QUEUES].append(queue.name)

    def _exchanges(self) -> Iterator[tuple[str, str]]:
        vhosts = {ROOT, *(vhost.name for vhost in self._file.vhosts)}
        for vhost in sorted(vhosts):
            yield from ((vhost, name) for name in BUILT_IN if name and name not in INTERNAL)
        for exchange in self._file.exchanges:
            if not _is_built_in(exchange) and not exchange.internal:
                yield exchange.vhost, exchange.name

    def _agents(self, vhost: str, exchange: str, definition: Any) -> None:
        for member in self._members(vhost, definition):
            name = str(member.get("upstream", ""))
            if self._has(vhost, name):
                settings = {**self._upstreams[vhost, name], **member}
                make = partial(self._agent, vhost, exchange, name, settings)
                self._try("agent", agent_name(exchange, name), make)

    def _members(self, vhost: str, definition: Any) -> Iterable[dict[str, Any]]:
        """Of the upstreams that a policy names: each as a member of a set."""
        of_vhost = [name for where, name in self._upstreams if where == vhost]
        one, several, pattern = (definition.get(key) for key in KEYS)
        if isinstance(one, str):
            return [{"upstream": one}]
        if isinstance(pattern, str):
            return [{"upstream": name} for name in of_vhost if _fits(pattern, name)]
        if several == "all":
            return [{"upstream": name} for name in of_vhost]
        return self._sets.get((vhost, str(several)), [])

    def _agent(self, vhost: str, exchange: str, upstream: str, settings: dict[str, Any]) -> None:
        if settings.get("exchange", exchange) != exchange:
            raise Unfit(OTHER_NAME)
        value: dict[str, Any] = {"exchange": exchange, "upstream": upstream, "consume-mode": "all"}
        hops = settings.get("max-hops", 1)
        value["max-hops"] = max(1, min(hops, MOST_HOPS)) if isinstance(hops, int) else 1
        value |= {
            key: settings[key] for key in ("expires", "message-ttl") if isinstance(settings.get(key), int)
        }
        self._put(AGENT, vhost, agent_name(exchange, upstream), value)

    # -- shovels

    def _shovel(self, shovel: ParameterDefinition) -> None:
        value = shovel.value if isinstance(shovel.value, dict) else {}
        source, target = value.get("src-exchange"), value.get("dest-exchange")
        if value.get("src-queue") is not None or value.get("dest-queue") is not None:
            raise Unfit("it moves from, or to, a queue: keep it at RabbitMQ, or move its client")
        if not isinstance(source, str) or source != target or not source:
            raise Unfit("an agent joins exchanges of one name")
        if value.get("src-exchange-key", "") not in _EVERYTHING or value.get("dest-exchange-key") is not None:
            raise Unfit(BY_KEY)
        ends = [_places(value.get(key), shovel.vhost) for key in ("src-uri", "dest-uri")]
        far = [all(place.host for place in places) for places in ends]
        near = [not any(place.host for place in places) for places in ends]
        if far == near or far[0] == far[1]:
            raise Unfit(FAR)
        takes = far[0]
        if any(place.vhost != shovel.vhost for place in ends[1 if takes else 0]):
            raise Unfit("its local end is in another virtual host than the shovel")
        upstream = f"shovel-{shovel.name}"
        self._put_upstream(shovel.vhost, upstream, value.get("src-uri" if takes else "dest-uri"))
        modes = {"consume-mode": "all"} if takes else {"consume-mode": "none", "forward-mode": "all"}
        self._put(
            AGENT, shovel.vhost, agent_name(source, upstream),
            {"exchange": source, "upstream": upstream, **modes},
        )  # fmt: skip


def _policies_of(file: Definitions) -> Directory:
    """To ask which one applies to a name."""
    directory = Directory()
    for vhost in {policy.vhost for policy in file.policies}:
        directory.apply(EntryPut(VHOST, "", vhost, {"description": "", "tags": []}))
    for policy in file.policies:
        value = {
            "pattern": policy.pattern, "apply-to": policy.apply_to, "priority": policy.priority,
            "definition": policy.definition,
        }  # fmt: skip
        put = EntryPut(POLICY, policy.vhost, policy.name, value)
        try:
            check_entry(directory, put)
        except EntryFault:
            continue  # it is named where policies are imported
        directory.apply(put)
    return directory


def _is_built_in(exchange: ExchangeDefinition) -> bool:
    return not exchange.name or exchange.name.startswith("amq.")


def _fits(pattern: str, name: str) -> bool:
    try:
        return matches(pattern, name)
    except PatternFault:
        return False


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _places(uris: object, vhost: str) -> list[_There]:
    """Raises Unfit, which never quotes a URI."""
    found = [uris] if isinstance(uris, str) else uris
    if not isinstance(found, list) or not found or not all(isinstance(uri, str) for uri in found):
        raise Unfit("it has no URI")
    return [_place(uri, vhost) for uri in found]


def _place(uri: str, vhost: str) -> _There:
    try:
        parts: SplitResult = urlsplit(uri)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise Unfit("its URI cannot be read, or is not of amqp or amqps") from None
    path = unquote(parts.path[1:])
    return _There(
        parts.hostname or "", port, unquote(parts.username or "guest"), path or vhost, parts.scheme == "amqps"
    )


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
