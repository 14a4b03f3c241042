"""Cases of the primary's disk: it is full; it hangs."""

from __future__ import annotations

import time

from tests.cluster.play import Play


def full(play: Play) -> None:
    """A node whose disk has no room ends; the other one is promoted; with room again it comes back."""
    with play.round("no room on the primary's disk") as made:
        primary, heir = play.primary(), play.backup()
        made.fault = time.time()
        primary.disk.fill()
        play.until_promoted(heir, made.fault)
        primary.disk.give_room()
        play.forget_failures(heir)


def hanging(play: Play) -> None:
    """Who writes waits for ever. The monitor sees it; what cannot be stopped is fenced."""
    with play.round("the primary's disk hangs") as made:
        primary, heir = play.primary(), play.backup()
        made.fault = time.time()
        primary.disk.hang()
        play.until_promoted(heir, made.fault)
        primary.disk.go_on()
        play.forget_failures(heir)
