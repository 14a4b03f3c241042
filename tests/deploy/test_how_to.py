"""docs/how-to: each box of commands is run as it stands there, or read by the command line's own parser."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pika
import pytest

from tests.deploy import paper
from tests.deploy.tools import PATIENCE
from tests.deploy.usage import calls, parsed
from tests.understudy.serving import serving
from understudy.client import Consumer
from understudy.config.load import load

PAGES = sorted(paper.HOW_TO.glob("*.md"))
ADDRESS = re.compile(r"\b(192\.0\.2\.1|127\.0\.0\.1):5672\b")
DEFINITIONS = {
    "rabbit_version": "3.13.7",
    "vhosts": [{"name": "/"}],
    "queues": [{"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}],
}


def boxes(page: str, where: str) -> list[paper.Box]:
    """Those of a page that are run there; at least one."""
    found = [box for box in paper.boxes(paper.HOW_TO / page, paper.HOW_TO_WHERE) if box.where == where]
    assert found, f"{page} has no box that is run {paper.HOW_TO_WHERE[where]}"
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_box_says_where_it_is_run(page: Path) -> None:
    paper.boxes(page, paper.HOW_TO_WHERE)
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\n\n {4,}\S", outside), "a box without a fence"


def test_every_kind_of_check_is_used() -> None:
    used = {box.where for page in PAGES for box in paper.boxes(page, paper.HOW_TO_WHERE)}
    assert used == set(paper.HOW_TO_WHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_options_exist(page: Path) -> None:
    for box in paper.boxes(page, paper.HOW_TO_WHERE):
        found = list(calls(box))
        assert found or box.where != "usage", box
        for words in found:
            parsed(words)


@pytest.mark.parametrize("words", ["nothing", "status --nowhere", "backup ONE"])
def test_the_parser_refuses_what_does_not_exist(words: str) -> None:
    with pytest.raises((AssertionError, click.UsageError)):
        parsed(words.split())


def test_the_python_of_the_pages_compiles_and_imports() -> None:
    for page in PAGES:
        for box in paper.boxes(page, paper.HOW_TO_WHERE):
            if box.where == "python":
                compile(box.text, page.name, "exec")
                exec("\n".join(re.findall(r"^(?:from|import) .*", box.text, re.MULTILINE)), {})


def test_configurations_are_good(tmp_path: Path) -> None:
    for page in PAGES:
        for box in paper.boxes(page, paper.HOW_TO_WHERE):
            if box.where == "configuration":
                (tmp_path / "node.toml").write_text(box.text)
                load(tmp_path / "node.toml")


def shell(text: str, folder: Path, stdin: str = "", behind: str = "") -> str:
    """What the commands print; `behind` ends each of `understudy`. The first failure ends them."""
    program = f"{shlex.quote(sys.executable)} -m understudy"
    done = subprocess.run(
        ["sh", "-e", "-c", f'understudy() {{ {program} "$@" {behind}; }}\n{text}'],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_definitions(tmp_path: Path) -> None:
    """An administrator of the configuration, `guest`, does what the page says."""
    (tmp_path / "rabbit.json").write_text(json.dumps(DEFINITIONS))
    files, http, objects = (box.text for box in boxes("definitions-import.md", "broker"))
    with serving(tmp_path / "data") as node:
        shell(ADDRESS.sub(str(node.amqp), files), tmp_path)
        exported = json.loads((tmp_path / "mine.json").read_text())
        assert [queue["name"] for queue in exported["queues"]] == ["orders"]
        if shutil.which("curl") is not None:
            (tmp_path / "mine.json").unlink()
            shell(http.replace("127.0.0.1:15672", str(node.http)), tmp_path)
            assert json.loads((tmp_path / "mine.json").read_text()) == exported
        objects = objects.replace("user add shop", "user add shop --stdin")
        listed = shell(objects, tmp_path, "a word\n", f"-b {node.amqp}")
        for name in ("shop", "short-replies"):
            assert name in listed


def test_an_archive_is_made_and_restored(tmp_path: Path) -> None:
    (box,) = boxes("backup-restore.md", "archive")
    with serving(tmp_path / "DATA_DIR") as node:
        with_message(node.amqp.port)
        shell(box.text, tmp_path)
    with serving(tmp_path / "NEW_DATA_DIR") as node:
        assert depth(node.amqp.port) == 1


def test_a_queue_is_mirrored_and_left(tmp_path: Path) -> None:
    """On one machine; `a1` and `a2` are one broker."""
    user, commands = boxes("mirror-queue.md", "mirror")
    (peering,) = boxes("mirror-queue.md", "configuration")
    (tmp_path / "b.toml").write_text(peering.text)
    login = ("--config", str(tmp_path / "b.toml"))
    with serving(tmp_path / "a") as source, serving(tmp_path / "b", *login) as mirror:
        with_message(source.amqp.port)
        names = {"a1:5672": source.amqp, "a2:5672": source.amqp, "b:5672": mirror.amqp}

        def run(text: str, stdin: str = "") -> str:
            found = re.sub(r"\b(a1|a2|b):5672", lambda found: str(names[found[0]]), text)
            return shell(found, tmp_path, stdin)

        run(user.text.replace("user add", "user add --stdin"), "a word\n")
        assert "orders.copy" in run(commands.text)


def test_exchanges_are_federated(tmp_path: Path) -> None:
    """On one machine; `hub1` and `hub2` are one broker."""
    user, agent, policy, routes, whole, operation = boxes("federation.md", "federation")
    (login,) = boxes("federation.md", "configuration")
    (tmp_path / "leaf.toml").write_text(login.text)
    named, leafs = ("--set", "federation.node=hub"), ("--config", str(tmp_path / "leaf.toml"))
    with serving(tmp_path / "hub", *named) as hub, serving(tmp_path / "leaf", *leafs) as leaf:
        names = {"hub1:5672": hub.amqp, "leaf:5672": leaf.amqp}
        for node in names.values():
            connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
            connection.channel().exchange_declare("prices", "topic", durable=True)
            connection.close()

        def run(text: str, stdin: str = "") -> str:
            text = text.replace("hub1:5672,hub2:5672", "hub1:5672")
            return shell(re.sub(r"\b(hub1|leaf):5672", lambda at: str(names[at[0]]), text), tmp_path, stdin)

        run(user.text.replace("user add", "user add --stdin"), "a word\n")
        assert "prices" in run(agent.text)
        attach = "understudy federate attach -b leaf:5672 '^pri' --upstream"
        assert "exchange prices has an agent already for hub" in run(f"{attach} hub")
        run(policy.text)
        assert "hub" in run(routes.text)
        shown = run(whole.text)
        assert re.search(r"prices +/ +hub +leaf", shown) and "picture: net.svg" in shown
        assert (tmp_path / "net.svg").read_text().startswith("<svg")
        said = run(operation.text)
        assert "is paused" in said and "upstream 'hub' is removed" in said
        run("understudy policy clear -b leaf:5672 prices")  # of which there is an agent, too
        run("understudy federate upstream -b leaf:5672 hub --addresses hub1:5672 --login head-office")
        attached = run(f"{attach} hub --forward-mode unmatched --format json")
        assert json.loads(attached) == {"ok": True, "attached": ["prices"], "kept": []}
        (line,) = json.loads(run("understudy federate list -b leaf:5672 --format json"))
        assert (line["exchange"], line["forward_mode"]) == ("prices", "unmatched")


def test_clients_publish(tmp_path: Path) -> None:
    """The other address of each list is one where nobody listens."""
    with serving(tmp_path / "data") as node:
        for number, box in enumerate(boxes("kombu-pika-proton.md", "clients"), start=1):
            text = box.text.replace("shop", "guest").replace("word@", "guest@").replace('"word"', '"guest"')
            text = re.sub(r'10\.0\.0\.2(:|", )5672', rf"127.0.0.1\g<1>{node.amqp.port}", text)
            exec(re.sub(r'10\.0\.0\.1(:|", )5672', r"127.0.0.1\g<1>1", text), {})
            assert depth(node.amqp.port) == (1, 11)[number - 1], box


def test_a_publisher_with_numbers_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (box,) = boxes("no-duplicates.md", "clients")
    with serving(tmp_path / "data") as node:
        text = box.text.replace("192.0.2.1:5672,192.0.2.2:5672", str(node.amqp))
        for orders in (3, 5):
            Path("orders.txt").write_text("".join(f"order {n}\n" for n in range(orders)))
            exec(text, {})
            assert depth(node.amqp.port) == orders


def test_a_consumer_books_each_order_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop ends after the order. What it booked is taken for the work of an ack that was lost."""
    monkeypatch.chdir(tmp_path)
    deliveries = Consumer.deliveries

    def one(consumer: Consumer) -> Any:
        counts = consumer.counts
        return deliveries(consumer, until=lambda: counts.received + counts.skipped == 1)

    monkeypatch.setattr(Consumer, "deliveries", one)
    monkeypatch.setattr(Consumer, "_say_acks", lambda *_: None)
    database = sqlite3.connect("shop.db")
    database.execute("CREATE TABLE bookings (name TEXT)")
    (box,) = boxes("consumers.md", "clients")
    with serving(tmp_path / "data") as node:
        with_message(node.amqp.port)
        for again in (False, True):
            exec(box.text.replace("192.0.2.1:5672,192.0.2.2:5672", str(node.amqp)), told := {})
            assert told["consumer"].counts.skipped == again
            assert database.execute("SELECT COUNT(*) FROM bookings").fetchone() == (1,)


def with_message(port: int) -> None:
    """A durable queue `orders` with one persistent message."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("orders", durable=True)
    channel.basic_publish("", "orders", b"order 1", pika.BasicProperties(delivery_mode=2))
    connection.close()


def depth(port: int) -> int:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    found = connection.channel().queue_declare("orders", passive=True)
    connection.close()
    return int(found.method.message_count)
