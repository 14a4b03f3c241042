"""Hosts of which the last is in no cluster with the others, and follows queues of theirs."""

from __future__ import annotations

from typing import Any

from broker.model.queue.origin import origin_of
from ha.core.mirror.follower import MirrorState
from tests.ha.pair import Host, Pair


class Mirrors(Pair):
    """The last host is in no cluster, and follows; those before it are a pair, or one alone."""

    def __init__(self, count: int = 2, *, alone: bool = False, **settings: Any) -> None:
        """`alone`: the others are in no cluster either."""
        super().__init__(count, **settings)
        self.sources = self.hosts[:-1]
        self.b = self.hosts[-1]
        self.alone = alone or count == 2
        self.paired = False
        """The last host believes, from its next start on, that it belongs to a pair."""

    def brokers(self, host: Host) -> list[tuple[str, int]]:
        if host is self.b and self.paired:
            return [("127.0.0.1", other.port) for other in (self.b, self[0])]
        return [] if host is self.b or self.alone else [("127.0.0.1", source.port) for source in self.sources]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{source.port}" for source in self.sources]

    def begin(self, queue: str = "q", arguments: dict[str, Any] | None = None) -> None:
        """All run, the first source serves that queue, with nothing in it."""
        self.start()
        self.run(0.3)
        if not self.alone:
            answer = self.ask(self[0], "promote")
            assert answer["ok"], answer
            self.until(lambda: all(h.status == "ready" for h in self.sources[1:]))
        self.declare(self[0], queue, arguments=arguments)

    def replicate(self, queue: str = "q", **more: Any) -> dict[str, Any]:
        return self.ask(self.b, "replicate", 15.0, source=self.addresses, queue=queue, **more)

    @property
    def line(self) -> dict[str, Any]:
        [line] = self.b.running.status()["replications"]
        assert isinstance(line, dict)
        return line

    def follows(self, source: Host, queue: str = "q") -> None:
        """Wait until the mirror is whole, equals the source and is on disk."""
        self.until(lambda: self.line["state"] == MirrorState.FOLLOWING.value)
        held = source.running.vhost.queues[queue]
        self.until(lambda: self.ids(queue) == held.snapshot())
        assert self.contents(self.b, queue) == self.contents(source, queue)
        self.until(lambda: self.line["lag"] == 0)

    def ids(self, queue: str = "q") -> Any:
        found = self.b.running.vhost.queues[queue]
        origin = origin_of(found)
        assert origin is not None
        return {origin.source(epoch): ids for epoch, ids in found.replica.ids().items()}


def following(
    count: int = 2, texts: str = "abc", arguments: dict[str, Any] | None = None, **settings: Any
) -> Mirrors:
    mirrors = Mirrors(count, dequeue_lag=0.0, **settings)
    mirrors.begin("q", arguments)
    if texts:
        mirrors.publish(mirrors[0], "q", texts)
    answer = mirrors.replicate()
    assert answer["ok"], answer
    mirrors.follows(mirrors[0])
    return mirrors


def in_order(mirrors: Mirrors) -> str:
    """What the follower holds; its ids ascend, and none is there twice."""
    entries = mirrors.b.running.vhost.queues["q"].held_entries()
    ids = [(envelope.epoch, seq) for seq, envelope, _ in entries]
    assert ids == sorted(set(ids))
    return mirrors.contents(mirrors.b, "q")
