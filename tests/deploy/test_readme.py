"""README.md, the tutorial and the move from RabbitMQ: their commands are run as they stand there."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.deploy import paper
from tests.deploy.tools import PATIENCE, ROOT, run
from tests.understudy.serving import serving
from understudy.cli.main import cli

ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
BOXES = paper.boxes(paper.README, paper.README_WHERE)


def box(where: str) -> str:
    (found,) = [each.text for each in BOXES if each.where == where]
    return found


def test_each_box_says_where_it_is_run_and_none_is_left_out() -> None:
    assert {each.where for each in BOXES} == set(paper.README_WHERE)


def test_what_installs_and_serves_is_there() -> None:
    *_, serve = commands = box("install").splitlines()
    assert commands[1] == "pip install ."
    assert serve.split()[0] == "understudy" and serve.split()[1] in cli.list_commands(None)  # type: ignore[arg-type]
    build, start = box("container").splitlines()
    file = build.split("--file ")[1].split()[0]
    assert build in (ROOT / file).read_text(), "test_container builds it"
    assert start.endswith(" " + build.split("--tag ")[1].split()[0])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("node") / "data") as running:
        yield str(running.amqp)


def test_the_example_of_kombu(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(ADDRESS.sub(address, box("kombu")), {})
    assert capsys.readouterr().out == "{'order': 1}\n"


def test_the_example_of_celery(address: str) -> None:
    pytest.importorskip("celery")
    exec(ADDRESS.sub(address, box("celery")), {})
    assert b"order 1" in got(address, "celery")


def test_the_example_of_the_kit(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pika_channel(address) as channel:
        channel.queue_delete("orders")
    exec(ADDRESS.sub(address, box("kit")), {})
    assert got(address, "orders") == b"order 1"
    assert list((tmp_path / "ledgers").glob("*.jsonl"))


def got(address: str, queue: str) -> bytes:
    with pika_channel(address) as channel:
        _, _, body = channel.basic_get(queue, auto_ack=True)
        return bytes(body)


@contextmanager
def pika_channel(address: str) -> Iterator[Any]:
    host, _, port = address.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    yield connection.channel()
    connection.close()


def test_the_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other boxes are typed while the command of the first one runs."""
    first, second, third = [each.text.splitlines() for each in BOXES if each.where == "pair"]
    assert first[0] == "$ understudy pair"
    monkeypatch.chdir(tmp_path)
    with trying(tmp_path / "p") as pair:
        shown = [line.replace("understudy-pair", str(tmp_path / "p")) for line in first[1:]]
        assert list(map(plain, pair.printed)) == list(map(plain, shown))
        assert second == [f"$ kill -9 {first[1].split()[3]}"]
        pair.kill("a")
        exec(ADDRESS.sub(pair.addresses["b"], box("kit")), {})
        ready, said = third
        assert typed(ready, pair.addresses["b"]) == said


def test_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From top to bottom, with the nodes of a pair on free ports."""
    boxes = paper.boxes(paper.TUTORIAL, paper.TUTORIAL_WHERE)
    start, publish, lost, again_published, back = [each for each in boxes if each.where == "pair"]
    started, status, controller, is_ready = [each.text for each in boxes if each.where == "output"]
    assert start.text == "understudy pair\n"
    monkeypatch.chdir(tmp_path)
    with trying(tmp_path / "p") as pair:
        printed = "\n".join(pair.printed).replace(str(tmp_path / "p"), "understudy-pair")
        assert looks(printed) == looks(started)
        names = {"127.0.0.1:5672": pair.addresses["a"], "127.0.0.1:5673": pair.addresses["b"]}

        def told(text: str) -> str:
            return ADDRESS.sub(lambda found: names[found[0]], text)

        exec(told(publish.text), {})
        assert "1000 messages are confirmed" in capsys.readouterr().out
        kill, look = lost.commands
        assert kill == "kill -9 PID_OF_A"
        pair.kill("a")
        deadline = time.monotonic() + PATIENCE
        while "a is gone" not in (seen := typed(told(look))) and time.monotonic() < deadline:
            pass  # b takes some tenths of a second to notice
        assert looks(seen) == looks(status)
        publishes, shows, queries = again_published.commands
        assert publishes == "python publish.py"
        exec(told(publish.text), {})
        assert looks(typed(told(shows))) == looks(controller)
        assert re.search(r"orders\b.*\b2,?000\b", typed(told(queries)))
        again = subprocess.Popen([sys.executable, "-m", *pair.again.split()], stderr=subprocess.DEVNULL)
        try:
            (ready,) = back.commands
            assert looks(typed(told(ready))) == looks(is_ready)
        finally:
            again.send_signal(signal.SIGINT)
            assert again.wait(30) == 0
    (proof,) = [each.commands[0] for each in boxes if each.where == "proof"]
    typed(proof.replace("reconcile", "ledger check").replace("understudy-pair", str(tmp_path / "p")))


RABBIT = {
    "rabbit_version": "3.13.7",
    "vhosts": [{"name": "/"}],
    "policies": [
        {"vhost": "/", "name": "ha", "pattern": "^", "apply-to": "queues", "definition": {"ha-mode": "all"}}
    ],
    "queues": [
        {
            "name": name,
            "vhost": "/",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": kind},
        }
        for name, kind in (("orders", "quorum"), ("mail", "classic"), ("log", "stream"))
    ],
}


def test_the_move_from_rabbitmq(tmp_path: Path) -> None:
    (tmp_path / "rabbit.json").write_text(json.dumps(RABBIT))
    with serving(tmp_path / "data") as running:
        for each in paper.boxes(paper.FROM_RABBITMQ, paper.FROM_RABBITMQ_WHERE):
            if each.where == "not run":
                continue
            command, *shown = each.text.replace("127.0.0.1:5672", str(running.amqp)).splitlines()
            words = command.removeprefix("$ ").replace("rabbit.json", str(tmp_path / "rabbit.json")).split()
            done = run(sys.executable, "-m", *words)
            assert done.returncode == 0, done.stderr
            assert set(shown) <= set(f"{done.stdout}{done.stderr}".splitlines())


class Trying:
    """`understudy pair` as it runs: what it has printed, and what it says of a node that was killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._lines = process.stdout
        self.printed = [self._lines.readline().rstrip("\n") for _ in range(3)]
        self.addresses = {name: line.split()[1] for name, line in zip("ab", self.printed, strict=False)}
        self.again = ""
        """The command that starts the killed node again."""

    def kill(self, name: str) -> None:
        os.kill(int(self.printed["ab".index(name)].split()[3]), signal.SIGKILL)
        assert self._lines.readline().startswith(f"{name} ended: ")
        self.again = self._lines.readline().strip()


@contextmanager
def trying(folder: Path) -> Iterator[Trying]:
    command = [sys.executable, "-m", "understudy", "pair", "--dir", str(folder), "--port", "0"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        yield Trying(process)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def typed(line: str, address: str = "") -> str:
    """Its output; with `address` in place of those that it names. It must succeed."""
    line = ADDRESS.sub(address, line) if address else line
    done = run(sys.executable, "-m", *line.removeprefix("$ ").split())
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def looks(output: str) -> list[str]:
    """Its lines without numbers, and without the widths of columns."""
    return [" ".join(plain(line).split()) for line in output.strip().splitlines()]


def plain(line: str) -> str:
    return re.sub(r"\d{2,}", "N", ADDRESS.sub("ADDRESS", line))
