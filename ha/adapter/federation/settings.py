"""Settings of federation. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ha.adapter.peering.login import PeeringLogin

LOGINS = "federation.logins."
"""What the name of a login begins with, to tell it from those of `peerings`."""


@dataclass(slots=True, frozen=True)
class FederationSettings:
    """`node`: the name of this node in the net, equal on all brokers of a cluster; "": it is in none.
    `logins` at upstreams, by name. `addresses`: where operators find its brokers; () if that is not known."""

    node: str = ""
    logins: Mapping[str, PeeringLogin] = field(default_factory=dict)
    addresses: tuple[str, ...] = ()
