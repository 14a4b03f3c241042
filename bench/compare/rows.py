"""The loads that every system gets, each as options of bench/generator.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Row:
    """One load. `alike`: equal messages of 256 bytes. `mix`: own ids, 11 headers, 64 B to 4 KiB."""

    name: str
    title: str
    options: str

    def command(self, seconds: float) -> list[str]:
        most = max(100_000, int(600_000 * seconds))
        return [
            *self.options.split(),
            "--consume",
            "--verify",
            "--messages",
            str(most),
            "--seconds",
            str(seconds),
        ]


_EACH = "--ack-every 1 --prefetch 10"

ROWS = [
    Row("alike-transient", "alike, transient, window 1000", "--window 1000"),
    Row("alike-persistent", "alike, persistent, window 1000", "--window 1000 --durable --persistent"),
    Row("mix-transient", "mix, transient, window 100", "--mix --window 100"),
    Row("mix-persistent", "mix, persistent, window 100", "--mix --window 100 --durable --persistent"),
    Row(
        "mix-connections",
        "mix, persistent, 8 + 8 connections, 8 queues, window 20, each acked, prefetch 10",
        f"--mix --connections 8 --window 20 --durable --persistent {_EACH}",
    ),
    Row(
        "alike-persistent-1", "alike, persistent, window 1", "--window 1 --durable --persistent --ack-every 1"
    ),
    Row("alike-transient-1", "alike, transient, window 1", "--window 1 --ack-every 1"),
]
