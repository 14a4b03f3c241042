"""Cases of the suites of RabbitMQ's own clients of the HTTP API (rabbit-hole, Hop), written anew."""

from __future__ import annotations

from base64 import b64decode, b64encode

from tests.interop.management.place import ROOT, Place, in_path, until

REFUSED = (401, 403)


def overview_and_nodes(place: Place) -> None:
    found = place.get("overview")
    assert {"management_version", "rabbitmq_version", "cluster_name", "node", "listeners"} <= set(found)
    assert {"message_stats", "queue_totals", "object_totals", "churn_rates"} <= set(found)
    assert {"queues", "exchanges", "connections", "channels", "consumers"} <= set(found["object_totals"])
    assert "amqp" in {each["protocol"] for each in found["listeners"]}
    assert {"fanout", "direct", "topic", "headers"} <= {each["name"] for each in found["exchange_types"]}
    (node,) = [each for each in place.get("nodes") if each["name"] == found["node"]]
    assert node["running"] is True
    fields = ("fd_used", "fd_total", "mem_used", "mem_limit", "disk_free", "disk_free_limit", "uptime")
    assert all(isinstance(node[key], int) for key in fields)
    assert node["mem_alarm"] is False and node["disk_free_alarm"] is False
    assert place.get(f"nodes/{in_path(node['name'])}")["name"] == node["name"]
    assert place.get("cluster-name")["name"] == found["cluster_name"]
    assert place.get("whoami")["name"] == place.user
    assert isinstance(place.get("extensions"), list)


def health_checks(place: Place) -> None:
    for check in ("alarms", "local-alarms", "virtual-hosts", "port-listener/" + str(place.amqp.port)):
        assert place.get(f"health/checks/{check}")["status"] == "ok", check
    assert place.ask("GET", "health/checks/port-listener/1").status == 503
    assert place.get(f"aliveness-test/{ROOT}") == {"status": "ok"}
    assert place.get("healthchecks/node")["status"] == "ok"


def queues(place: Place) -> None:
    name = f"hop.queue/{place.run}"
    path = f"queues/{ROOT}/{in_path(name)}"
    place.does("PUT", path, {"durable": True, "arguments": {"x-max-priority": 3}}, 201)
    found = place.get(path)
    assert (found["name"], found["vhost"], found["durable"], found["type"]) == (name, "/", True, "classic")
    assert found["arguments"] == {"x-max-priority": 3} and found["exclusive"] is False
    place.does("PUT", path + "-2", {}, 201)
    pages = place.get(
        f"queues?page=1&page_size=1&name={in_path(name)}&sort=name&sort_reverse=true&columns=name"
    )
    assert (pages["items"], pages["filtered_count"], pages["page_count"]) == ([{"name": name + "-2"}], 2, 2)
    assert place.ask("GET", "queues?page=0").status == 400
    assert place.ask("GET", "queues?page=x").status == 400
    assert place.ask("GET", f"queues/nowhere/{in_path(name)}").status == 404
    assert place.ask("GET", "queues/nowhere").status == 404
    until(lambda: place.ask("DELETE", path + "-2?if-empty=true&if-unused=true").status == 204)
    place.does("DELETE", path)
    assert place.ask("GET", path).status == 404


def messages(place: Place) -> None:
    name = f"hop-messages{place.run}"
    place.does("PUT", f"queues/{ROOT}/{name}", {}, 201)
    told = {
        "properties": {"content_type": "text/plain", "delivery_mode": 2, "headers": {"a": 1}},
        "routing_key": name, "payload": "grüße", "payload_encoding": "string",
    }  # fmt: skip
    publish = f"exchanges/{ROOT}/amq.default/publish"
    assert place.does("POST", publish, told, 200).body == {"routed": True}
    binary = b"\xff\xfe\x00"
    encoded = told | {"payload": b64encode(binary).decode(), "payload_encoding": "base64"}
    assert place.does("POST", publish, encoded, 200).body == {"routed": True}
    assert place.does("POST", publish, told | {"routing_key": "nobody.at.home"}, 200).body == {
        "routed": False
    }
    get = f"queues/{ROOT}/{name}/get"
    peek = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
    first, second = place.does("POST", get, peek, 200).body
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("grüße", "string", 7)
    assert (first["redelivered"], first["exchange"], first["routing_key"]) == (False, "", name)
    assert first["properties"]["headers"] == {"a": 1} and first["message_count"] == 1
    assert (b64decode(second["payload"]), second["payload_encoding"]) == (binary, "base64")
    again = place.does(
        "POST", get, peek | {"ackmode": "ack_requeue_false", "truncate": 3, "count": 1}, 200
    ).body
    assert again[0]["redelivered"] is True and again[0]["payload_bytes"] == 7
    assert place.ask("POST", get, peek | {"count": "x"}).status == 400
    place.does("DELETE", f"queues/{ROOT}/{name}/contents")
    assert place.does("POST", get, peek, 200).body == []
    place.does("DELETE", f"queues/{ROOT}/{name}")


