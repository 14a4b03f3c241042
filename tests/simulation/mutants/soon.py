"""Mutants that a few seeds find: `make test` hunts `FIRST`, `make test-system` the `OTHERS`, and
`make soak-simulation` all that there are.

A change of the product, or of how plans are drawn, gives other runs. If a mutant is then not found within
`SEEDS`, but still by `make soak-simulation`, take it off the list.
"""

from __future__ import annotations

SEEDS = 30
"""Six were enough when the lists were made."""

FIRST = (
    "confirm before the backup's ack",
    "include before the copy is whole",
    "answer before it is replicated",
    "commit-ok before the backups have it",
    "let clients in at a backup",
    "forget dequeues on the backup",
    "number messages without an epoch",
    "forget the tombstone of an unfetched message",
    "route regardless of the key",
    "never flag as redelivered",
    "never tell the joiner that it is in",
)
"""One for each of several checkers."""

OTHERS = (
    "a promoted backup has forgotten the rules",
    "a promoted node takes publishes to internal exchanges",
    "a publish that a full queue refuses is confirmed",
    "a joiner learns its primary's clock late",
    "acknowledge a batch and drop it",
    "acknowledge as durable what is only applied",
    "acknowledge at once in a transaction",
    "a new primary dates messages by its own clock",
    "a promoted node delivers to every consumer",
    "call written what is not synced",
    "commit in two steps",
    "commit what there is room for",
    "commit when the client is lost",
    "commit-ok before the disk",
    "confirm before the disk",
    "cut a consistency checkpoint while dequeues are gathered",
    "date a snapshot when it is sent",
    "end a snapshot before its last message",
    "end an unused queue on the backup",
    "expect nobody",
    "export one message for all",
    "forget what is dropped",
    "give back a segment that is needed",
    "give back what a commit rejects",
    "give back what was acknowledged",
    "keep what is rolled back",
    "keep what the primary has not defined",
    "know a queue by its name",
    "leave expirations and priorities out of a snapshot",
    "leave out the bindings of built-in exchanges",
    "leave the acks of a commit gathered",
    "let a multiple confirm run ahead",
    "lose a message of a snapshot",
    "lose a message when promoted",
    "mint one epoch on both nodes",
    "never flush dequeues",
    "publish at once in a transaction",
    "release one batch early",
    "remember more than there was",
    "requeue what is rolled back",
    "say back one's own time",
    "snapshot first, guard later",
    "take applied for durable",
    "tell a joiner nothing of the past",
    "tell nobody of an exclusion",
    "the newest consumer takes over",
    "users_answered_at_once",
    "what expired during a failover is no dead letter",
    "what is over is still delivered",
)
