"""Arguments of queues: refusals and their texts, and the resulting rules (bad input 26)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.amqp091.codec.fields import Float32, Timestamp
from broker.errors import PreconditionFailed
from broker.model.queue.arguments import (
    LONGEST,
    NO_RULES,
    OverflowRule,
    QueueRules,
    check_queue_arguments,
    fault_of,
    rules_of,
)

WHERE = "queue 'q' in vhost '/'"
TIMES = ("x-message-ttl", "x-expires")
NUMBERS = (*TIMES, "x-max-length", "x-max-length-bytes", "x-max-priority")
TEXTS = ("x-overflow", "x-dead-letter-exchange")
NO_INTEGERS = [True, "1", b"1", 1.0, Float32(1), Timestamp(1), Decimal(1), None, [1], {"a": 1},
               datetime(2026, 1, 1, tzinfo=UTC)]  # fmt: skip


def text(**arguments: object) -> str:
    with pytest.raises(PreconditionFailed) as caught:
        check_queue_arguments({k.replace("_", "-"): v for k, v in arguments.items()}, WHERE)
    assert len(caught.value.reply_text.encode()) <= 255
    return caught.value.text.removeprefix("invalid arg ").replace(f"for {WHERE}", "for q")


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", NO_INTEGERS, ids=lambda v: type(v).__name__)
def test_a_number_is_an_integer(name: str, value: object) -> None:
    assert text(**{name: value}).startswith(f"'{name}' for q: \"expected integer, got ")
    assert rules_of({name: value}) == NO_RULES


@pytest.mark.parametrize("name", NUMBERS)
def test_negative(name: str) -> None:
    assert text(**{name: -1}) == f"'{name}' for q: {{value_negative,-1}}"
    assert text(**{name: -(2**63)}) == f"'{name}' for q: {{value_negative,{-(2**63)}}}"
    assert rules_of({name: -1}) == NO_RULES


@pytest.mark.parametrize("name", TIMES)
def test_a_time_has_an_end(name: str) -> None:
    check_queue_arguments({name: LONGEST}, WHERE)
    assert text(**{name: LONGEST + 1}) == f"'{name}' for q: {{value_too_large,{LONGEST + 1}}}"
    assert rules_of({name: LONGEST + 1}) == NO_RULES


def test_zero() -> None:
    zero = dict.fromkeys(("x-message-ttl", "x-max-length", "x-max-length-bytes", "x-max-priority"), 0)
    check_queue_arguments(zero, WHERE)
    assert rules_of(zero) == QueueRules(message_ttl=0, max_length=0, max_length_bytes=0, max_priority=1)
    assert text(x_expires=0) == "'x-expires' for q: {value_zero,0}"


def test_priorities_are_an_octet() -> None:
    assert rules_of({"x-max-priority": 255}).max_priority == 255
    assert text(x_max_priority=256) == "'x-max-priority' for q: {max_value_exceeded,256}"


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [True, 1, 1.5, b"\xff", None, ["drop-head"], {}], ids=str)
def test_a_text_is_a_string(name: str, value: object) -> None:
    assert text(**{name: value}).startswith(f"'{name}' for q: {{unacceptable_type,")
    assert rules_of({name: value}) == NO_RULES


def test_overflow() -> None:
    for rule in OverflowRule:
        assert rules_of({"x-overflow": rule.value}).overflow is rule
        check_queue_arguments({"x-overflow": rule.value}, WHERE)
    assert text(x_overflow="drop-tail") == "'x-overflow' for q: invalid_overflow"
    assert rules_of({"x-overflow": "drop-tail"}) == NO_RULES


def test_a_dead_letter_routing_key_needs_its_exchange() -> None:
    alone = {"x-dead-letter-routing-key": "k"}
    assert text(**alone) == "'x-dead-letter-routing-key' for q: routing_key_but_no_dlx_defined"
    assert rules_of(alone) == NO_RULES
    whole = alone | {"x-dead-letter-exchange": ""}  # the default exchange
    check_queue_arguments(whole, WHERE)
    assert rules_of(whole) == QueueRules(dead_letter_exchange="", dead_letter_routing_key="k")
    assert rules_of(whole).dead_letters and not NO_RULES.dead_letters


@pytest.mark.parametrize("name", ["x-dead-letter-exchange", "x-dead-letter-routing-key"])
@pytest.mark.parametrize("value", ["k" * 256, "\u20ac" * 86, "\udcff"], ids=["octets", "euros", "no text"])
def test_dead_letter_names_must_fit_a_short_string(name: str, value: str) -> None:
    """Otherwise no node could encode the dead letter: each primary would fail in turn."""
    table = {"x-dead-letter-exchange": "x"} | {name: value}
    fault = text(**table)
    assert fault.startswith(f"'{name}' for q: ") and ("255 octets" in fault or "UTF-8" in fault), fault
    assert getattr(rules_of(table), name.removeprefix("x-").replace("-", "_")) is None
    check_queue_arguments({**table, name: "\u20ac" * 85}, WHERE)


@pytest.mark.parametrize("name", ["x-max-length", "x-max-length-bytes"])
def test_limited(name: str) -> None:
    assert rules_of({name: 5}).limited
    assert not rules_of({"x-overflow": "reject-publish"}).limited


def test_types_of_queues() -> None:
    for name in ("classic", "quorum", "rabbit_quorum_queue"):
        check_queue_arguments({"x-queue-type": name}, WHERE)
    assert text(x_queue_type="stream") == "'x-queue-type' for q: \"unsupported queue type 'stream'\""
    assert text(x_queue_type="s" * 1000).endswith("s" * 60 + "'\"")
    assert text(x_queue_type=1) == "'x-queue-type' for q: {unacceptable_type,signedint}"


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        ("classic", "x-max-in-memory-length"), ("classic", "x-max-age"), ("quorum", "x-max-priority"),
        ("quorum", "x-max-age"), ("rabbit_quorum_queue", "x-queue-mode"),
    ],
)  # fmt: skip
def test_arguments_of_another_type_of_queue(type_: str, name: str) -> None:
    value = "lazy" if name == "x-queue-mode" else 5
    kind = type_.removeprefix("rabbit_").removesuffix("_queue")
    assert text(**{"x-queue-type": type_, name: value}) == f"'{name}' for q of queue type {kind}"


@pytest.mark.parametrize(("name", "value", "fault"), [
    ("x-max-in-memory-length", -1, "{value_negative,-1}"),
    ("x-max-in-memory-bytes", "a", '"expected integer, got longstr"'),
    ("x-quorum-initial-group-size", -3, "{value_negative,-3}"),
    ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
    ("x-dead-letter-strategy", 5, "{unacceptable_type,signedint}"),
    ("x-dead-letter-strategy", "zzz", "invalid_dlx_strategy"),
    ("x-queue-leader-locator", 7, "{unacceptable_type,signedint}"),
    ("x-queue-leader-locator", "nonsense", "invalid_queue_locator_arg"),
])  # fmt: skip
def test_quorum_only_arguments_are_checked_too(name: str, value: object, fault: str) -> None:
    """The argument has no effect here, and is refused as in RabbitMQ."""
    for type_ in ("quorum", "classic"):
        assert text(**{"x-queue-type": type_, name: value}) == f"'{name}' for q: {fault}"


def test_sensible_arguments_of_a_quorum_queue_are_taken() -> None:
    asked = {
        "x-queue-type": "quorum", "x-max-in-memory-length": 0, "x-max-in-memory-bytes": 5,
        "x-quorum-initial-group-size": 3, "x-dead-letter-strategy": "at-least-once",
        "x-queue-leader-locator": "client-local",
    }  # fmt: skip
    check_queue_arguments(asked, WHERE)
    check_queue_arguments({"x-queue-leader-locator": "balanced"}, WHERE)
    assert rules_of(asked) == NO_RULES


def test_other_arguments() -> None:
    assert text(x_queue_mode="eager") == "'x-queue-mode' for q: \"unsupported queue mode 'eager'\""
    assert text(x_queue_mode=1) == "'x-queue-mode' for q: {unacceptable_type,signedint}"
    assert text(x_queue_version=3) == "'x-queue-version' for q: \"unsupported queue version '3'\""
    assert text(x_queue_version=True) == "'x-queue-version' for q: {unacceptable_type,bool}"
    assert (
        text(x_single_active_consumer=1) == "'x-single-active-consumer' for q: {unacceptable_type,signedint}"
    )
    unknown = {"x-mine": object(), "max-length": -1, "x-replicate": "none"}
    check_queue_arguments(unknown, WHERE)
    assert rules_of(unknown) == NO_RULES


@pytest.mark.parametrize(
    "value", ["All", "maybe", "None", "configuration ", "", 5, True, None, b"\xff", ["all"], {}]
)
def test_a_level_of_replication_that_there_is_not(value: object) -> None:
    assert text(x_replicate=value) == f"'x-replicate' for q: {value!r} is not one of none, configuration, all"


def test_levels_of_replication() -> None:
    for level in ("none", "configuration", "all", b"all"):
        check_queue_arguments({"x-replicate": level}, WHERE)
    assert text(x_replicate="s" * 1000).startswith("'x-replicate' for q: 'sss")


names = st.sampled_from(
    [*NUMBERS, *TEXTS, "x-dead-letter-routing-key", "x-queue-type", "x-queue-mode", "x-mine"]
)
values = st.one_of(
    st.integers(-3, 300), st.integers(), st.booleans(), st.floats(), st.none(), st.binary(), st.text(),
    st.sampled_from(["drop-head", "reject-publish", "classic", "quorum", "lazy"]),
)  # fmt: skip


@given(st.dictionaries(names, values))
def test_whatever_is_accepted_is_meant_and_nothing_else_counts(arguments: dict[str, object]) -> None:
    rules = rules_of(arguments)  # raises nothing
    told = {
        "x-message-ttl": rules.message_ttl, "x-expires": rules.expires, "x-max-length": rules.max_length,
        "x-max-length-bytes": rules.max_length_bytes, "x-max-priority": rules.max_priority,
        "x-dead-letter-exchange": rules.dead_letter_exchange,
        "x-dead-letter-routing-key": rules.dead_letter_routing_key,
    }  # fmt: skip
    faulty = fault_of(arguments) is not None
    for name, value in told.items():
        if not faulty:
            expected = arguments.get(name)
            assert value == (1 if name == "x-max-priority" and expected == 0 else expected)
        elif value is not None:
            assert fault_of({"x-dead-letter-exchange": "", name: value}) is None
