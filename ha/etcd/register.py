"""How the record and the owner's lease are read, renewed and swapped in etcd: which calls, in which order.

Sans-I/O. Each procedure is a generator. It yields a Call of etcd's v3 API in its JSON form, gets the answer's
JSON object, and returns an EtcdAnswer. The driver runs it over HTTP:

    procedure = read(keys)
    call = next(procedure)
    ... call = procedure.send(answer) ... StopIteration.value is the EtcdAnswer

PREFIX/record holds the record as JSON; a swap is a transaction on the revision at which it was last changed.
PREFIX/owner holds the owner, and is attached to a lease that the owner keeps alive: once the owner is silent
for its time to live, etcd deletes the key. Only the owner writes it, in the transaction that makes it the
owner, or in one that finds the record unchanged.

An etcd whose space is used up (alarm NOSPACE) still reads and keeps leases alive, but refuses writes and new
leases. A read by which a node would hand over or be promoted must fail then, or nobody could serve after it.

Source: etcd's API reference (v3), "KV", "Lease" and "gRPC gateway".
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from ha.core.errors import LinkError
from ha.core.record.in_sync_record import InSyncRecord, RecordVersion, record_from_json

TXN = "/v3/kv/txn"
GRANT, KEEP_ALIVE, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"
LEASE_LOST = "lease lost"
"""The key of an answer by which the driver says that etcd has no such lease (any more)."""
TRIES = 3
"""How often the owner's key is written again, at most, if the record changes meanwhile."""

Json = dict[str, Any]


@dataclass(slots=True, frozen=True)
class Call:
    """One request: POST `body` as JSON to `path`."""

    path: str
    body: Json


@dataclass(slots=True, frozen=True)
class EtcdAnswer:
    """As `Node.authority_answered` takes it. `owner_gone`: the record's owner has let its lease run out."""

    outcome: Literal["done", "conflict", "unknown"]
    record: Json | None
    owner_gone: bool = False


class Unreadable(ValueError):
    """The record's key holds something else. `str()` says what."""


class Nonsense(ValueError):
    """An answer that is not one of etcd's API."""


@dataclass(slots=True)
class Keys:
    """Where the record is, and this node's lease. `owner`: this process, as it says in the owner's key.
    `time_to_live`: of the lease, in seconds. `lease`: its id while there is one."""

    prefix: str
    owner: str
    time_to_live: int
    lease: str | None = None

    @property
    def record_key(self) -> str:
        return f"{self.prefix}/record"

    @property
    def owner_key(self) -> str:
        return f"{self.prefix}/owner"


@dataclass(slots=True, frozen=True)
class Held:
    """What etcd holds. `revision`: at which the record was last changed, 0 if there is none. `owner`: what
    the owner's key says, None if its lease has run out."""

    record: InSyncRecord | None
    revision: int
    owner: str | None

    @property
    def record_owner(self) -> str | None:
        """The owner of the record, as the owner's key would name it."""
        return None if self.record is None else "{} {}".format(*self.record.owner)

    @property
    def owner_gone(self) -> bool:
        return self.record is not None and self.owner != self.record_owner

    @property
    def version(self) -> RecordVersion | None:
        return None if self.record is None else self.record.version

    def answer(self, outcome: Literal["done", "conflict"]) -> EtcdAnswer:
        """With the record that is held."""
        return EtcdAnswer(outcome, None if self.record is None else self.record.as_json())


Procedure = Generator[Call, Json, EtcdAnswer]
_Looking = Generator[Call, Json, Held]
_Leasing = Generator[Call, Json, bool]


def read(keys: Keys) -> Procedure:
    """What the register holds, if a swap could be committed now. The transaction has a write in a branch that
    is never taken: etcd refuses even that when it has no space, and to a user that may only read."""
    never = {"key": _coded(keys.record_key), "target": "MOD", "mod_revision": "-1", "result": "EQUAL"}
    write = _put(keys.record_key, "")
    answer = yield Call(TXN, {"compare": [never], "success": [write], "failure": _reads(keys)})
    held = _held(keys, answer.get("responses"))
    return replace(held.answer("done"), owner_gone=held.owner_gone)


def renew(keys: Keys) -> Procedure:
    """What the register holds, asked by the owner of the record, which keeps its lease alive by it. The lease
    first: what is read then was so while it held. An owner whose lease had run out, and that is still the
    owner, gets a new one. Needs no write otherwise."""
    new = yield from _keep_lease(keys)
    held = yield from _look(keys)
    for _ in range(TRIES):
        there = held.owner == keys.owner and not new
        if held.record_owner != keys.owner or there:
            return replace(held.answer("done"), owner_gone=held.owner_gone)
        if keys.lease is None:
            break
        done, held = yield from _transact(keys, held.revision, [_put_owner(keys)])
        if done:
            return held.answer("done")
    return EtcdAnswer("unknown", None)


