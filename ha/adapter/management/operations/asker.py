"""Who asked for an operation, as permissions and queues see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.authorization import Access
from broker.errors import AccessRefused, NotFound
from broker.security.identity import ADMINISTRATOR

if TYPE_CHECKING:
    from broker.engine import Broker
    from broker.model.vhost.vhost import VirtualHost
    from broker.security.identity import User


class Asker:
    """A user at work in one virtual host. Implements `broker.authorization.Client`, and owns no exclusive
    queue.

    - `user`: "" for root at the control socket.
    - `access`: the rights of a stored user. None: everything, as for users of the configuration.
    """

    def __init__(self, user: str, tags: frozenset[str], access: Access | None, vhost: VirtualHost) -> None:
        self.user = user
        self.tags = tags
        self.access = access
        self.vhost = vhost

    def matched_slowly(self) -> None:
        """The operation is one of few, so nothing is charged."""


def asker_of(broker: Broker, user: str | None, vhost: str) -> Asker:
    """The user of that name in a virtual host. None: root. Raises NotFound without such a virtual host,
    AccessRefused without such a user, NotAllowed without a permission in the virtual host."""
    place = broker.vhosts.get(vhost)
    if place is None:
        raise NotFound(f"no vhost '{vhost}'")
    tags = tags_of(broker, user)
    if user is None or _configured(broker, user) is not None:
        return Asker(user or "", tags, None, place)
    access = Access(broker.directory, user, vhost)
    access.check_open()
    return Asker(user, tags, access, place)


def tags_of(broker: Broker, user: str | None) -> frozenset[str]:
    """Its tags now. Raises AccessRefused without such a user."""
    if user is None:
        return frozenset({ADMINISTRATOR})
    found = _configured(broker, user) or broker.directory.users.get(user)
    if found is None:
        raise AccessRefused(f"no user '{user}'")
    return found.tags


def _configured(broker: Broker, user: str) -> User | None:
    return next((known for known in broker.settings.users if known.name == user), None)
