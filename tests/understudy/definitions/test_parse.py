"""Definitions files: what is read, the place of each fault, and the import that follows from a file."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import read_table, write_table
from broker.model.history.value_codec import canonical
from ha.adapter.management.definitions_view import from_json, to_json
from tests.understudy.definitions.made import (
    FIXTURE,
    HERE,
    binding,
    exchange,
    file_of,
    names,
    policy,
    queue,
    texts,
)
from understudy.definitions.apply import expected
from understudy.definitions.export import document_of, text_of
from understudy.definitions.parse import answered, read_definitions, validated
from understudy.definitions.plan import check_vhost, name_of, plan_of
from understudy.definitions.strict_json import DefinitionsError
from understudy.definitions.unsupported import counted

# -- reading


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b"no JSON", "line 1 column 1: not JSON: Expecting value"),
        (b'{"queues": [\n{"name": "a",', "line 2 column 14: not JSON: "),
        (
            b'{"queues": [\n{"name": "a',
            "line 2 column 10: not JSON: Unterminated string starting at; is it cut",
        ),
        (b'{"queues": []}x', "line 1 column 15: not JSON: Extra data"),
        (b'{"queues": []\n,"x": "\xff"}', "line 2: not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"queues": ' + b"1" * 5000 + b"}", "a number has too many digits"),
        (b'{"queues": NaN}', "not JSON: NaN is not a JSON number"),
        (b"[]", "not a definitions file: it is not a JSON object"),
        (b"{}", "not a definitions file: it has none of users, "),
        (b'{"orders": [1]}', "not a definitions file: it has none of users, "),
        (b'{"queues": [], "queues": []}', "/: has the key 'queues' twice"),
        (b'{"queues": [{"name": "a", "durable": true, "name": "b"}]}', "/queues/0: has the key 'name' twice"),
    ],
)
def test_what_is_no_definitions_file_is_told_with_its_place(raw: bytes, fault: str) -> None:
    with pytest.raises(DefinitionsError) as told:
        read_definitions(raw)
    assert fault in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("lists", "fault"),
    [
        ({"queues": {}}, "/queues: not a list"),
        ({"queues": [queue(), 3]}, "/queues/1: not an object"),
        ({"queues": [{"name": "a"}]}, "/queues/0/durable: is missing"),
        ({"queues": [queue(durable="true")]}, "/queues/0/durable: not true or false"),
        ({"queues": [queue(auto_delete=1)]}, "/queues/0/auto_delete: not true or false"),
        ({"queues": [queue(name=3)]}, "/queues/0/name: not a string"),
        ({"queues": [queue(name=None)]}, "/queues/0/name: not a string"),
        ({"queues": [queue(name="")]}, "/queues/0/name: is empty"),
        ({"queues": [queue(name="a" * 256)]}, "/queues/0/name: longer than 255 octets"),
        ({"queues": [queue(name="ä" * 128)]}, "/queues/0/name: longer than 255 octets"),
        ({"queues": [queue(name="a\0")]}, "/queues/0/name: contains a NUL"),
        ({"queues": [queue(name="\ud800")]}, "/queues/0/name: not Unicode"),
        ({"queues": [queue(vhost=1)]}, "/queues/0/vhost: not a string"),
        ({"queues": [queue(arguments=[1])]}, "/queues/0/arguments: not an object"),
        ({"queues": [queue(arguments={"x": 2**63})]}, "/queues/0/arguments: a number that does not fit"),
        ({"queues": [queue(arguments={"k" * 256: 1})]}, "/queues/0/arguments: longer than 255 octets"),
        ({"queues": [queue(arguments={"x": "\ud800"})]}, "/queues/0/arguments: not Unicode"),
        ({"queues": [queue(arguments={"x": "y" * 70_000})]}, "/queues/0/arguments: larger than 16384"),
        ({"queues": [queue(arguments={"x": {"$bytes": "?"}})]}, "/queues/0/arguments: $bytes with a value"),
        ({"queues": [queue(arguments={"x-expires": 0})]}, "/queues/0/arguments/x-expires: {value_zero,0}"),
        ({"queues": [queue(), queue("b"), queue()]}, "/queues/2: is a duplicate of /queues/0"),
        ({"exchanges": [exchange(type=None)]}, "/exchanges/0/type: not a string"),
        (
            {"exchanges": [exchange(), exchange(type="fanout")]},
            "/exchanges/1: is a duplicate of /exchanges/0",
        ),
        (
            {"exchanges": [exchange(arguments={"alternate-exchange": 1})]},
            "/exchanges/0/arguments/alternate-exchange: not a string",
        ),
        (
            {"queues": [queue(arguments={"x-replicate": "All"})]},
            "/queues/0/arguments/x-replicate: 'All' is not one of none, configuration, all",
        ),
        (
            {"exchanges": [exchange(), exchange("y", arguments={"x-replicate": 5})]},
            "/exchanges/1/arguments/x-replicate: 5 is not one of none, configuration, all",
        ),
        ({"bindings": [binding(destination_type="topic")]}, "/bindings/0/destination_type: not 'queue' or"),
        ({"bindings": [binding(routing_key="k" * 256)]}, "/bindings/0/routing_key: longer than 255 octets"),
        ({"bindings": [binding(routing_key="\udcff")]}, "/bindings/0/routing_key: not Unicode"),
        ({"bindings": [binding(routing_key=None)]}, "/bindings/0/routing_key: not a string"),
        (
            {"bindings": [binding(routing_key={"$bytes": "?"})]},
            "/bindings/0/routing_key: $bytes with a value",
        ),
        (
            {"bindings": [binding(routing_key={"$bytes": "/w=="}), binding(routing_key={"$bytes": "/w=="})]},
            "/bindings/1: is a duplicate of /bindings/0",
        ),
        ({"bindings": [binding(), binding()]}, "/bindings/1: is a duplicate of /bindings/0"),
        ({"users": [{"name": "a", "tags": 3}]}, "/users/0/tags: not a list"),
        ({"permissions": [{"user": "a", "vhost": "/"}]}, "/permissions/0/configure: is missing"),
        ({"policies": [{}]}, "/policies/0/name: is missing"),
    ],
)
def test_a_wrong_object_is_told_with_a_pointer(lists: dict[str, Any], fault: str) -> None:
    with pytest.raises(DefinitionsError) as told:
        file_of(**lists)
    assert str(told.value).startswith(fault)


def test_a_table_nested_too_deep_is_told() -> None:
    table: dict[str, Any] = {}
    for _ in range(60):
        table = {"a": table}
    with pytest.raises(DefinitionsError, match="/queues/0/arguments: nested deeper than 32"):
        file_of(queues=[queue(arguments=table)])


def test_every_cut_of_a_file_is_refused() -> None:
    raw = FIXTURE.read_bytes().strip()
    for end in range(0, len(raw), 7):
        with pytest.raises(DefinitionsError):
            read_definitions(raw[:end])
    read_definitions(raw)


def test_whole_numbers_may_be_written_as_floats_where_integers_are_meant() -> None:
    found = file_of(
        queues=[queue(arguments={"x-message-ttl": 6e4, "x-max-priority": 3.0, "x-own": 1.0})],
        policies=[policy(priority=1.0, definition={"max-length": 5.0, "delivery-limit": 2.0})],
    )
    assert repr(found.queues[0].arguments) == "{'x-message-ttl': 60000, 'x-max-priority': 3, 'x-own': 1.0}"
    assert repr(found.policies[0].priority) == "1"
    assert repr(found.policies[0].definition) == "{'max-length': 5, 'delivery-limit': 2}"
    with pytest.raises(DefinitionsError, match=r"^/policies/0/priority: "):
        file_of(policies=[policy(priority=1.5)])


def test_an_export_of_one_virtual_host_goes_where_it_is_said() -> None:
    lists = {
        "queues": [{"name": "q", "durable": True}, queue("r", vhost="other")],
        "policies": [{"name": "p", "pattern": "^a", "definition": {"max-length": 5}}],
    }
    raw = json.dumps({"rabbit_version": "3.13.7", "original_vhost_name": "shop", **lists}).encode()
    with pytest.raises(DefinitionsError, match=r"^/original_vhost_name: .* 'shop' only: name the"):
        read_definitions(raw)
    placed = read_definitions(raw, vhost="new")
    assert [item.vhost for item in (*placed.queues, *placed.policies)] == ["new", "other", "new"]
    with pytest.raises(DefinitionsError, match=r"^there is no virtual host 'new': add it with"):
        check_vhost("new", placed, HERE)
    check_vhost("/", placed, HERE)
    whole = json.dumps({"original_vhost_name": "/", **lists}).encode()
    assert read_definitions(whole).queues[0].vhost == "/"


def test_what_older_and_other_exports_leave_out_or_write_otherwise_is_read() -> None:
    file = file_of(
        users=[{"name": "a", "tags": "administrator, monitoring"}],
        queues=[{"name": "q", "durable": True, "arguments": []}],
        exchanges=[{"name": "x", "type": "direct", "durable": False}],
    )
    assert file.users[0].tags == ["administrator", "monitoring"]
    assert (file.queues[0].vhost, file.queues[0].auto_delete, file.queues[0].arguments) == ("/", False, {})
    assert not file.exchanges[0].internal
    assert read_definitions(b"\xef\xbb\xbf" + FIXTURE.read_bytes()) == read_definitions(FIXTURE.read_bytes())


# -- values

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=9) | st.binary(max_size=9)
    | st.floats(allow_nan=False) | st.just(math.nan) | st.decimals(-(10**6), 10**6, places=2)
)  # fmt: skip
KEYS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=9
) | st.sampled_from(("$bytes", "$decimal", "$double", "$table"))
TABLES = st.dictionaries(
    KEYS, st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=9)
)


@given(TABLES)
def test_arguments_come_back_as_they_were_of_the_same_kinds(table: dict[str, Any]) -> None:
    through_json = json.loads(json.dumps(to_json(table), allow_nan=False))
    assert canonical(from_json(through_json)) == canonical(table)


@given(TABLES)
def test_arguments_cross_the_wire_as_the_kinds_they_are(table: dict[str, Any]) -> None:
    kept, _ = read_table(write_table(table), 0)
    assert canonical(from_json(json.loads(json.dumps(to_json(kept))))) == canonical(kept)


def test_what_json_has_no_form_for_is_a_table_of_one_key() -> None:
    table = {
        "b": b"\xff",
        "d": Decimal("1.50"),
        "n": math.nan,
        "t": {"$bytes": "no octets"},
        "i": 1,
        "f": 1.0,
    }
    assert to_json(table) == {
        "b": {"$bytes": "/w=="}, "d": {"$decimal": "1.50"}, "n": {"$double": "nan"},
        "t": {"$table": {"$bytes": "no octets"}}, "i": 1, "f": 1.0,
    }  # fmt: skip


# -- planning


def test_an_export_of_rabbitmq_is_read_and_unsupported_parts_are_named() -> None:
    plan = plan_of(read_definitions(FIXTURE.read_bytes()), HERE)
    assert names(plan) == [
        "virtual host 'staging'", "user 'shop'", "permission 'shop'",
        "permission 'shop' in virtual host 'staging'", "topic permission 'shop on orders'",
        "limits of user 'shop'", "policy 'expire-replies'", "limits of virtual host '/'",
        "exchange 'orders'", "exchange 'unrouted'", "exchange 'by-header'", "exchange 'later'",
        "queue 'mail'", "queue 'mail.retry'", "queue 'sessions'", "queue 'orders' in virtual host 'staging'",
        "binding of exchange 'by-header' to 'orders' with key '#'",
        "binding of queue 'mail' to 'by-header'",
        "binding of queue 'mail' to 'unrouted'",
        "binding of queue 'sessions' to 'amq.topic' with key 'session.*'",
        "binding of queue 'mail' to 'later' with key 'mail'",
    ]  # fmt: skip
    assert texts(plan) == [
        "1 shovel (audit-away): it moves from, or to, a queue: keep it at RabbitMQ, or move its client",
        "1 default queue type (quorum of staging): this broker has classic queues only",
        "1 queue of type quorum (orders): this broker has no such type; "
        "--quorum-as-classic imports them as durable queues of this broker",
        "1 queue of type stream (audit): this broker has no such type",
        "1 binding (orders to orders): its source or destination is not imported",
    ]
    assert [left.text for left in plan.left_out if not left.matters] == [
        "2 global parameters (internal_cluster_id, cluster_name): it identifies the other cluster"
    ]


def test_quorum_queues_are_taken_when_asked_with_their_arguments() -> None:
    plan = plan_of(read_definitions(FIXTURE.read_bytes()), HERE, quorum_as_classic=True)
    (orders,) = [item for item in plan.items if name_of(item) == "queue 'orders'"]
    assert orders.arguments == {"x-queue-type": "quorum", "x-delivery-limit": 5}
    assert "binding of queue 'orders' to 'orders' with key 'eu.#'" in names(plan)
    assert not any("of type quorum" in text for text in texts(plan))
    assert not any("x-delivery-limit" in text for text in texts(plan))


@pytest.mark.parametrize(
    ("word", "taken"), [("classic", 1), ("rabbit_classic_queue", 1), ("quorum", 0), ("stream", 0)]
)
def test_the_type_that_rabbitmqctl_writes_counts_without_an_argument(word: str, taken: int) -> None:
    assert len(plan_of(file_of(queues=[queue(type=word)]), HERE).items) == taken


def test_our_own_export_needs_no_option_for_what_was_here_before() -> None:
    file = file_of(product_name="Understudy", queues=[queue(arguments={"x-queue-type": "quorum"})])
    assert names(plan_of(file, HERE)) == ["queue 'q'"]


def test_built_in_objects_are_skipped_and_reserved_names_are_named() -> None:
    file = file_of(
        exchanges=[exchange(""), exchange("amq.topic", type="topic"), exchange("amq.rabbitmq.log")],
        queues=[queue("amq.gen-1"), queue()],
        bindings=[binding("", "q", routing_key="q"), binding("amq.topic", "amq.gen-1")],
    )
    plan = plan_of(file, HERE)
    assert names(plan) == ["queue 'q'"]
    assert texts(plan) == [
        "1 exchange with a reserved name (amq.rabbitmq.log): names that begin with amq. are reserved",
        "1 queue with a reserved name (amq.gen-1): names that begin with amq. are reserved",
        "1 binding (amq.gen-1 to amq.topic): its source or destination is not imported",
    ]


def test_the_exchange_between_the_nodes_of_a_pair_is_neither_made_nor_bound() -> None:
    file = file_of(
        exchanges=[exchange("amq.peer", type="topic"), exchange("e")],
        queues=[queue()],
        bindings=[
            binding("amq.peer", "q"),
            binding("amq.peer", "e", destination_type="exchange"),
            binding("e", "amq.peer", destination_type="exchange"),
        ],
    )
    plan = plan_of(file, HERE)
    assert names(plan) == ["exchange 'e'", "queue 'q'"]
    assert texts(plan) == [
        "3 bindings (q to amq.peer, e to amq.peer, amq.peer to e): amq.peer is for the nodes of the pair"
    ]


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (
            binding("amq.direct", "gone"),
            "/bindings/1/destination: no queue 'gone' in the file or on the broker",
        ),
        (binding("gone", "q"), "/bindings/1/source: no exchange 'gone' in the file or on the broker"),
        (
            binding("amq.direct", "q", destination_type="exchange"),
            "/bindings/1/destination: no exchange 'q' in the file or on the broker",
        ),
        (binding("", "q"), "/bindings/1/source: no binding to the default exchange"),
    ],
)
def test_a_binding_to_what_is_not_there_is_told(wrong: dict[str, Any], fault: str) -> None:
    file = file_of(queues=[queue()], bindings=[binding("amq.direct", "q"), wrong])
    with pytest.raises(DefinitionsError) as told:
        plan_of(file, HERE)
    assert str(told.value).startswith(fault)


def test_a_binding_may_lead_to_what_the_broker_has() -> None:
    there = validated({"queues": [queue()], "exchanges": [exchange()]})
    assert names(plan_of(file_of(bindings=[binding()]), there)) == [
        "binding of queue 'q' to 'x' with key 'k'"
    ]


@pytest.mark.parametrize("arguments", [{"x-note": nested(40)}, {"x-note": "n" * 100_000}])
def test_what_clients_declared_is_in_the_way_of_no_import(arguments: dict[str, Any]) -> None:
    """Clients may declare arguments that are larger and nested deeper than a file may hold."""
    listed = {"queues": [queue(arguments=arguments)], "policies": [policy(definition={"expires": 2**63})]}
    there = answered(listed)
    assert names(plan_of(file_of(queues=[queue("new")]), there)) == ["queue 'new'"]
    with pytest.raises(DefinitionsError, match="/queues/0/arguments: "):
        validated({"queues": listed["queues"]})


def test_a_dry_run_tells_the_new_from_the_same_and_the_other() -> None:
    there = validated({
        "queues": [queue(), queue("typed"), queue("other", arguments={"x-expires": 1000})],
        "exchanges": [exchange(), exchange("y", arguments={"alternate-exchange": "x"})],
        "bindings": [binding()],
    })  # fmt: skip
    file = file_of(
        queues=[
            queue(arguments={"note": "is not compared"}),
            queue("typed", arguments={"x-queue-type": "classic"}),
            queue("other", arguments={"x-expires": 2000}), queue("new"),
        ],
        exchanges=[exchange(type="fanout"), exchange("y", arguments={"alternate-exchange": "z"})],
        bindings=[binding(), binding(arguments={"n": 1}), binding(arguments={"n": True})],
    )  # fmt: skip
    outcome = expected(plan_of(file, there))
    assert dict(outcome.there) == {"queues": 2, "bindings": 1}
    assert dict(outcome.new) == {"queues": 1, "bindings": 2}
    assert outcome.refused == [
        "exchange 'x': exists with a different type",
        "exchange 'y': exists with a different alternate-exchange",
        "queue 'other': exists with a different x-expires",
    ]


def test_users_and_settings_that_are_the_same_here_are_not_named() -> None:
    file = file_of(
        users=[{"name": "guest", "tags": ["administrator"]}],
        permissions=[{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        vhosts=[{"name": "/", "metadata": {"default_queue_type": "classic"}}],
    )
    assert texts(plan_of(file, HERE)) == []


def test_what_differs_or_is_unknown_is_named() -> None:
    file = file_of(
        users=[{"name": "guest", "tags": []}],
        vhosts=[{"name": "/", "metadata": {"default_queue_type": "quorum"}}],
        global_parameters=[{"name": "mqtt_default_vhosts", "value": {}}],
        oddity=1,
    )
    assert texts(plan_of(file, HERE)) == [
        "1 user (guest): administrator in the file or in the configuration, not in both; stays as configured",
        "1 global parameter (mqtt_default_vhosts): this broker has no such parameters",
        "1 key of the file (oddity): RabbitMQ writes no such key",
        "1 default queue type (quorum of /): this broker has classic queues only",
    ]


def test_a_name_cannot_break_the_line_and_a_long_list_is_cut() -> None:
    plan = plan_of(file_of(queues=[queue(f"s\n\x1b[{n}", type="stream") for n in range(1200)]), HERE)
    (text,) = texts(plan)
    assert text.isprintable()
    assert text.startswith("1,200 queues of type stream (s\\n\\x1b[0, ")
    assert ", and 1195 more)" in text


def test_words_are_counted() -> None:
    whats = (
        "policy",
        "virtual host",
        "queue of type stream",
        "argument x-max-length",
        "permission by pattern",
    )
    assert [counted(2, what) for what in whats] == [
        "2 policies", "2 virtual hosts", "2 queues of type stream", "2 arguments x-max-length",
        "2 permissions by pattern",
    ]  # fmt: skip


# -- writing


@given(st.permutations(range(4)))
def test_the_text_is_the_same_in_whatever_order_things_came_to_be(order: list[int]) -> None:
    def text(numbers: list[int]) -> bytes:
        keys = [f"k{number}" for number in numbers]
        table = {key: dict.fromkeys(keys, key) for key in keys}
        lists = {
            "users": [{"name": f"u{number}", "tags": []} for number in numbers],
            "policies": [{"name": f"p{number}", "definition": table} for number in numbers],
            "queues": [queue(f"q{number}", arguments=table) for number in numbers],
            "exchanges": [exchange(f"x{number}") for number in numbers],
            "bindings": [binding(destination="q0", arguments={"n": number}) for number in numbers],
        }
        return b"".join(text_of(document_of(lists)))

    assert text(order) == text([0, 1, 2, 3])


def test_the_text_is_read_back_as_it_was_and_has_one_object_a_line() -> None:
    lines = [queue(f"q{number:04}") for number in range(1203)]
    found = {"users": [], "queues": lines, "exchanges": [exchange()], "bindings": []}
    text = b"".join(text_of(document_of(found)))
    assert json.loads(text)["queues"] == lines
    assert sum(line.strip().startswith(b'{"name": "q') for line in text.splitlines()) == 1203
    assert read_definitions(text).product_name == "Understudy"
