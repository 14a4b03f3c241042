"""What Terraform's provider for RabbitMQ asks, by its Go client: make, read back, change, read, delete.

Terraform plans a change whenever what it reads back differs from what it wrote. So the answers count.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from tests.interop.management.place import ROOT, Place, until


def virtual_hosts_and_users(place: Place) -> None:
    name = f"tf{place.run}"
    place.does("PUT", f"vhosts/{name}", {"description": "made by code", "default_queue_type": "classic"}, 201)
    place.does("PUT", f"vhosts/{name}", {"description": "made by code"}, 204)
    found = place.get(f"vhosts/{name}")
    assert (found["name"], found["description"]) == (name, "made by code")
    user = {"password": "secret", "tags": "monitoring,management"}
    place.does("PUT", f"users/{name}", user, 201)
    place.does("PUT", f"users/{name}", user, 204)
    found = place.get(f"users/{name}")
    assert found["name"] == name and set(_tags(found)) == {"monitoring", "management"}
    assert place.ask("GET", "whoami", login=f"{name}:secret").body["name"] == name
    rights = {"configure": "^tf", "write": ".*", "read": ""}
    place.does("PUT", f"permissions/{name}/{name}", rights, 201)
    place.does("PUT", f"permissions/{name}/{name}", rights, 204)
    assert place.get(f"permissions/{name}/{name}") == {"user": name, "vhost": name, **rights}
    topic = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    place.does("PUT", f"topic-permissions/{name}/{name}", topic, 201)
    assert place.get(f"topic-permissions/{name}/{name}") == [{"user": name, "vhost": name, **topic}]
    place.does("DELETE", f"topic-permissions/{name}/{name}")
    place.does("DELETE", f"permissions/{name}/{name}")
    assert place.ask("GET", f"permissions/{name}/{name}").status == 404
    place.does("DELETE", f"users/{name}")
    place.does("DELETE", f"vhosts/{name}")
    for gone in (f"users/{name}", f"vhosts/{name}"):
        assert place.ask("GET", gone).status == 404
        assert place.ask("DELETE", gone).status == 404


def queues_exchanges_and_bindings(place: Place) -> None:
    name = f"tf-queue{place.run}"
    exchange = {"type": "topic", "durable": True, "auto_delete": False, "arguments": {}}
    queue = {"durable": True, "auto_delete": False, "arguments": {"x-message-ttl": 5000}}
    for path, told in ((f"exchanges/{ROOT}/{name}", exchange), (f"queues/{ROOT}/{name}", queue)):
        place.does("PUT", path, told, 201)
        place.does("PUT", path, told, 204)
        found = place.get(path)
        assert {key: found[key] for key in told} == told
        refused = place.ask("PUT", path, told | {"durable": False})
        assert (refused.status, refused.body["error"]) == (400, "bad_request")
    between = f"bindings/{ROOT}/e/{name}/q/{name}"
    keys = [_bound(place, between, "a.#", {}), _bound(place, between, "a.#", {"x": "y"})]
    assert keys[0] == "a.%23" and keys[0] != keys[1]
    found = {line["properties_key"]: line["arguments"] for line in place.get(between)}
    assert found == {keys[0]: {}, keys[1]: {"x": "y"}}
    one = place.get(f"{between}/{keys[0]}")
    assert (one["source"], one["destination"], one["destination_type"]) == (name, name, "queue")
    place.does("DELETE", f"{between}/{keys[0]}")
    assert [line["properties_key"] for line in place.get(between)] == [keys[1]]
    place.does("DELETE", f"queues/{ROOT}/{name}")
    place.does("DELETE", f"exchanges/{ROOT}/{name}")
    assert place.ask("DELETE", f"queues/{ROOT}/{name}").status == 404


def policies_and_limits(place: Place) -> None:
    name = f"tf-policy{place.run}"
    place.does("PUT", f"queues/{ROOT}/{name}", {"durable": True}, 201)
    told = {"pattern": f"^{name}$", "definition": {"max-length": 7}, "priority": 3, "apply-to": "queues"}
    for kind in ("policies", "operator-policies"):
        path = f"{kind}/{ROOT}/{name}"
        place.does("PUT", path, told, 201)
        place.does("PUT", path, told, 204)
        assert place.get(path) == {"name": name, "vhost": "/", **told}
    until(lambda: place.get(f"queues/{ROOT}/{name}").get("policy") == name)
    assert place.get(f"queues/{ROOT}/{name}")["operator_policy"] == name
    for kind in ("policies", "operator-policies"):
        place.does("DELETE", f"{kind}/{ROOT}/{name}")
        assert place.ask("GET", f"{kind}/{ROOT}/{name}").status == 404
    place.does("DELETE", f"queues/{ROOT}/{name}")
    place.does("PUT", f"vhosts/{name}", {}, 201)
    for limit in ("max-connections", "max-queues"):
        assert place.ask("PUT", f"vhost-limits/{name}/{limit}", {"value": 9}).status in (201, 204)
    limits = [line["value"] for line in place.get("vhost-limits") if line["vhost"] == name]
    assert limits == [{"max-connections": 9, "max-queues": 9}]
    place.does("DELETE", f"vhosts/{name}")


def _bound(place: Place, between: str, key: str, arguments: dict[str, Any]) -> str:
    """The key of the binding: the client takes it from the address of what was made."""
    made = place.does("POST", between, {"routing_key": key, "arguments": arguments}, 201)
    return unquote(made.headers["location"].rpartition("/")[2]) if "location" in made.headers else (
        unquote(made.headers["Location"].rpartition("/")[2])
    )  # fmt: skip


def _tags(user: dict[str, Any]) -> list[str]:
    """A list since RabbitMQ 3.9, a text with commas before."""
    tags = user["tags"]
    return tags if isinstance(tags, list) else tags.split(",")
