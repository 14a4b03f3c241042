"""Mutants that a few seeds find: `make test` hunts `FIRST`, `make test-system` the `OTHERS`, and
`make soak-simulation` all that there are.

A change of the product, or of how plans are drawn, gives other runs. If a mutant is then not found within
`SEEDS`, but still by `make soak-simulation`, take it off the list.
"""

from __future__ import annotations

FIRST_SEED, SEEDS = 2, 30
"""Where a hunt begins and where it ends. Six were enough when the lists were made. Seed 1 takes the time of
ten others."""

FROM = {"a joiner learns its primary's clock late": 16, "never tell the joiner that it is in": 7}
"""Where other hunts begin: no earlier seed finds it, or one that does takes longer."""

FIRST = (
    "confirm before the backup's ack",
    "answer before it is replicated",
    "commit-ok before the backups have it",
    "number messages without an epoch",
    "never flag as redelivered",
    "name no record of a declaration",
)
"""One for each of several checkers."""

OTHERS = (
    "a joiner learns its primary's clock late",
    "a promoted backup has forgotten the rules",
    "a publish that a full queue refuses is confirmed",
    "acknowledge as durable what is only applied",
    "call written what is not synced",
    "commit in two steps",
    "confirm before the disk",
    "confirm transient messages before the disk",
    "export one message for all",
    "forget dequeues on the backup",
    "forget the older transient messages",
    "forget the tombstone of an unfetched message",
    "give back what was acknowledged",
    "keep what is rolled back",
    "know a queue by its name",
    "let clients in at a backup",
    "lose a message of a snapshot",
    "never tell the joiner that it is in",
    "route regardless of the key",
    "snapshot first, guard later",
    "tell nobody of an exclusion",
)
