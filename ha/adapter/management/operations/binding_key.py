"""The name of a binding among those of the same exchange and target, as RabbitMQ's API has it. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote

from broker.model.octets import as_octets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.model.routing.exchange import Binding

NO_KEY = "~"
_HASHED = 16


def percent(key: str) -> str:
    """A routing key in percent encoding."""
    return quote_from_bytes(as_octets(key), safe="").replace("~", "%7E")


def properties_key(binding: Binding) -> str:
    """`~`, the routing key in percent encoding, or that with `~` and a hash of the arguments."""
    key = percent(binding.routing_key)
    if not binding.arguments:
        return key or NO_KEY
    digest = sha256(binding.key[2]).digest()[:_HASHED]
    return f"{key}{NO_KEY}{urlsafe_b64encode(digest).decode().rstrip('=')}"


def with_name(bindings: Sequence[Binding], name: str) -> Binding | None:
    """The one with this `properties_key`. Some clients put the key into a path as it is, so that it arrives
    decoded once more: RabbitMQ takes that too."""
    decoded = None
    for binding in bindings:
        key = properties_key(binding)
        if key == name:
            return binding
        if unquote(key) == name:
            decoded = binding
    return decoded
