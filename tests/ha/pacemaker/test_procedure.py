"""The procedure of reads and swaps, against virtual copies of the CIB."""

from __future__ import annotations

import pytest

from ha.pacemaker import codes
from ha.pacemaker.procedure import (
    NO_SUCH,
    AskQuorum,
    CreateSet,
    QueryCib,
    RaiseAdminEpoch,
    Register,
    ReplaceSet,
    Result,
    read,
    swap,
)
from ha.pacemaker.standing import Votes
from tests.ha.pacemaker.cibs import DOWN, LOST, MEMBER, STARTING, record, set_of, version_of, whole

A = Register("a")
B = Register("b")
WRITES = (CreateSet, ReplaceSet)


def test_a_read_asks_this_nodes_copy_then_the_members() -> None:
    cibs = whole("a", "b")
    cibs.sets = dict.fromkeys("ab", set_of(record()))
    answer = cibs.run("a", read(A))
    assert (answer.outcome, answer.record) == ("done", record())
    assert cibs.asked == [QueryCib(), QueryCib("b")]


def test_nothing_recorded_is_an_answer_too() -> None:
    answer = whole("a", "b").run("a", read(A))
    assert (answer.outcome, answer.record) == ("done", None)


def test_first_record_then_one_on_top_of_it() -> None:
    cibs = whole("a", "b")
    assert cibs.run("a", swap(A, None, record())).outcome == "done"
    assert cibs.run("a", swap(A, version_of(record()), record(5, 2, "a", "b"))).outcome == "done"
    assert cibs.run("b", read(B)).record == record(5, 2, "a", "b")


@pytest.mark.parametrize("expected", [None, version_of(record(4, 9))])
def test_another_version_than_expected_is_a_conflict_without_a_write(expected: object) -> None:
    cibs = whole("a", "b")
    cibs.sets = dict.fromkeys("ab", set_of(record()))
    answer = cibs.run("a", swap(A, expected, record(6)))  # type: ignore[arg-type]
    assert (answer.outcome, answer.record) == ("conflict", record())
    assert not [c for c in cibs.asked if isinstance(c, WRITES)]


def test_a_record_that_is_gone_is_a_conflict() -> None:
    answer = whole("a", "b").run("a", swap(A, version_of(record()), record(5, 2)))
    assert (answer.outcome, answer.record) == ("conflict", None)


def test_overtaken_between_look_and_write_is_a_conflict_with_what_is_held() -> None:
    cibs = whole("a", "b")
    cibs.sets = dict.fromkeys("ab", set_of(record()))
    procedure = swap(A, version_of(record()), record(5, 2))
    commands = next(procedure)
    with pytest.raises(StopIteration) as end:
        while True:
            if isinstance(commands[0], ReplaceSet):
                cibs.sets = dict.fromkeys("ab", set_of(record(6, 1, "b")))
            commands = procedure.send([cibs.result("a", command) for command in commands])
    assert (end.value.value.outcome, end.value.value.record) == ("conflict", record(6, 1, "b"))


def test_asking_for_the_same_swap_again_is_a_conflict_with_itself() -> None:
    cibs = whole("a", "b")
    cibs.run("a", swap(A, None, record()))
    answer = cibs.run("a", swap(A, None, record()))
    assert (answer.outcome, answer.record) == ("conflict", record())


def test_a_member_whose_daemon_does_not_answer_leaves_it_unknown() -> None:
    cibs = whole("a", "b")
    cibs.reaches = lambda here, there: here == there
    answer = cibs.run("a", swap(A, None, record()))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.MEMBER_SILENT.name) and not cibs.sets


def test_nothing_is_written_while_a_node_is_lost_and_not_fenced() -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = LOST
    cibs.votes["a"] = Votes(True, 2, True, frozenset({"1"}))
    answer = cibs.run("a", swap(A, None, record()))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.TWO_VOTES.name)
    assert cibs.asked == [QueryCib(), AskQuorum()]


@pytest.mark.parametrize("state", [DOWN, STARTING])
def test_alone_once_the_other_is_fenced_and_while_it_comes_back(state: dict[str, str]) -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = state
    cibs.reaches = lambda here, there: here == there
    assert cibs.run("a", swap(A, None, record())).outcome == "done"
    assert "b" not in cibs.sets


