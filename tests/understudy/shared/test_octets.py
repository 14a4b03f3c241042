"""Octets in pieces: whatever the sizes, the same octets; what is large is not copied."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from understudy.shared.octets import blocks, cut

PARTS = st.lists(st.binary(max_size=40), max_size=12)


@given(PARTS, st.integers(1, 50))
def test_small_parts_are_gathered_to_blocks(parts: list[bytes], size: int) -> None:
    found = list(blocks(parts, size))
    assert b"".join(found) == b"".join(parts)
    assert all(len(block) <= size or any(block is part for part in parts) for block in found)
    assert all(len(one) + len(next_) > size for one, next_ in pairwise(found))


@given(PARTS, st.integers(1, 50))
def test_pieces_are_of_one_size_but_for_the_last(parts: list[bytes], size: int) -> None:
    found = list(cut(parts, size))
    whole = b"".join(parts)
    assert found == [whole[at : at + size] for at in range(0, len(whole), size)] or not whole


def test_what_is_large_is_not_copied_to_a_block() -> None:
    large = bytes(1000)
    assert next(blocks([large], 100)) is large
