"""Reads RabbitMQ's definitions files strictly, and names the place of each fault.

Role: from octets to `Definitions`, for `understudy definitions import`, for POST /api/definitions, and for a
node's own answers. No I/O. Fields that have no meaning here are ignored. A fault is a `DefinitionsError`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
)

from broker.amqp091.codec.fields import ARGUMENTS_MAX, write_table
from broker.model.history.value_codec import canonical
from broker.model.octets import as_text
from broker.model.queue.arguments import QUEUE_TYPES, WHOLE_NUMBERS, fault_of, value_fault
from broker.model.values import REPLICATE
from broker.model.vhost.directory import VHOST_LIMITS
from broker.model.vhost.federation_entries import AGENT, UPSTREAM
from broker.model.vhost.policy_rules import DEEPEST
from ha.adapter.management.definitions_view import from_json
from ha.adapter.management.directory_changes import OPERATOR_COMPONENT
from understudy.definitions.strict_json import DefinitionsError, pointer, read_json

VHOST = "/"
"""The virtual host that always exists. Objects without a virtual host belong to it."""
DEFAULT_DESCRIPTION = "Default virtual host"
FORMAT_VERSION = "3.13.0"
"""The version of RabbitMQ whose export format this is."""
LISTS = (
    "users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters", "policies",
    "queues", "exchanges", "bindings",
)  # fmt: skip
ORIGINAL_VHOST = "original_vhost_name"
"""Key in an export of one virtual host, whose objects do not name their virtual host."""
ABOUT = (
    "rabbit_version", "rabbitmq_version", "product_name", "product_version", "rabbitmq_definition_format",
    "original_cluster_name", ORIGINAL_VHOST, "explanation", "description", "metadata", "limits",
)  # fmt: skip
"""Keys by which an export describes itself."""
_OF_A_VHOST = (
    "permissions",
    "topic_permissions",
    "parameters",
    "policies",
    "queues",
    "exchanges",
    "bindings",
)
_WHOLE_NUMBERS = frozenset(name.removeprefix("x-") for name in WHOLE_NUMBERS)
_THERE = object()
"""Validation context for a broker's own answer: clients may declare values that a file may not hold."""
_FAULTS = {
    "missing": "is missing",
    "model_type": "not an object",
    "dict_type": "not an object",
    "list_type": "not a list",
    "string_type": "not a string",
    "bool_type": "not true or false",
}
"""Texts for Pydantic's types of errors, in the words of JSON."""


def _octets(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError("not Unicode: half of a surrogate pair") from None


def _short(text: str) -> str:
    if len(_octets(text)) > 255:
        raise ValueError("longer than 255 octets")
    if "\0" in text:
        raise ValueError("contains a NUL")
    return text


def _routing_key(value: object) -> str:
    """Any octets that fit a short string, in the form of `broker.model.octets`."""
    found = from_json(value)
    if not isinstance(found, str | bytes):
        raise ValueError("not a string")
    octets = _octets(found) if isinstance(found, str) else found
    if len(octets) > 255:
        raise ValueError("longer than 255 octets")
    return as_text(octets)


def _named(text: str) -> str:
    if not text:
        raise ValueError("is empty")
    return text


def _whole(value: object) -> object:
    """An integer for 1.0: JSON does not tell 1.0 from 1, and some programs write 1.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _whole_numbers(table: dict[str, Any]) -> dict[str, Any]:
    """`_whole` for arguments and policy keys that are integers. Other values keep their types."""
    return {
        key: _whole(value) if key.removeprefix("x-") in _WHOLE_NUMBERS else value
        for key, value in table.items()
    }


def _arguments(value: object, info: ValidationInfo) -> object:
    """A field table of AMQP. An empty list is Erlang's way to write an empty table."""
    if value == [] or value is None:
        return {}
    if info.context is not _THERE:
        _check_values(value, 0)
    found = from_json(value)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    found = _whole_numbers(found)
    if info.context is not _THERE and len(write_table(found)) - 4 > ARGUMENTS_MAX:
        raise ValueError(f"larger than {ARGUMENTS_MAX} octets")
    return found


def _check_values(value: object, depth: int) -> None:
    """Check that a field table can hold `value`. Raises ValueError."""
    if depth > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST}")
    match value:
        case bool():
            pass
        case int() if not -(2**63) <= value < 2**63:
            raise ValueError("a number that does not fit in 64 bits")
        case float() if not math.isfinite(value):
            raise ValueError("a number too large")
        case dict():
            for key, item in value.items():
                _short(key)
                _check_values(item, depth + 1)
        case list():
            for item in value:
                _check_values(item, depth + 1)
        case str():
            _octets(value)


def _tags(value: object) -> object:
    """A list. Before RabbitMQ 3.9, tags were words separated by commas."""
    return [word.strip() for word in value.split(",") if word.strip()] if isinstance(value, str) else value


