"""Plans an import of definitions before anything is changed. Pure.

Role: takes a file (`Definitions`) and the broker's current definitions (`Definitions` too, from its own
listing); `apply` declares the result. What this broker does not support is named, never dropped silently: one
`LeftOut` for each kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker.model.history.value_codec import canonical
from broker.model.routing.exchange import BUILT_IN, PEERS
from broker.model.values import ExchangeType
from broker.model.vhost.directory import TOPIC_PERMISSION, USER_LIMITS, VHOST_LIMITS
from broker.security.topic_permissions import parts_of_topic
from understudy.definitions.entries import (
    NOUNS,
    PLURALS,
    Entry,
    entries_of,
    kind_of_parameter,
    parameters_of,
    there_of,
    vhosts_of,
)
from understudy.definitions.export import PRODUCT
from understudy.definitions.parse import (
    VHOST,
    BindingDefinition,
    Definitions,
    ExchangeDefinition,
    QueueDefinition,
)
from understudy.definitions.rabbit_federation import translated
from understudy.definitions.strict_json import DefinitionsError, pointer
from understudy.definitions.unsupported import LeftOut, counted, left
from understudy.shared.text import shown

Item = Entry | ExchangeDefinition | QueueDefinition | BindingDefinition
_TYPES = frozenset(type_.value for type_ in ExchangeType)
_WORKING = frozenset((
    "x-expires", "x-replicate", "x-queue-type", "x-message-ttl", "x-max-length", "x-max-length-bytes",
    "x-overflow", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-priority",
    "x-delivery-limit", "x-consumer-timeout", "x-last-value-key", "x-message-group",
    "x-message-group-shared", "x-single-active-consumer", "x-dedup-window",
))  # fmt: skip
"""Arguments of queues that have an effect here, or state what is always true here."""
_SELF = frozenset(("cluster_name", "internal_cluster_id", "cluster_tags"))
"""Global parameters that identify a cluster of RabbitMQ."""


@dataclass(slots=True)
class ImportPlan:
    """The objects to declare, in a valid order: entries of the directory, exchanges, queues, bindings."""

    items: list[Item] = field(default_factory=list)
    there: set[tuple[str, ...]] = field(default_factory=set)
    """`key_of` objects that the broker has with the same properties."""
    differing: list[str] = field(default_factory=list)
    """One line for each object that the broker has with other properties, and keeps."""
    changing: set[tuple[str, ...]] = field(default_factory=set)
    """`key_of` directory entries that the broker has with other properties, and that the import changes."""
    left_out: list[LeftOut] = field(default_factory=list)

    def counts(self) -> Counter[str]:
        return Counter(kind_of(item) for item in self.items)


def kind_of(item: Item) -> str:
    if isinstance(item, Entry):
        return PLURALS[item.kind]
    if isinstance(item, QueueDefinition):
        return "queues"
    return "exchanges" if isinstance(item, ExchangeDefinition) else "bindings"


def key_of(item: Item) -> tuple[str, ...]:
    return kind_of(item), *item.key


def name_of(item: Item) -> str:
    """The object's kind and name, for people."""
    where = f" in virtual host '{item.vhost}'" if item.vhost not in ("", VHOST) else ""
    if isinstance(item, Entry):
        return _name_of_entry(item, where)
    if isinstance(item, BindingDefinition):
        key = f" with key '{item.routing_key}'" if item.routing_key else ""
        ends = f"of {item.destination_type} '{item.destination}' to '{item.source}'"
        return shown(f"binding {ends}{key}{where}")
    return shown(f"{NOUNS[kind_of(item)]} '{item.name}'{where}")


def _name_of_entry(entry: Entry, where: str) -> str:
    if entry.kind == USER_LIMITS:
        return shown(f"limits of user '{entry.name}'")
    if entry.kind == VHOST_LIMITS:
        return shown(f"limits of virtual host '{entry.vhost}'")
    name = " on ".join(parts_of_topic(entry.name)) if entry.kind == TOPIC_PERMISSION else entry.name
    return shown(f"{NOUNS[kind_of(entry)]} '{name}'{where}")


