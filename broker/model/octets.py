"""Routing keys as text that holds any octets. Pure.

A short string of AMQP 0-9-1 may hold any octets, and RabbitMQ routes by them unread. Here an octet that is
no UTF-8 becomes a lone surrogate (PEP 383): each key has one text, and each text is one key. The model splits
and compares keys as text. Code that hands a key out uses `as_octets`, or `readable` where it must be Unicode.
"""

from __future__ import annotations


def as_text(octets: bytes) -> str:
    """Never fails. `as_octets` is the way back."""
    return octets.decode("utf-8", "surrogateescape")


def as_octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_unicode(text: str) -> bool:
    """Whether its octets are UTF-8: only then may the text go where Unicode is asked for."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def readable(text: str) -> str:
    """For people and for protocols of text: U+FFFD stands for what is no UTF-8."""
    return text if is_unicode(text) else as_octets(text).decode(errors="replace")


def key_in_table(value: object) -> str | None:
    """A routing key that a field table holds as a long string; None for any other field.

    The codec reads a long string as octets only where it is no UTF-8: octets that are UTF-8 are a byte array.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        key = as_text(value)
        return None if is_unicode(key) else key
    return None
