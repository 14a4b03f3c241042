"""Topic patterns in a trie of words: `*` matches one word, `#` any number of words.

Owner: a topic exchange. Matching walks all live states word by word, like an automaton. So its cost is at
most words x nodes, and `#.#.#.#` cannot make it explode (bad input 24). With tens of thousands of patterns it
may still take seconds, so matching is done in pieces. Repeated `#` words share one node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

PIECE = 1000
"""Nodes visited in one piece."""


class _Node(Generic[T]):
    __slots__ = ("hash", "loops", "star", "values", "words")

    def __init__(self, loops: bool = False) -> None:
        self.words: dict[str, _Node[T]] = {}
        self.star: _Node[T] | None = None
        self.hash: _Node[T] | None = None
        self.loops = loops
        """The node behind a `#`: every word leads back to it."""
        self.values: dict[object, T] = {}

    def empty(self) -> bool:
        return not (self.words or self.star or self.hash or self.values)


def _words(text: str) -> list[str]:
    """An empty key or pattern has no word, so `*` does not match it."""
    return text.split(".") if text else []


def _split(pattern: str) -> list[str]:
    words: list[str] = []
    for word in _words(pattern):
        if not (word == "#" and words and words[-1] == "#"):
            words.append(word)
    return words


class TopicTrie(Generic[T]):
    """Values under patterns. A key that is unique in the whole trie names each value."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, key: object, value: T) -> int:
        """Add a value. Returns how many nodes were created."""
        node, made = self._root, 0
        for word in _split(pattern):
            child = node.hash if word == "#" else node.star if word == "*" else node.words.get(word)
            if child is None:
                child = _Node(loops=word == "#")
                made += 1
                if word == "#":
                    node.hash = child
                elif word == "*":
                    node.star = child
                else:
                    node.words[word] = child
            node = child
        node.values[key] = value
        return made

    def remove(self, pattern: str, key: object) -> int:
        """Remove a value and the nodes that led only to it. Returns how many nodes were removed; 0 if the
        value was not there."""
        path: list[tuple[_Node[T], str]] = []
        node: _Node[T] | None = self._root
        for word in _split(pattern):
            if node is None:
                return 0
            path.append((node, word))
            node = node.hash if word == "#" else node.star if word == "*" else node.words.get(word)
        if node is None:
            return 0
        node.values.pop(key, None)
        for gone, (parent, word) in enumerate(reversed(path)):
            if not node.empty():
                return gone
            if word == "#":
                parent.hash = None
            elif word == "*":
                parent.star = None
            else:
                parent.words.pop(word, None)
            node = parent
        return len(path)

    def match(self, routing_key: str) -> Iterator[tuple[int, Collection[T]]]:
        """Values whose pattern matches, each once, in pieces: (visited nodes, values). The trie may change
        between two pieces; values added or removed meanwhile may be found or not."""
        states: dict[_Node[T], None] = {}
        _reach(states, self._root)
        looked = 0
        for word in _words(routing_key):
            following: dict[_Node[T], None] = {}
            for node in states:
                if node.loops:
                    _reach(following, node)
                if node.star is not None:
                    _reach(following, node.star)
                child = node.words.get(word)
                if child is not None:
                    _reach(following, child)
                looked += 1
                if looked == PIECE:
                    yield looked, ()
                    looked = 0
            states = following
        nodes = list(states)
        for at in range(0, len(nodes), PIECE):
            some = nodes[at : at + PIECE]
            yield looked + len(some), [value for node in some for value in node.values.values()]
            looked = 0


def _reach(states: dict[_Node[T], None], node: _Node[T]) -> None:
    """Add a node, and the node behind its `#`, which matches without a word. No `#` follows a `#`."""
    states[node] = None
    if node.hash is not None:
        states[node.hash] = None
