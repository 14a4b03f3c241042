"""Addresses: what each names, and what is none."""

from __future__ import annotations

import pytest

pytest.importorskip("proton")

from understudy.shared.amqp10.addresses import Address, of_queue, parse
from understudy.shared.amqp10.conditions import Fault


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("q", Address("", "q", "q")),
        ("a/b %41", Address("", "a/b %41", "a/b %41")),
        ("/queues/q", Address("", "q", "q")),
        ("/queues/a%2Fb%20c%C3%A9", Address("", "a/b cé", "a/b cé")),
        ("/exchanges/x", Address("x", "", None)),
        ("/exchanges/x/", Address("x", "", None)),
        ("/exchanges/x%2Fy/k.%23", Address("x/y", "k.#", None)),
    ],
)
def test_what_an_address_names(text: str, address: Address) -> None:
    assert parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "/queues", "/queues/", "/queues/a/b", "/queues/%ff", "/queues/%00", "/queues/" + "é" * 128,
        "n" * 256, "/exchanges", "/exchanges/", "/exchanges//k", "/exchanges/x/a/b", "/topic/x", "\0",
    ],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(Fault) as caught:
        parse(text)
    assert caught.value.condition == "amqp:invalid-field"
    assert "\n" not in caught.value.text and len(caught.value.text) <= 255


@pytest.mark.parametrize("name", ["q", "a/b", "é %", "amq.gen-x_1"])
def test_the_address_of_a_queue_names_it(name: str) -> None:
    assert parse(of_queue(name)).queue == name