def connections_and_channels(place: Place) -> None:
    name = f"hop-client{place.run}"
    with place.channel(connection_name=name) as channel:
        channel.queue_declare(name, exclusive=True)
        channel.basic_qos(prefetch_count=7)
        channel.basic_consume(name, lambda *_: None, consumer_tag="tag")

        def ours() -> dict[str, object] | None:
            lines = place.get("connections")
            return next(
                (each for each in lines if each.get("client_properties", {}).get("connection_name") == name),
                None,
            )

        line = until(ours)
        path = f"connections/{in_path(line['name'])}"
        found = until(lambda: place.get(path) if place.get(path).get("channels") else None)
        assert (found["user"], found["vhost"], found["state"]) == (place.user, "/", "running")
        assert found["protocol"] in ("AMQP 0-9-1", [0, 9, 1]) and found["peer_host"] == "127.0.0.1"
        (one,) = until(lambda: place.get(f"{path}/channels"))
        detail = until(
            lambda: (
                (c := place.get(f"channels/{in_path(one['name'])}")).get("prefetch_count") is not None and c
            )
        )
        assert (detail["number"], detail["confirm"], detail["consumer_count"]) == (1, True, 1)
        assert {
            each["consumer_tag"] for each in place.get(f"consumers/{ROOT}") if each["queue"]["name"] == name
        }
        assert place.ask("DELETE", path).status == 204
    assert place.ask("GET", path).status == 404


def users_without_rights(place: Place) -> None:
    """Errors of logins, in RabbitMQ's form. For a login that is good RabbitMQ says 401, too."""
    name = f"hop-user{place.run}"
    place.does("PUT", f"users/{name}", {"password": "secret", "tags": ""}, 201)
    login = f"{name}:secret"
    assert place.ask("GET", "overview", login=login).status in REFUSED
    place.does("PUT", f"users/{name}", {"password": "secret", "tags": "management"})
    assert place.ask("GET", "overview", login=login).status == 200
    assert place.ask("GET", "users", login=login).status in REFUSED
    assert place.ask("PUT", f"queues/{ROOT}/{name}", {}, login=login).status in REFUSED
    refused = place.ask("GET", "overview", login=f"{name}:wrong")
    assert refused.status == 401 and set(refused.body) >= {"error", "reason"}
    assert place.ask("POST", "users/bulk-delete", {"users": [name]}).status == 204
    assert place.ask("GET", f"users/{name}").status == 404


def definitions_over_and_back(place: Place) -> None:
    name = f"hop-file{place.run}"
    place.does("PUT", f"vhosts/{name}", {}, 201)
    place.does("PUT", f"queues/{name}/q", {"durable": True}, 201)
    whole, part = place.get("definitions"), place.get(f"definitions/{name}")
    assert {"name": "q", "vhost": name}.items() <= _find(whole, "q", name).items()
    assert [each["name"] for each in part["queues"]] == ["q"]
    place.does("DELETE", f"queues/{name}/q")
    assert place.ask("POST", f"definitions/{name}", part).status in (200, 204)
    assert place.get(f"queues/{name}/q")["durable"] is True
    place.does("DELETE", f"vhosts/{name}")


def _find(definitions: dict[str, list[dict[str, object]]], name: str, vhost: str) -> dict[str, object]:
    (line,) = [each for each in definitions["queues"] if (each["name"], each["vhost"]) == (name, vhost)]
    return line
