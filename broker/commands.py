"""The command table: what each command of each protocol leaves in history, and what its answer waits for.

It is data for docs/reference/commands.md and for tests, which run the commands and hold each row to what they
see. No code of the broker reads it.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """Where the effect of a command is known."""

    REPLICATED = "replicated"
    INFERRED = "inferred"
    LOCAL = "local"
    SESSION = "session"


class Answer(Enum):
    """When the one who sent the command is answered."""

    AFTER_BATCH = "after its batch"
    AT_ONCE = "at once"
    NONE = "none"


class Row(NamedTuple):
    """`commands` share a row. `records`: names of record kinds, those that the command may leave in its "
    "batch.
    `test`: file under tests, and function. `when`: for which of its uses the row is, if not for all."""

    commands: tuple[str, ...]
    state: State
    records: tuple[str, ...]
    answer: Answer
    note: str
    test: str
    when: str = ""


class Counterpart(NamedTuple):
    """A command of AMQP 0-10, the sides it comes from, and what stands for it here."""

    commands: str
    counterpart: str
    state: str
    note: str


_REPLICATED, _INFERRED, _LOCAL, _SESSION = State
_AFTER, _ONCE, _NONE = Answer


def _row(
    commands: str, state: State, answer: Answer, test: str, note: str = "", *, records: str = "",
    when: str = "",
) -> Row:  # fmt: skip
    return Row(tuple(commands.split()), state, tuple(records.split()), answer, note, test, when)


_CONNECTION = "broker/amqp091/test_connection.py"
_CONSUMING = "broker/amqp091/consuming/test_consuming.py"
_TRANSACTIONS = "broker/amqp091/test_transactions.py"
_COMMITS = "broker/amqp091/test_commits.py"
_ROWS = "broker/test_commands.py::test_each_row_is_true"
_ROWS10 = "broker/test_commands.py::test_each_row_is_true"
_CONNECTION10 = "broker/amqp10/test_connection.py"
_PUBLISHING10 = "broker/amqp10/test_publishing.py"
_RECEIVING10 = "broker/amqp10/test_receiving.py"

AMQP_0_9_1: dict[str, tuple[Row, ...]] = {
    "Connections": (
        _row(
            "connection.start connection.start-ok connection.secure connection.secure-ok connection.tune "
            "connection.tune-ok connection.open connection.open-ok",
            _SESSION, _ONCE, f"{_CONNECTION}::test_tune_and_open", "The login. A backup sends clients on.",
        ),
        _row(
            "connection.close", _REPLICATED, _ONCE, _ROWS,
            "Exclusive queues end with their connection. Outstanding messages are ready again.",
            records="Dequeue QueueDelete",
        ),
        _row(
            "connection.close-ok", _SESSION, _NONE,
            f"{_CONNECTION}::test_close_by_the_client_and_by_the_broker"
        ),
        _row(
            "connection.blocked connection.unblocked", _LOCAL, _NONE,
            f"{_CONNECTION}::test_publishers_are_paused_and_notified_above_the_memory_limit",
            "Each node has its own alarms.",
        ),
        _row(
            "connection.update-secret connection.update-secret-ok", _SESSION, _ONCE,
            f"{_CONNECTION}::test_a_new_secret_is_answered_and_an_access_request_gets_ticket_1",
        ),
    ),
    "Channels": (
        _row("channel.open channel.open-ok", _SESSION, _ONCE, _ROWS),
        _row(
            "channel.flow channel.flow-ok", _SESSION, _ONCE,
            f"{_CONSUMING}::test_flow_stops_and_resumes_deliveries",
        ),
        _row(
            "channel.close", _REPLICATED, _ONCE, _ROWS,
            "Its consumers end, and with the last one an auto-delete queue. "
            "Outstanding messages are ready again.",
            records="Dequeue QueueDelete",
        ),
        _row(
            "channel.close-ok", _SESSION, _NONE, f"{_CONNECTION}::test_close_by_the_client_and_by_the_broker",
        ),
        _row(
            "access.request access.request-ok", _SESSION, _ONCE,
            f"{_CONNECTION}::test_a_new_secret_is_answered_and_an_access_request_gets_ticket_1",
            "The ticket has no meaning.",
        ),
    ),
    "Exchanges and bindings": (
        _row("exchange.declare", _REPLICATED, _AFTER, _ROWS, records="ExchangeDeclare"),
        _row("exchange.delete", _REPLICATED, _AFTER, _ROWS, records="ExchangeDelete"),
        _row("exchange.bind queue.bind", _REPLICATED, _AFTER, _ROWS, records="Bind"),
        _row("exchange.unbind queue.unbind", _REPLICATED, _AFTER, _ROWS, records="Unbind"),
        _row(
            "exchange.declare-ok exchange.delete-ok exchange.bind-ok exchange.unbind-ok queue.bind-ok "
            "queue.unbind-ok",
            _SESSION, _NONE, _ROWS, "Each waits for the batch of its command.",
        ),
    ),
    "Queues": (
        _row(
            "queue.declare", _REPLICATED, _AFTER, _ROWS,
            "A passive one changes nothing, and is answered from what is replicated.",
            records="QueueDeclare",
        ),
        _row("queue.purge", _REPLICATED, _AFTER, _ROWS, records="Dequeue"),
        _row(
            "queue.delete", _REPLICATED, _AFTER, _ROWS, "Its messages and bindings go with it.",
            records="Dequeue QueueDelete",
        ),
        _row(
            "queue.declare-ok queue.purge-ok queue.delete-ok", _SESSION, _NONE, _ROWS,
            "Each waits for the batch of its command.",
        ),
    ),
    "Publishing": (
        _row(
            "basic.publish", _REPLICATED, _AFTER, _ROWS,
            "With confirms, answered by `basic.ack`; by `basic.nack` where a full queue refuses it.",
            records="EnqueueRun",
        ),
        _row(
            "basic.publish", _LOCAL, _ONCE, _ROWS, "For ledgers only: it is in no queue.",
            records="Unrouted", when="to no queue",
        ),
        _row(
            "basic.publish", _REPLICATED, _AFTER, _ROWS,
            "Queues that never had the message get it. For the others, `Duplicate` is for ledgers.",
            records="EnqueueRun Duplicate", when="again, with its old number",
        ),
        _row(
            "basic.publish", _REPLICATED, _AFTER, _ROWS,
            "The same by ids. Those that a queue takes are in its window; `Unrouted` is for ledgers.",
            records="EnqueueRun IdsNoted Unrouted", when="to a queue with x-dedup-window",
        ),
        _row(
            "basic.return", _LOCAL, _NONE, "compatibility/test_publishing.py::test_mandatory",
            "A message that is returned is in no queue.",
        ),
        _row("confirm.select confirm.select-ok", _SESSION, _ONCE, _ROWS, "Tags begin at 1 on each channel."),
        _row(
            "confirm.select", _REPLICATED, _AFTER, _ROWS,
            "The entry of the producer, and of one that is forgotten for it.",
            records="EntryPut EntryDelete", when="with a producer_id",
        ),
    ),
    "Consuming": (
        _row("basic.qos basic.qos-ok", _SESSION, _ONCE, _ROWS, "The prefetch."),
        _row(
            "basic.consume", _REPLICATED, _ONCE, _ROWS,
            "The consumer itself is not replicated: clients consume again. From the first one on, "
            "an auto-delete queue may end; that is replicated.",
            records="ConsumerSeen",
        ),
        _row(
            "basic.consume", _LOCAL, _ONCE, _ROWS,
            "Its queue is temporary and not replicated: the records are for ledgers.",
            records="QueueDeclare ConsumerSeen", when="direct reply-to",
        ),
        _row("basic.consume", _SESSION, _ONCE, _ROWS, "A browser takes nothing.", when="browsing"),
        _row(
            "basic.cancel", _REPLICATED, _ONCE, _ROWS, "With its last consumer, an auto-delete queue ends.",
            records="Dequeue QueueDelete",
        ),
        _row(
            "basic.consume-ok basic.cancel-ok", _SESSION, _NONE,
            f"{_CONSUMING}::test_cancel_by_client_and_by_deletion",
        ),
        _row(
            "basic.deliver", _REPLICATED, _ONCE, _ROWS,
            "Only without acknowledgements is a message gone when it is sent. "
            "Who has a message is not replicated: after a failover it comes again, flagged.",
            records="Dequeue",
        ),
        _row(
            "basic.get", _REPLICATED, _ONCE, _ROWS, "As `basic.deliver`.", records="Dequeue",
        ),
        _row("basic.get-ok basic.get-empty", _SESSION, _NONE, f"{_CONSUMING}::test_get"),
        _row(
            "basic.ack", _REPLICATED, _NONE, _ROWS,
            "Joined into ranges, which are up to `ha.dequeue_lag` late. "
            "From the broker: the confirm, which waits for the batch.",
            records="Dequeue",
        ),
        _row(
            "basic.nack basic.reject", _REPLICATED, _NONE, _ROWS,
            "Not requeued: it leaves, and its dead letter is in the same batch. Requeued: no record.",
            records="Dequeue EnqueueRun",
        ),
        _row(
            "basic.recover basic.recover-ok", _INFERRED, _ONCE, _ROWS,
            "What is outstanding is ready again; on a promoted node all of it is.",
        ),
        _row("basic.recover-async", _INFERRED, _NONE, _ROWS, "As `basic.recover`, without an answer."),
    ),
    "Transactions": (
        _row("tx.select tx.select-ok", _SESSION, _ONCE, _ROWS),
        _row(
            "tx.select", _REPLICATED, _AFTER, _ROWS, "As `confirm.select`.",
            records="EntryPut EntryDelete", when="with a producer_id",
        ),
        _row(
            "tx.commit", _REPLICATED, _AFTER, _ROWS,
            "All of it in one batch. `Commit` and `Unrouted` are for ledgers.",
            records="EnqueueRun Dequeue Commit Unrouted",
        ),
        _row(
            "tx.commit", _REPLICATED, _AFTER, _ROWS, "As `basic.publish`, in the batch of the commit.",
            records="EnqueueRun Duplicate Commit", when="of old numbers",
        ),
        _row(
            "tx.commit", _REPLICATED, _AFTER, _ROWS, "As `basic.publish`, in the batch of the commit.",
            records="EnqueueRun IdsNoted Unrouted Commit", when="to a queue with x-dedup-window",
        ),
        _row("tx.commit-ok", _SESSION, _NONE, f"{_COMMITS}::test_commit_ok_waits_for_its_strictest_need"),
        _row(
            "tx.rollback tx.rollback-ok", _SESSION, _ONCE, _ROWS,
            "An open transaction is in no history: a failover rolls it back.",
        ),
    ),
    "Between the nodes of a pair, and for operators": (
        _row(
            "extension.any", _LOCAL, _NONE,
            f"{_CONNECTION}::test_extension_methods_of_permitted_users_reach_the_hooks",
            "The link and management commands; what these change is below.",
        ),
    ),
}  # fmt: skip

AMQP_1_0 = (
    _row(
        "open", _SESSION, _ONCE,
        f"{_CONNECTION10}::test_a_client_is_accepted_and_learns_the_server_properties",
    ),
    _row("begin", _SESSION, _ONCE, _ROWS10),
    _row(
        "attach", _REPLICATED, _ONCE, _ROWS10,
        "As `basic.consume`: of the link itself, nothing is replicated.", records="ConsumerSeen",
    ),
    _row(
        "attach", _REPLICATED, _AFTER, _ROWS10, "A temporary queue of its own.", records="QueueDeclare",
        when="a dynamic source",
    ),
    _row(
        "attach", _REPLICATED, _AFTER, _ROWS10, "As `confirm.select`.", records="EntryPut EntryDelete",
        when="with a producer_id",
    ),
    _row("flow", _SESSION, _ONCE, _ROWS10, "Credit; an echo or a drain is answered."),
    _row(
        "transfer", _REPLICATED, _AFTER, _ROWS10,
        "Answered by the outcome `accepted`. One that the client settled is answered nothing.",
        records="EnqueueRun",
    ),
    _row(
        "transfer", _REPLICATED, _AFTER, _ROWS10, "As `basic.publish`.", records="EnqueueRun Duplicate",
        when="again, with its old number",
    ),
    _row(
        "transfer", _REPLICATED, _AFTER, _ROWS10, "As `basic.publish`.",
        records="EnqueueRun IdsNoted Unrouted", when="to a queue with x-dedup-window",
    ),
    _row(
        "disposition", _REPLICATED, _NONE, _ROWS10,
        "`accepted` and `rejected` take the message; a dead letter is in the same batch. `released` has no "
        "record. "
        "To a client that settles second the answer waits for the batch.",
        records="Dequeue EnqueueRun",
    ),
    _row(
        "detach end close", _REPLICATED, _ONCE, _ROWS10,
        "A queue of a dynamic source ends. What is unsettled is ready again.",
        records="Dequeue QueueDelete",
    ),
)  # fmt: skip

_REMOVALS = "broker/amqp091/test_removals.py"
_ENDS = "broker/model/history/test_epoch_ends.py"

OTHERS = (
    _row(
        "message-expires", _REPLICATED, _NONE, f"{_REMOVALS}::test_a_message_expires_without_a_reader",
        "The primary alone decides; a dead letter is in the same batch.", records="Dequeue EnqueueRun",
    ),
    _row(
        "length-limit", _REPLICATED, _NONE, f"{_REMOVALS}::test_the_oldest_leave_a_queue_that_is_too_long",
        "As above.", records="Dequeue EnqueueRun",
    ),
    _row(
        "last-value", _REPLICATED, _NONE, "compatibility/test_queues.py::test_last_values",
        "The newer message replaces the older one.", records="Dequeue EnqueueRun",
    ),
    _row(
        "queue-expires", _REPLICATED, _NONE, "compatibility/test_queues.py::test_expires",
        "The primary alone counts the time.", records="Dequeue QueueDelete",
    ),
    _row(
        "delayed-message-comes-due", _REPLICATED, _NONE,
        "broker/amqp091/test_delayed.py::test_messages_go_on_when_their_time_has_come_earliest_first",
        "It leaves the queue where it waits, and is in its queues, in one batch.",
        records="Dequeue EnqueueRun",
    ),
    _row(
        "move-by-an-operator", _REPLICATED, _AFTER,
        "ha/operations/test_operations.py::test_a_move_loses_and_doubles_nothing_in_a_failover",
        "Piece by piece, each in one batch.", records="Dequeue EnqueueRun",
    ),
    _row(
        "directory-change", _REPLICATED, _AFTER,
        "broker/model/vhost/test_directory.py::test_followers_have_every_change",
        "Virtual hosts, users, permissions, policies, limits: commands of operators, HTTP.",
        records="EntryPut EntryDelete",
    ),
    _row(
        "connection-lost", _REPLICATED, _NONE,
        f"{_CONNECTION}::test_exclusive_queues_end_with_their_connection",
        "As `connection.close`.", records="Dequeue QueueDelete",
    ),
    _row(
        "failover-event", _REPLICATED, _NONE,
        "ha/status/test_announcements.py::test_events_reach_queues_that_are_bound_through_another_exchange",
        "The primary publishes to `amq.failover`.", records="EnqueueRun",
    ),
    _row(
        "producer-forgotten", _REPLICATED, _NONE,
        "broker/amqp091/test_numbers.py::test_a_producer_that_was_idle_for_its_time_is_forgotten",
        "The primary alone counts the time. Its marks go on all nodes.", records="EntryDelete",
    ),
    _row(
        "federation", _REPLICATED, _NONE,
        "ha/federation/test_hop.py::test_interest_follows_binds_unbinds_and_the_ends_of_queues",
        "A link queue, its bindings, what it hands on, and how far a link has come.",
        records="ExchangeDeclare ExchangeDelete QueueDeclare QueueDelete ConsumerSeen "
        "Bind Unbind EnqueueRun Dequeue EntryPut EntryDelete",
    ),
    _row(
        "checkpoint", _REPLICATED, _NONE,
        f"{_ENDS}::test_an_end_is_forgotten_after_two_checkpoints_without_messages",
        "All members have what was before: ends of epochs may be forgotten.", records="HistoryCheckpoint",
    ),
    _row(
        "join", _REPLICATED, _NONE, f"{_ENDS}::test_a_follower_remembers_as_the_primary_does",
        "What a joining node is told of the ids in each queue, the numbers of producers, and the "
        "ids of a window. `QueueIds` also says that a queue has no window any more.",
        records="QueueEnds QueueMarks QueueIds",
    ),
)  # fmt: skip
"""What leaves records without a command of a client."""


def _counterpart(commands: str, counterpart: str, state: str, note: str = "") -> Counterpart:
    return Counterpart(commands, counterpart, state, note)


AMQP_0_10: dict[str, tuple[Counterpart, ...]] = {
    "Connection and session": (
        _counterpart(
            "connection.*", "connection.* / open, close", "session", "Clients connect again by themselves.",
        ),
        _counterpart(
            "session.attach, detach", "channel.open, close / begin, end, attach, detach", "session",
            "A detach is a close: no session outlives its connection.",
        ),
        _counterpart(
            "session.attached, detached", "channel.open-ok, close-ok / begin, end, attach, detach", "session",
            "Answered by the primary alone.",
        ),
        _counterpart("session.request-timeout, timeout", "- / expiry of a terminus", "none", "Ignored."),
        _counterpart(
            "session.command-point, gap, expected", "publish tag / delivery-tag", "session",
            "A producer's name and tag are in `EnqueueRun`, for ledgers; so are its numbers, for marks.",
        ),
        _counterpart("session.confirmed, flush", "- / flow with echo", "session"),
        _counterpart("session.known-completed", "- / disposition with settled", "session"),
        _counterpart("session.completed, received", "basic.ack / disposition", "replicated", "As `Dequeue`."),
        _counterpart(
            "session.completed, sent", "confirm, tx.commit-ok / accepted", "session", "Waits for the batch.",
        ),
    ),
    "Execution": (
        _counterpart("execution.sync", "- / drain, echo", "session"),
        _counterpart(
            "execution.result", "the -ok methods / replies", "session", "Answered by the primary alone.",
        ),
        _counterpart("execution.exception", "channel.close / detach with an error, end", "session"),
    ),
    "Messages": (
        _counterpart("message.transfer, received", "basic.publish / transfer", "replicated"),
        _counterpart(
            "message.transfer, sent", "basic.deliver, get-ok / transfer", "local",
            "Redelivered after a failover.",
        ),
        _counterpart(
            "message.acquire, received and sent", "- / -", "none", "Browsing is there, and takes nothing.",
        ),
        _counterpart("message.accept, received", "basic.ack / accepted", "replicated"),
        _counterpart(
            "message.reject, received", "basic.reject, nack / rejected", "replicated",
            "With its dead letter.",
        ),
        _counterpart(
            "message.release, received", "requeue / released, modified", "inferred",
            "All is ready on a promoted node.",
        ),
        _counterpart(
            "message.accept, reject, release, sent", "confirm, basic.nack / outcomes of the broker",
            "session",
            "Wait for the batch, as `session.completed, sent`.",
        ),
        _counterpart("message.resume", "- / transfer with resume", "none"),
        _counterpart("message.subscribe, cancel", "basic.consume, cancel / attach, detach", "session"),
        _counterpart("message.set-flow-mode, flow, flush, stop", "basic.qos, channel.flow / flow", "session"),
    ),
    "Transactions": (
        _counterpart(
            "tx.select, commit, rollback", "tx.* / -", "replicated",
            "The commit is one batch. AMQP 1.0 has none here."
        ),
        _counterpart(
            "dtx.select, start, end, commit, forget, get-timeout, prepare, recover, rollback, set-timeout",
            "- / -",
            "none", "There are no distributed transactions.",
        ),
    ),
    "Exchanges and queues": (
        _counterpart(
            "exchange.declare, delete, bind, unbind", "exchange.*, queue.bind, unbind / -", "replicated",
        ),
        _counterpart(
            "exchange.bound, query; queue.query", "passive declare / attach", "local",
            "From replicated state.",
        ),
        _counterpart("queue.declare, delete, purge", "queue.* / dynamic source", "replicated"),
        _counterpart("file.*, stream.*", "- / -", "none"),
    ),
}  # fmt: skip
