"""Peerings of the configuration: logins and time limits for the node, TLS contexts for its shell."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ha.adapter.federation.settings import LOGINS, FederationSettings
from ha.adapter.peering.login import PeeringLimits, PeeringLogin
from ha.adapter.witness.place import LOGIN, WitnessPlace
from understudy.config.settings import ConfigError
from understudy.shared.addresses import TlsHostPort

if TYPE_CHECKING:
    from broker.security.tls import Tls
    from understudy.config.settings import (
        FederationLoginSection,
        HaSection,
        PeeringLimitsSection,
        PeeringSection,
        Settings,
    )


ANYWHERE = ("0.0.0.0", "::")
"""Hosts to listen at all addresses of a machine."""


def limits_of(own: PeeringLimitsSection) -> PeeringLimits:
    return PeeringLimits(own.handshake_timeout, int(own.heartbeat), own.redial_most)


def peerings_of(settings: Settings) -> dict[str, PeeringLogin]:
    """The logins at brokers of other sites, by name."""
    return {
        name: PeeringLogin(own.username, own.password, name, own.vhost, own.tls, limits_of(own))
        for name, own in settings.peerings.items()
    }


def federation_of(settings: Settings) -> FederationSettings:
    """Raises ConfigError for a password file that cannot be used."""
    logins = {}
    for name, own in settings.federation.logins.items():
        key, password = f"{LOGINS}{name}", own.password
        if own.password_file is not None:
            password = _first_line(own.password_file, f"{key}.password_file")
        logins[name] = PeeringLogin(own.username, password, key, "/", own.tls, limits_of(own))
    return FederationSettings(settings.federation.node, logins, _addresses(settings))


def _addresses(settings: Settings) -> tuple[str, ...]:
    """Where operators find the brokers of this node. A broker alone that listens at all addresses of its
    machine does not know."""
    known = settings.ha.public_brokers or tuple(routes[0] for routes in settings.ha.brokers)
    if not known:
        known = tuple(at for at in settings.broker.listen if at.port and at.host not in ANYWHERE)
    return tuple(map(str, known))


def _first_line(path: str, key: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{key}: cannot read {path}: {why}") from None
    if not lines or not lines[0]:
        raise ConfigError(f"{key}: the first line of {path} is empty")
    return lines[0]


def witness_of(ha: HaSection) -> WitnessPlace | None:
    at = ha.witness
    if at is None:
        return None
    tls, lease = isinstance(at, TlsHostPort), ha.failover_timeout
    return WitnessPlace.at(at.host, at.port, ha.witness_name, ha.witness_password, tls=tls, lease=lease)


def dial_tls(settings: Settings, tls: Tls | None) -> Callable[[str], ssl.SSLContext]:
    """The TLS context for a connection with that login; "" is the pair's. Contexts of `tls` are asked for
    each time: it reads its files again. Raises ConfigError for a file that cannot be used."""
    own: dict[str, ssl.SSLContext] = {}
    if isinstance(settings.ha.witness, TlsHostPort) and tls is None:
        own[LOGIN] = ssl.create_default_context()
    logins: list[tuple[str, str, PeeringSection | FederationLoginSection]] = []
    logins += [(name, f"peerings.{name}", login) for name, login in settings.peerings.items()]
    for name, own_login in settings.federation.logins.items():
        logins.append((f"{LOGINS}{name}", f"{LOGINS}{name}", own_login))
    for name, key, login in logins:
        if not login.tls or (login.ca is None and settings.tls.ca is not None):
            continue
        try:
            own[name] = ssl.create_default_context(cafile=login.ca)
        except (OSError, ssl.SSLError) as error:
            why = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
            raise ConfigError(f"{key}.ca: cannot use {login.ca}: {why}") from None

    def context(name: str) -> ssl.SSLContext:
        if name in own:
            return own[name]
        if tls is None:
            raise OSError("this broker has no section tls")
        return tls.dials

    return context
