"""Linear-time regular expressions match what `re` matches; invalid and too large ones are rejected."""

from __future__ import annotations

import random
import re

import pytest

from chronik.linear_regex import EXPRESSION_CHARACTERS_MAX, Pattern, PatternError

ALPHABET = "abcdxyzA09-_.]^* \n"
TEXTS = 2_000

SUPPORTED = (
    "",
    "abc",
    "a*b",
    "(a|bc)+d?",
    "[a-c]{2,3}x",
    "a{2}",
    "a{2,}",
    "x{0}y",
    "{a}",
    "a{,2}",
    r"\d+-\w*",
    r"\D\W\s|\S",
    ".*",
    "(?s).*",
    "a.b",
    "^ab?c$",
    "(^a|b$)+",
    "[^abc]+",
    "[]a]+",
    "[^]a]+",
    "[a-]+",
    r"[\d_.]+",
    r"[\W]+",
    r"[\]\-^]+",
    "(?i)aBc",
    "(?i:A)b",
    "(?i)[a-c]+",
    "(?:a|)b",
    "a||b",
    "a??b*?",
    "(?P<name>ab)+",
    r"tx\-[0-9]+(\.(a|b))?",
    r"\.\*",
    r"\n",
)

UNSUPPORTED = r"( a) [a [ *a a** a{2}{3} a{3,2} [z-a] (?=a) (?<!a) (?P<>a) (?x)a (? \1 \ |+"


def equivalent(expression: str) -> re.Pattern[str]:
    # Python's $ also matches before a final newline, and {,2} is a repetition.
    return re.compile(expression.replace("$", r"\Z").replace("{,2}", r"\{,2\}"), re.ASCII)


@pytest.mark.parametrize("expression", SUPPORTED)
def test_pattern_matches_same_texts_as_python_re(expression: str) -> None:
    rng = random.Random(expression)
    pattern, reference = Pattern(expression), equivalent(expression)
    matched = 0
    for _ in range(TEXTS):
        text = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(5)))
        assert pattern.matches(text) == bool(reference.fullmatch(text)), repr(text)
        matched += pattern.matches(text)
    assert matched < TEXTS or expression == "(?s).*"


@pytest.mark.parametrize(("expression", "text"), [("b", "abc"), ("^a", "abc"), ("c$", "abc"), ("", "abc")])
def test_pattern_occurs_in_a_text_that_contains_a_match(expression: str, text: str) -> None:
    assert Pattern(expression).occurs_in(text)
    assert not Pattern(expression).matches(text)
    assert not Pattern(expression + "x").occurs_in(text)


@pytest.mark.parametrize(("expression", "text"), [("orders-.*", "orders-7"), ("(?i)ÄB", "äb"), ("[α-ω]+", "λ")])
def test_pattern_matches_unicode_letters(expression: str, text: str) -> None:
    assert Pattern(expression).matches(text)
    assert not Pattern(expression).matches(f"{text}!\n")


@pytest.mark.parametrize("expression", UNSUPPORTED.split())
def test_unsupported_expression_is_rejected(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)


def test_expression_above_a_limit_is_rejected() -> None:
    Pattern("a" * EXPRESSION_CHARACTERS_MAX)
    Pattern("a{1000}")
    for expression in (
        "a" * (EXPRESSION_CHARACTERS_MAX + 1),
        "a{1001}",
        "(.{500}){2}" * 20,
        "(((((){1000}){1000}){1000}){1000}){1000}",
    ):
        with pytest.raises(PatternError):
            Pattern(expression)


def test_groups_contain_whole_text_first() -> None:
    assert Pattern("(a+)(b)?").groups("aa") == ("aa", "aa", "")
    assert Pattern("(a+)(b)?").groups("aac") is None