def plan_of(file: Definitions, there: Definitions, *, quorum_as_classic: bool = False) -> ImportPlan:
    """Plan the import. Raises DefinitionsError for faults of the file, such as a binding whose source or
    destination is neither in the file nor on the broker."""
    plan = ImportPlan()
    file, foreign = translated(file)
    entries, plan.left_out = entries_of(file, there)
    plan.left_out += foreign
    plan.items += entries
    here = vhosts_of(file, there)
    plan.left_out += _others(file) + _vhosts(file, here)
    skipped: set[tuple[str, ...]] = set()
    exchanges = [x for x in file.exchanges if x.vhost in here]
    queues = [q for q in file.queues if q.vhost in here]
    plan.items += _exchanges(exchanges, plan, skipped)
    as_classic = quorum_as_classic or file.product_name == PRODUCT
    plan.items += _queues(queues, plan, skipped, as_classic)
    plan.items += _bindings(file, there, plan, skipped)
    _compare(plan, there)
    return plan


def check_vhost(vhost: str, file: Definitions, there: Definitions) -> None:
    """Raise DefinitionsError for a virtual host that is neither in the file nor on the broker."""
    if vhost not in vhosts_of(file, there):
        raise DefinitionsError(f"there is no virtual host {vhost!r:.80}: add it with `understudy vhost add`")


def _compare(plan: ImportPlan, there: Definitions) -> None:
    theirs: list[Item] = [*there_of(there), *there.exchanges, *there.queues, *there.bindings]
    has = {key_of(item): item for item in theirs}
    for item in plan.items:
        key = key_of(item)
        found = has.get(key)
        if found is None:
            continue
        if isinstance(item, Entry):
            (plan.there if item == found else plan.changing).add(key)
        elif differs := _difference(item, found):
            plan.differing.append(f"{name_of(item)}: exists with a different {differs}")
        else:
            plan.there.add(key)


def _difference(wanted: Item, found: Item) -> str:
    """The first property that differs and that the broker would not change; empty if there is none."""
    if isinstance(wanted, BindingDefinition | Entry) or isinstance(found, BindingDefinition | Entry):
        return ""
    names: tuple[str, ...] = ("durable", "auto_delete")
    keys = {"alternate-exchange"}
    if isinstance(wanted, ExchangeDefinition):
        names = ("type", *names, "internal")
    else:
        keys = {key for key in {*wanted.arguments, *found.arguments} if key.startswith("x-")}
    for name in names:
        if getattr(wanted, name) != getattr(found, name):
            return name
    for key in sorted(keys):
        absent = "classic" if key == "x-queue-type" else None
        values = [canonical({"": item.arguments.get(key, absent)}) for item in (wanted, found)]
        if values[0] != values[1]:
            return key
    return ""


# -- exchanges, queues and bindings


def _exchanges(
    wanted: Iterable[ExchangeDefinition], plan: ImportPlan, skipped: set[tuple[str, ...]]
) -> list[ExchangeDefinition]:
    taken: list[ExchangeDefinition] = []
    unknown: defaultdict[str, list[str]] = defaultdict(list)
    reserved: list[str] = []
    for exchange in wanted:
        built_in = BUILT_IN.get(exchange.name)
        if built_in is not None and built_in.value == exchange.type:
            continue
        if exchange.type not in _TYPES:
            unknown[exchange.type].append(exchange.name)
        elif not exchange.name or exchange.name.startswith("amq."):
            reserved.append(exchange.name)
        else:
            taken.append(exchange)
            continue
        skipped.add((exchange.vhost, "exchange", exchange.name))
    for type_, names in sorted(unknown.items()):
        _leave(plan, f"exchange of type {type_}", names, "this broker has no such type")
    _leave(plan, "exchange with a reserved name", reserved, "names that begin with amq. are reserved")
    return taken


def _queues(
    wanted: Iterable[QueueDefinition], plan: ImportPlan, skipped: set[tuple[str, ...]], as_classic: bool
) -> list[QueueDefinition]:
    taken: list[QueueDefinition] = []
    unknown: defaultdict[str, list[str]] = defaultdict(list)
    idle: defaultdict[str, list[str]] = defaultdict(list)
    reserved: list[str] = []
    for queue in wanted:
        kind = queue.queue_type
        if queue.name.startswith("amq."):
            reserved.append(queue.name)
        elif kind != "classic" and not (as_classic and kind == "quorum"):
            unknown[kind].append(queue.name)
        else:
            taken.append(queue)
            for key in queue.arguments:
                if key.startswith("x-") and key not in _WORKING:
                    idle[key].append(queue.name)
            continue
        skipped.add((queue.vhost, "queue", queue.name))
    for kind, names in sorted(unknown.items()):
        hint = "; --quorum-as-classic imports them as durable queues of this broker" * (kind == "quorum")
        _leave(plan, f"queue of type {kind}", names, f"this broker has no such type{hint}")
    _leave(plan, "queue with a reserved name", reserved, "names that begin with amq. are reserved")
    for key, names in sorted(idle.items()):
        _leave(plan, f"argument {key}", names, "kept, without effect here")
    return taken


