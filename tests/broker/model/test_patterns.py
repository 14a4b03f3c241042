"""Regular expressions of policies and permissions: Perl syntax, as in RabbitMQ."""

from __future__ import annotations

import pytest

from broker.model.patterns import HITS, Matching, PatternFault, check_pattern, matches


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


def test_in_one_evaluation_a_pattern_reaches_the_limit_a_few_times_at_most() -> None:
    matching = Matching()
    hard = ["a" * 254 + f"!{number}" for number in range(HITS)]
    assert matching.matches("^(a+)+$", "aaa")
    assert not any(matching.matches("^(a+)+$", name) for name in hard[1:])
    assert not matching.given_up and matching.matches("^(a+)+$", "aaa")
    assert not matching.matches("^(a+)+$", hard[0])
    assert matching.given_up == {"^(a+)+$"}
    assert not matching.matches("^(a+)+$", "aaa")
    assert matching.matches("^a+$", "aaa")
