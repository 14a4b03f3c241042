"""Connections of clients. Those of peers and operators are not told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cryptography.x509 import Certificate, load_der_x509_certificate

from broker.amqp091.server.connection import ServerConnection
from broker.connection import Connection
from broker.model.statistics import AMQP091
from ha.adapter.management.connection_name import connection_name
from ha.adapter.management.definitions_view import to_json
from ha.adapter.management.views.rates import OCTETS, gauge
from ha.adapter.management.views.view import ABSENT, Column, Table, View

PROTOCOL_NAMES: Mapping[str, str] = {AMQP091: "AMQP 0-9-1", "amqp10": "AMQP 1.0"}


def clients(view: View) -> list[Connection]:
    """Logged-in clients."""
    return [c for c in view.node.broker.connections if c.let_in and not c.is_management and not c.gone]


def _state(connection: Connection, view: View) -> str:
    if not connection.running:
        return "closing"
    if view.node.broker.blocked and connection.publishes:
        return "blocked"
    return "flow" if connection.paused_reading and connection.publishes else "running"


def _channels(connection: Connection) -> int:
    return len(connection.channels) if isinstance(connection, ServerConnection) else 1


def _properties(connection: Connection) -> Any:
    return to_json(connection.client_properties)


def _provided(connection: Connection) -> Any:
    name = connection.client_properties.get("connection_name")
    return name if isinstance(name, str) else ABSENT


def _suite(name: str) -> Column[Connection]:
    def column(connection: Connection, view: View) -> Any:
        suite = connection.peer.suite()
        return None if suite is None else getattr(suite, name)

    return column


def _certificate(read: Callable[[Certificate], str]) -> Column[Connection]:
    """Of the client's certificate; None if the listener asked for none."""

    def column(connection: Connection, view: View) -> Any:
        der = connection.certificate
        if der is None:
            return None
        try:
            return read(load_der_x509_certificate(der))
        except ValueError:
            return None

    return column


def _validity(certificate: Certificate) -> str:
    """In RabbitMQ's form."""
    ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return " - ".join(end.strftime("%Y-%m-%dT%H:%M:%SZ") for end in ends)


def _octets(name: str) -> Column[Connection]:
    return lambda connection, view: gauge(connection.counts, OCTETS, name, view, view.octets)


def _frame_max(connection: Connection) -> int:
    if isinstance(connection, ServerConnection):
        return connection.frame_max
    return connection.settings.frame_max


_COLUMNS: dict[str, Column[Connection]] = {
    "auth_mechanism": lambda connection, view: connection.mechanism,
    "channel_max": lambda connection, view: (
        connection.channel_max if isinstance(connection, ServerConnection) else 0
    ),
    "channels": lambda connection, view: _channels(connection),
    "client_properties": lambda connection, view: _properties(connection),
    "connected_at": lambda connection, view: connection.since,
    "frame_max": lambda connection, view: _frame_max(connection),
    "host": lambda connection, view: connection.peer.local[0],
    "name": lambda connection, view: connection_name(connection),
    "node": lambda connection, view: view.name,
    "peer_cert_issuer": _certificate(lambda found: found.issuer.rfc4514_string()),
    "peer_cert_subject": _certificate(lambda found: found.subject.rfc4514_string()),
    "peer_cert_validity": _certificate(_validity),
    "peer_host": lambda connection, view: connection.peer.host,
    "peer_port": lambda connection, view: connection.peer.port,
    "port": lambda connection, view: connection.peer.local[1],
    "protocol": lambda connection, view: PROTOCOL_NAMES[connection.protocol],
    "recv_cnt": lambda connection, view: connection.received_count,
    "recv_oct": lambda connection, view: connection.received_octets,
    "recv_oct_details": _octets("recv_oct"),
    "send_cnt": lambda connection, view: connection.sent_count,
    "send_oct": lambda connection, view: connection.sent_octets,
    "send_oct_details": _octets("send_oct"),
    "send_pend": lambda connection, view: connection.unsent,
    "ssl": lambda connection, view: connection.peer.tls,
    "ssl_cipher": _suite("cipher"),
    "ssl_hash": _suite("hash"),
    "ssl_key_exchange": _suite("key_exchange"),
    "ssl_protocol": _suite("protocol"),
    "state": _state,
    "timeout": lambda connection, view: connection.life.interval,
    "type": lambda connection, view: "network",
    "user": lambda connection, view: connection.user,
    "user_provided_name": lambda connection, view: _provided(connection),
    "user_who_performed_action": lambda connection, view: connection.user,
    "vhost": lambda connection, view: connection.vhost.name,
}

CONNECTIONS: Table[Connection] = Table(
    items=clients,
    vhost=lambda connection: connection.vhost.name,
    owner=lambda connection: connection.user,
    columns=_COLUMNS,
    details={},
    plain=tuple(name for name in _COLUMNS if not name.startswith(("recv_", "send_"))),
)
