"""Definitions for tests: whole files and single objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from understudy.definitions.parse import Definitions, read_definitions, validated
from understudy.definitions.plan import ImportPlan, name_of

FIXTURE = Path(__file__).with_name("rabbitmq_3_13.json")
"""Written by hand from the documentation of RabbitMQ 3.13."""
HERE = validated({"users": [{"name": "guest", "tags": ["administrator"], "configured": True}]})
"""The answer of an empty broker. `guest` is a user of its configuration."""


def queue(name: str = "q", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}, **more}


def exchange(name: str = "x", **more: Any) -> dict[str, Any]:
    return {**queue(name), "type": "direct", "internal": False, **more}


def binding(source: str = "x", destination: str = "q", **more: Any) -> dict[str, Any]:
    return {
        "source": source, "vhost": "/", "destination": destination, "destination_type": "queue",
        "routing_key": "k", "arguments": {}, **more,
    }  # fmt: skip


def file_of(**lists: Any) -> Definitions:
    return read_definitions(json.dumps({"rabbit_version": "3.13.7", **lists}).encode())


def names(plan: ImportPlan) -> list[str]:
    return [name_of(item) for item in plan.items]


def texts(plan: ImportPlan) -> list[str]:
    return [left.text for left in plan.left_out if left.matters]


HASH = "9zqaUBZcvZXKH9Y0jYJuRMYAKvJW9MHGzBZ6b0QWSJKTdYmM"
SHA256 = {"password_hash": HASH, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []}
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}


def user(name: str = "alice", **more: Any) -> dict[str, Any]:
    return {"name": name, **SHA256, **more}


def permission(name: str = "alice", **more: Any) -> dict[str, Any]:
    return {"user": name, "vhost": "/", **EVERYTHING, **more}


def policy(name: str = "short", **more: Any) -> dict[str, Any]:
    return {"name": name, "vhost": "/", "pattern": "^a", "definition": {"max-length": 5}, **more}
