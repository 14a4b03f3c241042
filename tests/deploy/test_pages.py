"""CONTRIBUTING.md, docs/explanation, docs/reference, the proof in README.md: each box is run, or read by what
would read it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.deploy import paper
from tests.deploy.test_how_to import shell
from tests.deploy.tools import ROOT
from tests.deploy.usage import calls, parsed
from tests.ha.pair import Pair
from tests.ha.status.test_announcements import frames, watch
from tests.understudy.serving import serving
from understudy.client import Consumer
from understudy.config.load import load

ADDRESSES = re.compile(r"\b10\.0\.0\.[12]:5672\b")
HASH = '"$argon2id$..."'
DEVELOPERS = [
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
    *sorted((ROOT / "bench").glob("**/README.md")),
    ROOT / "spark" / "README.md",
    ROOT / "tests" / "README.md",
]
OUTPUT = ("", "text")
"""Languages of boxes that are no input: diagrams and lines of logs."""


def targets_of_make() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def boxes(where: str) -> list[tuple[Path, paper.Box]]:
    """Each box of that kind with its page; at least one."""
    found = [
        (page, box)
        for page in paper.PAGES
        for box in paper.boxes(page, paper.PAGES_WHERE, unchecked=OUTPUT)
        if box.where == where
    ]
    assert found, where
    return found


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("node") / "data") as node:
        yield str(node.amqp)


@pytest.fixture
def channel(address: str) -> Iterator[Any]:
    host, _, port = address.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    yield connection.channel()
    connection.close()


def test_each_box_says_where_it_is_run() -> None:
    for where in paper.PAGES_WHERE:
        assert boxes(where)
    for page in paper.PAGES:
        outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert not re.search(r"\n\n {4,}\S", outside), f"{page}: a box without a fence"


def test_the_targets_of_make_exist() -> None:
    targets = targets_of_make()
    proof = [box for box in paper.boxes(paper.README, paper.README_WHERE) if box.where == "make"]
    for box in (*proof, *(box for _, box in boxes("make"))):
        called = [command.split() for command in box.commands]
        assert {make for make, _ in called} == {"make"} and {target for _, target in called} <= targets


def test_commands_for_developers_exist() -> None:
    """They stand in indented lines. Commands of other projects (apt, pip, spark-submit) are skipped."""
    targets = targets_of_make()
    seen = 0
    for page in DEVELOPERS:
        for line in re.findall(r"^ {4}(\S.*)$", page.read_text(), re.MULTILINE):
            words = line.partition("  #")[0].split()
            while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
                words.pop(0)
            match words:
                case ["make", target, *_]:
                    assert target in targets, f"{page}: {line}"
                case ["python" | ".venv/bin/python", "-m", module, *_]:
                    assert find_spec(module) is not None, f"{page}: {line}"
                case ["understudy", *_]:
                    (called,) = calls(paper.Box("", "", "", line))
                    parsed(called)
                case _:
                    continue
            seen += 1
            assert len(line) <= 116, f"{page}: {line}"
    assert seen > 40


def test_commands_and_options_exist() -> None:
    for _, box in boxes("usage"):
        found = list(calls(box))
        assert found, box
        for words in found:
            parsed(words)


def test_the_configuration_is_one(tmp_path: Path) -> None:
    ((_, box),) = boxes("configuration")
    password = tomllib.loads(shell("understudy passwd --stdin ops", tmp_path, "a word\n"))
    file = tmp_path / "pair.toml"
    file.write_text(box.text.replace(HASH, json.dumps(password["auth"]["users"]["ops"]["password"])))
    assert len(load(file, (), {}).ha.brokers) == 2


def test_prometheus_is_shown(tmp_path: Path) -> None:
    ((_, box),) = boxes("site")
    shell(box.text, tmp_path)
    assert (tmp_path / "prometheus" / "prometheus.yml").exists()


def test_what_curl_asks_is_on_the_page() -> None:
    for page, box in boxes("http"):
        asked = box.commands[0]
        method = re.search(r" -X (\w+)", asked)
        path = re.search(r"http://[^/]+(\S+)", asked)
        assert path is not None
        assert f"## {method[1] if method else 'GET'} {path[1]}\n" in page.read_text()


def test_events_are_bound(channel: Any) -> None:
    for _, box in boxes("channel"):
        exec(box.text, {"channel": channel})
    channel.queue_delete("watch")


def test_an_event_has_the_keys_that_the_page_shows() -> None:
    ((_, box),) = boxes("event")
    pair = Pair()
    pair.up()
    a, b = pair.hosts
    watch(pair, a)
    pair.kill(b)
    pair.until(lambda: bool(a.running.vhost.queues["watch"].ready))
    *_, raw = a.running.vhost.queues["watch"].ready[0]
    real = json.loads(b"".join(body for _, body in frames(raw)[1:]))
    assert json.loads(box.text).keys() == real.keys()


def test_the_kit_publishes_and_consumes(
    address: str,
    channel: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its loop is endless there."""
    channel.queue_declare("orders", durable=True)
    deliveries = Consumer.deliveries

    def one(consumer: Consumer) -> Any:
        return deliveries(consumer, until=lambda: consumer.counts.received == 1)

    monkeypatch.setattr(Consumer, "deliveries", one)
    monkeypatch.chdir(tmp_path)
    ((_, box),) = boxes("kit")
    exec(ADDRESSES.sub(address, box.text), {})
    assert capsys.readouterr().out == "b'order 1' False\n"
    assert len(list((tmp_path / "ledgers").glob("*.jsonl"))) == 2
