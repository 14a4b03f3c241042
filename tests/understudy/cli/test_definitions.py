"""`understudy definitions` and /api/definitions with real nodes: there and back, over a failover, and what is
wrong."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import amqp
import pytest

from tests.failover.nodes.cluster import Cluster, local_places
from tests.failover.nodes.pair import Pair
from tests.understudy import command_line
from tests.understudy.definitions.made import FIXTURE, permission, policy, queue, user
from understudy.definitions.entries import PLURALS
from understudy.http.api.definitions import LARGEST
from understudy.http.server import reachable
from understudy.shared.addresses import HostPort

GUEST = "guest:guest"
NONE = dict.fromkeys(PLURALS.values(), 0)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers that know nothing of each other."""
    places = local_places(("one", "two"))
    settings = ("broker.http=127.0.0.1:0", "ha.password=lab")
    with Cluster(tmp_path_factory.mktemp("nodes"), places, *settings) as made:
        made.start("one", "two", brokers="")
        yield made


def command(nodes: Cluster, what: str, name: str, *options: str) -> tuple[int, str, str]:
    return command_line.command("definitions", what, "-b", str(nodes.addresses[name]), *options)


def declare(nodes: Cluster, name: str) -> None:
    """A bit of everything, as a client does it."""
    with amqp.Connection(str(nodes.addresses[name])) as connection:
        channel = connection.channel()
        arguments = {"alternate-exchange": "lost", "note": 3}
        channel.exchange_declare("orders", "topic", durable=True, auto_delete=False, arguments=arguments)
        channel.exchange_declare("lost", "fanout", durable=True, auto_delete=False)
        arguments = {"x-expires": 3_600_000, "big": 2**40, "small": 1.5, "yes": True, "none": None}
        channel.queue_declare("kept", durable=True, auto_delete=False, arguments=arguments)
        channel.queue_declare("passing", auto_delete=True)
        channel.queue_declare("mine", exclusive=True)
        for number in (1, 2):
            channel.queue_bind("kept", "amq.headers", "", arguments={"x-match": "any", "n": number})
        channel.queue_bind("passing", "orders", "eu.#")
        channel.queue_bind("mine", "orders", "#")
        channel.exchange_bind("lost", "orders", "lost.#")


def exported(nodes: Cluster, name: str) -> bytes:
    code, out, err = command(nodes, "export", name)
    assert (code, err) == (0, "")
    return out.encode()


def test_there_and_back_is_the_same_octet_for_octet(nodes: Cluster, tmp_path: Path) -> None:
    declare(nodes, "one")
    file = tmp_path / "one.json"
    assert command(nodes, "export", "one", str(file)) == (0, "", "")
    assert file.read_bytes() == exported(nodes, "one")
    document = json.loads(file.read_bytes())
    assert document["product_name"] == "Understudy"
    assert [q["name"] for q in document["queues"]] == ["kept", "passing"]
    assert document["queues"][0]["arguments"] == {
        "big": 2**40, "none": None, "small": 1.5, "x-expires": 3_600_000, "yes": True
    }  # fmt: skip
    assert len(document["bindings"]) == 4

    code, out, err = command(nodes, "import", "two", str(file), "--dry-run")
    assert (code, err) == (0, "")
    assert [line.partition(": ")[2] for line in out.splitlines()] == [
        "2 exchanges would be declared, there already: 0",
        "2 queues would be declared, there already: 0",
        "4 bindings would be declared, there already: 0",
    ]
    assert json.loads(exported(nodes, "two"))["queues"] == [], "a dry run changes nothing"
    code, out, err = command(nodes, "import", "two", str(file), "--strict", "--format", "json")
    assert (code, err) == (0, "")
    assert json.loads(out)["declared"] == NONE | {"exchanges": 2, "queues": 2, "bindings": 4}
    assert exported(nodes, "two") == file.read_bytes()
    code, out, _ = command(nodes, "import", "two", str(file), "--format", "json")
    assert json.loads(out)["there_already"] == NONE | {"exchanges": 2, "queues": 2, "bindings": 4}
    assert exported(nodes, "two") == file.read_bytes()


