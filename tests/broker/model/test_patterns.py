"""Regular expressions of policies and permissions: Perl syntax, as in RabbitMQ."""

from __future__ import annotations

import subprocess
import sys

import pytest

from broker.model.patterns import Matching, PatternFault, check_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "some", "others"),
    [
        (r"^tmp[[:digit:]]+$", ["tmp42"], ["tmp", "tmpd", "tmp:"]),
        (r"^[[:^alpha:]]$", ["1", "."], ["a"]),
        (r"\Qa.b\E", ["xa.b"], ["aab"]),
        (r"^a\z|^\h$", ["a", " ", "\t"], ["h", "b"]),
        (r"^a(?i)b", ["ab", "aB"], ["Ab"]),
        (r"^a++b(?>c|cd)e$", ["aabce"], ["abcde"]),
        (r"^[a&&b[c]$", ["a", "&", "["], ["d"]),
        (r"^...$", ["abc", "é1"], ["ab"]),
        (r"^\w$", ["a"], ["é"]),
        ("", [""], ["a"]),
        ("^$", [""], ["a"]),
        ("^amq", ["amq.gen-x"], ["my.amq"]),
    ],
)
def test_they_are_perls(
    pattern: str, some: list[str], others: list[str], recwarn: pytest.WarningsRecorder
) -> None:
    check_pattern(pattern)
    assert [name for name in some + others if matches(pattern, name)] == some
    assert not recwarn.list


@pytest.mark.parametrize(
    "pattern", ["(unclosed", "*", "[z-a]", r"\p{Nope}", r"\1", "(" * 300 + ")" * 300, "(?P<a"]
)
def test_an_invalid_pattern_is_refused_and_matches_nothing_if_stored(pattern: str) -> None:
    with pytest.raises(PatternFault, match=r"^at position \d+; [^\n]+$"):
        check_pattern(pattern)
    assert not matches(pattern, "unclosed")


def test_one_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(PatternFault, match=r"^it is not Unicode$"):
        check_pattern("\ud800")
    assert not matches("\ud800", "unclosed")


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", r"^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_one_that_would_take_for_ever_matches_nothing(pattern: str) -> None:
    assert not matches(pattern, "a" * 254 + "!")


def test_names_that_reach_the_limit_are_told_and_change_no_other_result() -> None:
    matching = Matching()
    hard = ["a" * 60 + f"!{number}" for number in range(30)]
    assert not any(matching.matches("^(a+)+$", name) for name in hard)
    assert matching.given_up == {"^(a+)+$": hard}
    assert matching.matches("^(a+)+$", "aaa") and matching.matches("^a+$", "aaa")


@pytest.mark.parametrize(
    "limit", ["", "(*LIMIT_MATCH=4000000000)", "(*NO_JIT)(*LIMIT_MATCH=4000000000)(*ANY)"]
)
def test_a_pattern_cannot_raise_the_limit(limit: str) -> None:
    matching = Matching()
    assert not matching.matches(limit + "^(a+)+$", "a" * 20 + "!")
    assert matching.given_up


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"^([a-z0-9_-]+\.)+(retry|dlx)$", "a.b." * 62 + "a.retry"),
        (r"^.*\.(retry|error|dead)\..*$", "." * 240 + ".dead.letters"),
        (r"^(?!(amq\.|.*\.tmp$)).+$", "t" * 255),
        (r".*a.*b$", "ab" * 127),
        (r"^([a-z]+[.-]?)+$", "orders-" * 36 + "b"),
        (r"^.*-.*-.*-x$", "-" * 253 + "-x"),
    ],
)
def test_patterns_in_use_match_the_longest_names_within_the_limit(pattern: str, name: str) -> None:
    assert matches(pattern, name)


def test_a_pattern_of_many_groups_is_given_up_soon() -> None:
    matching = Matching()
    pattern = "(?:" + "(a?)" * 600 + ")*[bc]$"
    assert not matching.matches(pattern, "a" * 255)
    assert matching.given_up


_NO_NEW_CODE = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN
    sys.exit(77)
from broker.model.patterns import check_pattern, matches
check_pattern("^q[0-9]$")
assert matches("^q[0-9]$", "q1")
"""


def test_patterns_work_where_new_machine_code_is_forbidden() -> None:
    """`MemoryDenyWriteExecute=` of the systemd units."""
    done = subprocess.run([sys.executable, "-c", _NO_NEW_CODE], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this kernel has no PR_SET_MDWE")
    assert done.returncode == 0, done.stderr