def test_with_a_quorum_device_quorum_counts_before_fencing_has_succeeded() -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = LOST
    cibs.reaches = lambda here, there: here == there
    cibs.votes["a"] = Votes(True, 3, False, frozenset({"1"}))
    assert cibs.run("a", swap(A, None, record())).outcome == "done"


def test_a_partition_between_look_and_write_leaves_it_unknown() -> None:
    cibs = whole("a", "b")

    def cut(here: str) -> None:
        cibs.reaches = lambda here, there: here == there

    cibs.on_write = cut
    answer = cibs.run("a", swap(A, None, record()))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.MEMBER_SILENT.name)
    assert answer.said.sentence.startswith("the CIB may have the new record or not: ")


def test_a_copy_that_lags_is_looked_at_again() -> None:
    cibs = whole("a", "b")
    procedure = swap(A, None, record())
    commands, looks = next(procedure), 0
    with pytest.raises(StopIteration) as end:
        while True:
            results = [cibs.result("a", command) for command in commands]
            if isinstance(commands[0], CreateSet):
                del cibs.sets["b"]
            elif cibs.sets and commands == [QueryCib("b")]:
                looks += 1
                if looks == 2:
                    cibs.sets["b"] = cibs.sets["a"]
            commands = procedure.send(results)
    assert end.value.value.outcome == "done" and looks == 3


def test_copies_that_stay_apart_are_unknown_after_some_looks() -> None:
    cibs = whole("a", "b")
    cibs.sets = {"a": set_of(record()), "b": set_of(record(5, 2))}
    answer = cibs.run("a", read(A))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.RECORD_DIFFERS.name)
    assert len(cibs.asked) == 8


def test_an_answer_without_sense_is_unknown() -> None:
    procedure = read(A)
    next(procedure)
    with pytest.raises(StopIteration) as end:
        procedure.send([Result(0, "<html/>")])
    assert (end.value.value.outcome, end.value.value.said.code) == ("unknown", codes.UNREADABLE.name)


def test_a_tampered_set_is_left_as_it_is_and_named() -> None:
    cibs = whole("a", "b")
    tampered = set_of(record()).replace("5.1", "five")
    cibs.sets = dict.fromkeys("ab", tampered)
    for answer in (cibs.run("a", read(A)), cibs.run("a", swap(A, version_of(record()), record(5, 2)))):
        assert (answer.outcome, answer.said.code) == ("unknown", codes.RECORD_DAMAGED.name)
        assert "'understudy'" in answer.said.sentence and "'five'" in answer.said.sentence
    assert cibs.sets == dict.fromkeys("ab", tampered)


def test_three_nodes_one_down_one_member() -> None:
    cibs = whole("a", "b", "c")
    cibs.states["a"] = {"a": MEMBER, "b": MEMBER, "c": DOWN}
    cibs.reaches = lambda here, there: there != "c"
    assert cibs.run("a", swap(A, None, record())).outcome == "done"
    assert "c" not in cibs.sets


@pytest.mark.parametrize("state", [DOWN, LOST])
def test_before_a_swap_without_somebody_the_copy_outranks_any_that_is_away(state: dict[str, str]) -> None:
    """Found by the simulation: c, cut off in the instant of its write, had the higher epoch, and its copy
    undid at the merge what a and b had done by quorum.
    """
    cibs = whole("a", "b", "c")
    cibs.states["a"]["c"] = cibs.states["b"]["c"] = state
    cibs.votes["a"] = Votes(True, 3, False, frozenset({"1", "2"}))
    cibs.reaches = lambda here, there: "c" not in (here, there)
    cibs.admin_epochs = dict.fromkeys("abc", 4)
    assert cibs.run("a", swap(A, None, record())).outcome == "done"
    assert cibs.admin_epochs == {"a": 5, "b": 5, "c": 4}
    writes = [command for command in cibs.asked if isinstance(command, (*WRITES, RaiseAdminEpoch))]
    assert [type(command) for command in writes] == [RaiseAdminEpoch, CreateSet]


