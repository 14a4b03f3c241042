"""How long an address waits for its next password check after failures. Owner: `Logins`. Pure: time is passed
in.

Only checks that were made and failed count. A client that repeats one wrong password is refused from memory,
and does not slow down others behind the same address.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

FREE = 3
"""Failures without a pause."""
FIRST = 0.1
"""Seconds of the first pause; each further one is twice as long."""
LONGEST = 2.0
"""Seconds. The address may belong to a proxy, so a right login that is not remembered waits too. It must get
its check within the handshake limit."""
FORGOTTEN = 300.0
"""Seconds after the last failure of an address."""
_MOST = 4096
"""Maximum addresses with failures. The one whose last failure is oldest is dropped."""


class _Failures:
    __slots__ = ("count", "last", "refused", "until")

    def __init__(self) -> None:
        self.count, self.refused, self.last, self.until = 0, 0, 0.0, 0.0


class Pauses:
    """The addresses that failed."""

    def __init__(self) -> None:
        self._failing: OrderedDict[str, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failing)

    def failed(self, address: str, now: float) -> None:
        """A check for `address` failed."""
        found = self._found(address, now)
        found.count += 1
        if found.count > FREE:
            doubled = min(found.count - FREE - 1, 16)  # far beyond the longest
            found.until = now + min(FIRST * 2**doubled, LONGEST)

    def refused(self, address: str, now: float) -> None:
        """There was no room for a check of `address`."""
        self._found(address, now).refused += 1

    def trouble(self, address: str) -> int:
        """Checks that failed, plus checks without room."""
        found = self._failing.get(address)
        return 0 if found is None else found.count + found.refused

    def failures(self, address: str) -> int:
        """Failed checks that are not forgotten."""
        found = self._failing.get(address)
        return 0 if found is None else found.count

    def until(self, address: str) -> float:
        """When the pause of `address` ends; 0 if it has none."""
        found = self._failing.get(address)
        return 0.0 if found is None else found.until

    def _found(self, address: str, now: float) -> _Failures:
        self._forget(now)
        found = self._failing.setdefault(address, _Failures())
        found.last = now
        self._failing.move_to_end(address)
        if len(self._failing) > _MOST:
            self._failing.popitem(last=False)
        return found

    def _forget(self, now: float) -> None:
        while self._failing:
            address, found = next(iter(self._failing.items()))
            if found.last + FORGOTTEN > now:
                return
            del self._failing[address]


def address_of(host: str) -> str:
    """What counts as one address. For IPv6 a whole /64, because one host can use all of it."""
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
