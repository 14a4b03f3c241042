"""RabbitMQ's own command line client of its HTTP API, `rabbitmqadmin` of Debian's package."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.management.place import PATIENCE, Place, until


class Admin:
    def __init__(self, place: Place) -> None:
        self._words = ["rabbitmqadmin", "-H", place.http.host, "-P", str(place.http.port)]
        self._words += ["-u", place.user, "-p", place.password]

    def __call__(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [*self._words, *words], input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def lines(self, what: str, *columns: str) -> list[dict[str, Any]]:
        found = json.loads(self("-f", "raw_json", "list", what, *columns))
        assert isinstance(found, list)
        return found


def is_there() -> bool:
    return shutil.which("rabbitmqadmin") is not None


def declares_and_deletes(place: Place) -> None:
    """Each kind of object, and what `list` then shows of it."""
    admin, name = Admin(place), f"admin{place.run}"
    made = [
        ("vhost", f"name={name}"),
        ("user", f"name={name}", "password=secret", "tags=monitoring"),
        ("permission", f"vhost={name}", f"user={name}", "configure=.*", "write=.*", "read=.*"),
        ("exchange", f"name={name}", "type=topic"),
        ("queue", f"name={name}", "durable=true", 'arguments={"x-max-length": 100}'),
        ("binding", f"source={name}", f"destination={name}", "routing_key=a.#"),
        ("policy", f"name={name}", f"pattern=^{name}$", 'definition={"max-length": 50}', "apply-to=queues"),
    ]
    for kind, *words in made:
        assert "declared" in admin("declare", kind, *words)
    for what in ("vhosts", "users", "exchanges", "queues", "policies"):
        assert name in {line["name"] for line in admin.lines(what)}, what
    permission = _one(admin, "permissions", "user", name)
    assert (permission["vhost"], permission["configure"]) == (name, ".*")
    assert _one(admin, "queues", "name", name)["arguments"] == {"x-max-length": 100}
    bound = _one(admin, "bindings", "source", name)
    assert (bound["destination"], bound["routing_key"], bound["properties_key"]) == (name, "a.#", "a.%23")
    key = bound["properties_key"]
    deleted = [
        ("policy", f"name={name}"),
        (
            "binding",
            f"source={name}",
            "destination_type=queue",
            f"destination={name}",
            f"properties_key={key}",
        ),
        ("queue", f"name={name}"),
        ("exchange", f"name={name}"),
        ("permission", f"vhost={name}", f"user={name}"),
        ("user", f"name={name}"),
        ("vhost", f"name={name}"),
    ]
    for kind, *words in deleted:
        assert "deleted" in admin("delete", kind, *words)
    for what in ("vhosts", "queues"):
        assert name not in {line["name"] for line in admin.lines(what)}, what


def publishes_and_gets(place: Place) -> None:
    admin, name = Admin(place), f"admin-get{place.run}"
    admin("declare", "queue", f"name={name}")
    for word in ("one", "two"):
        assert "published" in admin("publish", f"routing_key={name}", f"payload={word}")
    assert "NOT routed" in admin("publish", "routing_key=nowhere-at-all", "payload=x")
    found = json.loads(admin("-f", "raw_json", "get", f"queue={name}", "ackmode=ack_requeue_false"))
    assert [each["payload"] for each in found] == ["one"]
    assert "purged" in admin("purge", "queue", f"name={name}")
    assert json.loads(admin("-f", "raw_json", "get", f"queue={name}")) == []
    admin("delete", "queue", f"name={name}")


def shows_and_closes(place: Place) -> None:
    """The overview; connections, channels and consumers, one of which it closes."""
    admin, name = Admin(place), f"admin-close{place.run}"
    shown = admin("show", "overview")
    assert "rabbitmq_version" in shown and "cluster_name" in shown
    assert any(node["running"] for node in admin.lines("nodes"))
    with place.channel(connection_name=name) as channel:
        channel.queue_declare(name, exclusive=True)
        channel.basic_consume(name, lambda *_: None, consumer_tag=name)
        connection = _ours(admin, name)
        assert connection["user"] == place.user
        assert any(line["name"].startswith(connection["name"]) for line in admin.lines("channels"))
        assert name in {line["consumer_tag"] for line in admin.lines("consumers")}
        assert "closed" in admin("close", "connection", f"name={connection['name']}")
        try:
            channel.connection.process_data_events(PATIENCE)
        except Exception as error:
            assert "320" in str(error)
        assert not channel.connection.is_open
    assert name not in map(_named, admin.lines("connections"))


def exports_and_imports(place: Place) -> None:
    admin, name = Admin(place), f"admin-file{place.run}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "definitions.json"
        admin("declare", "queue", f"name={name}")
        assert "Exported" in admin("export", str(file))
        assert name in {line["name"] for line in json.loads(file.read_text())["queues"]}
        admin("delete", "queue", f"name={name}")
        assert "Uploaded" in admin("import", str(file))
    assert _one(admin, "queues", "name", name)["durable"]
    admin("delete", "queue", f"name={name}")


def _one(admin: Admin, what: str, key: str, value: str) -> dict[str, Any]:
    (line,) = [line for line in admin.lines(what) if line[key] == value]
    return line


def _ours(admin: Admin, name: str) -> dict[str, Any]:
    """RabbitMQ shows a connection up to five seconds after it was opened."""

    def found() -> dict[str, Any] | None:
        lines = admin.lines("connections")
        return next((each for each in lines if _named(each) == name), None)

    line = until(found)
    assert isinstance(line, dict)
    return line


def _named(connection: dict[str, Any]) -> str:
    return str(connection.get("client_properties", {}).get("connection_name"))
