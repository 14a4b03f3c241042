"""The picture of the transition table is the table's: `python -m tests.ha.states` draws it anew."""

from __future__ import annotations

from ha.core.membership import TRANSITIONS, Status
from tests.ha.states import ARROWS, NOTES, PICTURE, PLACES, drawn


def test_the_picture_has_every_change_of_status_and_no_other() -> None:
    assert set(ARROWS) == {(old, new) for old, targets in TRANSITIONS.items() for new in targets}
    assert set(PLACES) == set(NOTES) == set(Status)


def test_the_picture_in_the_documents_is_not_stale() -> None:
    assert PICTURE.read_text() == drawn(), "python -m tests.ha.states"
