"""The real cibadmin on a file: that what this authority rests on is a compare-and-set, and says so by its
exit code.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ha.core.record.in_sync_record import RecordVersion
from ha.pacemaker import codes, commands
from ha.pacemaker.cib import read_cib
from ha.pacemaker.driver import search_path
from ha.pacemaker.helper import carry_out
from ha.pacemaker.procedure import (
    EXISTS,
    NO_SUCH,
    CibAnswer,
    CreateSet,
    QueryCib,
    RaiseAdminEpoch,
    Register,
    ReplaceSet,
    read,
    swap,
)
from tests.ha.pacemaker.cibs import DOWN, MEMBER, cib_xml, record, set_of, version_of

pytestmark = pytest.mark.skipif(
    shutil.which("cibadmin", path=search_path()) is None, reason="no cibadmin here (pacemaker-cli-utils)"
)
A = Register("a")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CIB, which cibadmin works on instead of a cluster's."""
    path = tmp_path / "cib.xml"
    path.write_text(cib_xml({"a": MEMBER, "b": DOWN}))
    monkeypatch.setenv("CIB_file", str(path))
    monkeypatch.setenv("PATH", search_path())
    return path


def code(command: CreateSet | ReplaceSet | RaiseAdminEpoch) -> int | None:
    return commands.run([command], 10)[0].code


def held(path: Path) -> dict[str, Any] | None:
    return read_cib(path.read_text(), "understudy").document


def patiently(procedure: Any) -> CibAnswer:
    return carry_out(procedure, time.monotonic() + 30)


def test_create_once(file: Path) -> None:
    assert code(CreateSet("understudy", set_of(record()))) == 0
    assert code(CreateSet("understudy", set_of(record(6)))) == EXISTS
    assert held(file) == record()


def test_replace_only_what_was_expected(file: Path) -> None:
    first, second = record(5, 1), record(5, 2, "a", "b")
    assert code(ReplaceSet("understudy", version_of(first), set_of(second))) == NO_SUCH
    code(CreateSet("understudy", set_of(first)))
    assert code(ReplaceSet("understudy", version_of(record(5, 11)), set_of(second))) == NO_SUCH
    assert held(file) == first
    assert code(ReplaceSet("understudy", version_of(first), set_of(second))) == 0
    assert held(file) == second
    assert code(ReplaceSet("understudy", version_of(first), set_of(first))) == NO_SUCH


def test_other_sets_are_left_alone(file: Path) -> None:
    others = {name: record(epoch) for name, epoch in (("understudy", 5), ("second", 7))}
    for set_id, document in others.items():
        assert code(CreateSet(set_id, set_of(document, set_id))) == 0
    newer = record(7, 2)
    assert code(ReplaceSet("second", version_of(others["second"]), set_of(newer, "second"))) == 0
    text = file.read_text()
    assert read_cib(text, "understudy").document == others["understudy"]
    assert read_cib(text, "second").document == newer
    assert 'name="stonith-enabled" value="true"' in text


def test_the_procedure_from_nothing_on(file: Path) -> None:
    assert patiently(read(A)) == CibAnswer("done", None, codes.AGREED.say())
    assert patiently(swap(A, None, record())).outcome == "done"
    assert patiently(swap(A, None, record())) == CibAnswer(
        "conflict", record(), codes.CONFLICT.say(held="version 5.1")
    )
    awkward = record(5, 2) | {"names": {"a" * 8: "\"<&'\\ é\n" + "x" * 90}}
    assert patiently(swap(A, version_of(record()), awkward)).outcome == "done"
    assert patiently(read(A)).record == awkward == held(file)


def test_a_tampered_attribute_is_named_and_nothing_is_lost(file: Path) -> None:
    patiently(swap(A, None, record()))
    words = ["--modify", "--xpath", "//nvpair[@name='understudy-version']", "--xml-text", "<nvpair/>"]
    words[-1] = '<nvpair id="understudy-understudy-version" value="five"/>'
    subprocess.run(["cibadmin", *words], check=True, timeout=10)
    before = file.read_text()
    for procedure in (read(A), swap(A, version_of(record()), record(5, 2)), swap(A, None, record(5, 2))):
        answer = patiently(procedure)
        assert answer.outcome == "unknown"
        assert answer.said.code == codes.RECORD_DAMAGED.name and "'five'" in answer.said.sentence
    assert file.read_text() == before


def test_a_set_that_was_deleted_is_gone(file: Path) -> None:
    patiently(swap(A, None, record()))
    gone = ["cibadmin", "--delete", "--xml-text", '<cluster_property_set id="understudy"/>']
    subprocess.run(gone, check=True, timeout=10)
    assert patiently(read(A)).record is None
    assert patiently(swap(A, version_of(record()), record(5, 2))).outcome == "conflict"


def test_a_query_is_the_whole_cib(file: Path) -> None:
    (result,) = commands.run([QueryCib()], 10)
    assert read_cib(result.output, "understudy").nodes == read_cib(file.read_text(), "understudy").nodes


def test_the_admin_epoch_is_raised_in_a_copy_that_is_as_expected_only(file: Path) -> None:
    def raised(*, node: str = "a", admin_epoch: int = 0, version: RecordVersion | None = None) -> int | None:
        epoch = read_cib(file.read_text(), "understudy").epoch
        return code(RaiseAdminEpoch(node, "understudy", admin_epoch, epoch, version))

    first = record()
    assert raised(node="b") == raised(version=version_of(first)) == raised(admin_epoch=1) == NO_SUCH
    assert raised() == 0 and read_cib(file.read_text(), "understudy").admin_epoch == 1
    assert code(CreateSet("understudy", set_of(first))) == 0
    assert raised(admin_epoch=1) == raised(admin_epoch=1, version=version_of(record(5, 2))) == NO_SUCH
    assert raised(admin_epoch=1, version=version_of(first)) == 0
    view = read_cib(file.read_text(), "understudy")
    assert view.admin_epoch == 2 and view.document == first
    assert code(RaiseAdminEpoch("a", "understudy", 2, view.epoch + 1, version_of(first))) == NO_SUCH


def test_a_file_that_is_no_cib_is_unknown(file: Path) -> None:
    file.write_text("<html/>")
    answer = patiently(read(A))
    assert (answer.outcome, answer.said.code) == ("unknown", codes.UNREADABLE.name)
