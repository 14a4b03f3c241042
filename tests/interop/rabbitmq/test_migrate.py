"""docs/how-to/migrate.md: its commands, in order, against a RabbitMQ whose clients go on meanwhile."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compare.rabbitmq import PROGRAMS
from tests.deploy import paper
from tests.interop.rabbitmq.brokers import PATIENCE, Client, Ours, Rabbit, client, until
from tests.understudy.serving import serving

pytestmark = pytest.mark.system
PAGE = paper.HOW_TO / "migrate.md"


class Page:
    """Runs the boxes of the page, with the real addresses in place of those it names."""

    def __init__(self, folder: Path, theirs: Rabbit, pair: Ours) -> None:
        self._boxes = iter([box for box in paper.boxes(PAGE, paper.HOW_TO_WHERE) if box.where == "migrate"])
        self._folder = folder
        self._addresses = {"rabbit1": theirs.port, "a": pair.port}
        self._theirs = theirs

    def run(self) -> str:
        box = next(self._boxes)
        if box.language == "python":
            text = box.text.replace('"rabbit1", 5672', f'"127.0.0.1", {self._theirs.port}')
            exec(text, {})
            return ""
        nodes = self._theirs.nodes
        text = re.sub(r"\b(rabbit1|a):5672", lambda found: f"127.0.0.1:{self._addresses[found[1]]}", box.text)
        program, control = f"{shlex.quote(sys.executable)} -m understudy", PROGRAMS / "rabbitmqctl"
        functions = (
            f'understudy() {{ {program} "$@"; }}; rabbitmqctl() {{ {control} -n {nodes.names[0]} "$@"; }}'
        )
        environment = {
            **os.environ, "HOME": str(nodes.folder / "node0"), "ERL_EPMD_PORT": str(nodes.mapper),
        }  # fmt: skip
        done = subprocess.run(
            ["sh", "-e", "-c", f"{functions}\n{text}"], cwd=self._folder, env=environment,
            capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return done.stdout

    @property
    def over(self) -> bool:
        return next(self._boxes, None) is None


class Traffic:
    """Numbered messages from publishers at either side, and what consumers at either side have got."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.got: list[str] = []

    def publish(self, side: Client, count: int = 20) -> None:
        for _ in range(count):
            self.sent.append(f"{len(self.sent)}")
            side.publish("prices", "eur.usd", self.sent[-1])

    def consume(self, side: Client) -> None:
        """All that is there."""
        if depth := side.depth("desk"):
            self.got += side.bodies("desk", depth)


def test_a_migration_by_the_page(tmp_path: Path, theirs: Rabbit) -> None:
    (login,) = (box for box in paper.boxes(PAGE, paper.HOW_TO_WHERE) if box.where == "configuration")
    (tmp_path / "pair.toml").write_text(login.text)
    with (
        serving(tmp_path / "data", "--config", str(tmp_path / "pair.toml")) as node,
        client(theirs.port) as there, client(node.amqp.port) as here,
    ):  # fmt: skip
        pair = Ours(node.amqp.port)
        page, traffic = Page(tmp_path, theirs, pair), Traffic()
        there.exchange("prices")
        there.queue("desk", "prices", "eur.*")
        traffic.publish(there)
        page.run()  # a user there
        page.run()  # definitions
        traffic.publish(there)
        page.run()  # federate
        pair.runs("prices")
        twice = len(traffic.sent)
        traffic.publish(there)  # to both queues
        twice_end = len(traffic.sent)
        page.run()  # the binding there goes
        traffic.publish(there)
        traffic.consume(there)
        until(lambda: here.depth("desk") == 40)
        traffic.consume(here)
        assert "desk" in page.run() and there.depth("desk") == 0
        traffic.publish(here)
        traffic.publish(there)
        until(lambda: here.depth("desk") == 40)
        traffic.consume(here)
        assert '"waiting": 0' in page.run() and not pair.line("prices")
        traffic.publish(here)
        traffic.consume(here)
        page.run()  # the upstream and the user go
        assert page.over
        once = [*traffic.sent[:twice], *traffic.sent[twice_end:]]
        assert sorted(traffic.got) == sorted([*once, *traffic.sent[twice:twice_end] * 2])
        assert there.depth("desk") == 0 and here.depth("desk") == 0
        assert "federation: prices" not in theirs.control("list_queues", "name")
