"""Pending confirms and replies of one channel, released in channel order as the gates move.

Owner: `Channel`. Filled during a tick; `Broker.release` asks at its end. A reply without a need still waits
for earlier ones. A confirm covers all tags up to its own. It is never sent before the position of the last
publish that it covers is reached (invariant 5). Publishes of one tick share a position, so they share one
entry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from broker.amqp091.codec.frames import ack_frame, nack_frame
from broker.bind_waits import BindWait
from broker.model.history.completion import Completion
from broker.model.statistics import Counts
from broker.model.values import ORIGIN, Need, Position


class _Item:
    """One output: a confirm up to `tag`, a nack (`refused`), or `frame` and then `after()`. With `wait`, once
    that has ended, too."""

    __slots__ = ("after", "frame", "need", "position", "refused", "tag", "wait")

    def __init__(
        self, position: Position, need: Need, tag: int, frame: bytes, after: Callable[[], None] | None
    ) -> None:
        self.position = position
        self.need = need
        self.tag = tag
        self.refused = False
        self.frame = frame
        self.after = after
        self.wait: BindWait | None = None


class Held:
    """The pending output of one channel. `confirmed`: the last tag confirmed or refused so far. `counts`:
    where to count confirms."""

    __slots__ = ("_channel", "_counts", "_items", "confirmed")

    def __init__(self, channel: int, counts: Counts | None = None) -> None:
        self._channel = channel
        self._counts = Counts() if counts is None else counts
        self._items: deque[_Item] = deque()
        self.confirmed = 0

    def __len__(self) -> int:
        return len(self._items)

    def confirm(self, tag: int, need: Need, position: Position) -> None:
        """Confirm publishes up to `tag` once `position` is reached as `need` demands."""
        if self._items:
            last = self._items[-1]
            same = need is Need.NONE or (last.need is need and last.position == position)
            if last.tag and same and not last.refused:
                last.tag = tag
                return
        self._items.append(_Item(position if need is not Need.NONE else ORIGIN, need, tag, b"", None))

    def refuse(self, tag: int) -> None:
        """Send basic.nack for the publishes up to `tag` that are not confirmed before."""
        item = _Item(ORIGIN, Need.NONE, tag, b"", None)
        item.refused = True
        self._items.append(item)

    def reply(
        self, frame: bytes, need: Need, position: Position, after: Callable[[], None] | None = None,
        wait: BindWait | None = None,
    ) -> None:  # fmt: skip
        """Send `frame`, then run `after`, once `position` is reached, `wait` has ended, and all earlier
        output has gone."""
        item = _Item(position, need, 0, frame, after)
        item.wait = wait
        self._items.append(item)

    def release(self, completion: Completion, out: list[bytes]) -> list[Callable[[], None]]:
        """Append to `out` what may go. Returns the callbacks to run afterwards, in order."""
        items = self._items
        tag = 0
        after: list[Callable[[], None]] = []
        while items:
            item = items[0]
            if item.need is not Need.NONE and not completion.reached(item.position, item.need):
                break
            if item.wait is not None and not item.wait.ended():
                break
            items.popleft()
            if item.tag and not item.refused:
                tag = item.tag
                continue
            if tag:
                self._confirm(tag, out)
                tag = 0
            if item.refused:
                out.append(nack_frame(self._channel, item.tag, multiple=item.tag > self.confirmed + 1))
                self.confirmed = item.tag
            if item.frame:
                out.append(item.frame)
            if item.after is not None:
                after.append(item.after)
        if tag:
            self._confirm(tag, out)
        return after

    def _confirm(self, tag: int, out: list[bytes]) -> None:
        many = tag - self.confirmed
        out.append(ack_frame(self._channel, tag, multiple=many > 1))
        self._counts.confirm += many
        self.confirmed = tag