def _parameter(value: object) -> object:
    """The value of a parameter, which may be anything. An operator policy has a table in it."""
    if not isinstance(value, dict):
        return value
    found = {key: _whole(item) for key, item in value.items()}
    definition = found.get("definition")
    return found | {"definition": _whole_numbers(definition)} if isinstance(definition, dict) else found


def _limits(value: object) -> object:
    """An empty list is Erlang's way to write an empty table."""
    return {} if value == [] else _parameter(value)


def _plain(value: object, info: ValidationInfo) -> object:
    """The JSON object itself. An empty list is Erlang's way to write an empty table."""
    if info.context is not _THERE:
        _check_values(value, 0)
    return {} if value == [] else value


Short = Annotated[str, AfterValidator(_short)]
Name = Annotated[str, AfterValidator(_short), AfterValidator(_named)]
RoutingKey = Annotated[str, PlainValidator(_routing_key)]
Plain = Annotated[dict[str, Any], BeforeValidator(_plain)]
Definition = Annotated[dict[str, Any], AfterValidator(_whole_numbers), BeforeValidator(_plain)]
Whole = Annotated[int, BeforeValidator(_whole)]
Arguments = Annotated[dict[str, Any], BeforeValidator(_arguments)]


PARAMETERS = (UPSTREAM, AGENT, VHOST_LIMITS, OPERATOR_COMPONENT)
"""Components of the parameters that are known here."""


