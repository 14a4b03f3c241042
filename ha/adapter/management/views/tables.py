"""All tables by name, as `understudy list` and the HTTP API name them."""

from __future__ import annotations

from typing import Any, TypeAlias

from ha.adapter.management.views.channels import CHANNELS
from ha.adapter.management.views.connections import CONNECTIONS
from ha.adapter.management.views.consumers import CONSUMERS
from ha.adapter.management.views.directory import (
    GLOBAL_PARAMETERS,
    OPERATOR_POLICIES,
    PARAMETERS,
    PERMISSIONS,
    POLICIES,
    TOPIC_PERMISSIONS,
    USER_LIMITS,
    USERS,
    VHOST_LIMITS_TABLE,
)
from ha.adapter.management.views.exchanges import BINDINGS, EXCHANGES
from ha.adapter.management.views.producers import PRODUCERS
from ha.adapter.management.views.queues import QUEUES
from ha.adapter.management.views.vhosts import VHOSTS
from ha.adapter.management.views.view import RowTable, Table

AnyTable: TypeAlias = Table[Any] | RowTable

TABLES: dict[str, AnyTable] = {
    "queues": QUEUES,
    "exchanges": EXCHANGES,
    "bindings": BINDINGS,
    "connections": CONNECTIONS,
    "channels": CHANNELS,
    "consumers": CONSUMERS,
    "vhosts": VHOSTS,
    "users": USERS,
    "permissions": PERMISSIONS,
    "topic-permissions": TOPIC_PERMISSIONS,
    "policies": POLICIES,
    "operator-policies": OPERATOR_POLICIES,
    "parameters": PARAMETERS,
    "producers": PRODUCERS,
    "global-parameters": GLOBAL_PARAMETERS,
    "vhost-limits": VHOST_LIMITS_TABLE,
    "user-limits": USER_LIMITS,
}
