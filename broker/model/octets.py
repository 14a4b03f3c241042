"""Routing keys as text that can hold any octets. Pure.

A short string of AMQP 0-9-1 may hold any octets, and RabbitMQ routes by them without decoding. Here an octet
that is not UTF-8 becomes a lone surrogate (PEP 383): each key has exactly one text. The model splits and
compares keys as text. Code that outputs a key uses `as_octets`, or `readable` where it must be Unicode.
"""

from __future__ import annotations


def as_text(octets: bytes) -> str:
    """Never fails. `as_octets` is the inverse."""
    return octets.decode("utf-8", "surrogateescape")


def as_octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_unicode(text: str) -> bool:
    """Whether its octets are UTF-8. Only then may the text go where Unicode is required."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable(text: str) -> str:
    """For people and text protocols: U+FFFD replaces what is not UTF-8."""
    return text if is_unicode(text) else as_octets(text).decode(errors="replace")


def key_in_table(value: object) -> str | None:
    """A routing key from a long string in a field table; None for any other field.

    The codec decodes a long string to bytes only if it is not UTF-8. Bytes that are UTF-8 come from a byte
    array.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        key = as_text(value)
        return None if is_unicode(key) else key
    return None
