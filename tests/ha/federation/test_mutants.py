"""Breakages of federation by hand: each is one that the tests of this folder have to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.errors import InternalError
from broker.model.history.records import EnqueueRun, MessageId
from broker.model.queue.link_ids import LinkNumbers
from broker.model.values import Need
from broker.model.vhost.links import Interest, behind, forgo
from broker.model.vhost.vhost import VirtualHost
from ha.adapter.federation import agents, asking, exchange_model, interest
from ha.adapter.federation.asking import LinkInterest
from ha.adapter.federation.exchange_model import ExchangeModel, _at
from ha.adapter.federation.federation import Federation
from ha.adapter.federation.feeding import Feeding
from ha.adapter.federation.origins import Origins
from ha.adapter.federation.wishes import Wishes
from ha.core.federation.holes import Hole
from ha.core.federation.intake import Intake
from ha.core.federation.seen import Seen
from ha.core.federation.ways import Ways
from ha.core.federation.wire import InterestFlag
from tests.builds import PURE_ONLY
from tests.ha.federation import (
    oracle,
    test_hop,
    test_interest,
    test_nets,
    test_oracle,
    test_push,
    test_random,
    test_takers,
)
from tests.ha.federation.ways import test_ways

pytestmark = PURE_ONLY
SEEDS = 12
SOON = 10.0
"""Seconds that a whole net of seed 0, 1 or 2 never takes."""
Break = Callable[[pytest.MonkeyPatch], None]


def cursor_a_batch_late(patch: pytest.MonkeyPatch) -> None:
    """How far messages are taken is history with the next ones only."""
    took, before = ExchangeModel.took, dict[ExchangeModel, tuple[MessageId, tuple[Hole, ...]]]()

    def broken(self: ExchangeModel, uuid: bytes, *upto: Any) -> None:
        late = before.get(self)
        before[self] = upto
        if late is not None:
            took(self, uuid, *late)

    patch.setattr(ExchangeModel, "took", broken)


def taken_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """The upstream lets go of what a crash downstream takes away."""

    patch.setattr(ExchangeModel, "settled", lambda self, uuid: self.taken(uuid)[0])


def no_cursor(patch: pytest.MonkeyPatch) -> None:
    """What a line lost the answer to comes again (RabbitMQ's federation)."""
    patch.setattr(ExchangeModel, "taken", lambda self, uuid: ((0, 0), ()))
    patch.setattr(Seen, "take", lambda self, node, way, epoch, first, count: [(0, count)])


def taken_while_draining(patch: pytest.MonkeyPatch) -> None:
    """What comes after a switchover changes a copy that is a backup's already."""
    patch.setattr(Federation, "rest", lambda self: None)


def not_on_the_path(patch: pytest.MonkeyPatch) -> None:
    """The upstream is not on the path of what it sent: it goes back there (Qpid's routes of both ways)."""
    begin = Intake.begin

    def broken(self: Intake, *args: Any, echo: bool = False, **more: Any) -> None:
        begin(self, *args, echo=True, **more)

    patch.setattr(Intake, "begin", broken)


def gone_with_the_first_unbind(patch: pytest.MonkeyPatch) -> None:
    """Of two bindings for one key the first that ends takes the interest with it."""
    follow = Wishes._follow

    def broken(self: Wishes, binding: Any, there: bool) -> None:
        follow(self, binding, there)
        if not there:
            self._by_wish.pop(behind(binding).wish, None)

    patch.setattr(Wishes, "_follow", broken)


def digest_without_arguments(patch: pytest.MonkeyPatch) -> None:
    """Two sets that differ in arguments only pass for equal after a line was down."""
    mark = interest.mark_of

    def broken(wish: Any, path: tuple[str, ...]) -> int:
        return mark((wish[0], b""), path)

    for module in (asking, exchange_model):
        patch.setattr(module, "mark_of", broken)


def taken_away_before_the_set_is_whole(patch: pytest.MonkeyPatch) -> None:
    """The bindings that a set replaces end when it begins (RabbitMQ binds a second exchange anew)."""
    apply = LinkInterest.apply

    def broken(self: LinkInterest, flags: InterestFlag, payload: bytes) -> Iterator[None]:
        if flags & InterestFlag.FIRST:
            forgo(self._vhost, [self._pop(wish) for wish in list(self.held)])
        yield from apply(self, flags, payload)

    patch.setattr(LinkInterest, "apply", broken)


def last_node_on_the_path(patch: pytest.MonkeyPatch) -> None:
    """A message forgets through which nodes it came, but for the last: in a ring it goes on for ever."""
    take = ExchangeModel.take

    def broken(self: ExchangeModel, path: tuple[str, ...], *more: Any) -> None:
        take(self, path[-1:], *more)

    patch.setattr(ExchangeModel, "take", broken)


def wish_by_this_node(patch: pytest.MonkeyPatch) -> None:
    """A wish forgets through which nodes it came: in a ring it keeps itself alive (Artemis 5656)."""
    paths_of = Wishes.paths_of

    def broken(self: Wishes, wish: Any, upstream: str) -> list[Interest]:
        return [found._replace(path=found.path[-1:]) for found in paths_of(self, wish, upstream)]

    patch.setattr(Wishes, "paths_of", broken)


def arrivals_into_their_own_link(patch: pytest.MonkeyPatch) -> None:
    """What came from a node is sent back there, and left out only there."""
    find = VirtualHost.find_arrival
    patch.setattr(
        VirtualHost, "find_arrival", lambda self, exchange, key, path: find(self, exchange, key, ())
    )
    by_headers = VirtualHost.find_by_headers

    def broken(self: VirtualHost, *args: Any, inner: bool = False, path: Any = ()) -> Any:
        return by_headers(self, *args, inner=inner)

    patch.setattr(VirtualHost, "find_by_headers", broken)


def taken_when_applied(patch: pytest.MonkeyPatch) -> None:
    """The upstream lets go of what no disk downstream has yet."""

    def broken(self: ExchangeModel, uuid: bytes) -> MessageId:
        reached = self._node.broker.completion.reached  # type: ignore[attr-defined]
        while self._settling and reached(self._settling[0][0], Need.APPLIED):
            self._settled = self._settling.popleft()[1]
        return _at(self._settled, uuid)

    patch.setattr(ExchangeModel, "settled", broken)


def one_epoch_for_all_takers(patch: pytest.MonkeyPatch) -> None:
    """A new primary downstream opens its link in the epoch of the old one: the two take it from each
    other (rabbitmq-federation 43)."""
    opener = agents.Opener

    def broken(node: str, owner: str, name: str, epoch: int, *more: Any) -> Any:
        return opener(node, owner, name, 1, *more)

    patch.setattr(agents, "Opener", broken)


def ids_of_each_link_queue(patch: pytest.MonkeyPatch) -> None:
    """A message has another id in each link queue: what comes by a second way is not known."""
    patch.setattr(LinkNumbers, "begin", lambda self, first: None)


def what_came_is_no_history(patch: pytest.MonkeyPatch) -> None:
    """A promoted backup does not know what has come by another way."""
    patch.setattr(Origins, "settle", lambda self: None)


def each_run_by_its_own_number(patch: pytest.MonkeyPatch) -> None:
    """A node that passes messages on takes its own ids for theirs."""
    monkey = Intake._origin

    def broken(self: Intake, run: EnqueueRun, sequence: int) -> MessageId | None:
        found = monkey(self, run, sequence)
        return found and (found[0], sequence)

    patch.setattr(Intake, "_origin", broken)


def holes_are_no_history(patch: pytest.MonkeyPatch) -> None:
    """A promoted backup takes what was only offered for taken."""
    took = ExchangeModel.took
    patch.setattr(ExchangeModel, "took", lambda self, uuid, upto, holes: took(self, uuid, upto, ()))


def offered_is_taken(patch: pytest.MonkeyPatch) -> None:
    """The way that stands by lets go of what was only offered."""
    patch.setattr(ExchangeModel, "missing", lambda self, node, origin, count: [])


def a_way_stands_by_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks for what was offered."""
    patch.setattr(Ways, "_release", lambda self, way, node: None)


def before_it_could_be_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A message goes to other nodes at once, though this one may lose it."""
    patch.setattr(Feeding, "_confirmed", Feeding._handed_out)


def two_ways(links: list[tuple[str, str]]) -> None:
    test_nets.test_what_comes_by_several_ways_comes_once_and_in_order(links)


def stalls() -> None:
    for fault in ("none", "taker", "feeder", "both"):
        test_ways.test_the_other_way_brings_what_was_offered_if_the_line_behind_the_first_is_down(fault)


def random_nets() -> None:
    """Small ones; what is not there after `SOON` does not come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "LIMIT", SOON)
        for seed in range(SEEDS):
            test_oracle.test_a_small_net_is_as_one_broker(seed)


def random_faults() -> None:
    for seed in range(SEEDS):
        test_random.test_each_confirmed_message_comes_once_and_in_order(seed)


@pytest.mark.system
@pytest.mark.parametrize(
    ("break_", "found_by"),
    [
        (cursor_a_batch_late, random_faults),
        (taken_before_it_is_durable, test_hop.test_the_upstream_keeps_what_only_a_primary_that_dies_has),
        (
            before_it_could_be_confirmed,
            lambda: test_hop.test_what_only_a_primary_that_dies_has_goes_to_no_other_node("takes"),
        ),
        (no_cursor, lambda: test_push.test_a_line_breaks_before_that_primary_dies("pull")),
        (taken_while_draining, random_faults),
        (not_on_the_path, lambda: test_nets.test_each_node_gets_what_it_wants_once(test_nets.BOTH)),
        (not_on_the_path, random_nets),
        (last_node_on_the_path, lambda: test_nets.test_each_node_gets_what_it_wants_once(test_nets.RING)),
        (wish_by_this_node, test_nets.test_an_interest_ends_everywhere_when_its_queue_does),
        (arrivals_into_their_own_link, random_nets),
        (taken_when_applied, test_takers.test_the_upstream_keeps_what_no_disk_downstream_has),
        (one_epoch_for_all_takers, test_takers.test_an_old_primary_that_runs_on_does_not_take_the_link_back),
        (gone_with_the_first_unbind, random_nets),
        (gone_with_the_first_unbind, test_hop.test_interest_follows_binds_unbinds_and_the_ends_of_queues),
        (digest_without_arguments, lambda: test_hop.test_arguments_that_changed_while_no_link_was_up(True)),
        (ids_of_each_link_queue, lambda: two_ways(test_nets.DIAMOND)),
        (what_came_is_no_history, lambda: two_ways(test_nets.DIAMOND)),
        (each_run_by_its_own_number, lambda: two_ways(test_nets.MESH)),
        (holes_are_no_history, stalls),
        (offered_is_taken, stalls),
        (a_way_stands_by_for_ever, stalls),
        (taken_away_before_the_set_is_whole, test_interest.test_a_set_that_is_not_whole_takes_nothing_away),
    ],
)  # fmt: skip
def test_a_breakage_is_found(
    break_: Break, found_by: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_(monkeypatch)
    with pytest.raises((AssertionError, InternalError)):
        found_by()
