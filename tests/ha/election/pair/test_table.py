"""The pair controller's table: each state of each node with each state that it sees."""

from __future__ import annotations

from itertools import product

import pytest

from ha.core.election.pair.table import TABLE, PairRole, PairState, Row, Wanted, row_for

OWN = [state for state in PairState if state is not PairState.OFFLINE]
P, A, S, F, X = PairState
ACTIVE = (Wanted.ACTIVE, Wanted.AFTER_A_TURN)

CASES = list(product(PairRole, OWN, PairState, (False, True)))


def wanted(role: PairRole, state: PairState, seen: PairState, *, clients: bool) -> Wanted:
    row = row_for(role, state, seen, clients=clients)
    return row.then if row is not None else Wanted.AS_IT_IS


def fits(row: Row, role: PairRole, state: PairState, seen: PairState, clients: bool) -> bool:
    return role in row.roles and state in row.states and seen in row.seen and (clients or not row.clients)


@pytest.mark.parametrize(("role", "state", "seen", "clients"), CASES)
def test_at_most_one_row_fits(role: PairRole, state: PairState, seen: PairState, clients: bool) -> None:
    found = [row for row in TABLE if fits(row, role, state, seen, clients)]
    assert len(found) <= 1
    assert row_for(role, state, seen, clients=clients) is (found[0] if found else None)


def test_each_row_is_used() -> None:
    used = {row_for(role, state, seen, clients=clients) for role, state, seen, clients in CASES}
    assert used >= set(TABLE)


@pytest.mark.parametrize(
    ("role", "state", "seen", "clients", "then"),
    [  # the paper's rows, as they stand there
        pytest.param(PairRole.PRIMARY, P, P, False, Wanted.ACTIVE, id="primary a"),
        pytest.param(PairRole.PRIMARY, P, S, False, Wanted.ACTIVE, id="primary a, passive"),
        pytest.param(PairRole.PRIMARY, S, X, True, Wanted.ACTIVE, id="primary c"),
        pytest.param(PairRole.PRIMARY, S, X, False, Wanted.AS_IT_IS, id="primary c without a client"),
        pytest.param(PairRole.PRIMARY, S, S, False, Wanted.ACTIVE, id="primary d"),
        pytest.param(PairRole.BACKUP, P, A, False, Wanted.PASSIVE, id="backup a"),
        pytest.param(PairRole.BACKUP, S, X, True, Wanted.ACTIVE, id="backup b"),
        pytest.param(PairRole.BACKUP, S, X, False, Wanted.AS_IT_IS, id="backup b without a client"),
        pytest.param(PairRole.BACKUP, S, F, False, Wanted.ACTIVE, id="backup c"),
        # and what it leaves open
        pytest.param(PairRole.PRIMARY, P, A, False, Wanted.PASSIVE, id="primary a, active"),
        pytest.param(PairRole.PRIMARY, S, P, False, Wanted.ACTIVE, id="the backup was started again"),
        pytest.param(PairRole.PRIMARY, F, S, False, Wanted.PASSIVE, id="a forced node stays passive"),
        pytest.param(PairRole.PRIMARY, P, X, True, Wanted.ACTIVE, id="alone"),
        pytest.param(PairRole.BACKUP, S, P, False, Wanted.ACTIVE, id="the full backup takes over"),
    ],
)
def test_the_rows_of_the_paper(
    role: PairRole, state: PairState, seen: PairState, clients: bool, then: Wanted
) -> None:
    assert wanted(role, state, seen, clients=clients) is then


@pytest.mark.parametrize("role", PairRole)
@pytest.mark.parametrize("seen", PairState)
def test_who_serves_goes_on(role: PairRole, seen: PairState) -> None:
    """What ends it is an operator, or a later epoch."""
    assert wanted(role, A, seen, clients=True) is Wanted.AS_IT_IS


@pytest.mark.parametrize(("one", "other"), list(product(OWN, OWN)))
def test_no_dead_state_while_both_nodes_live(one: PairState, other: PairState) -> None:
    """Whatever the two are in when they see each other, one serves in the end, and goes first alone."""
    for may in ((True, True), (True, False), (False, True)):  # by the in-sync set
        first = wanted(PairRole.PRIMARY, one, other, clients=False)
        second = wanted(PairRole.BACKUP, other, one, clients=False)
        if A in (one, other):
            assert not {first, second} & set(ACTIVE)
            continue
        wants = [(first, may[0]), (second, may[1])]
        if F in (one, other) and one is not other:
            free = wants[1] if one is F else wants[0]  # the node that nobody has ordered is wanted
            assert free[0] is Wanted.ACTIVE
            continue
        assert any(then in ACTIVE and allowed for then, allowed in wants), (one, other, may)
        if P not in (one, other):  # both have all: they must not begin at the same moment
            assert [first, second].count(Wanted.ACTIVE) == 1


@pytest.mark.parametrize("role", PairRole)
@pytest.mark.parametrize("state", [P, S, F])
def test_no_dead_state_while_one_node_and_a_client_live(role: PairRole, state: PairState) -> None:
    assert wanted(role, state, X, clients=True) is Wanted.ACTIVE
    assert wanted(role, state, X, clients=False) is Wanted.AS_IT_IS
