"""Every case of another's client of the HTTP API. Each was tried on a RabbitMQ 3.10 first."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.management import admin, http_client, pollers, pyrabbits, terraform
from tests.interop.management.place import Place

Case = Callable[[Place], None]

QUICK: tuple[Case, ...] = (
    pyrabbits.pyrabbit2_reads, pyrabbits.pyrabbit2_changes, pyrabbits.kombu_manages,
    pollers.flower_shows_queues, terraform.virtual_hosts_and_users, terraform.queues_exchanges_and_bindings,
    terraform.policies_and_limits, http_client.overview_and_nodes, http_client.health_checks,
    http_client.queues, http_client.messages, http_client.connections_and_channels,
    http_client.users_without_rights, http_client.definitions_over_and_back,
)  # fmt: skip
BY_ADMIN: tuple[Case, ...] = (
    admin.declares_and_deletes, admin.publishes_and_gets, admin.shows_and_closes, admin.exports_and_imports,
)  # fmt: skip
SLOW: tuple[Case, ...] = (pyrabbits.celery_lists_bindings, pollers.keda_scales)
"""Processes that start slowly, or rates that come after the next sample."""
