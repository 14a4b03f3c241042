"""The node, as its federation uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ha.adapter.mirror.source_vhost import SourceNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from ha.adapter.ledger_port import LedgerPort
    from ha.adapter.peering.peerings import Peerings
    from ha.adapter.settings import HaSettings
    from understudy.shared.codes import Coded


class FederationNode(SourceNode, Protocol):
    """The node, as far as federation concerns it."""

    ledger: LedgerPort
    peerings: Peerings
    settings: HaSettings

    @property
    def log(self) -> Callable[[Coded], None]: ...

    @property
    def warn(self) -> Callable[[Coded], None]:
        """For what an operator may have to act on."""