def test_a_starting_node_does_not_raise_its_old_copy() -> None:
    """Found by the simulation: b was in the ring again, and had not joined. It made the raise on its own
    copy, which so got the higher version, and undid at the join what a had done while b had no power.
    """
    cibs = whole("a", "b")
    cibs.sets = {"a": set_of(record(6)), "b": set_of(record(5))}
    cibs.admin_epochs = {"a": 1, "b": 0}
    cibs.states = {"a": {"a": MEMBER, "b": STARTING}, "b": {"a": LOST, "b": STARTING}}
    assert cibs.run("a", swap(A, version_of(record(6)), record(6, 2))).outcome == "done"
    assert cibs.admin_epochs["a"] > 1 and cibs.admin_epochs["b"] == 0


@pytest.mark.parametrize("given_up", [LOST, {**LOST, "in_ccm": "true"}, DOWN, STARTING])
def test_who_was_given_up_by_a_member_raises_nothing(given_up: dict[str, str]) -> None:
    """Found by the simulation: a stood still, b gave it up and took c in, and a, which went on before it had
    joined again, raised its own copy alone, twice; fenced and back, it undid b's promotion with that.
    """
    cibs = whole("a", "b", "c")
    cibs.sets = dict.fromkeys("abc", set_of(record()))
    cibs.states["a"]["c"] = DOWN
    cibs.states["b"]["a"] = cibs.states["c"]["a"] = given_up
    answer = cibs.run("a", swap(A, version_of(record()), record(5, 2)))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.MEMBER_DISAGREES.name)
    assert not cibs.admin_epochs and set(cibs.sets.values()) == {set_of(record())}
    assert cibs.run("a", read(A)).outcome == "unknown"


def test_a_raise_counts_only_where_all_members_have_made_it() -> None:
    cibs = whole("a", "b", "c")
    cibs.sets = dict.fromkeys("abc", set_of(record()))
    cibs.states["a"]["c"] = cibs.states["b"]["c"] = DOWN
    cibs.on_raise = lambda here: cibs.admin_epochs.pop("b")
    answer = cibs.run("a", swap(A, version_of(record()), record(5, 2)))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.ADMIN_EPOCH_DIFFERS.name)
    assert set(cibs.sets.values()) == {set_of(record())}


def test_a_node_cut_off_between_raise_and_write_is_outranked_again() -> None:
    cibs = whole("a", "b")
    before = record()
    cibs.sets = dict.fromkeys("ab", set_of(before))
    cibs.states["a"]["b"] = STARTING

    def cut(here: str) -> None:
        cibs.reaches = lambda here, there: here == there

    cibs.on_raise = cut
    assert cibs.run("a", swap(A, version_of(before), record(5, 2))).outcome == "done"
    assert cibs.admin_epochs == {"a": 2, "b": 1}


@pytest.mark.parametrize(("names", "includes", "done"), [
    ({"b" * 8: "b"}, ["b"], False),
    ({"b" * 8: "another"}, ["b"], False),
    ({"c" * 8: "c"}, ["c"], True),
    ({"c" * 8: "another"}, ["c"], False),
    ({}, [], True),
])  # fmt: skip
def test_nobody_is_included_before_its_node_has_joined(
    names: dict[str, str], includes: list[str], done: bool
) -> None:
    """Found by the simulation: b was in the ring again, had not joined, and heard that it is in sync. Cut off
    then, it had a fenced and was promoted; and its copy lost against that of a, which had been raised since.
    """
    cibs = whole("a", "b", "c")
    before, after = record(), record(5, 2, "a", *includes)
    after["names"] |= names
    cibs.sets = {"a": set_of(before), "b": set_of(before), "c": set_of(before)}
    cibs.states["a"]["b"] = cibs.states["c"]["b"] = STARTING
    answer = cibs.run("a", swap(A, version_of(before), after))
    if done:
        assert answer.outcome == "done"
        return
    assert (answer.outcome, answer.said) == ("not yet", codes.NODE_JOINING.say(nodes="b"))
    assert not [c for c in cibs.asked if isinstance(c, (*WRITES, RaiseAdminEpoch))]
    cibs.states["a"]["b"] = cibs.states["c"]["b"] = MEMBER
    assert cibs.run("a", swap(A, version_of(before), after)).outcome == "done"


