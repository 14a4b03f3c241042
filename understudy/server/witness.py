"""Builds the driver of the witness from the configuration. Called by the daemon."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.witness.driver import Where, WitnessDriver
from understudy.shared.addresses import TlsHostPort

if TYPE_CHECKING:
    from broker.security.tls import Tls
    from ha.adapter.node import Node
    from understudy.config.settings import HaSection


def witness_driver(
    ha: HaSection, tls: Tls | None, node: Node, clock: Callable[[], float], tick_soon: Callable[[], None]
) -> WitnessDriver:
    """`ha.witness` is set. With TLS this node shows the certificate of its section `tls`, if there is one."""
    at, who = ha.witness, node.me.who
    assert at is not None

    def context() -> ssl.SSLContext | None:
        if not isinstance(at, TlsHostPort):
            return None
        return tls.dials if tls is not None else ssl.create_default_context()

    asker = (who.node_id, who.number)
    name, password = ha.witness_name, ha.witness_password
    where = Where(at.host, at.port, name, password, asker, ha.failover_timeout, context)
    return WitnessDriver(node, where, clock, tick_soon)
