"""Outbound connections to a host name or address. The name is resolved first, to distinguish an unknown name
from a host that does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address


class Unresolved(OSError):
    """The host name has no address. The text is for people."""


async def addresses_of(host: str, port: int, patience: float) -> list[str]:
    """Addresses of `host`, in the resolver's order. A literal address is not resolved, because all resolver
    threads may be waiting for a name server. Raises Unresolved, after `patience` seconds at the latest."""
    try:
        ip_address(host)
        return [host]
    except ValueError:
        pass
    try:
        async with asyncio.timeout(patience):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise Unresolved(f"cannot resolve {host!r} (no answer within {patience:g} s)") from None
    except socket.gaierror as error:
        raise Unresolved(f"cannot resolve {host!r} ({error.strerror})") from None
    except ValueError:
        raise Unresolved(f"cannot resolve {host!r} (no name of a host)") from None
    return [str(address[0]) for *_, address in found]


async def connect(
    make: Callable[[], asyncio.BaseProtocol], host: str, port: int, patience: float, met: str = ""
) -> str:
    """Open a TCP connection to the first address of `host` that accepts one, within `patience` seconds in
    total. Returns that address. `met`: the one that it had last time.

    Raises Unresolved; ConnectionRefusedError if no address has a listener, and `met` is one of them;
    TimeoutError; OSError.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    faults: list[OSError] = []
    addresses = await addresses_of(host, port, patience)
    for address in addresses:
        try:
            async with asyncio.timeout_at(deadline):
                await loop.create_connection(make, address, port)
            return address
        except OSError as error:
            faults.append(error)
    # An error other than a refusal says more: a host may be there.
    told = next((fault for fault in faults if not isinstance(fault, ConnectionRefusedError)), None)
    if told is None and met and met not in addresses:
        # The name leads elsewhere now. Whoever was there before may run on.
        told = OSError(f"nobody listens at {', '.join(addresses)}, and it was at {met} before")
    raise told if told is not None else faults[-1]
