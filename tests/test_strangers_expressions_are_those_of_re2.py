"""Regular expressions that strangers send match what Python's own match; what cannot be understood, or would take too
much, is refused."""

from __future__ import annotations

import random
import re

import pytest

from chronik.patterns import CHARACTERS_MAX, DEPTH_MAX, PARTS_MAX, REPEATED_MAX, Pattern, PatternError

ALPHABET = "abcdxyzA09-_.]^* \n"
TEXTS = 2_000

UNDERSTOOD = (
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

MISUNDERSTOOD = r"( a) [a [ *a a** a{2}{3} a{3,2} [z-a] (?=a) (?<!a) (?P<>a) (?x)a (? \b \1 \pL \ [[:alpha:]] |+"


def equivalent(expression: str) -> re.Pattern[str]:
    # Python's $ also stands before a line's end at the end of the text, and its { } may begin at 0.
    return re.compile(expression.replace("$", r"\Z").replace("{,2}", r"\{,2\}"), re.ASCII)


@pytest.mark.parametrize("expression", UNDERSTOOD)
def test_expressions_match_what_pythons_own_match(expression: str) -> None:
    chance = random.Random(expression)
    ours, theirs = Pattern(expression), equivalent(expression)
    matched = 0
    for _ in range(TEXTS):
        text = "".join(chance.choice(ALPHABET) for _ in range(chance.randrange(5)))
        assert ours.matches(text) == bool(theirs.fullmatch(text)), repr(text)
        matched += ours.matches(text)
    assert matched < TEXTS or expression == "(?s).*"


@pytest.mark.parametrize(("expression", "text"), [("orders-.*", "orders-7"), ("(?i)ÄB", "äb"), ("[α-ω]+", "λ")])
def test_names_of_all_letters_are_matched(expression: str, text: str) -> None:
    assert Pattern(expression).matches(text)
    assert not Pattern(expression).matches(f"{text}!\n")


@pytest.mark.parametrize("expression", MISUNDERSTOOD.split())
def test_what_cannot_be_understood_is_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        Pattern(expression)


def test_what_would_take_too_much_is_refused() -> None:
    Pattern("a" * CHARACTERS_MAX)
    Pattern("(" * (DEPTH_MAX - 1) + ")" * (DEPTH_MAX - 1))
    Pattern(f"a{{{REPEATED_MAX}}}")
    for expression in (
        "a" * (CHARACTERS_MAX + 1),
        "(" * DEPTH_MAX + ")" * DEPTH_MAX,
        f"a{{{REPEATED_MAX + 1}}}",
        f"(a{{{REPEATED_MAX}}}){{{PARTS_MAX // REPEATED_MAX}}}",
        "(((((){1000}){1000}){1000}){1000}){1000}",
    ):
        with pytest.raises(PatternError):
            Pattern(expression)


def test_a_long_text_leaves_turns_to_others() -> None:
    steps = Pattern("(a|b|.c){100,}").match_in_steps("ab" * 200)
    assert len(list(steps)) > 10
