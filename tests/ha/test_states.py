"""The pictures of the tables are the tables': `python -m tests.ha.states` draws them anew."""

from __future__ import annotations

import pytest

from ha.core.election.pair.table import PairState
from ha.core.membership import TRANSITIONS, Status
from tests.ha.states import ARROWS, CONTROLLER, NOTES, PICTURES, PLACES, Picture, drawn


def test_the_picture_has_every_change_of_status_and_no_other() -> None:
    assert set(ARROWS) == {(old, new) for old, targets in TRANSITIONS.items() for new in targets}
    assert set(PLACES) == set(NOTES) == set(Status)
    assert set(CONTROLLER.places) == set(PairState) - {PairState.OFFLINE}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.file)
def test_the_pictures_in_the_documents_are_not_stale(picture: Picture) -> None:
    assert picture.path.read_text() == drawn(picture), "python -m tests.ha.states"