def test_an_export_of_rabbitmq_comes_over_and_what_does_not_is_said(nodes: Cluster) -> None:
    declare(nodes, "two")
    before = exported(nodes, "two")
    code, _, err = command(nodes, "import", "two", str(FIXTURE), "--strict")
    assert code == 2
    last = err.splitlines()[-1]
    assert ": 5 kinds of things" in last and last.endswith("(definitions-unsupported)")
    assert exported(nodes, "two") == before
    code, out, err = command(nodes, "import", "two", str(FIXTURE), "--quorum-as-classic")
    assert code == 1, "one exchange is there with other arguments"
    lines = err.splitlines()
    assert all(line.startswith("understudy: ") for line in lines)
    assert "understudy: not supported: 1 default queue type (quorum of staging): " in err
    assert lines[-1].startswith("understudy: refused: exchange 'orders': 406 PRECONDITION_FAILED - inequiva")
    assert "5 queues declared, there already: 0" in out
    with amqp.Connection(str(nodes.addresses["two"])) as connection:
        channel = connection.channel()
        quorum = {"x-queue-type": "quorum", "x-delivery-limit": 5}
        channel.queue_declare("orders", durable=True, auto_delete=False, arguments=quorum)
        channel.queue_declare("mail", durable=True, auto_delete=False)  # exported with x-queue-type: classic


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"queues": [', "line 1 column 13: not JSON: Expecting value; is it cut short?"),
        ('{"jobs": []}', "not a definitions file: it has none of users"),
        (json.dumps({"queues": [queue(), queue(durable=1)]}), "/queues/1/durable: not true or false"),
        (json.dumps({"queues": [queue("new"), queue("new")]}), "/queues/1: is a duplicate of /queues/0"),
        (
            json.dumps({"queues": [queue("new")], "bindings": [
                {"source": "amq.direct", "destination": "gone", "destination_type": "queue"}
            ]}),
            "/bindings/0/destination: no queue 'gone' in the file or on the broker",
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_exit_2_and_no_change(
    nodes: Cluster, tmp_path: Path, text: str, fault: str
) -> None:
    before = exported(nodes, "one")
    file = tmp_path / "wrong.json"
    file.write_text(text)
    code, out, err = command(nodes, "import", "one", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"understudy: {file}: {fault}")
    assert err.count("\n") == 1
    answer = http_call(nodes, "one", "POST", body=text.encode())
    assert answer.code == 400
    assert json.loads(answer.body)["reason"].startswith(fault)
    assert exported(nodes, "one") == before


def test_a_file_that_cannot_be_read_or_written_is_one_line(nodes: Cluster, tmp_path: Path) -> None:
    for file in (tmp_path / "none.json", tmp_path):
        code, out, err = command(nodes, "import", "one", str(file))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"understudy: cannot read {file}: ")
    code, out, err = command(nodes, "export", "one", str(tmp_path / "none" / "file.json"))
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "No such file or directory" in err
    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_its_mode_a_link_its_target_and_a_pipe_is_written_to(
    nodes: Cluster, tmp_path: Path
) -> None:
    file, link, pipe = tmp_path / "file.json", tmp_path / "link.json", tmp_path / "pipe"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to(file)
    assert command(nodes, "export", "one", str(link))[0] == 0
    assert link.is_symlink()
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (exported(nodes, "one"), 0o640)
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert command(nodes, "export", "one", str(pipe))[0] == 0
    reader.join()
    assert read == [exported(nodes, "one")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.json", "link.json", "pipe"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("import",), 2),
        (("import", "f.json", "--timeout", "5"), 2),
        (("import", "f.json", "--format", "xml"), 2),
        (("export", "/tmp"), 2),
        (("export", "--format", "json"), 2),
        (("export", "-b", "127.0.0.1:1"), 1),
    ],
)
def test_a_wrong_command_line_and_nobody_there_are_one_line(arguments: tuple[str, ...], code: int) -> None:
    found, out, err = command_line.command("definitions", *arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("understudy: ")


def test_a_file_may_come_by_the_standard_input(nodes: Cluster) -> None:
    arguments = ["definitions", "import", "-", "-b", str(nodes.addresses["one"]), "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "understudy", *arguments],
        input=json.dumps({"queues": [queue("piped")]}), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 queue would be declared" in done.stdout


@pytest.mark.parametrize(
    ("bound", "found"),
    [
        ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("192.0.2.1", "192.0.2.1"), ("::1", "::1"), ("node", "node"),
    ],
)  # fmt: skip
def test_a_wildcard_is_reached_on_loopback(bound: str, found: str) -> None:
    assert reachable(HostPort(bound, 5672)) == HostPort(found, 5672)


def test_who_is_no_administrator_learns_and_changes_nothing(nodes: Cluster) -> None:
    code, out, err = command(nodes, "export", "one", "--password", "wrong")
    assert (code, out, err.count("\n")) == (1, "", 1)
    for login in (None, "guest:wrong", "ha:lab"):
        for method in ("GET", "POST"):
            answer = http_call(nodes, "one", method, login=login, body=b'{"queues": []}')
            assert answer.code == (403 if login == "ha:lab" else 401)
            assert b"queues" not in answer.body


# -- over HTTP


class Answer(NamedTuple):
    code: int
    body: bytes
    headers: dict[str, str]


def http_call(
    nodes: Cluster, name: str, method: str, query: str = "", *, login: str | None = GUEST, body: bytes = b""
) -> Answer:
    (door,) = re.findall(r"HTTP on http://(\S+)", nodes.brokers[name].log.read_text())
    connection = http.client.HTTPConnection(door, timeout=60)
    try:
        token = base64.b64encode((login or "").encode()).decode()
        headers = {"Content-Type": "application/json"} if body else {}
        headers |= {} if login is None else {"Authorization": f"Basic {token}"}
        connection.request(method, f"/api/definitions{query}", body or None, headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), dict(answer.headers))
    finally:
        connection.close()


def test_http_gives_the_very_same_document(nodes: Cluster) -> None:
    answer = http_call(nodes, "one", "GET", "?download=mine.json")
    assert (answer.code, answer.body) == (200, exported(nodes, "one"))
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Content-Disposition"] == "attachment; filename=mine.json"
    assert "Content-Disposition" not in http_call(nodes, "one", "GET", "?download=a;b%0Ac").headers
    head = http_call(nodes, "one", "HEAD")
    assert (head.code, head.body) == (200, b"")


def test_http_takes_what_it_gives_and_says_what_it_did(nodes: Cluster) -> None:
    posted = json.dumps({"queues": [queue("posted", arguments={"x-queue-mode": "lazy"})]}).encode()
    dry = http_call(nodes, "one", "POST", "?dry_run=true", body=posted)
    assert (dry.code, json.loads(dry.body)["declared"]["queues"]) == (200, 1)
    strict = http_call(nodes, "one", "POST", "?strict", body=posted)
    assert (strict.code, "x-queue-mode" in json.loads(strict.body)["reason"]) == (400, True)
    assert b"posted" not in exported(nodes, "one")
    done = http_call(nodes, "one", "POST", body=posted)
    found: dict[str, Any] = json.loads(done.body)
    assert (done.code, found["ok"], found["declared"]["queues"]) == (200, True, 1)
    assert [left["what"] for left in found["not_here"]] == ["argument x-queue-mode"]
    assert b"posted" in exported(nodes, "one")
    again = http_call(nodes, "one", "POST", body=exported(nodes, "one"))
    assert (again.code, json.loads(again.body)["declared"]["queues"]) == (200, 0)
    other = json.dumps({"queues": [queue("posted", durable=False), queue("besides")]}).encode()
    refused = http_call(nodes, "one", "POST", body=other)
    found = json.loads(refused.body)
    assert (refused.code, found["error"], found["declared"]["queues"]) == (400, "bad_request", 1)
    assert found["reason"].startswith("queue 'posted': 406 PRECONDITION_FAILED - inequivalent arg 'durable'")
    assert http_call(nodes, "one", "POST", "?strict=perhaps", body=posted).code == 400


def test_a_post_without_end_is_cut(nodes: Cluster) -> None:
    before = exported(nodes, "one")
    answer = http_call(nodes, "one", "POST", body=b" " * (LARGEST + 1))
    assert answer.code == 400
    assert "larger than" in json.loads(answer.body)["reason"]
    assert exported(nodes, "one") == before


def test_a_broker_of_small_frames_takes_as_many_users_as_another(tmp_path: Path) -> None:
    """The smallest that `broker.frame_max` may be. What fits no frame is refused by name, and the rest goes
    on."""
    with Cluster(tmp_path, local_places(("small",)), "broker.frame_max=4096") as small:
        small.start("small", brokers="")
        numbers = range(150)
        fits = queue("just", arguments={"note": "x" * (4096 - 15 - 5 - 4 - 5 - 5)})
        file = tmp_path / "lists.json"
        file.write_text(json.dumps({
            "users": [user(f"user-{number}") for number in numbers],
            "permissions": [permission(f"user-{number}") for number in numbers],
            "policies": [policy("large", definition={"max-length": 5, "ha-params": ["x"] * 2000}), policy()],
            "queues": [queue("large", arguments={"note": "x" * 5000}), fits, queue()],
        }))  # fmt: skip
        code, out, err = command(small, "import", "small", str(file))
        assert code == 1
        assert "150 users declared" in out and "150 permissions declared" in out
        assert "1 policy declared" in out and "2 queues declared" in out
        lines = [line for line in err.splitlines() if "refused" in line]
        assert len(lines) == 2, lines
        assert re.search(r"refused: policy 'large': the question has [0-9]+ octets", lines[0])
        assert re.search(r"refused: queue 'large': its declaration of [0-9]+ octets exceeds", lines[1])


# -- a pair


def test_definitions_survive_a_failover_and_any_node_may_be_asked(tmp_path: Path) -> None:
    with Pair(tmp_path, "broker.http=127.0.0.1:0") as pair:
        pair.whole()
        lists = {"queues": [queue(f"q{number}") for number in range(300)], "bindings": [
            {"source": "amq.topic", "destination": f"q{number}", "destination_type": "queue",
             "routing_key": f"k.{number}", "arguments": {"n": number}} for number in range(300)
        ]}  # fmt: skip
        file = tmp_path / "lists.json"
        file.write_text(json.dumps(lists))
        code, out, err = command(pair, "import", "right", str(file))  # the backup: its primary is asked
        assert (code, err) == (0, "")
        assert f"{pair.addresses['left']}: 300 queues declared" in out
        before = exported(pair, "left")
        assert exported(pair, "right") == before
        answer = http_call(pair, "right", "GET")
        assert answer.code == 503
        assert "its primary is left" in json.loads(answer.body)["reason"]
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        assert exported(pair, "right") == before
        assert len(json.loads(before)["bindings"]) == 300
        code, out, err = command(pair, "import", "right", str(file))
        assert (code, err) == (0, "")
        assert "0 queues declared, there already: 300" in out
