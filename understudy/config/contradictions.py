"""Contradictions between keys whose values are valid one by one. Called by `load` only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from understudy.config.settings import WELL_KNOWN
from understudy.shared.addresses import TlsHostPort

if TYPE_CHECKING:
    from understudy.config.settings import EtcdSection, HaSection, Settings
    from understudy.shared.addresses import HostPort


def contradictions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each key to change, and why. `load` reports the first."""
    yield from _of_users(settings)
    yield from _of_listeners(settings)
    yield from _of_the_pair(settings)
    if settings.federation.logins and not settings.federation.node:
        yield "federation.node", "is needed with federation.logins: the name of this node in the net"
    yield from _of_tls(settings)


def _of_users(settings: Settings) -> Iterator[tuple[str, str]]:
    auth, ha, users = settings.auth, settings.ha, settings.auth.users
    if ha.username in ("guest",) if users is None else ha.username in users:
        yield "ha.username", f"{ha.username!r} is a user of applications; the pair needs a name of its own"
    if (auth.default_user is None) is not (auth.default_password is None):
        lacking = "default_user" if auth.default_user is None else "default_password"
        yield f"auth.{lacking}", "is needed: auth.default_user and auth.default_password go together"
    if auth.default_user is not None and auth.default_user in (ha.username, *(users or ())):
        yield "auth.default_user", f"{auth.default_user!r} exists already, in auth.users or as ha.username"
    own = "auth.users" if users is not None else "auth.default_user" if auth.default_user is not None else ""
    if own and ha.brokers and ha.is_well_known:
        yield (
            "ha.password",
            f"is needed for a pair with {own}: with the default, anybody on this machine could open the "
            "link, which reads every queue; give all nodes the same long secret",
        )


def _of_listeners(settings: Settings) -> Iterator[tuple[str, str]]:
    broker, ha = settings.broker, settings.ha
    if not broker.listen and not broker.tls_listen:
        yield "broker.listen", "needs at least one address HOST:PORT, unless broker.tls_listen has one"
    if ha.listen is not None and ha.listen.port and ha.listen in (*broker.listen, *broker.tls_listen):
        yield (
            "ha.listen",
            f"{ha.listen} is already a listener for clients, in broker.listen or broker.tls_listen",
        )
    taken: dict[HostPort, str] = {}
    for key, addresses in (("broker.listen", broker.listen), ("broker.tls_listen", broker.tls_listen)):
        for at in addresses:
            if at.port and at in taken:
                yield key, f"{at} is already in {taken[at]}"
            taken[at] = key


def _of_the_pair(settings: Settings) -> Iterator[tuple[str, str]]:
    ha = settings.ha
    if ha.authority != "manual" and not ha.brokers:
        yield "ha.brokers", f"is needed for ha.authority = {ha.authority!r}"
    if ha.authority == "pair":
        yield from _of_controller(ha)
    elif ha.role is not None:
        yield "ha.role", f"needs ha.authority = 'pair', which is {ha.authority!r}"
    yield from _of_the_witness(settings)
    if ha.authority == "etcd":
        yield from _of_etcd(ha.etcd)
        if ha.failover_timeout < 2 or ha.failover_timeout != int(ha.failover_timeout):
            yield "ha.failover_timeout", "must be whole seconds from 2s for ha.authority = 'etcd'"
    elif ha.etcd.endpoints:
        yield "ha.authority", f"is {ha.authority!r}, and ha.etcd.endpoints needs 'etcd'"
    if twice := [address for number, address in enumerate(ha.routes) if address in ha.routes[:number]]:
        what = "address" if len(ha.routes) > len(ha.brokers) else "node of the pair"
        yield "ha.brokers", f"has {twice[0]} twice; name each {what} once"
    if ha.min_backups and ha.min_backups >= len(ha.brokers):
        yield (
            "ha.min_backups",
            f"{ha.min_backups} needs more brokers than the {len(ha.brokers)} of ha.brokers",
        )
    if ha.on_backup_loss == "block" and len(ha.brokers) < 2:
        yield (
            "ha.on_backup_loss",
            f"'block' needs two brokers to confirm anything, and ha.brokers has {len(ha.brokers)}",
        )
    if ha.public_brokers and len(ha.public_brokers) != len(ha.brokers):
        yield (
            "ha.public_brokers",
            f"needs one address for each of the {len(ha.brokers)} of ha.brokers, in the same order",
        )
    if ha.listen is not None and ha.brokers and not ha.public_brokers:
        yield (
            "ha.public_brokers",
            "is needed with ha.listen: the address for clients of each of ha.brokers, in the same order",
        )


