"""Reading CIBs: what Pacemaker writes, old and new; what somebody else has put there; and what is no CIB."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker.cib import SET_ID, CibError, NodeState, read_cib, set_xml
from tests.ha.pacemaker.cibs import DOWN, LOST, MEMBER, cib_xml, record, set_of

WHO = {"a": MEMBER, "b": DOWN}


def view_of(sets: str, set_id: str = "understudy") -> Any:
    return read_cib(cib_xml(WHO, sets), set_id)


def pairs(set_id: str = "understudy", **values: str) -> str:
    inner = "".join(
        f'<nvpair id="{set_id}-{n}" name="{name.replace("_", "-")}" value={quoteattr(value)}/>'
        for n, (name, value) in enumerate(values.items())
    )
    return f'<cluster_property_set id="{set_id}">{inner}</cluster_property_set>'


def test_states_in_the_words_of_before_and_after_2_1_7() -> None:
    old = read_cib(cib_xml({"a": MEMBER, "b": LOST, "c": None}), "understudy")
    new = read_cib(
        cib_xml(
            {
                "a": {**MEMBER, "in_ccm": "1763740000", "crmd": "1763740001"},
                "b": {**LOST, "in_ccm": "0", "crmd": "0"},
                "c": None,
            }
        ),
        "understudy",
    )
    assert old.nodes == new.nodes
    assert old.nodes["a"] == NodeState(True, True, "member", "member")
    assert old.nodes["b"] is not None and old.nodes["b"].lost and old.nodes["c"] is None


@pytest.mark.parametrize("word", ["", "maybe", "-1", "0x1", "٣", "00"])
def test_a_word_that_nobody_knows_is_a_no(word: str) -> None:
    view = read_cib(cib_xml({"a": MEMBER, "b": {**MEMBER, "in_ccm": word}}), "understudy")
    assert view.nodes["b"] is not None and not view.nodes["b"].up


def test_remote_nodes_do_not_count_but_one_that_only_the_status_knows_does() -> None:
    xml = cib_xml(WHO).replace("</nodes>", '<node id="r" uname="r" type="remote"/></nodes>')
    xml = xml.replace(
        "</status>",
        '<node_state remote_node="true" id="r" uname="r" in_ccm="true"/>'
        '<node_state id="9" uname="x"/></status>',
    )
    view = read_cib(xml, "understudy")
    assert sorted(view.nodes) == ["a", "b", "x"] and view.ids["x"] == "9"


def test_a_state_without_a_name_is_that_of_its_id() -> None:
    view = read_cib(cib_xml(WHO).replace('<node_state id="2" uname="b"', '<node_state id="2"'), "understudy")
    assert sorted(view.nodes) == ["a", "b"] and view.nodes["b"] is not None and view.nodes["b"].down


@pytest.mark.parametrize(("word", "on"), [("true", True), ("false", False), (None, True), ("yes", True)])
def test_fencing_is_on_by_default(word: str | None, on: bool) -> None:
    assert read_cib(cib_xml(WHO, fencing=word), "understudy").fencing is on


def test_no_set_is_no_record_and_no_damage() -> None:
    view = view_of("")
    assert (view.content, view.version, view.document, view.damage) == (None, None, None, "")


def test_another_pairs_set_is_not_this_ones() -> None:
    sets = set_of(record(9), "other") + set_of(record(5))
    assert view_of(sets).version == (5, 1) and view_of(sets, "other").version == (9, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "no attribute understudy-version"),
        ({"understudy_version": "5.1"}, "no attribute understudy-record"),
        ({"understudy_version": "5", "understudy_record": "{}"}, "understudy-version is '5'"),
        ({"understudy_version": "5.1\n", "understudy_record": "{}"}, "understudy-version is '5.1"),
        ({"understudy_version": "5.-1", "understudy_record": "{}"}, "understudy-version is '5.-1'"),
        ({"understudy_version": "5.1", "understudy_record": "{"}, "understudy-record is not JSON"),
        ({"understudy_version": "5.1", "understudy_record": "[" * 100_000}, "understudy-record is"),
        ({"understudy_version": "5.1", "understudy_record": "9" * 5000}, "not JSON: a number too long, or"),
        ({"understudy_version": "5.1", "understudy_record": "[]"}, "understudy-record is not an in-sync"),
        ({"understudy_version": "5.1", "understudy_record": "{}"}, "understudy-record is not an in-sync"),
        ({"understudy_version": "5.2", "understudy_record": json.dumps(record())}, "that of"),
    ],
)
def test_what_was_tampered_with_is_named(values: dict[str, str], words: str) -> None:
    view = view_of(pairs(**values))
    assert "cluster_property_set 'understudy'" in view.damage and words in view.damage
    assert view.version is None and view.document is None and view.content is not None
    assert len(view.damage) < 400 and "\n" not in view.damage


def test_an_attribute_twice_is_damage() -> None:
    twice = set_of(record()).replace("</cl", '<nvpair id="z" name="understudy-version" value="5.1"/></cl')
    assert "twice" in view_of(twice).damage


@pytest.mark.parametrize(
    "text", ["", "x", "<cib>", "<cib/>", "<html/>", "\x00", "<cib><configuration></cib>"]
)
def test_what_is_no_cib(text: str) -> None:
    with pytest.raises(CibError):
        read_cib(text, "understudy")


@given(st.text())
def test_any_text_is_a_cib_or_none(text: str) -> None:
    with pytest.raises(CibError):
        read_cib(text, "understudy")


XML_TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"))


@given(st.dictionaries(st.sampled_from(["understudy-version", "understudy-record", "more"]), XML_TEXT))
def test_any_attributes_are_read_or_named(values: dict[str, str]) -> None:
    view = view_of(pairs(**{name.replace("-", "_"): value for name, value in values.items()}))
    assert view.version is None and "'understudy'" in view.damage and len(view.content) == len(values)


@given(st.dictionaries(st.sampled_from(["in_ccm", "crmd", "join", "expected"]), XML_TEXT))
def test_any_words_of_a_state_are_read(state: dict[str, str]) -> None:
    quoted = " ".join(f"{name}={quoteattr(value)}" for name, value in state.items())
    xml = cib_xml({"a": MEMBER, "b": None})
    xml = xml.replace("</status>", f'<node_state id="2" uname="b" {quoted}/></status>')
    found = read_cib(xml, "understudy").nodes["b"]
    assert found is not None
    assert not (found.up and found.lost) and not (found.down and found.lost)


COUNTS = st.integers(0, 2**62 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=100)


@given(NAMES, COUNTS, COUNTS, st.from_regex(SET_ID, fullmatch=True))
def test_what_is_written_is_read_back(name: str, epoch: int, revision: int, set_id: str) -> None:
    document = record(epoch, revision) | {"names": {"a" * 8: name}}
    version = RecordVersion(epoch, revision)
    found = view_of(set_xml(set_id, version, document), set_id)
    assert (found.version, found.document, found.damage) == (version, document, "")
