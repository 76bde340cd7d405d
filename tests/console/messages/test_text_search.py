from __future__ import annotations

import json
import random

import pytest

from chronik.console.messages.text_search import WINDOW_BYTES, TextPattern, unescape_json


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("Grünwald", '{"name":"Grünwald"}'),
        ("grünwald", '{"name":"GRÜNWALD"}'),
        ("Grünwald", json.dumps({"name": "Grünwald"})),
        ("Grünwald", '{"name":"Gr\\u00FCnwald"}'),
        ("Grünwald", "Gru\u0308nwald"),
        ("Gru\u0308nwald", "Grünwald"),
        ("strasse", "Straße"),
        ("STRASSE", json.dumps("Straße")),
        ("kelvin", "\u212aelvin"),
        ("office", "o\ufb03ce"),
        ("😀", json.dumps("😀")),
        ('say "hi"', json.dumps({"text": 'say "hi"'})),
        ('{"a": 1}', '{"a": 1}'),
        ("\\u00fc", '"\\u00fc"'),
        ("line\nbreak", json.dumps("line\nbreak")),
        ("MIXED", "miXed"),
        ("a", "\\u0061"),
    ],
)
def test_text_is_found_regardless_of_case_and_encoding(text: str, data: str) -> None:
    pattern = TextPattern(text)
    assert pattern.matches(data.encode())
    assert pattern.may_match(data.encode())


@pytest.mark.parametrize(("text", "data"), [("Grünwald", "Grunwald"), ("ab", "a b"), ("u", "\\v00fc"), ("x", "")])
def test_other_text_is_not_found(text: str, data: str) -> None:
    assert not TextPattern(text).matches(data.encode())


def test_text_is_found_at_every_position_relative_to_a_window() -> None:
    for form in ("Grünwald", json.dumps("Grünwald")[1:-1], "GRÜNWALD"):
        for start in (*range(WINDOW_BYTES - 60, WINDOW_BYTES + 3), 2 * WINDOW_BYTES - 4):
            data = b"x" * start + form.encode() + b"y" * 100
            assert TextPattern("Grünwald").matches(data), (form, start)


def test_binary_data_is_searched() -> None:
    assert TextPattern("key").matches(b"\xff\x00KEY\xfe")
    assert not TextPattern("other").matches(b"\xff\x00KEY\xfe")


def test_data_that_cannot_match_is_skipped() -> None:
    assert not TextPattern("needle").may_match(b"\x02\xffhay" * 1000)


def test_skipped_data_never_matches() -> None:
    pick = random.Random(7)
    characters = 'aAsSkKßſ\u212aiIİıﬁfF\\u0041"üÜ'
    for _ in range(3000):
        text = "".join(pick.choices(characters, k=pick.randint(1, 2)))
        data = "".join(pick.choices(characters, k=pick.randint(0, 6))).encode()
        pattern = TextPattern(text)
        assert pattern.may_match(data) or not pattern.matches(data), (text, data)


def test_invalid_escapes_are_kept() -> None:
    assert unescape_json(r"\x \u12 \\n \ud83d \u0041") == "\\x \\u12 \\n \ufffd A"
