"""The ledgers of a federated net: real nodes in one process, a publisher, and faults planted afterwards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.ha.federation.nets import Net
from tests.ha.pair import Host, raw
from understudy.ledger.batches import LedgerSink
from understudy.ledger.writer import ROTATE_BYTES, LedgerWriter

START_US = 1_700_000_000_000_000
Line = dict[str, Any]


class NetWithLedgers(Net):
    """Each node has a folder of ledgers below `folder`. `publish_confirmed` writes that of a publisher."""

    rotate_bytes = ROTATE_BYTES

    def __init__(self, folder: Path, **sizes: int) -> None:
        super().__init__(None, **sizes)
        self.folder = folder
        self._lives: dict[str, int] = {}
        self._shop = LedgerWriter(
            str(folder / "clients"), "shop", "producer", incarnation=1, clock=self.now_us
        )
        self._number = 0
        self._tags: dict[str, int] = {}

    def start(self, *hosts: Host) -> None:
        """Each life of a node has a ledger of its own."""
        for host in hosts or self.hosts:
            name = next(name for name, members in self.nodes.items() if host in members)
            life = self._lives[host.name] = self._lives.get(host.name, 0) + 1
            host.ledger = LedgerSink(
                str(self.folder / name), host.name, "broker", incarnation=life, clock=self.now_us,
                rotate_bytes=self.rotate_bytes,
            )  # fmt: skip
        super().start(*hosts)

    def now_us(self) -> int:
        return START_US + round(self.now * 1_000_000)

    def publish_confirmed(
        self,
        node: str,
        key: str,
        messages: str | list[bytes],
        *,
        exchange: str = "x",
        path: tuple[str, ...] = (),
    ) -> None:
        """Publish, and note the confirms. The publisher has a session at each node."""
        vhost = self.serving(node).running.vhost
        raws = [raw(text) for text in messages] if isinstance(messages, str) else messages
        session, number, first = f"shop.{node}/1", self._number + 1, self._tags.get(node, 0) + 1
        last = self._tags[node] = first + len(raws) - 1
        self._number += len(raws)
        sent = {"prod": session, "first": first, "last": last, "pfirst": number}
        self._shop.record("sent", **sent, name=f"{exchange}|{key}")
        vhost.publish(
            vhost.route(exchange, key), raws, persistent=True, channel=1, largest_frame=22, path=path,
            producer=session, first_tag=first,
        )  # fmt: skip
        self.run(0.2)
        self._shop.record("confirmed", prod=session, first=first, last=last)
        self._shop.flush()

    def ledger(self, node: str) -> list[Line]:
        """The records of that node so far."""
        for host in self.nodes[node]:
            host.ledger.flush()
        return [
            json.loads(line) for path in sorted((self.folder / node).glob("*.ledger.jsonl"))
            for line in path.read_text().splitlines()
        ]  # fmt: skip

    def end(self) -> None:
        """A clean end of all."""
        self._shop.close()
        for members in self.nodes.values():
            for host in [*members[1:], members[0]]:
                if host.node is not None:
                    host.node.stop(self.now)


def rewrite(folder: Path, change: Callable[[Line], list[Line]]) -> None:
    """Each record of the ledgers there becomes what `change` makes of it; numbers stay without gaps."""
    files = {path: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()}
    numbers: Counter[tuple[str, int]] = Counter()
    for path, lines in sorted(files.items(), key=lambda file: int(file[1][0]["wseq"])):
        made = []
        for line in (line for old in lines for line in change(old)):
            process = line["writer"], line["incarnation"]
            made.append({**line, "wseq": numbers[process]})
            numbers[process] += 1
        path.write_text("".join(json.dumps(line) + "\n" for line in made))
