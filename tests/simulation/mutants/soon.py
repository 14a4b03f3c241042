"""Mutants that a few seeds find: `make test` hunts `FIRST`, `make test-system` the `OTHERS`, and
`make soak-simulation` all that there are.

A change of the product, or of how plans are drawn, gives other runs. If a mutant is then not found within
`SEEDS`, but still by `make soak-simulation`, take it off the list.
"""

from __future__ import annotations

SEEDS = 40
"""Twelve were enough when the lists were made."""

FIRST = (
    "confirm before the backup's ack",
    "include before the copy is whole",
    "answer before it is replicated",
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
    "acknowledge a batch and drop it",
    "acknowledge as durable what is only applied",
    "act on a record that was only asked for",
    "begin a reign alone where the policy is to block",
    "call written what is not synced",
    "cold start without asking the others",
    "compare nothing but the lease",
    "confirm before the disk",
    "date a snapshot when it is sent",
    "dequeue one too many",
    "end a snapshot before its last message",
    "end an unused queue on the backup",
    "expect nobody",
    "forget the end of a snapshot",
    "forget what came after the last that was set aside",
    "forget what is dropped",
    "give back a segment that is needed",
    "give back what was acknowledged",
    "go on after meeting a higher epoch",
    "go on alone where the policy is to block",
    "go on serving after a demotion",
    "hold the lease for ever",
    "join whoever serves, however it is configured",
    "keep what the primary has not",
    "know a queue by its name",
    "leave expirations and priorities out of a snapshot",
    "leave out the bindings of built-in exchanges",
    "let a multiple confirm run ahead",
    "lose a message of a snapshot",
    "lose a message when promoted",
    "mint an epoch again",
    "mint one epoch on both nodes",
    "never flush dequeues",
    "promote another life of the node",
    "promote before the lease is over",
    "read back the newest first",
    "release one batch early",
    "say back one's own time",
    "snapshot first, guard later",
    "sort ids without their epoch",
    "take an unknown outcome for success",
    "take applied for durable",
    "wait for nobody who may come back",
)
