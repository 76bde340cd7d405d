"""Every fenced block of the pages is run, or read as the settings that it is, or says why not; those are counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import BACKGROUND, FILE, NOT_RUN, ONCE_IT_WORKS, PAGES, ROOT, all_blocks, printed
from tests.docs.pages import RUN_ELSEWHERE, RUN_HERE, is_run

SHOWN = {"text", "mermaid"}
"""What is looked at: outputs, pictures, and texts that a test compares."""
SETTINGS = {"toml", "properties", "json", "ini"}
RUN = {"sh", "python"}
NEVER_RUN = {"bash", "console"}
"""Commands that no test could run as they stand there."""

NOT_RUN_MAX = 29
"""A ratchet: make it smaller when there are fewer, and have a very good reason to make it larger."""
REASON_WORDS_MIN = 2


def test_each_says_what_it_is() -> None:
    known = SHOWN | SETTINGS | RUN | NEVER_RUN
    wrong = [str(block) for block in all_blocks() if block.language not in known]
    assert wrong == [], "``` needs a language: text, if it is no code"


def test_each_mark_is_known() -> None:
    marks = {name for block in all_blocks() for name, _ in block.marks}
    assert marks == {NOT_RUN, BACKGROUND, ONCE_IT_WORKS, FILE}


def test_commands_are_run_or_say_why_not() -> None:
    commands = [block for block in all_blocks() if block.language in RUN | NEVER_RUN]
    silent = [str(block) for block in commands if not is_run(block) and not block.mark(NOT_RUN)]
    assert silent == [], "run it (tests/docs/pages.py), or say before it why not (tests/docs/blocks.py)"
    hopeless = [str(block) for block in commands if block.language in NEVER_RUN and not block.mark(NOT_RUN)]
    assert hopeless == []


def test_no_commands_hide_in_what_is_only_shown() -> None:
    hidden = [
        f"{block}: {line}"
        for block in all_blocks()
        for line in block.text.splitlines()
        if block.language == "text" and line.startswith(("$ ", "chronik ", "make ")) and not block.mark(NOT_RUN)
    ]
    assert [line for line in hidden if not line.startswith("docs/cli-reference.md")] == []


def test_what_is_not_run_becomes_less() -> None:
    reasons = {str(block): reason for block in all_blocks() if (reason := block.mark(NOT_RUN)) is not None}
    assert {where: reason for where, reason in reasons.items() if len(reason.split()) < REASON_WORDS_MIN} == {}
    assert len(reasons) == NOT_RUN_MAX, "if there are fewer by now, make NOT_RUN_MAX smaller"


def test_a_page_that_is_run_elsewhere_is_named_there() -> None:
    unnamed = [
        page
        for (page, _), test in RUN_ELSEWHERE.items()
        if f'"{Path(page).name}"' not in (ROOT / test).read_text(encoding="utf-8")
    ]
    assert unnamed == []


def test_pages_that_are_run_are_there() -> None:
    there = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {*RUN_HERE, *(page for page, _ in RUN_ELSEWHERE)} <= there


@pytest.mark.parametrize(
    ("shown", "output", "same"),
    [
        ("a\nb\n", "before\na\nb\n", True),
        ("a\nb\n", "a\nb\nafter\n", False),
        ("…denied…\n", "chronik: denied by an ACL\n", True),
        ("…denied…\n", "chronik: refused\n", False),
        ("…\nlanded: 3\n", "x\ny\nlanded: 3\n", True),
        ("b\n", "ab\n", False),
    ],
)
def test_outputs_are_compared_from_their_end(shown: str, output: str, same: bool) -> None:
    assert printed(shown, output) is same