def test_who_is_in_the_record_is_kept_while_its_node_joins() -> None:
    cibs = whole("a", "b")
    cibs.sets = dict.fromkeys("ab", set_of(record(5, 1, "a", "b", "c")))
    cibs.states["a"]["b"] = STARTING
    after = record(5, 2, "a", "b")
    assert cibs.run("a", swap(A, version_of(record()), after)).outcome == "done"


def test_a_raise_that_comes_too_late_for_a_change_is_tried_again() -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = DOWN
    procedure, refused = swap(A, None, record()), 0
    commands = next(procedure)
    with pytest.raises(StopIteration) as end:
        while True:
            if isinstance(commands[0], RaiseAdminEpoch) and refused < 2:
                refused += 1
                commands = procedure.send([Result(NO_SUCH, error="no such device")])
            else:
                commands = procedure.send([cibs.result("a", each) for each in commands])
    assert end.value.value.outcome == "done" and cibs.admin_epochs["a"] == 1


def test_with_everybody_there_no_copy_has_to_be_outranked() -> None:
    cibs = whole("a", "b")
    assert cibs.run("a", swap(A, None, record())).outcome == "done"
    assert not [command for command in cibs.asked if isinstance(command, RaiseAdminEpoch)]


def test_a_read_and_a_swap_that_comes_too_late_raise_nothing() -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = DOWN
    cibs.sets["a"] = set_of(record())
    assert cibs.run("a", read(A)).outcome == "done"
    assert cibs.run("a", swap(A, None, record(6))).outcome == "conflict"
    assert not cibs.admin_epochs


@pytest.mark.parametrize(("result", "cause"), [
    (Result(None, error="no answer"), "no answer"), (Result(0), "it is 0, not 1"),
])  # fmt: skip
def test_without_the_higher_admin_epoch_nothing_is_written(result: Result, cause: str) -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = DOWN
    procedure = swap(A, None, record())
    commands = next(procedure)
    with pytest.raises(StopIteration) as end:
        while True:
            raises = isinstance(commands[0], RaiseAdminEpoch)
            commands = procedure.send([result if raises else cibs.result("a", each) for each in commands])
    said = codes.ADMIN_EPOCH_STUCK.say(cause=cause) + "; nothing was written"
    assert (end.value.value.outcome, end.value.value.said) == ("unknown", said)
    assert not cibs.sets


@pytest.mark.parametrize("heard", [True, False])
def test_who_is_lost_while_it_is_written_does_not_outrank_it_either(heard: bool) -> None:
    """Whether it is heard at once that it was written, or found when the same is asked for again."""
    cibs = whole("a", "b")
    cibs.votes["a"] = Votes(True, 3, False, frozenset({"1"}))

    def cut(here: str) -> None:
        cibs.states["a"] = {"a": MEMBER, "b": LOST}
        cibs.reaches = lambda here, there: here == there
        del cibs.sets["b"]

    cibs.on_write = cut
    if heard:
        assert cibs.run("a", swap(A, None, record())).outcome == "done"
    else:
        cibs.result("a", CreateSet("understudy", set_of(record())))
        again = cibs.run("a", swap(A, None, record()))
        assert (again.outcome, again.record) == ("conflict", record())
    assert cibs.admin_epochs == {"a": 1} and "b" not in cibs.sets


def test_a_record_that_cannot_be_made_to_last_is_unknown() -> None:
    cibs = whole("a", "b")
    cibs.states["a"]["b"] = DOWN
    cibs.sets["a"] = set_of(record())
    procedure = swap(A, None, record())
    commands = next(procedure)
    with pytest.raises(StopIteration) as end:
        while True:
            raises = isinstance(commands[0], RaiseAdminEpoch)
            results = [Result(None, error="no answer")] if raises else [cibs.result("a", commands[0])]
            commands = procedure.send(results)
    said = codes.ADMIN_EPOCH_STUCK.say(cause="no answer")
    said = said.about("the CIB has the new record, but may lose it")
    assert (end.value.value.outcome, end.value.value.said) == ("unknown", said)