def swap(keys: Keys, expected: RecordVersion | None, record: Mapping[str, Any]) -> Procedure:
    """Have `record`, whose owner is this node, replace the one of version `expected` (None: there is none). A
    `conflict` has the record that is held; it may be this very record, from an earlier swap whose answer was
    lost."""
    held = yield from _look(keys)
    if held.record == record_from_json(record) or held.version != expected:
        return held.answer("conflict")
    yield from _keep_lease(keys)
    text = json.dumps(dict(record), separators=(",", ":"), sort_keys=True)
    done, now = yield from _transact(keys, held.revision, [_put(keys.record_key, text), _put_owner(keys)])
    if not done and keys.lease is None:
        return EtcdAnswer("unknown", None)
    return EtcdAnswer("done", None) if done else now.answer("conflict")


def release(keys: Keys) -> Generator[Call, Json, None]:
    """This process ends: let its lease go at once."""
    if keys.lease is not None:
        yield Call(REVOKE, {"ID": keys.lease})
        keys.lease = None


# -- single calls


def _look(keys: Keys) -> _Looking:
    answer = yield Call(TXN, {"success": _reads(keys)})
    return _held(keys, answer.get("responses"))


def _transact(keys: Keys, revision: int, puts: list[Json]) -> Generator[Call, Json, tuple[bool, Held]]:
    """Make the `puts` if the record was last changed at `revision`. Whether it was done, and what is held."""
    unchanged = {
        "key": _coded(keys.record_key), "target": "MOD", "mod_revision": str(revision), "result": "EQUAL"
    }  # fmt: skip
    reads = _reads(keys)
    answer = yield Call(TXN, {"compare": [unchanged], "success": [*puts, *reads], "failure": reads})
    if LEASE_LOST in answer:  # it ran out just now; nothing was written
        keys.lease = None
        return False, (yield from _look(keys))
    responses = answer.get("responses")
    done = answer.get("succeeded") is True
    return done, _held(keys, responses[len(puts) :] if done and isinstance(responses, list) else responses)


def _keep_lease(keys: Keys) -> _Leasing:
    """Afterwards there is a lease, and its time begins anew. Whether it is another one than before, to which
    no key is attached yet."""
    if keys.lease is not None:
        answer = yield Call(KEEP_ALIVE, {"ID": keys.lease})
        result = answer.get("result")
        if isinstance(result, dict) and _number(result.get("TTL", 0)) > 0:
            return False
        keys.lease = None
    answer = yield Call(GRANT, {"TTL": str(keys.time_to_live)})
    lease = answer.get("ID")
    if not isinstance(lease, str):
        raise Nonsense("its answer lacks an id")
    keys.lease = lease
    return True


# -- JSON


def _reads(keys: Keys) -> list[Json]:
    return [_get(keys.record_key), _get(keys.owner_key)]


def _get(key: str) -> Json:
    return {"request_range": {"key": _coded(key)}}


def _put(key: str, value: str) -> Json:
    return {"request_put": {"key": _coded(key), "value": _coded(value)}}


def _put_owner(keys: Keys) -> Json:
    put = _put(keys.owner_key, keys.owner)
    put["request_put"]["lease"] = keys.lease
    return put


def _held(keys: Keys, responses: object) -> Held:
    """Of two ranges, of the record and of the owner."""
    try:
        first, second = (response["response_range"].get("kvs") or [] for response in responses)  # type: ignore[attr-defined]
        owner = _text(second[0]["value"]) if second else None
        if not first:
            return Held(None, 0, owner)
        text, revision = _text(first[0].get("value", "")), _number(first[0]["mod_revision"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise Nonsense("its answer lacks what the keys hold") from None
    return Held(_record(text), revision, owner)


def _record(text: str) -> InSyncRecord:
    """Raises Unreadable for anything that no node writes."""
    try:
        document = json.loads(text, parse_float=_no_integer, parse_constant=_no_integer)
        if not isinstance(document, dict):
            raise Unreadable("it is no JSON object")
        return record_from_json(document)
    except Unreadable:
        raise
    except json.JSONDecodeError:
        raise Unreadable("it is no JSON") from None
    except RecursionError:
        raise Unreadable("it is nested too deep") from None
    except (LinkError, ValueError) as error:  # ValueError: of more digits than Python reads
        if isinstance(error.__cause__, KeyError):
            raise Unreadable(f"it lacks {error.__cause__}") from None
        raise Unreadable("one of its values has a wrong type, or is out of range") from None


def _no_integer(text: str) -> NoReturn:
    raise Unreadable(f"it has {text:.40} in the place of an integer")


def _coded(text: str) -> str:
    return b64encode(text.encode()).decode()


def _text(value: str) -> str:
    return b64decode(value, validate=True).decode("utf-8", "replace")


def _number(value: Any) -> int:
    """An int64, which JSON has as a string. Raises Nonsense."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):  # the last one of an infinity
        raise Nonsense(f"its answer has {value!r:.40} in the place of an integer") from None
