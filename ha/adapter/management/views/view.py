"""What the columns of a view need besides their object, and how a row is made of columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.statistics import Counts
    from broker.model.vhost.vhosts import VirtualHosts
    from broker.sampling import Lengths
    from ha.adapter.settings import HaSettings
    from ha.core.ha_broker import HaBroker
    from ha.core.role import OwnIdentity

T = TypeVar("T")
Row = dict[str, Any]


class _Absent:
    """The type of ABSENT."""


ABSENT = _Absent()
"""The value of a column that a row does not have."""


class ViewedNode(Protocol):
    """The node, as views read it."""

    broker: Broker
    vhosts: VirtualHosts
    core: HaBroker
    me: OwnIdentity
    settings: HaSettings
    now: float

    def status(self) -> dict[str, Any]: ...


class Ages(NamedTuple):
    """Which samples a caller wants, in seconds: those of the last `age`, one each `step`."""

    age: int
    step: int


@dataclass(slots=True)
class View:
    """`now`: the node's clock. `wall_ms`: the same moment in milliseconds since 1970. `lengths`, `messages`,
    `octets`: which samples of lengths of queues, of messages and of octets to show, if any."""

    node: ViewedNode
    now: float
    wall_ms: int
    lengths: Ages | None = None
    messages: Ages | None = None
    octets: Ages | None = None
    known: dict[str, Lengths] = field(default_factory=dict)
    """Messages in the queues of virtual hosts, once they have been counted."""

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node.me.name


Column = Callable[[T, View], Any]


@dataclass(slots=True, frozen=True)
class Table(Generic[T]):
    """All objects of one kind. `details`: columns of one object alone. `plain`: those without statistics."""

    items: Callable[[View], Iterable[T]]
    vhost: Callable[[T], str | None]
    """The virtual host of an object; None: of none."""
    owner: Callable[[T], str] | None
    """The user whose object it is; None: it is no user's own."""
    columns: Mapping[str, Column[T]]
    details: Mapping[str, Column[T]]
    plain: Collection[str]
    number: Callable[[T, Sequence[str]], float | None] = lambda item, path: None
    """A number at a path, without its row; None: it is found in the row. For sorting."""

    def row(self, item: T, view: View, columns: Iterable[str] | None = None) -> Row:
        """Some columns of an object, by default all of a list."""
        known = self.columns
        wanted = known if columns is None else [name for name in columns if name in known]
        return made(item, view, known, wanted)

    def whole(self, item: T, view: View) -> Row:
        """All columns, with those that only one object has."""
        return self.row(item, view) | made(item, view, self.details, self.details)


def made(item: T, view: View, known: Mapping[str, Column[T]], wanted: Iterable[str]) -> Row:
    row: Row = {}
    for name in wanted:
        value = known[name](item, view)
        if value is not ABSENT:
            row[name] = value
    return row


def counts_of(item: Any) -> Counts:
    found: Counts = item.counts
    return found


@dataclass(slots=True, frozen=True)
class RowTable:
    """The same for objects that are few: whole rows, made at once."""

    items: Callable[[View], Iterable[Row]]
    plain: Collection[str] = ()
    owner: None = None

    def vhost(self, item: Row) -> str | None:
        found = item.get("vhost")
        return found if isinstance(found, str) else None

    def row(self, item: Row, view: View, columns: Iterable[str] | None = None) -> Row:
        return item if columns is None else {name: item[name] for name in columns if name in item}

    def whole(self, item: Row, view: View) -> Row:
        return item

    def number(self, item: Row, path: Sequence[str]) -> float | None:
        return None
