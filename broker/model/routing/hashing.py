"""Exchange types that send each message to one of their bindings: by a hash of its key, or at random. Pure.

Owner: `Exchange`. Only names, weights and the key decide, so a promoted node sends a key where the last
primary sent it. A binding that comes or goes moves only the keys that it gets or had (`x-consistent-hash`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from math import log
from typing import Generic, Protocol, TypeVar

from broker.model.history.value_codec import canonical
from broker.model.octets import as_octets


class Named(Protocol):
    """A queue or an exchange."""

    @property
    def name(self) -> str: ...


class Bound(Protocol):
    """The part of a binding that hashing needs. The first octet of its key tells queues from exchanges."""

    @property
    def key(self) -> tuple[bytes, str, bytes]: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def target(self) -> Named: ...


B = TypeVar("B", bound=Bound)

MOST_WEIGHT = 10_000
"""Of one binding, as in RabbitMQ."""
_MASK = (1 << 64) - 1
_LOOKS = 8
"""Targets that are looked at for one step of a look-up."""
_DRAWS = float(1 << 52)
"""So many different numbers are drawn, and each of them, plus a half, is a float."""
_STRIDE = 0x9E3779B97F4A7C15
"""The golden ratio of 64 bits, by which numbers in a row are told apart."""


def weight_fault(routing_key: str) -> str | None:
    """Why a binding key is no weight, in RabbitMQ's words; None if it is one."""
    number = routing_key.removeprefix("+").removeprefix("-")
    if not number.isdecimal() or not number.isascii() or len(number) > 18:
        return f"The binding key must be an integer: {routing_key!r:.80}"
    if int(routing_key) < 1:
        return "The binding key must be greater than 0"
    return f"The binding key must not exceed {MOST_WEIGHT}" if int(routing_key) > MOST_WEIGHT else None


def hash_of(octets: bytes) -> int:
    """64 bits, the same on every node."""
    return int.from_bytes(blake2b(octets, digest_size=8).digest(), "big")


def hash_input(value: object) -> str:
    """A header or property as the key that is hashed. A message without it counts as one with an empty
    text."""
    if isinstance(value, str):
        return value
    return "" if value is None else canonical({"": value}).hex()


def mixed(number: int) -> int:
    """64 bits that change with every bit of `number` (the end of SplitMix64)."""
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    number = (number ^ number >> 27) * 0x94D049BB133111EB & _MASK
    return number ^ number >> 31


class _Target(Generic[B]):
    """A queue or exchange with its bindings. `seed`: of its name."""

    __slots__ = ("bindings", "name", "seed", "weight")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.seed = hash_of(name)
        self.weight = 0
        self.bindings: dict[tuple[bytes, str, bytes], B] = {}

    @property
    def first(self) -> B:
        return next(iter(self.bindings.values()))


class OneOfMatcher(Generic[B]):
    """Base: keeps the targets of an exchange. `_ordered`: sorted by name, and for each weight its targets."""

    def __init__(self) -> None:
        self._targets: dict[bytes, _Target[B]] = {}
        self._ordered: list[_Target[B]] = []
        self._by_weight: list[tuple[int, list[_Target[B]]]] = []

    def add(self, binding: B) -> int:
        name = _name_of(binding)
        target = self._targets.get(name)
        if target is None:
            target = self._targets[name] = _Target(name)
        target.bindings[binding.key] = binding
        self._weigh(target)
        return 0

    def remove(self, binding: B) -> int:
        name = _name_of(binding)
        target = self._targets.get(name)
        if target is None or target.bindings.pop(binding.key, None) is None:
            return 0
        if not target.bindings:
            del self._targets[name]
        self._weigh(target)
        return 0

    def _weigh(self, target: _Target[B]) -> None:
        target.weight = sum([_weight_of(binding) for binding in target.bindings.values()])
        self._ordered.clear()

    def _sort(self) -> None:
        """Done by the first look-up after a change, so that many changes in a row cost little."""
        self._ordered = sorted(self._targets.values(), key=_named)
        by_weight: dict[int, list[_Target[B]]] = {}
        for target in self._ordered:
            by_weight.setdefault(target.weight, []).append(target)
        self._by_weight = sorted(by_weight.items())

    def match(self, routing_key: str, headers: Mapping[str, object]) -> Iterator[tuple[int, Collection[B]]]:
        if not self._ordered:
            self._sort()
        if not self._ordered:
            return iter(())
        steps, target = self._choose(routing_key)
        return iter(((steps, (target.first,)),))

    def _choose(self, key: str) -> tuple[int, _Target[B]]:
        raise NotImplementedError


class ConsistentHashMatcher(OneOfMatcher[B]):
    """Weighted rendezvous hashing: each target draws a number from key and name, scaled by its weight, and
    the highest one gets the message. Unlike a ring it spreads exactly by the weights, and needs no memory for
    them."""

    def _choose(self, key: str) -> tuple[int, _Target[B]]:
        hashed = hash_of(as_octets(key))
        best, score = self._ordered[0], -1.0
        for weight, targets in self._by_weight:
            drawn, highest = targets[0], -1
            for target in targets:
                number = mixed(hashed ^ target.seed)
                if number > highest:
                    drawn, highest = target, number
            scaled = weight / -log(((highest >> 12) + 0.5) / _DRAWS)
            if scaled > score:
                best, score = drawn, scaled
        return len(self._ordered) // _LOOKS, best


class ModulusHashMatcher(OneOfMatcher[B]):
    """The hash of the key modulo the number of targets."""

    def _choose(self, key: str) -> tuple[int, _Target[B]]:
        return 0, self._ordered[hash_of(as_octets(key)) % len(self._ordered)]


class RandomMatcher(OneOfMatcher[B]):
    """One after another of a fixed sequence of pseudo-random numbers, for each message anew."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn = 0

    def _choose(self, key: str) -> tuple[int, _Target[B]]:
        self._drawn = self._drawn + _STRIDE & _MASK
        return 0, self._ordered[mixed(self._drawn) % len(self._ordered)]


def _name_of(binding: Bound) -> bytes:
    """Its target's name; queues and exchanges are told apart."""
    return binding.key[0][:1] + binding.target.name.encode()


def _named(target: _Target[B]) -> bytes:
    return target.name


def _weight_of(binding: Bound) -> int:
    key = binding.routing_key
    return int(key) if weight_fault(key) is None else 1
