"""An etcd of tests: the part of its v3 API that the authority uses, in memory, as its JSON gateway has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ha.etcd.register import GRANT, KEEP_ALIVE, LEASE_LOST, REVOKE, TXN, Call

Json = dict[str, Any]


@dataclass(slots=True)
class Entry:
    """A key's value as it is stored, in base64."""

    value: str
    created: int
    changed: int
    version: int
    lease: str = "0"


@dataclass
class VirtualEtcd:
    """`now`: its clock, which tests set. As in etcd, a key goes with the lease that it is attached to.
    `full`: its space is used up; whoever calls asks `refuses` first."""

    now: float = 0.0
    revision: int = 1
    keys: dict[str, Entry] = field(default_factory=dict)
    leases: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By id: time to live, and when it runs out."""
    granted: int = 7000
    full: bool = False

    def refuses(self, call: Call) -> bool:
        """For want of space. As in etcd: a new lease, and any transaction that might write."""
        operations = [*call.body.get("success", []), *call.body.get("failure", [])]
        return self.full and (call.path == GRANT or any("request_put" in each for each in operations))

    def answer(self, call: Call) -> Json:
        self._expire()
        match call.path:
            case "/v3/kv/txn":
                return self._transact(call.body)
            case "/v3/lease/grant":
                self.granted += 1
                time_to_live = float(call.body["TTL"])
                self.leases[str(self.granted)] = (time_to_live, self.now + time_to_live)
                return {"ID": str(self.granted), "TTL": call.body["TTL"]}
            case "/v3/lease/keepalive":
                lease = call.body["ID"]
                if lease not in self.leases:
                    return {"result": {"ID": lease}}
                time_to_live, _ = self.leases[lease]
                self.leases[lease] = (time_to_live, self.now + time_to_live)
                return {"result": {"ID": lease, "TTL": str(int(time_to_live))}}
            case "/v3/lease/revoke":
                self.leases[call.body["ID"]] = (0.0, self.now)
                self._expire()
                return {}
        raise AssertionError(call)

    def _expire(self) -> None:
        for lease, (_, until) in list(self.leases.items()):
            if self.now >= until:
                del self.leases[lease]
                self.keys = {key: e for key, e in self.keys.items() if e.lease != lease}

    def _range(self, body: Json) -> Json:
        entry = self.keys.get(body["key"])
        if entry is None:
            return {}
        found = {
            "key": body["key"], "value": entry.value, "create_revision": str(entry.created),
            "mod_revision": str(entry.changed), "version": str(entry.version),
        }  # fmt: skip
        return {"kvs": [found], "count": "1"}

    def _transact(self, body: Json) -> Json:
        met = all(self._holds(compare) for compare in body.get("compare", []))
        operations = body.get("success" if met else "failure", [])
        puts = [operation["request_put"] for operation in operations if "request_put" in operation]
        if any(put.get("lease", "0") not in {"0", *self.leases} for put in puts):
            return {LEASE_LOST: True}
        self.revision += bool(puts)
        responses = [self._operate(operation) for operation in operations]
        return ({"succeeded": True} if met else {}) | {"responses": responses}

    def _holds(self, compare: Json) -> bool:
        assert (compare["target"], compare["result"]) == ("MOD", "EQUAL"), compare
        entry = self.keys.get(compare["key"])
        return int(compare["mod_revision"]) == (entry.changed if entry is not None else 0)

    def _operate(self, operation: Json) -> Json:
        if "request_range" in operation:
            return {"response_range": self._range(operation["request_range"])}
        put = operation["request_put"]
        old = self.keys.get(put["key"])
        self.keys[put["key"]] = Entry(
            put["value"],
            old.created if old is not None else self.revision,
            self.revision,
            old.version + 1 if old is not None else 1,
            put.get("lease", "0"),
        )
        return {"response_put": {}}


assert {TXN, GRANT, KEEP_ALIVE, REVOKE} == {
    "/v3/kv/txn", "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke",
}  # fmt: skip
