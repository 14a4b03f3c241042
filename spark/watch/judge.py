"""Decides after each batch what is certain: losses, silent writers, missing records.

docs/how-to/watch.md has the rules. Pure: rows and the time of a batch in, alarms out; the whole state is
JSON. Only the watcher's clock counts: a writer was *heard* after an event if bytes of it came in a later
batch. So the clocks of nodes do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from spark.watch.alarms import SHOWN, Alarm, listed, messages
from spark.watch.live_state import LiveState, Row
from spark.watch.queue_ids import QueueIds
from spark.watch.range_set import RangeSet
from spark.watch.writers import LivePromotion, LiveWriter

SECOND = 1_000_000
FOREVER = 1 << 62
INVENTORY_US = 3 * SECOND
"""An inventory counts as complete after this time, even if its writer writes nothing more.

An inventory is usually one write.
"""
UNEXCUSED_US = 5 * SECOND
"""A writer that another record declared ended, and that still writes after this time, is alive."""


@dataclass(slots=True, frozen=True)
class Limits:
    """Settings of the judge. Times are in seconds."""

    heartbeat: float = 5.0
    silence: int = 3
    """Heartbeats that a writer may miss."""
    grace: float = 1.0
    """How much later than other ledgers the records of one writer may arrive."""
    retention: float = 3600.0
    behind: float = 30.0
    """Time of being behind after which an alarm is raised."""
    pause: float = 10.0
    """Longest time between two batches. After a longer pause, the watcher itself was asleep."""


class Judge:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.live = LiveState(int(limits.retention * SECOND))
        self.alarms = 0
        """Number of alarms raised so far, which is also the number of the last one."""
        self.behind = 0
        self.behind_since = 0
        self.blind = False
        """Losses cannot be judged at present. An alarm has named the reason."""
        self._behind_told = False
        self._resumed = 0
        self._aged = 0
        self._unsure_until = 0
        self._told: set[str] = set()
        """Keys of alarms that are raised only once."""
        self._strange: set[str] = set()
        """Writers with another schema version."""

    def batch(self, rows: Iterable[Row], *, attended: bool = True) -> list[Alarm]:
        """Take one batch, judge, and return the alarms.

        The batch's `tick` row has the time, and the number of bytes left for later batches. `attended`:
        batches follow each other continuously, so a long pause means that the watcher was asleep.
        """
        live = self.live
        own: list[Row] = []
        others: list[Row] = []
        for row in rows:
            if row["kind"] == "tick":
                now = max(row["ts_us"], live.now)
                if attended and now - live.now > self.limits.pause * SECOND:
                    self._resumed = now
                live.now, self.behind = now, row["first"]
            else:
                (own if row["at"] is not None else others).append(row)
        live.take(own)
        out = [*self._damaged(others)]
        if self.behind:
            self.behind_since = self.behind_since or live.now
            out += self._lagging()
        else:
            out += self._caught_up()
        for alarm in out:
            self.alarms += 1
            alarm.n = self.alarms
        return out

    @property
    def waiting(self) -> bool:
        """Whether some message is suspect, but not certainly lost yet."""
        ids, sessions = self.live.ids.values(), self.live.sessions.values()
        return any(each.waiting for each in ids) or any(each.waiting for each in sessions)

    def _alarm(self, kind: str, sentence: str, **fields: Any) -> Alarm:
        ranges: RangeSet | None = fields.pop("ranges", None)
        alarm = Alarm(kind, sentence, self.live.now, **fields)
        if ranges:
            alarm.count, alarm.pieces, alarm.ranges = ranges.count, len(ranges), list(ranges)[:SHOWN]
        return alarm

    def _once(self, key: str) -> bool:
        if key in self._told:
            return False
        self._told.add(key)
        return True

    # -- damage to the ledgers

    def _damaged(self, rows: list[Row]) -> Iterator[Alarm]:
        for row in rows:
            kind, writer, file = row["kind"], row["writer"], row["file"]
            if kind == "version":
                self._strange.add(writer)
                if self._once(f"version {writer} {row['first']}"):
                    text = f"{writer} writes ledgers of version {row['first']}, which this watch cannot read"
                    yield self._alarm("version", text + ": losses are not judged", writer=writer)
            elif kind == "replaced":
                text = f"{file} was truncated or replaced by another file: reading it again from the start"
                yield self._alarm("replaced", text, writer=writer)
            elif kind == "unreadable":
                lost = self._lose_sight(writer)
                many = "a line" if row["last"] == 1 else f"{row['last']} lines"
                yield self._alarm("unreadable", f"{many} of {file} cannot be read{lost}", writer=writer)
            elif kind == "vanished":
                lost = self._lose_sight(writer)
                text = f"{file} could not be read ({row['reason']}){lost}"
                yield self._alarm("vanished", text, writer=writer)

    def _lose_sight(self, writer: str) -> str:
        """Stop judging messages whose fate may be in missing records of `writer`. Returns words for the
        alarm.
        """
        lives = [w for w in self.live.writers.values() if w.name == writer]
        if lives and not any(w.matters for w in lives):
            return ""
        self._unsure_until = self.live.now + int((self.limits.grace + 2) * SECOND)
        return f"; {messages(self.live.forget_open())} without a fate are no longer judged"

    def _lagging(self) -> Iterator[Alarm]:
        late = self.live.now - self.behind_since > self.limits.behind * SECOND
        if late and not self._behind_told:
            self._behind_told = True
            text = f"the watch is {self.behind:,} bytes behind: nothing is judged until it catches up"
            yield self._alarm("behind", text)

    # -- only when all available records have been read

    def _caught_up(self) -> Iterator[Alarm]:
        if self._behind_told:
            yield self._alarm("caught-up", "the watch has caught up: all ledgers are read to their ends")
        self.behind_since, self._behind_told = 0, False
        live, now = self.live, self.live.now
        grace = int(self.limits.grace * SECOND)
        for writer in live.writers.values():
            if writer.inventory is not None and now - writer.inventory.seen > INVENTORY_US:
                live.end_inventory(writer)
        yield from self._holes(grace)
        if now < self._unsure_until:
            live.forgotten += sum(s.forget(s.aging.highest) for s in live.sessions.values())
        yield from self._silence()
        yield from self._two_primaries()
        self.blind = False
        for alarm in self._blindness(grace):
            self.blind = True
            if alarm is not None:
                yield alarm
        if not self.blind:
            yield from self._losses(self._heard() - grace)
        if now - self._aged >= live.step_us:
            self._aged = now
            live.age()

    def _holes(self, grace: int) -> Iterator[Alarm]:
        """Gaps in record numbers. After the grace they are no longer waited for, and an alarm is raised."""
        now = self.live.now
        for writer in list(self.live.writers.values()):
            hole = writer.hole
            if hole is None:
                writer.hole_since = 0
            elif not writer.hole_since:
                writer.hole_since = now
            elif now - writer.hole_since > grace:
                while hole is not None:
                    writer.chain.add(*hole)
                    lost = self._lose_sight(writer.name) if writer.matters else ""
                    if hole[0] == 0:
                        text = f"the ledger of {writer.called} begins with record {hole[1] + 1}"
                        text += f"; earlier records are not here{lost}"
                        yield self._alarm("begins", text, writer=writer.name)
                    else:
                        text = f"the ledger of {writer.called} lacks records {listed([hole])}"
                        text += f" (noticed in {writer.hole_file}){lost}"
                        yield self._alarm("gap", text, writer=writer.name)
                    hole = writer.hole
                writer.hole_since = 0

    def _quiet(self, writer: LiveWriter) -> bool:
        limit = self.limits.silence * self.limits.heartbeat * SECOND
        return self.live.now - max(writer.heard, self._resumed) > limit

    def _silence(self) -> Iterator[Alarm]:
        for writer in self.live.writers.values():
            if writer.ended and writer.heard > writer.ended_at + UNEXCUSED_US:
                writer.ended = ""
            heard = writer.heard == self.live.now
            if writer.silent and (heard or writer.sealed or writer.ended):
                writer.silent = False
                why = "writes again" if heard else "has ended: " + (writer.ended or "it ended cleanly")
                yield self._alarm("back", f"{writer.called} {why}", writer=writer.name)
            over = writer.silent or writer.sealed or writer.ended
            if not over and not heard and writer.beats and self._quiet(writer):
                writer.silent = True
                seconds = (self.live.now - writer.heard) / SECOND
                text = f"{writer.called} has written nothing for {seconds:.0f} s"
                yield self._alarm("silent", text, writer=writer.name)

    def _heard(self) -> int:
        """The time since which every writer that may still explain a suspect has been heard."""
        times = [
            w.clear for w in self.live.writers.values()
            if w.matters and not (w.sealed or w.ended or w.silent or self._quiet(w))
        ]  # fmt: skip
        return min(times, default=FOREVER)

    def _two_primaries(self) -> Iterator[Alarm]:
        live = self.live
        for key, ids in live.ids.items():
            if len(ids.owners) > 1 and self._once(f"owners {key}"):
                who, queue = " and ".join(sorted(ids.owners)), live.name_of(key[0])
                text = f"{who} both enqueued in {queue} as primaries of epoch {key[1]}"
                yield self._alarm("two-primaries", text, queue=key[0], name=queue, epoch=key[1])
        owners: dict[int, set[str]] = {}
        for promotion in live.promotions:
            owners.setdefault(promotion.view, set()).add(promotion.node)
        for view, nodes in owners.items():
            if len(nodes) > 1 and self._related(nodes) and self._once(f"opened {view}"):
                text = f"{' and '.join(sorted(nodes))} both opened epoch {view}"
                yield self._alarm("two-primaries", text, epoch=view)

    def _related(self, nodes: set[str]) -> bool:
        """Whether these nodes belong to one cluster, as far as the ledgers show."""
        if any(len(facts.nodes & nodes) > 1 for facts in self.live.queues.values()):
            return True
        peers = {p.peer for p in self.live.promotions if p.node in nodes}
        return bool(peers & nodes) or len(nodes & set(self.live.mentioned)) > 1

    def _blindness(self, grace: int) -> Iterator[Alarm | None]:
        """Reasons why losses cannot be judged: an alarm for each new one, None for one already reported."""
        live = self.live
        for _ in self._strange:
            yield None
        if len(live.clusters) > 1:
            text = f"ledgers of {len(live.clusters)} clusters are mixed ({', '.join(sorted(live.clusters))})"
            new = self._once("mixed " + " ".join(sorted(live.clusters)))
            text += ": losses are not judged; watch each cluster separately"
            yield self._alarm("mixed", text) if new else None
        present = {w.name for w in live.writers.values()}
        for name, since in live.mentioned.items():
            if name not in present:
                if live.now - since > max(grace, 2 * SECOND) and self._once(f"missing {name}"):
                    text = f"the ledger of broker {name} is not here: losses are not judged without it"
                    yield self._alarm("missing-ledger", text, writer=name)
                else:
                    yield None

    # -- losses

    def _losses(self, heard: int) -> Iterator[Alarm]:
        live = self.live
        opened = self._promotions()
        last = max((p.view for p in opened), default=-1)
        for (queue, epoch), ids in live.ids.items():
            if ids.found:
                found, ids.found = ids.found, RangeSet()
                name = live.name_of(queue)
                text = f"{messages(found.count)} of {name}, epoch {epoch}, reported as lost"
                text += f", were dequeued or acked after all: ids {listed(found)}"
                yield self._alarm("found", text, queue=queue, name=name, epoch=epoch, ranges=found)
            if ids.waiting or (ids.confirmed and (epoch < last or ids.gone)):
                yield from self._lost(queue, epoch, ids, self._successors(queue, epoch, ids, opened), heard)
        for prod in live.sessions:
            yield from self._unplaced(prod, heard)

    def _promotions(self) -> list[LivePromotion]:
        """Promotions whose node's earlier records have all come, in order of arrival."""
        out = []
        for promotion in self.live.promotions:
            writer = self.live.writers.get((promotion.node, promotion.incarnation))
            if writer is None or writer.whole_to(promotion.wseq):
                out.append(promotion)
        return out

    def _successors(
        self, queue: str, epoch: int, ids: QueueIds, opened: list[LivePromotion]
    ) -> dict[str, LivePromotion]:
        """Nodes of this queue's line that opened a later epoch, each with its promotion; empty if the queue
        is not replicated.

        A node counts if it, or the node that it replaced, recorded that it held some of these ids. A node
        restored from an archive holds ids that it never recorded.
        """
        facts = self.live.queues.get(queue)
        if facts is None or not facts.copied:
            return {}
        out: dict[str, LivePromotion] = {}
        for promotion in opened:
            known = promotion.node in ids.held or promotion.peer in ids.held
            if promotion.view > epoch and known:
                out.setdefault(promotion.node, promotion)
        return out

    def _lost(
        self, queue: str, epoch: int, ids: QueueIds, successors: dict[str, LivePromotion], heard: int
    ) -> Iterator[Alarm]:
        lost = ids.waiting.ripe(ids.missing(successors), self.live.now, heard)
        if not lost:
            return
        name = self.live.name_of(queue)
        for part, why in self._causes(lost, ids, successors):
            text = (
                f"{messages(part.count)} of {name}, epoch {epoch}, lost: ids {listed(part)}: confirmed, {why}"
            )
            yield self._alarm("lost", text, queue=queue, name=name, epoch=epoch, ranges=part)
        ids.alarm(lost)

    def _causes(
        self, lost: RangeSet, ids: QueueIds, successors: dict[str, LivePromotion]
    ) -> Iterator[tuple[RangeSet, str]]:
        """`lost` in parts, each with the reason in words."""
        silent = sorted({w.name for w in self.live.writers.values() if w.silent and w.matters})
        besides = f" ({', '.join(silent)} silent)" if silent else ""
        rest = lost
        for node, promotion in sorted(successors.items(), key=lambda item: item[1].view):
            part = rest.minus(ids.held.get(node, RangeSet()))
            if part:
                rest = rest.minus(part)
                how = f", {promotion.reason}" if promotion.reason else ""
                text = f"and never held by {node}, which opened epoch {promotion.view}{how}"
                yield part, text + besides
        if rest:
            yield rest, f"and no longer in the inventory of the primary{besides}"

    def _unplaced(self, prod: str, heard: int) -> Iterator[Alarm]:
        session = self.live.sessions[prod]
        if not session.confirmed and not session.waiting:
            return
        unplaced = session.waiting.ripe(session.unplaced, self.live.now, heard)
        if not unplaced:
            return
        if not session.told:
            if not session.warned:
                session.warned = True
                text = f"{messages(session.confirmed.count)} of session {prod} confirmed, but no broker's"
                text += " ledger here mentions the session: is the ledger of its broker watched?"
                yield self._alarm("unknown-session", text, prod=prod)
            return
        text = f"{messages(unplaced.count)} of session {prod} lost: publish tags {listed(unplaced)}"
        text += ": confirmed, but no broker put them into a queue"
        yield self._alarm("unplaced", text, prod=prod, ranges=unplaced)
        session.settled.update(unplaced)
