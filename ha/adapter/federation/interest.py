"""What a broker downstream wants, as records and as marks. Values only; both ends use it."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from broker.model.history.record_codec import CorruptRecord, decode_records, split_records
from broker.model.history.records import Bind, Record, Unbind
from broker.model.queue.link import BY
from broker.model.vhost.links import Interest, Wish
from ha.core.errors import LinkError

UNREADABLE = "records that cannot be read: {error}"


def record_of(exchange: str, interest: Interest) -> Bind:
    """As it travels: the path is one of the arguments."""
    return Bind(
        exchange, None, "", interest.routing_key, {**interest.arguments, BY: list(interest.path)}
    )  # fmt: skip


def interest_of(record: Bind | Unbind) -> Interest:
    """LinkError if the record names no path."""
    path = record.arguments.get(BY)
    if not isinstance(path, list) or not path or not all(isinstance(node, str) for node in path):
        raise LinkError("an interest that names no path")
    arguments = {key: value for key, value in record.arguments.items() if key != BY}
    return Interest(record.routing_key, arguments, tuple(path))


def changes(payload: bytes) -> Iterator[Bind | Unbind]:
    """One after the other, as they are asked for. LinkError for anything else."""
    try:
        for _, _, framed in split_records(payload):
            for record in decode_records(framed):
                if not isinstance(record, Bind | Unbind):
                    raise LinkError("an interest that is no binding")
                yield record
    except CorruptRecord as error:
        raise LinkError(UNREADABLE.format(error=error)) from error


def decoded(payload: bytes) -> list[Record]:
    try:
        return decode_records(payload)
    except CorruptRecord as error:
        raise LinkError(UNREADABLE.format(error=error)) from error


def mark_of(wish: Wish, path: tuple[str, ...]) -> int:
    """A number for one wish by one path. The sum of all says whether two sets are equal, in any order."""
    hashed = sha256()
    for part in (wish[0].encode("utf-8", "surrogateescape"), wish[1], "@".join(path).encode()):
        hashed.update(len(part).to_bytes(4, "big") + part)
    return int.from_bytes(hashed.digest(), "big")
