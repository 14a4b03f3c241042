"""Users, permissions, policies, parameters and limits."""

from __future__ import annotations

from typing import Any

from ha.adapter.management.directory_changes import directory_of
from ha.adapter.management.views.view import Row, RowTable, View

OPERATOR, VHOST_LIMITS = "operator_policy", "vhost-limits"
"""Components of parameters that have views of their own."""
_SHA256 = "rabbit_password_hashing_sha256"


def _of(view: View, kind: str) -> list[Row]:
    return directory_of(view.node.vhosts.directory, view.node.broker.settings.users)[kind]


def users(view: View) -> list[Row]:
    """A user of the configuration is marked, and its hash is not told."""
    known = {"password_hash": "", "hashing_algorithm": _SHA256, "tags": [], "limits": {}}
    return [known | user for user in _of(view, "users")]


def permissions(view: View) -> list[Row]:
    """Those of configured users, who may do everything, come first."""
    configured = [user["name"] for user in _of(view, "users") if user.get("configured")]
    return [
        *(
            {"user": user, "vhost": vhost.name, "configure": ".*", "write": ".*", "read": ".*"}
            for user in configured
            for vhost in view.node.vhosts
        ),
        *_of(view, "permissions"),
    ]


def policies(view: View) -> list[Row]:
    return _of(view, "policies")


def operator_policies(view: View) -> list[Row]:
    return [
        {"vhost": found["vhost"], "name": found["name"], **found["value"]}
        for found in _of(view, "parameters")
        if found["component"] == OPERATOR
    ]


def parameters(view: View) -> list[Row]:
    """Without those that have views of their own."""
    return [row for row in _of(view, "parameters") if row["component"] not in (OPERATOR, VHOST_LIMITS)]


def vhost_limits(view: View) -> list[Row]:
    return [
        {"vhost": found["vhost"], "value": found["value"]}
        for found in _of(view, "parameters")
        if found["component"] == VHOST_LIMITS
    ]


def user_limits(view: View) -> list[Row]:
    limits = view.node.vhosts.directory.user_limits
    return [{"user": user, "value": dict(held)} for user, held in limits.items()]


def global_parameters(view: View) -> list[Row]:
    """RabbitMQ's two that every cluster has."""
    found: list[Row] = [{"name": "cluster_name", "value": cluster_name(view)}]
    cluster: Any = view.node.core.cluster_id
    if cluster:
        found.append({"name": "internal_cluster_id", "value": f"understudy-cluster-id-{cluster}"})
    return found


def cluster_name(view: View) -> str:
    """Equal on both nodes of a pair: the name of the federation node, or the id of the cluster."""
    return view.node.broker.settings.cluster_name or view.node.core.cluster_id or view.name


USERS = RowTable(users)
PERMISSIONS = RowTable(permissions)
TOPIC_PERMISSIONS = RowTable(lambda view: _of(view, "topic_permissions"))
POLICIES = RowTable(policies)
OPERATOR_POLICIES = RowTable(operator_policies)
PARAMETERS = RowTable(parameters)
GLOBAL_PARAMETERS = RowTable(global_parameters)
VHOST_LIMITS_TABLE = RowTable(vhost_limits)
USER_LIMITS = RowTable(user_limits)