class _Object(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _Keyed(_Object):
    """An object that a file may hold only once."""

    @property
    @abstractmethod
    def key(self) -> tuple[str, ...]:
        """Its virtual host, and its identity there."""


class UserDefinition(_Keyed):
    """A user. `configured` marks users of the configuration, in a node's own answer. RabbitMQ before 3.6
    wrote no algorithm and used MD5. `password` is not hashed, in files written by people."""

    name: Name
    tags: Annotated[list[str], BeforeValidator(_tags)] = []
    password_hash: str = ""
    password: Any = None
    hashing_algorithm: str = "rabbit_password_hashing_md5"
    limits: Annotated[dict[str, Any], BeforeValidator(_limits)] = {}
    configured: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        return ("", self.name)


class VhostDefinition(_Keyed):
    """A virtual host. Newer RabbitMQs repeat its description and tags under `metadata`, which takes
    precedence."""

    name: Name
    description: str = ""
    tags: Annotated[list[str], BeforeValidator(_tags)] = []
    metadata: Plain = {}
    default_queue_type: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return ("", self.name)

    @property
    def about(self) -> dict[str, Any]:
        """Description and tags. The usual description of `/` is left out."""
        description = str(self.metadata.get("description") or self.description)
        if (self.name, description) == (VHOST, DEFAULT_DESCRIPTION):
            description = ""
        tags = self.metadata.get("tags")
        return {"description": description, "tags": tags if isinstance(tags, list) else self.tags}


class PermissionDefinition(_Keyed):
    user: Name
    vhost: Name = VHOST
    configure: str
    write: str
    read: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.user


class TopicPermissionDefinition(_Keyed):
    user: Name
    vhost: Name = VHOST
    exchange: Short
    write: str
    read: str

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.user, self.exchange


class ParameterDefinition(_Keyed):
    """A parameter: limits, an operator policy, of federation in the form of this broker, or anything of
    RabbitMQ's."""

    component: Name
    name: Name
    vhost: Name = VHOST
    value: Annotated[Any, BeforeValidator(_parameter)] = None

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.component, self.name

    @property
    def is_known(self) -> bool:
        """RabbitMQ's upstreams of federation have a URI, with a password in it."""
        known = self.component in PARAMETERS and isinstance(self.value, dict)
        return known and not (self.component == UPSTREAM and "uri" in self.value)


class NamedDefinition(_Object):
    """A global parameter. Only its name is used."""

    name: Name


class PolicyDefinition(_Keyed):
    """A policy. The broker's own checks decide about the contents of its definition."""

    name: Name
    vhost: Name = VHOST
    pattern: str
    apply_to: str = Field(default="all", alias="apply-to")
    priority: Whole = 0
    definition: Definition

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.name


class QueueDefinition(_Keyed):
    """A queue. `rabbitmqctl` writes `type`; the argument `x-queue-type` takes precedence."""

    name: Name
    vhost: Name = VHOST
    durable: bool
    auto_delete: bool = False
    arguments: Arguments = {}
    type: Any = None

    @property
    def queue_type(self) -> str:
        found = self.arguments.get("x-queue-type", self.type or "classic")
        return str(found).removeprefix("rabbit_").removesuffix("_queue")

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.name


class ExchangeDefinition(_Keyed):
    name: Short
    vhost: Name = VHOST
    type: Name
    durable: bool
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = {}

    @property
    def key(self) -> tuple[str, ...]:
        return self.vhost, self.name


class BindingDefinition(_Keyed):
    source: Short
    vhost: Name = VHOST
    destination: Name
    destination_type: Literal["queue", "exchange"]
    routing_key: RoutingKey = ""
    arguments: Arguments = {}

    @property
    def key(self) -> tuple[str, ...]:
        ends = (self.vhost, self.source, self.destination_type, self.destination, self.routing_key)
        return (*ends, canonical(self.arguments).hex())


class Definitions(_Object):
    """A whole file, with the lists that it holds."""

    product_name: str = "RabbitMQ"
    users: list[UserDefinition] = []
    vhosts: list[VhostDefinition] = []
    permissions: list[PermissionDefinition] = []
    topic_permissions: list[TopicPermissionDefinition] = []
    parameters: list[ParameterDefinition] = []
    global_parameters: list[NamedDefinition] = []
    policies: list[PolicyDefinition] = []
    queues: list[QueueDefinition] = []
    exchanges: list[ExchangeDefinition] = []
    bindings: list[BindingDefinition] = []
    unknown: list[str] = Field(default=[], description="Keys that no RabbitMQ is known to write.")


def read_definitions(raw: bytes, *, vhost: str | None = None) -> Definitions:
    """Read a file. `vhost`: the virtual host of objects that name none, as in an export of a single one; by
    default `/`. Raises DefinitionsError."""
    document = read_json(raw)
    if not isinstance(document, dict):
        raise DefinitionsError("not a definitions file: it is not a JSON object")
    if not set(document) & {*LISTS, "rabbit_version", "rabbitmq_version"}:
        raise DefinitionsError(f"not a definitions file: it has none of {', '.join(LISTS)}")
    document = _placed(document, vhost)
    found = validated({**document, "unknown": sorted(set(document) - {*LISTS, *ABOUT})})
    _check_arguments(found)
    for kind, items in (
        ("vhosts", found.vhosts), ("users", found.users), ("permissions", found.permissions),
        ("topic_permissions", found.topic_permissions),
        ("policies", found.policies), ("parameters", found.parameters),
        ("queues", found.queues), ("exchanges", found.exchanges), ("bindings", found.bindings),
    ):  # fmt: skip
        _check_once(kind, items)
    return found


def answered(document: dict[str, Any]) -> Definitions:
    """A broker's own answer. Limits for files do not apply. Raises DefinitionsError."""
    return validated(document, _THERE)


def validated(document: dict[str, Any], context: object = None) -> Definitions:
    """Validate a document. Raises DefinitionsError with the first fault."""
    try:
        return Definitions.model_validate(document, context=context)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        msg = str(first["msg"]).removeprefix("Value error, ")
        what = _FAULTS.get(first["type"], msg.replace("Input should be", "not"))
        raise DefinitionsError(f"{pointer(first['loc'])}: {what}") from None


# -- checks beyond the schema


def _placed(document: dict[str, Any], vhost: str | None) -> dict[str, Any]:
    """The document with `vhost` in each object that names none. Raises DefinitionsError if the file is an
    export of one virtual host other than `/` and `vhost` is missing."""
    original = document.get(ORIGINAL_VHOST, VHOST)
    placed = dict(document)
    for kind in _OF_A_VHOST:
        items = document.get(kind)
        if not isinstance(items, list) or not any(map(_is_unplaced, items)):
            continue
        if vhost is None and original != VHOST:
            raise DefinitionsError(
                f"{pointer((ORIGINAL_VHOST,))}: it is an export of the virtual host {original!r:.80} only:"
                " name the virtual host to import into with --vhost NAME (over HTTP, ?vhost=NAME)"
            )
        if vhost is not None:
            placed[kind] = [{**item, "vhost": vhost} if _is_unplaced(item) else item for item in items]
    return placed


def _is_unplaced(item: object) -> bool:
    return isinstance(item, dict) and "vhost" not in item


def _check_arguments(found: Definitions) -> None:
    """Refuse arguments that this broker would refuse, before anything is changed."""
    for number, queue in enumerate(found.queues):
        fault = fault_of(queue.arguments) if queue.queue_type in QUEUE_TYPES else None
        if fault is not None:
            where = pointer(("queues", number, "arguments", fault[0]))
            raise DefinitionsError(f"{where}: {fault[1].removeprefix(': ')}")
    for number, exchange in enumerate(found.exchanges):
        if not isinstance(exchange.arguments.get("alternate-exchange", ""), str):
            where = pointer(("exchanges", number, "arguments", "alternate-exchange"))
            raise DefinitionsError(f"{where}: not a string")
        if REPLICATE in exchange.arguments and (why := value_fault(REPLICATE, exchange.arguments[REPLICATE])):
            raise DefinitionsError(f"{pointer(('exchanges', number, 'arguments', REPLICATE))}: {why}")


def _check_once(kind: str, items: Sequence[_Keyed]) -> None:
    seen: dict[tuple[str, ...], int] = {}
    for number, item in enumerate(items):
        first = seen.setdefault(item.key, number)
        if first != number:
            raise DefinitionsError(f"{pointer((kind, number))}: is a duplicate of {pointer((kind, first))}")
