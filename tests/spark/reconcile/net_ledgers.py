"""The ledgers of a federated net: real nodes in one process, a publisher, and faults planted afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ha.federation.nets import Net
from tests.ha.pair import raw
from understudy.ledger.batches import LedgerSink
from understudy.ledger.writer import LedgerWriter

START_US = 1_700_000_000_000_000
Line = dict[str, Any]


class NetWithLedgers(Net):
    """Each node has a folder of ledgers below `folder`. `publish_confirmed` writes that of a publisher."""

    def __init__(self, folder: Path, **sizes: int) -> None:
        super().__init__(None, **sizes)
        self.folder = folder
        for name, members in self.nodes.items():
            for host in members:
                host.ledger = LedgerSink(
                    str(folder / name), host.name, "broker", incarnation=1, clock=self.now_us
                )
        self._shop = LedgerWriter(
            str(folder / "clients"), "shop", "producer", incarnation=1, clock=self.now_us
        )
        self._tag = 0

    def now_us(self) -> int:
        return START_US + round(self.now * 1_000_000)

    def publish_confirmed(self, node: str, key: str, texts: str) -> None:
        """Publish, and note the confirms."""
        vhost = self.serving(node).running.vhost
        first, self._tag = self._tag + 1, self._tag + len(texts)
        session = "shop.0/1"
        self._shop.record("sent", prod=session, first=first, last=self._tag, pfirst=first, name=f"x|{key}")
        vhost.publish(
            vhost.route("x", key), [raw(text) for text in texts], persistent=True, channel=1,
            largest_frame=22, producer=session, first_tag=first,
        )  # fmt: skip
        self.run(0.2)
        self._shop.record("confirmed", prod=session, first=first, last=self._tag)
        self._shop.flush()

    def link_queue(self, node: str, name: str) -> str:
        return self.serving(node).running.vhost.queues[name].uuid.hex()

    def end(self) -> None:
        """A clean end of all."""
        self._shop.close()
        for members in self.nodes.values():
            for host in [*members[1:], members[0]]:
                if host.node is not None:
                    host.node.stop(self.now)


def rewrite(folder: Path, change: Callable[[Line], list[Line]]) -> None:
    """Each record of the ledgers there becomes what `change` makes of it; numbers stay without gaps."""
    for path in sorted(folder.glob("*.ledger.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        made = [line for old in lines for line in change(old)]
        path.write_text("".join(json.dumps({**line, "wseq": n}) + "\n" for n, line in enumerate(made)))
