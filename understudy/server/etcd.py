"""Builds the driver of the `etcd` authority from the configuration. Called by the daemon."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from ha.etcd.driver import Etcd, EtcdDriver
from ha.etcd.register import Keys
from understudy import codes

if TYPE_CHECKING:
    from ha.adapter.node import Node
    from understudy.config.settings import EtcdSection, HaSection
    from understudy.shared.codes import Coded


class CannotRead(Exception):
    """A file that is needed for TLS with etcd. `said` names the key and the file."""

    def __init__(self, said: Coded) -> None:
        super().__init__(said)
        self.said = said


def etcd_driver(
    ha: HaSection, node: Node, clock: Callable[[], float], tick_soon: Callable[[], None]
) -> EtcdDriver:
    """Raises CannotRead."""
    who, etcd = node.me.who, ha.etcd
    keys = Keys(etcd.prefix, f"{who.node_id} {who.number}", int(ha.failover_timeout))
    where = Etcd(etcd.endpoints, etcd.username, etcd.password, tls_context(etcd))
    return EtcdDriver(node, where, keys, clock, tick_soon)


def tls_context(etcd: EtcdSection) -> ssl.SSLContext | None:
    """None if no endpoint wants it. Raises CannotRead."""
    if not any(url.startswith("https:") for url in etcd.endpoints):
        return None
    try:
        context = ssl.create_default_context(cafile=etcd.ca)
    except (OSError, ValueError) as error:
        raise CannotRead(_said("ha.etcd.ca", etcd.ca, error)) from None
    if etcd.certificate is not None:
        try:
            context.load_cert_chain(etcd.certificate, etcd.key, password="")
        except (OSError, ValueError) as error:
            raise CannotRead(_said("ha.etcd.certificate", etcd.certificate, error)) from None
    return context


def _said(key: str, file: str | None, error: OSError | ValueError) -> Coded:
    cause = "it is not a PEM file of what is needed here, or does not match its key"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        cause = error.strerror or str(error)
    return codes.ETCD_FILE.say(key=key, file=file, cause=cause)
