"""Topic matching against a naive recursive oracle."""

from __future__ import annotations

from functools import cache
from typing import TypeVar
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from broker.model.routing import topic_trie
from broker.model.routing.topic_trie import TopicTrie

T = TypeVar("T")
WORD = st.sampled_from(["a", "b", "c", ""])
KEY = st.lists(WORD, min_size=1, max_size=6).map(".".join)
PATTERN = st.lists(WORD | st.sampled_from(["*", "#"]), min_size=1, max_size=6).map(".".join)


def naive(pattern: str, key: str) -> bool:
    @cache
    def match(p: tuple[str, ...], k: tuple[str, ...]) -> bool:
        if not p:
            return not k
        if p[0] == "#":
            return match(p[1:], k) or (bool(k) and match(p, k[1:]))
        return bool(k) and p[0] in ("*", k[0]) and match(p[1:], k[1:])

    def words(text: str) -> tuple[str, ...]:
        return tuple(text.split(".")) if text else ()

    return match(words(pattern), words(key))


def matched(trie: TopicTrie[T], key: str, piece: int = 3) -> list[T]:
    """Everything matched in all pieces. Checks that no piece visits too many nodes."""
    with patch.object(topic_trie, "PIECE", piece):
        pieces = list(trie.match(key))
    assert all(looked < 2 * piece for looked, _ in pieces)
    return [value for _, found in pieces for value in found]


@given(st.lists(PATTERN, unique=True, max_size=12), KEY)
def test_matches_as_the_oracle_does(patterns: list[str], key: str) -> None:
    trie: TopicTrie[str] = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, pattern, pattern)
    assert sorted(matched(trie, key)) == sorted(p for p in patterns if naive(p, key))


@given(st.lists(PATTERN, unique=True, max_size=12), st.data())
def test_removal_leaves_the_others(patterns: list[str], data: st.DataObject) -> None:
    trie: TopicTrie[str] = TopicTrie()
    nodes = sum(trie.add(pattern, pattern, pattern) for pattern in patterns)
    assert len(patterns) <= 1 + nodes <= 1 + 6 * len(patterns)
    gone = data.draw(st.sets(st.sampled_from(patterns))) if patterns else set()
    nodes -= sum(trie.remove(pattern, pattern) for pattern in gone)
    assert trie.remove("never.there.#", "x") == 0
    key = data.draw(KEY)
    assert sorted(matched(trie, key)) == sorted(p for p in patterns if p not in gone and naive(p, key))
    nodes -= sum(trie.remove(pattern, pattern) for pattern in patterns)
    assert trie._root.empty()
    assert nodes == 0


def test_the_empty_key_has_no_word() -> None:
    """As in RabbitMQ: `*` is exactly one word, and an empty key has no word."""
    trie: TopicTrie[str] = TopicTrie()
    for pattern in ("", "#", "#.#", "*", "*.#", "#.*.#", "a"):
        trie.add(pattern, pattern, pattern)
    assert sorted(matched(trie, "")) == ["", "#", "#.#"]
    trie.remove("", "")
    assert sorted(matched(trie, "")) == ["#", "#.#"]


def test_bad_input_24_many_hashes_cost_nothing_much() -> None:
    """`#.#.#` is one node, and even `#.a.#.a...` visits each node at most once per word of a 127-word key."""
    trie: TopicTrie[int] = TopicTrie()
    trie.add(".".join(["#"] * 127), 0, 0)
    for i in range(1, 60):
        trie.add(".".join(["#.a"] * i + ["#"]), i, i)
    assert len(matched(trie, ".".join(["a"] * 127))) == 60
    assert matched(trie, ".".join(["b"] * 127)) == [0]
