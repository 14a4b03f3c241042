"""What is found valid by a quick look is valid also for the whole check."""

from __future__ import annotations

import random

import pytest

from tests.broker.amqp10.messages import payload
from understudy.shared.amqp10 import framing
from understudy.shared.amqp10.conditions import Fault
from understudy.shared.amqp10.sections import is_octets, is_plain, outline
from understudy.shared.amqp10.types import DecodeError, skip


def _transfer(tag: bytes, rest: bytes, count: int) -> bytes:
    fields = b"\x43\x52\x07\xa0%b%b%b" % (bytes((len(tag),)), tag, rest)
    return b"\0\x53\x14\xc0%b%b%boctets" % (bytes((len(fields) + 1,)), bytes((count,)), fields)


def _damaged(chance: random.Random, data: bytes) -> bytes:
    at, octet = chance.randrange(len(data)), bytes((chance.choice((0, 1, 0x40, 0x43, 0x70, 0xA0, 0xFF)),))
    return data[:at] + chance.choice((octet, b"", octet + data[at : at + 1])) + data[at + 1 :]


@pytest.mark.parametrize("seed", range(20))
def test_a_usual_transfer_passes_the_whole_check_with_the_same_result(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    usual = _transfer(b"17", b"\x43\x42\x41", 6)
    seen = []
    for body in [usual, *(_damaged(chance, usual) for _ in range(300))]:
        frame = (8 + len(body)).to_bytes(4, "big") + b"\2\0\0\0" + body
        if framing._is_usual_transfer(frame, 8, len(frame)):
            seen.append(framing.check(frame, 0, len(frame)))
            assert skip(frame, 11, len(frame)) == 8 + 5 + body[4]
    assert len(seen) > 20 and set(seen) == {(0x14, 11)}


@pytest.mark.parametrize("seed", range(20))
def test_a_usual_flow_or_disposition_passes_the_whole_check_too(seed: int) -> None:
    chance = random.Random(seed)
    for code, count, fields in (
        (0x13, 9, b"\x52\1\x70\0\0\x07\xff\x43\x52\x08\x43\x52\5\x52\x64\x43\x42"),
        (0x15, 5, b"\x41\x52\1\x52\3\x41\0\x53\x24\x45"),
    ):
        usual = b"\0\x53%b\xc0%b%b%b" % (bytes((code,)), bytes((len(fields) + 1,)), bytes((count,)), fields)
        assert framing._is_usual_answer(usual, 0, len(usual))
        for body in (_damaged(chance, usual) for _ in range(300)):
            if framing._is_usual_answer(body, 0, len(body)):
                assert body[2] in (0x13, 0x15) and skip(body, 3, len(body)) == len(body)


def test_a_transfer_of_another_form_is_still_checked_whole() -> None:
    for count, rest in ((5, b"\x43\x42\x41"), (6, b"\x43\x42\x56"), (6, b"\x43\x42\x56\x02"), (4, b"\xff")):
        body = _transfer(b"17", rest, count)
        frame = (8 + len(body)).to_bytes(4, "big") + b"\2\0\0\0" + body
        with pytest.raises(Fault, match="not well-formed"):
            framing.check(frame, 0, len(frame))


@pytest.mark.parametrize("seed", range(20))
def test_a_plain_message_has_an_outline(seed: int) -> None:
    chance = random.Random(seed)
    for body in (b"\0\x53\x75\xa0\x04body", b"\0\x53\x77\xa1\x02\xc3\xa9", b"\0\x53\x77\xb0\0\0\0\1x"):
        whole = payload(header=[True], properties=["id"], application={"a": "b"}, body=body)
        assert is_plain(whole)
        for data in (_damaged(chance, whole) for _ in range(100)):
            try:
                plan = outline(data)
            except DecodeError:
                assert not is_plain(data)
            else:
                assert not is_octets(data, plan.body) or (plan.data and plan.footer == len(data))
