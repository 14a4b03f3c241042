"""Outbound connections to a host name or address. The name is resolved first, to distinguish an unknown name
from a host that does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address

STAGGER = 0.25
"""Seconds from one address of a host to the next one."""


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

    An address that does not answer is not waited for: the next one is tried STAGGER seconds later, as well.
    So a host with two networks is reached while one of them is cut.

    Raises Unresolved; ConnectionRefusedError if no address has a listener, and `met` is one of them;
    TimeoutError; OSError.
    """
    loop = asyncio.get_running_loop()
    addresses = await addresses_of(host, port, patience)
    attempts = {loop.create_task(_socket_to(loop, addresses[0], port)): addresses[0]}
    faults: list[OSError] = []
    try:
        async with asyncio.timeout(patience):
            while attempts or len(faults) < len(addresses):
                begun = len(attempts) + len(faults)
                more = begun < len(addresses)
                done, _ = await asyncio.wait(
                    attempts, timeout=STAGGER if more else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    address = attempts.pop(task)
                    if (fault := task.exception()) is None:
                        await loop.create_connection(make, sock=task.result())
                        return address
                    if not isinstance(fault, OSError):
                        raise fault
                    faults.append(fault)
                if more:
                    attempts[loop.create_task(_socket_to(loop, addresses[begun], port))] = addresses[begun]
    finally:
        for task in attempts:
            task.cancel()
            task.add_done_callback(_close)
    # An error other than a refusal says more: a host may be there.
    told = next((fault for fault in faults if not isinstance(fault, ConnectionRefusedError)), None)
    if told is None and met and met not in addresses:
        # The name leads elsewhere now. Whoever was there before may run on.
        told = OSError(f"nobody listens at {', '.join(addresses)}, and it was at {met} before")
    raise told if told is not None else faults[-1]


async def _socket_to(loop: asyncio.AbstractEventLoop, address: str, port: int) -> socket.socket:
    """A connected socket. OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Without the protocol, asyncio leaves Nagle's algorithm on: a second small frame would wait for 40 ms.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setblocking(False)
        await loop.sock_connect(found, (address, port))
    except BaseException:
        found.close()
        raise
    return found


def _close(task: asyncio.Task[socket.socket]) -> None:
    """The socket of an attempt that was too late."""
    if not task.cancelled() and task.exception() is None:
        task.result().close()
