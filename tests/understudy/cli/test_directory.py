"""`understudy vhost|user|permission|policy` with a real pair: on both nodes, over failover and restart, and
what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

import amqp
import pytest
from click.testing import CliRunner

from tests.failover.nodes.pair import Pair
from tests.understudy.command_line import command
from tests.understudy.definitions.made import EVERYTHING, binding, policy, queue, user
from understudy import codes
from understudy.cli import directory, primary
from understudy.management import Unreachable


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("pair"), "broker.http=127.0.0.1:0") as made:
        made.whole()
        yield made


def ask(pair: Pair, *arguments: str, at: str = "left", typed: str | None = None) -> tuple[int, str, str]:
    """A command, given the address of `at`; `typed` comes by the standard input."""
    options = ["-b", str(pair.addresses[at])]
    if typed is None:
        return command(*arguments, *options)
    return command(*arguments, "--stdin", *options, typed=typed)


def done(pair: Pair, *arguments: str, at: str = "left", typed: str | None = None) -> str:
    code, out, err = ask(pair, *arguments, at=at, typed=typed)
    assert (code, err) == (0, ""), (arguments, out, err)
    return out


def listed(pair: Pair, kind: str, at: str = "left") -> list[dict[str, object]]:
    found = json.loads(done(pair, kind, "list", "--format", "json", at=at))
    assert isinstance(found, list)
    return found


def everything(pair: Pair) -> dict[str, object]:
    """The same of all kinds, without a process of its own."""
    return pair.ask("left", "directory")


def test_users_live_through_a_failover_and_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Pair(tmp_path_factory.mktemp("failover"), "broker.http=127.0.0.1:0") as pair:
        pair.whole()
        out = done(pair, "user", "add", "alice", "--tag", "monitoring", at="right", typed="secret\n")
        assert out == f"{pair.addresses['left']}: user 'alice' exists, without permissions\n"
        done(pair, "permission", "set", "alice", "^mine", "^mine|^amq.default$", "^mine", at="right")
        done(pair, "policy", "set", "short", "^mine", '{"max-length": 30}', at="right")
        done(pair, "policy", "set", "cap", ".*", '{"max-length": 3}', "--operator", at="right")
        done(pair, "permission", "set-topic", "alice", "mine.t", "^{username}[.]", "^a", at="right")
        done(pair, "user", "limit", "alice", "--max-channels", "4", at="right")
        done(pair, "vhost", "limit", "/", "--max-queues", "2", at="right")
        pair.kill("left")
        code, _, err = pair.command("promote", "right")
        assert code == 0, err
        assert {
            "name": "alice", "tags": ["monitoring"], "source": "stored", "login": "yes",
            "limits": "max-channels 4",
        } in listed(pair, "user", at="right")  # fmt: skip
        with amqp.Connection(str(pair.addresses["right"]), "alice", "secret") as connection:
            channel = connection.channel()
            channel.queue_declare("mine", durable=True, auto_delete=False)
            for number in range(5):
                channel.basic_publish(amqp.Message(str(number)), routing_key="mine")
            assert channel.queue_declare("mine", passive=True).message_count == 3
            with pytest.raises(amqp.AccessRefused, match="configure access to queue 'yours' in vhost '/'"):
                channel.queue_declare("yours", auto_delete=False)
            channel = connection.channel()
            channel.queue_declare("mine.2", durable=True, auto_delete=False)
            with pytest.raises(amqp.PreconditionFailed, match=r"queue limit in vhost '/' .2. is reached"):
                channel.queue_declare("mine.3", durable=True, auto_delete=False)
            channel = connection.channel()
            channel.exchange_declare("mine.t", "topic", durable=True, auto_delete=False)
            channel.queue_bind("mine", "mine.t", "a.#")
            with pytest.raises(amqp.AccessRefused, match="read access to topic '#' in exchange 'mine"):
                channel.queue_bind("mine", "mine.t", "#")
        pair.stop("right")
        pair.start("right", brokers="")
        with amqp.Connection(str(pair.addresses["right"]), "alice", "secret") as connection:
            assert connection.channel().queue_declare("mine", passive=True).message_count >= 0
        assert [line["name"] for line in listed(pair, "policy", at="right")] == ["short"]
        assert done(pair, "user", "limit", "alice", "--clear", at="right").endswith("'alice' has no limits\n")
        assert done(pair, "vhost", "limit", "/", "--max-connections", "9", at="right").endswith(
            "virtual host '/' has max-connections 9, max-queues 2\n"
        )
        assert "cap" in done(pair, "policy", "list", "--operator", at="right")
        assert "username" in done(pair, "permission", "list-topic", at="right")
        for what in (
            ("permission", "clear-topic", "alice", "mine.t"),
            ("policy", "clear", "cap", "--operator"),
        ):
            done(pair, *what, at="right")
            assert ask(pair, *what, at="right")[0] == 1


def test_a_password_is_changed_tags_are_set_and_a_user_is_deleted(pair: Pair) -> None:
    done(pair, "user", "add", "bob", typed="one\n")
    done(pair, "permission", "set", "bob", "", "", ".*")
    assert "new password" in done(pair, "user", "password", "bob", typed="two\n")
    address = str(pair.addresses["left"])
    with pytest.raises(amqp.AccessRefused):
        amqp.Connection(address, "bob", "one").connect()
    with amqp.Connection(address, "bob", "two"):
        pass
    assert ask(pair, "status", "--user", "bob", "--password", "two")[0] == 1
    assert "bob' has administrator" in done(pair, "user", "tags", "bob", "administrator")
    for at in ("left", "right"):
        assert ask(pair, "status", "--user", "bob", "--password", "two", at=at)[0] == 0
    assert done(pair, "user", "delete", "bob").endswith("user 'bob' is deleted\n")
    assert listed(pair, "permission") == []
    with pytest.raises(amqp.AccessRefused):
        amqp.Connection(address, "bob", "two").connect()


def test_a_virtual_host_is_made_used_and_deleted_with_what_is_in_it(pair: Pair) -> None:
    assert done(pair, "vhost", "add", "sales", "--tag", "t").endswith("virtual host 'sales' exists\n")
    assert done(pair, "vhost", "add", "sales", "--tag", "t").endswith("exists already\n")
    assert [line["name"] for line in listed(pair, "vhost", at="right")] == ["/", "sales"]
    done(pair, "user", "add", "eve", typed="one\n")
    done(pair, "permission", "set", "eve", ".*", ".*", ".*", "--vhost", "sales")
    address = str(pair.addresses["left"])
    with pytest.raises(amqp.NotAllowed, match="access to vhost '/' refused for user 'eve'"):
        amqp.Connection(address, "eve", "one").connect()
    with amqp.Connection(address, "eve", "one", virtual_host="sales") as connection:
        channel = connection.channel()
        channel.queue_declare("mine", durable=True, auto_delete=False)
        channel.confirm_select()
        channel.basic_publish_confirm(amqp.Message("kept"), routing_key="mine")
        queues = json.loads(done(pair, "query", "--format", "json"))["queue_list"]
        assert [(queue["vhost"], queue["name"]) for queue in queues] == [("sales", "mine")]
        code, out, err = ask(pair, "vhost", "delete", "sales")
        assert (code, out) == (2, "") and "'sales' has 1 message in 1 queue: nothing is deleted" in err
        done(pair, "vhost", "delete", "sales", "--yes")
        with pytest.raises(amqp.ConnectionForced, match="vhost 'sales' is deleted"):
            connection.drain_events(timeout=10)
    assert listed(pair, "permission") == [] and len(listed(pair, "vhost")) == 1
    with pytest.raises(amqp.NotAllowed, match="vhost 'sales' not found"):
        amqp.Connection(address, "eve", "one", virtual_host="sales").connect()
    done(pair, "user", "delete", "eve")


def test_what_is_so_already_is_said_and_lists_are_tables(pair: Pair) -> None:
    definition = '{"message-ttl": 60000}'
    assert "is set in '/'\n" in done(pair, "policy", "set", "ttl", "^t", definition, "--priority", "2")
    assert "is set in '/' already\n" in done(
        pair, "policy", "set", "ttl", "^t", definition, "--priority", "2"
    )
    table = done(pair, "policy", "list")
    assert "message-ttl" in table and "ttl" in table and "^t" in table
    assert "guest" in done(pair, "user", "list") and "configuration" in done(pair, "user", "list")
    assert "deleted" in done(pair, "policy", "clear", "ttl")
    assert done(pair, "policy", "list") == f"{pair.addresses['left']}: no policies\n"


def test_what_a_policy_asks_for_in_vain_is_said(pair: Pair) -> None:
    code, out, err = ask(pair, "policy", "set", "old", "^old", '{"ha-mode": "all"}')
    assert (code, err) == (0, "understudy: ha-mode is kept, and has no effect here\n")
    assert "is set in '/'" in out
    done(pair, "policy", "clear", "old")
    log = pair.brokers["left"].log.read_text()
    assert re.search(r"user 'guest' from 127\.0\.0\.1:\d+ deletes policy 'old' \(directory-changed\)", log)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("vhost", "delete", "/"), 2, "virtual host '/' is always there"),
        (("vhost", "delete", "none"), 1, "there is no virtual host 'none'"),
        (("user", "delete", "nobody"), 1, "there is no stored user 'nobody'"),
        (("user", "tags", "guest", "x"), 1, "there is no stored user 'guest'"),
        (("permission", "set", "nobody", "", "", ""), 2, "there is no such user"),
        (("permission", "set", "guest", "", "", ""), 2, "is made in the configuration of left"),
        (("permission", "clear", "nobody"), 1, "there is no permission of 'nobody' in '/'"),
        (("policy", "set", "p", "*", "{}"), 2, "pattern is no regular expression"),
        (("policy", "set", "p", "^", "{}"), 2, "a table with at least one key"),
        (("policy", "set", "p", "^", "[]"), 2, "DEFINITION is not a JSON object"),
        (("policy", "set", "p", "^", "{"), 2, "DEFINITION: line 1 column 2: not JSON: Expecting"),
        (("policy", "set", "p", "^", ""), 2, "DEFINITION: it is empty"),
        (
            ("policy", "set", "p", "^", '{"expires": NaN}'),
            2,
            "DEFINITION: not JSON: NaN is not a JSON number",
        ),
        (("policy", "set", "p", "^", '{"expires": 1, "expires": 2}'), 2, "has the key 'expires' twice"),
        (("policy", "set", "p", "^", '{"ha-params": ' + "[" * 20_000), 2, "DEFINITION: nested too deeply"),
        (("policy", "set", "p", "^", '{"max-length": 9223372036854775808}'), 2, "does not fit 64 bits"),
        (("policy", "set", "p", "^", '{"max-length": "5"}'), 2, 'max-length: "expected integer, got'),
        (("policy", "set", "p", "^", '{"x": 1}', "--vhost", "v"), 2, "there is no virtual host 'v'"),
        (
            ("policy", "set", "p", "^", json.dumps({"ha-params": "x" * 20_000})),
            2,
            "16384 are the most",
        ),
        (
            ("policy", "set", "p", "^", json.dumps({"ha-params": "\u00e9" * 25_000}, ensure_ascii=False)),
            1,
            "(question-too-large)",
        ),
        (("policy", "clear", "nothing"), 1, "there is no policy 'nothing' in '/'"),
        (("policy", "set", "p"), 2, "Missing argument"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    pair: Pair, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = everything(pair)
    found, out, err = ask(pair, *arguments)
    assert (found, out, err.count("\n")) == (code, "", 1), err
    assert words in err
    assert everything(pair) == before


def test_an_empty_password_and_a_name_that_is_taken_are_refused(pair: Pair) -> None:
    assert "the password is empty" in ask(pair, "user", "add", "carol", typed="\n")[2]
    configured = "change it in the configuration (user-exists)\n"
    assert ask(pair, "user", "add", "guest", typed="x\n")[2].endswith(configured)
    done(pair, "user", "add", "dave", typed="x\n")
    stored = "see `understudy user password` (user-exists)\n"
    assert ask(pair, "user", "add", "dave", typed="x\n")[2].endswith(stored)
    done(pair, "user", "delete", "dave")
    assert (
        "the tag 'ha' is for the pair's own" in ask(pair, "user", "add", "x", "--tag", "ha", typed="x\n")[2]
    )


def test_definitions_bring_users_and_take_them_along(
    pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("file") / "users.json"
    lists = {
        "users": [user(f"u{number}") for number in range(250)],
        "permissions": [{"user": f"u{number}", "vhost": "/", **EVERYTHING} for number in range(250)],
        "policies": [policy()],
        "vhosts": [{"name": "eu", "description": "West"}],
        "queues": [queue("q"), queue("q", vhost="eu")],
        "bindings": [binding("amq.topic", "q", vhost="eu")],
    }
    file.write_text(json.dumps(lists))
    out = done(pair, "definitions", "import", str(file), at="right")
    assert "250 users declared, there already: 0" in out and "1 policy declared" in out
    assert "1 virtual host declared" in out and "2 queues declared, there already: 0" in out
    lists["users"][7]["tags"] = ["monitoring"]
    file.write_text(json.dumps(lists))
    assert "0 users would be declared, 1 would be changed, there already: 249" in done(
        pair, "definitions", "import", str(file), "--dry-run"
    )
    assert "0 users declared, 1 changed, there already: 249" in done(pair, "definitions", "import", str(file))
    document = json.loads(done(pair, "definitions", "export"))
    assert len(document["users"]) == len(document["permissions"]) == 250
    assert document["users"][0] == {
        "name": "u0", "tags": [], "password_hash": user()["password_hash"],
        "hashing_algorithm": "rabbit_password_hashing_sha256", "limits": {},
    }  # fmt: skip
    assert document["policies"][0] == policy() | {"apply-to": "all", "priority": 0}
    assert [(line["vhost"], line["name"]) for line in document["queues"]] == [("/", "q"), ("eu", "q")]
    assert [(line["vhost"], line["source"]) for line in document["bindings"]] == [("eu", "amq.topic")]
    assert document["vhosts"][1]["metadata"] == {"description": "West", "tags": []}


def test_a_broker_that_is_gone_before_it_answers_may_have_done_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> NoReturn:
        raise Unreachable(codes.NODE_UNREACHABLE.say(cause="127.0.0.1:1 ended the connection"))

    status = {"ok": True, "reason": "", "status": {"name": "left", "status": "active"}}
    monkeypatch.setattr(primary, "question", lambda *_: status)
    monkeypatch.setattr(primary, "ask", gone)
    told = CliRunner().invoke(directory.vhost, ["add", "staging", "-b", "127.0.0.1:1"])
    assert told.exit_code == 1
    assert told.output.endswith(": ask the primary whether it made the change (node-unreachable)\n")
