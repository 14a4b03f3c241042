"""The loads that every system gets, each as options of bench/generator.py."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Row:
    """One load. `alike`: equal messages of 256 bytes. `mix`: own ids, 11 headers, 64 B to 4 KiB."""

    name: str
    title: str
    options: str
    messages: int | None = None
    """The most; None: as many as the time allows. With `--backlog` exactly so many."""
    quorum: bool = True
    """Quorum queues can do this."""
    tls: bool = False
    """Over TLS, with the generator in Python."""
    backlog: bool = False
    """Publish all, then consume all, once, with fresh brokers: a line in a table of its own."""
    amqp10: bool = False
    """In AMQP 1.0."""
    link: str = ""
    """Publish only: what counts is the octets between the nodes. A line in a table of its own. This names
    the row of one copy, to which the ratio is taken."""

    def command(self, seconds: float, backlog: int) -> list[str]:
        """Options of the generator. `backlog`: messages of the row `backlog`."""
        most = self.messages or max(100_000, int(600_000 * seconds))
        command = [*self.options.split(), *([] if self.link else ["--consume", "--verify"])]
        if self.backlog:
            most = backlog if self.name == "backlog" else most
            return [*command, "--backlog", "--messages", str(most)]
        return [*command, "--messages", str(most), "--seconds", str(seconds)]


_EACH = "--ack-every 1 --prefetch 10"
_DURABLE = "--durable --persistent"
_LINK = [
    Row(
        f"link-{queues}-{window}",
        f"fanout exchange, queues: {queues}, window {window}",
        f"--exchange fanout --queues {queues} --window {window}",
        20_000,
        link=f"link-1-{window}",
    )
    for window in (1000, 100)
    for queues in (1, 100)
]

MAIN = [
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
BREADTH = [
    Row(
        "queues", "1,000 queues in turn, transient, window 1000", "--queues 1000 --window 1000 --prefetch 50"
    ),
    Row("connections", "100 + 100 connections, 100 queues, window 20", "--connections 100 --window 20"),
    Row(
        "fan-out",
        "fan-out to 100 queues, window 100",
        "--exchange fanout --queues 100 --window 100 --ack-every 1000",
        messages=20_000,
    ),
    Row("topic", "topic exchange with 10,000 bindings", "--exchange topic --bindings 10000 --window 1000"),
    Row(
        "headers", "headers exchange with 1,000 bindings", "--exchange headers --bindings 1000 --window 1000"
    ),
    Row(
        "priority",
        "priority queue, 10 priorities, window 1000",
        "--priorities 10 --window 1000",
        quorum=False,
    ),
    Row("ttl", "queue with a TTL of a minute, window 1000", "--ttl 60000 --window 1000"),
    Row("body-16", "bodies of 16 bytes, window 1000", "--size 16 --window 1000"),
    Row("body-16k", "bodies of 16 KiB, window 100", "--size 16384 --window 100"),
    Row(
        "body-1m",
        "bodies of 1 MiB, window 10",
        "--size 1048576 --window 10 --prefetch 10 --ack-every 1",
        2_000,
    ),
    Row("prefetch-1", "prefetch 1, window 100", "--window 100 --prefetch 1 --ack-every 1"),
    Row("single-acks", "each message acked, window 1000", "--window 1000 --ack-every 1"),
    Row("amqp10", "AMQP 1.0, alike, transient, window 100", "--window 100 --prefetch 100", amqp10=True),
    Row(
        "amqp10-mix",
        "AMQP 1.0, mix, persistent, window 100",
        f"--mix --window 100 --prefetch 100 {_DURABLE}",
        amqp10=True,
    ),
    Row("tls", "TLS, window 1000, generator in Python", "--window 1000", tls=True),
    *_LINK,
    Row("memory", "100,000 messages of 256 bytes held", "--window 1000", 100_000, backlog=True),
    Row("memory-mix", "100,000 messages of the mix held", "--mix --window 100", 100_000, backlog=True),
    Row("backlog", "backlog", f"--window 1000 {_DURABLE}", backlog=True),
]