def _bindings(
    file: Definitions, there: Definitions, plan: ImportPlan, skipped: set[tuple[str, ...]]
) -> list[BindingDefinition]:
    here = vhosts_of(file, there)
    known = {(vhost, "exchange", name) for vhost in here for name in BUILT_IN if name}
    for item in (*plan.items, *there.exchanges, *there.queues):
        if isinstance(item, ExchangeDefinition | QueueDefinition):
            known.add((item.vhost, kind_of(item)[:-1], item.name))
    taken: list[BindingDefinition] = []
    loose: list[str] = []
    for_nodes: list[str] = []
    for number, binding in enumerate(file.bindings):
        if binding.vhost not in here or _is_default(binding):
            continue
        ends = (
            (binding.vhost, "exchange", binding.source),
            (binding.vhost, binding.destination_type, binding.destination),
        )
        missing = [end for end in ends if end not in known]
        if (PEERS, "exchange") in (
            (binding.source, "exchange"),
            (binding.destination, binding.destination_type),
        ):
            for_nodes.append(f"{binding.destination} to {binding.source}")
        elif not missing:
            taken.append(binding)
        elif all(end in skipped for end in missing):
            loose.append(f"{binding.destination} to {binding.source}")
        else:
            _, kind, name = next(end for end in missing if end not in skipped)
            where = pointer(("bindings", number, "source" if kind == "exchange" and name == binding.source
                             else "destination"))  # fmt: skip
            what = f"no {kind} '{shown(name)}'" if name else "no binding to the default exchange"
            raise DefinitionsError(f"{where}: {what} in the file or on the broker")
    _leave(plan, "binding", loose, "its source or destination is not imported")
    _leave(plan, "binding", for_nodes, f"{PEERS} is for the nodes of the pair")
    return taken


def _is_default(binding: BindingDefinition) -> bool:
    """Is it the binding of a queue to the default exchange by its name? Every queue has it here, too."""
    to_queue = binding.destination_type == "queue" and binding.routing_key == binding.destination
    return to_queue and not binding.source


# -- unsupported parts


def _leave(plan: ImportPlan, what: str, names: Iterable[str], why: str) -> None:
    plan.left_out += left(what, names, why)


def _others(file: Definitions) -> list[LeftOut]:
    parameters: defaultdict[str, list[str]] = defaultdict(list)
    for parameter in file.parameters:
        if not parameter.is_known:
            parameters[parameter.component].append(parameter.name)
    world = [p.name for p in file.global_parameters]
    why = "this broker has no such parameters"
    return [
        *(one for component, names in sorted(parameters.items())
          for one in left(f"parameter of {component}", names, why)),
        *left("global parameter", (n for n in world if n not in _SELF), why),
        *left("global parameter", (n for n in world if n in _SELF),
               "it identifies the other cluster", matters=False),
        *left("key of the file", file.unknown, "RabbitMQ writes no such key"),
    ]  # fmt: skip


def _vhosts(file: Definitions, here: frozenset[str]) -> list[LeftOut]:
    """Objects in virtual hosts that do not exist, and default queue types other than classic."""
    inside: dict[str, Counter[str]] = defaultdict(Counter)
    lists: tuple[tuple[str, Sequence[Item]], ...] = (
        ("queue", file.queues), ("exchange", file.exchanges), ("binding", file.bindings),
    )  # fmt: skip
    for noun, items in lists:
        for item in items:
            inside[item.vhost][noun] += 1
    for policy in file.policies:
        inside[policy.vhost]["policy"] += 1
    for permission in file.permissions:
        inside[permission.vhost]["permission"] += 1
    for topical in file.topic_permissions:
        inside[topical.vhost]["topic permission"] += 1
    for parameter in parameters_of(file):
        inside[parameter.vhost][NOUNS[PLURALS[kind_of_parameter(parameter.component)]]] += 1
    texts = [
        f"{name} with {', '.join(counted(n, noun) for noun, n in inside[name].items())}"
        for name in sorted(inside.keys() - here)
    ]
    types = [
        f"{kind} of {vhost.name}"
        for vhost in file.vhosts
        if (kind := vhost.metadata.get("default_queue_type") or vhost.default_queue_type)
        not in (None, "classic", "undefined")
    ]
    return [
        *left("virtual host", texts, "neither in the file nor on this broker"),
        *left("default queue type", types, "this broker has classic queues only"),
    ]
