"""Clients of the HTTP API that Python programs have: pyrabbit2, and pyrabbit by way of kombu and Celery."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import kombu
import pyrabbit2
import pytest
from pyrabbit2.api import PermissionError as Refused

from tests.interop.management.place import PATIENCE, ROOT, Place


def pyrabbit2_reads(place: Place) -> None:
    client = pyrabbit2.Client(str(place.http), place.user, place.password)
    assert client.is_alive()
    assert client.get_whoami()["name"] == place.user
    assert client.get_overview()["rabbitmq_version"].startswith("3.")
    assert any(node["running"] for node in client.get_nodes())
    assert "/" in client.get_vhost_names()
    assert place.user in {user["name"] for user in client.get_users()}
    assert "amq.topic" in {exchange["name"] for exchange in client.get_exchanges("/")}
    with pytest.raises(Refused, match="401"):
        pyrabbit2.Client(str(place.http), place.user, "wrong").get_whoami()


def pyrabbit2_changes(place: Place) -> None:
    client, name = pyrabbit2.Client(str(place.http), place.user, place.password), f"pyrabbit2{place.run}"
    client.create_vhost(name)
    client.create_user(name, password="secret", tags="management")
    client.set_vhost_permissions(name, name, ".*", ".*", ".*")
    assert client.get_permission(name, name)["write"] == ".*"
    client.create_exchange(name, name, "direct")
    client.create_queue(name, name, durable=True)
    client.create_binding(name, name, name, "key")
    assert [each["routing_key"] for each in client.get_queue_bindings(name, name)][-1] == "key"
    assert client.publish(name, name, "key", "hello") is True
    assert [each["payload"] for each in client.get_messages(name, name)] == ["hello"]
    client.purge_queue(name, name)
    assert client.get_messages(name, name) in (None, [])
    assert client.get_queue(name, name)["durable"] is True
    client.create_policy(name, name, pattern="^p", definition={"max-length": 3}, priority=1)
    assert client.get_policy(name, name)["definition"] == {"max-length": 3}
    client.delete_policy(name, name)
    client.delete_binding(name, name, name, "key")
    client.delete_queue(name, name)
    client.delete_exchange(name, name)
    client.delete_permission(name, name)
    client.delete_user(name)
    client.delete_vhost(name)
    assert name not in client.get_vhost_names()


def kombu_manages(place: Place) -> None:
    """`Connection.manager`, which is pyrabbit."""
    name = f"kombu{place.run}"
    url = f"amqp://{place.user}:{place.password}@{place.amqp}//"
    with kombu.Connection(url, transport_options={"manager_port": place.http.port}) as connection:
        queue: Any = kombu.Queue(name, kombu.Exchange(name, "topic"), "a.*", channel=connection)
        queue.declare()
        manager = connection.manager
        assert name in {each["name"] for each in manager.get_queues()}
        bound = [each for each in manager.get_bindings() if each["source"] == name]
        assert [(each["destination"], each["routing_key"]) for each in bound] == [(name, "a.*")]
        queue.delete()


def celery_lists_bindings(place: Place) -> None:
    """`celery list bindings`, which asks by kombu."""
    name = f"celery{place.run}"
    place.does("PUT", f"queues/{ROOT}/{name}", {"durable": True}, 201)
    place.does("POST", f"bindings/{ROOT}/e/amq.direct/q/{name}", {"routing_key": "task"}, 201)
    program = (
        "from celery import Celery; "
        f"app = Celery(broker='amqp://{place.user}:{place.password}@{place.amqp}//'); "
        f"app.conf.broker_transport_options = {{'manager_port': {place.http.port}}}; "
        "app.start(['list', 'bindings'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-800:]
    assert [line for line in done.stdout.splitlines() if name in line and "task" in line], done.stdout
    place.does("DELETE", f"queues/{ROOT}/{name}")
