"""PeerCheck: does a peer that shows a certificate belong to a host of `ha.brokers`?

Owner: HaHooks. TLS checks the host on the side that dials. The side that is dialed has no host to check, so
it does it here. A broker of another site that follows queues is at none of these hosts: it says so at the
login, and may then speak of queues only; a federated one, of its links only. Without TLS, or without a pair,
nothing is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.amqp091.server.handshake import FEDERATION_CAPABILITY, FOLLOWER_CAPABILITY, PEER_CAPABILITY
from broker.errors import NotAllowed
from ha.core.federation.wire import LinkMethod
from ha.core.mirror.wire import MirrorMethod
from ha.core.wire.link import Method
from understudy.shared.text import shown

if TYPE_CHECKING:
    from broker.hooks import Applicant

_OF_A_FOLLOWER = frozenset(MirrorMethod) | {Method.MANAGE}
_FEDERATION = frozenset(LinkMethod)


class PeerCheck:
    """Both methods return the error that closes the connection, or None."""

    def __init__(self, brokers: Sequence[tuple[str, int]]) -> None:
        self._hosts = list(dict.fromkeys(host for host, _ in brokers))

    def opening(self, peer: Applicant) -> NotAllowed | None:
        """Check at connection.open."""
        if not peer.capability(PEER_CAPABILITY) or peer.capability(FOLLOWER_CAPABILITY):
            return None
        if peer.capability(FEDERATION_CAPABILITY):
            return None
        certificate = peer.certificate
        if certificate is None or not self._hosts:
            return None
        from broker.security.certificate_names import names_shown  # without TLS not worth its imports

        names = names_shown(certificate)
        if any(names.cover(host) for host in self._hosts):
            return None
        ours = ", ".join(self._hosts)
        return NotAllowed(
            f"the certificate shown is for {shown(str(names))}, and for no host of ha.brokers ({ours})"
        )

    def method(self, peer: Applicant, method_id: int) -> NotAllowed | None:
        """Check at a method of the extension class."""
        if peer.capability(FEDERATION_CAPABILITY):
            if method_id in _FEDERATION:
                return None
            return NotAllowed(f"link method {method_id} of one that logged in to federate only")
        if method_id in _OF_A_FOLLOWER or not peer.capability(FOLLOWER_CAPABILITY):
            return None
        return NotAllowed(f"link method {method_id} of one that logged in to follow queues only")