def _of_controller(ha: HaSection) -> Iterator[tuple[str, str]]:
    if ha.role is None:
        yield "ha.role", "is needed for ha.authority = 'pair': primary on one node, backup on the other"
    if ha.brokers and len(ha.brokers) != 2:
        yield "ha.brokers", f"needs two brokers for ha.authority = 'pair', and has {len(ha.brokers)}"


def _of_the_witness(settings: Settings) -> Iterator[tuple[str, str]]:
    ha, auth = settings.ha, settings.auth
    if ha.witness is not None and ha.authority != "pair":
        yield "ha.witness", f"needs ha.authority = 'pair', which is {ha.authority!r}"
    if ha.witness is not None and tuple(ha.witness) in map(tuple, (*ha.routes, *ha.public_brokers)):
        yield "ha.witness", f"{ha.witness} is a node of the pair itself; a witness is a third broker"
    if ha.witness is not None and ha.failover_timeout < 2:
        yield "ha.failover_timeout", "must be 2s or more with a witness"
    taken = {ha.username, auth.default_user or "guest", *(auth.users or {})}
    for name in ha.witness_for:
        if name in taken:
            yield "ha.witness_for", f"{name!r} is a user of this broker already; give the pair another name"
    own = "auth.users" if auth.users is not None else "auth.default_user" if auth.default_user else ""
    if own and ha.witness_for and ha.witness_password == WELL_KNOWN:
        yield (
            "ha.witness_password",
            f"is needed for ha.witness_for with {own}: with the default, anybody on this machine could "
            "decide who serves; give the witness and its pairs the same long secret",
        )


def _of_etcd(etcd: EtcdSection) -> Iterator[tuple[str, str]]:
    if not etcd.endpoints:
        yield "ha.etcd.endpoints", "is needed for ha.authority = 'etcd': http://HOST:2379 of each member"
    if bool(etcd.username) is not bool(etcd.password):
        yield (
            f"ha.etcd.{'password' if etcd.username else 'username'}",
            "is needed: ha.etcd.username and ha.etcd.password go together",
        )
    if (etcd.certificate is None) is not (etcd.key is None):
        lacking = "certificate" if etcd.certificate is None else "key"
        yield f"ha.etcd.{lacking}", "is needed: ha.etcd.certificate and ha.etcd.key go together"
    if (etcd.ca or etcd.certificate) and not any(url.startswith("https:") for url in etcd.endpoints):
        yield "ha.etcd.endpoints", "needs URLs with https for ha.etcd.ca and ha.etcd.certificate"


def _of_tls(settings: Settings) -> Iterator[tuple[str, str]]:
    tls, ha = settings.tls, settings.ha
    broker = settings.broker
    users = {"ha.tls": ha.tls, "broker.tls_listen": broker.tls_listen, "broker.http_tls": broker.http_tls}
    user = next((key for key, uses in users.items() if uses), "")
    if user and tls.certificate is None:
        yield "tls.certificate", f"is needed for {user}"
    if tls.certificate is not None and tls.key is None:
        yield "tls.key", "is needed with tls.certificate"
    if tls.certificate is None and (tls.key or tls.ca or tls.client_ca):
        yield "tls.certificate", "is needed with the other files of the section"
    if settings.auth.external != "off" and tls.client_ca is None:
        yield "tls.client_ca", "is needed for auth.external: it decides which certificates name users"
    if isinstance(ha.witness, TlsHostPort) and tls.certificate is not None and tls.ca is None:
        yield "tls.ca", "is needed for a witness over TLS: this node checks the certificate there by it"
    if broker.http_tls and broker.http is None:
        yield "broker.http", "is needed for broker.http_tls"
    if ha.tls and tls.ca is None:
        yield "tls.ca", "is needed for ha.tls: both ends of the link show a certificate of this authority"
    if ha.tls and ha.brokers and ha.listen is None:
        yield "ha.listen", "is needed for ha.tls: the link needs its own listener"
