"""RabbitMQ's federation, as rabbitmqctl exports it, goes on here after an import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.interop.rabbitmq.brokers import Client, Ours, Rabbit

pytestmark = pytest.mark.system


def test_a_policy_and_its_upstream_become_an_agent_that_runs(
    tmp_path: Path, theirs: Rabbit, leaf: Ours, there: Client, here: Client
) -> None:
    """Its upstream is that RabbitMQ itself. The login of that name is configured."""
    there.exchange("imported")
    uri = f"amqp://guest:s%65cret@127.0.0.1:{theirs.port}"
    theirs.control("set_parameter", "federation-upstream", "rabbit", json.dumps({"uri": uri}))
    policy = json.dumps({"federation-upstream-set": "all"})
    theirs.control("set_policy", "import", "^imported$", policy, "--apply-to", "exchanges")
    file = tmp_path / "rabbit.json"
    theirs.control("export_definitions", str(file))
    theirs.control("clear_policy", "import")
    theirs.control("clear_parameter", "federation-upstream", "rabbit")
    wanted = json.loads(file.read_text())
    kept = {key: wanted[key] for key in ("rabbit_version", "parameters", "policies", "exchanges")}
    kept["parameters"] = [line for line in kept["parameters"] if line["name"] == "rabbit"]
    kept["policies"] = [line for line in kept["policies"] if line["name"] == "import"]
    kept["exchanges"] = [line for line in kept["exchanges"] if line["name"] == "imported"]
    file.write_text(json.dumps(kept))
    said = leaf.run("definitions", "import", str(file))
    assert "1 agent declared" in said and "secret" not in said
    here.queue("imported.q", "imported", "k")
    leaf.runs("imported")
    there.publish("imported", "k", "1")
    assert here.bodies("imported.q", 1) == ["1"]
