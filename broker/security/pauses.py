"""How long the next password check of an address waits, after its failures. Owner: `Logins`. Pure: time is
passed in.

Only checks that were made and failed count: a client that tries one wrong password again and again is refused
from memory, and makes nobody behind the same address wait.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

FREE = 3
"""Failures without a pause."""
FIRST = 0.1
"""Seconds of the first pause; each further one is twice as long."""
LONGEST = 2.0
"""Seconds. An address may be that of a proxy, so that a right login that is not remembered waits as well: it
has to come to its check within the limit of the handshake."""
FORGOTTEN = 300.0
"""Seconds after the last failure of an address."""
_MOST = 4096
"""Addresses with failures; the one that failed last longest ago makes room."""


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
        """A check that `address` asked for has failed."""
        found = self._found(address, now)
        found.count += 1
        if found.count > FREE:
            doubled = min(found.count - FREE - 1, 16)  # far beyond the longest
            found.until = now + min(FIRST * 2**doubled, LONGEST)

    def refused(self, address: str, now: float) -> None:
        """There was no room for a check of `address`."""
        self._found(address, now).refused += 1

    def trouble(self, address: str) -> int:
        """What it asked for in vain: checks that failed, and those there was no room for."""
        found = self._failing.get(address)
        return 0 if found is None else found.count + found.refused

    def failures(self, address: str) -> int:
        """How many are not forgotten."""
        found = self._failing.get(address)
        return 0 if found is None else found.count

    def until(self, address: str) -> float:
        """When the pause of `address` is over; 0: it has none."""
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
    """What is one address here: of IPv6 a whole /64, which anybody has for himself alone."""
    try:
        parsed = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(parsed) >> 64 << 64))
