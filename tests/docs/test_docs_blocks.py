"""Every code block of the docs is run, parsed as settings, or marked with the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import (
    BACKGROUND,
    FILE,
    NOT_RUN,
    ONCE_IT_WORKS,
    PAGES,
    PAGES_RUN_ELSEWHERE,
    PAGES_RUN_HERE,
    ROOT,
    all_blocks,
    ends_with_output,
    is_run,
)

DISPLAY_ONLY = {"text", "mermaid"}
"""Languages that are only displayed: outputs, diagrams, and texts that a test compares."""
SETTINGS = {"toml", "properties", "json", "ini"}
RUN = {"sh", "python"}
NEVER_RUN = {"bash", "console"}
"""Languages of commands that no test can run."""
FILES = {"sql", "yaml"}
"""Languages of files that the commands of a page use."""

NOT_RUN_MAX = 38
"""A ratchet: decrease it when there are fewer; increase it only with a very good reason."""
REASON_WORDS_MIN = 2


def test_every_block_has_a_known_language() -> None:
    known = DISPLAY_ONLY | SETTINGS | RUN | NEVER_RUN | FILES
    wrong = [str(block) for block in all_blocks() if block.language not in known]
    assert wrong == [], "every ``` needs a language; use text for anything that is not code"


def test_blocks_of_files_have_a_name() -> None:
    files = [block for block in all_blocks() if block.language in FILES]
    assert [str(block) for block in files if not block.mark(FILE) and not block.mark(NOT_RUN)] == []


def test_every_block_mark_is_known() -> None:
    marks = {name for block in all_blocks() for name, _ in block.marks}
    assert marks == {NOT_RUN, BACKGROUND, ONCE_IT_WORKS, FILE}


def test_command_blocks_are_run_or_marked_with_a_reason() -> None:
    commands = [block for block in all_blocks() if block.language in RUN | NEVER_RUN]
    without_reason = [str(block) for block in commands if not is_run(block) and not block.mark(NOT_RUN)]
    assert without_reason == [], (
        "run the block (tests/docs/pages.py), or give a reason before it (tests/docs/blocks.py)"
    )
    never_run_without_reason = [
        str(block) for block in commands if block.language in NEVER_RUN and not block.mark(NOT_RUN)
    ]
    assert never_run_without_reason == []


def test_text_blocks_contain_no_commands() -> None:
    hidden = [
        f"{block}: {line}"
        for block in all_blocks()
        for line in block.text.splitlines()
        if block.language == "text" and line.startswith(("$ ", "chronik ", "make ")) and not block.mark(NOT_RUN)
    ]
    assert [line for line in hidden if not line.startswith("docs/reference/cli-reference.md")] == []


def test_number_of_unrun_blocks_does_not_grow() -> None:
    reasons = {str(block): reason for block in all_blocks() if (reason := block.mark(NOT_RUN)) is not None}
    assert {where: reason for where, reason in reasons.items() if len(reason.split()) < REASON_WORDS_MIN} == {}
    assert len(reasons) == NOT_RUN_MAX, "if there are fewer, decrease NOT_RUN_MAX"


def test_tests_of_pages_name_their_page() -> None:
    unnamed = [
        page
        for (page, _), test in PAGES_RUN_ELSEWHERE.items()
        if f'"{Path(page).name}"' not in (ROOT / test).read_text(encoding="utf-8")
    ]
    assert unnamed == []


def test_tested_pages_exist() -> None:
    existing_pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {*PAGES_RUN_HERE, *(page for page, _ in PAGES_RUN_ELSEWHERE)} <= existing_pages


@pytest.mark.parametrize(
    ("expected", "output", "is_match"),
    [
        ("a\nb\n", "before\na\nb\n", True),
        ("a\nb\n", "a\nb\nafter\n", False),
        ("…denied…\n", "chronik: denied by an ACL\n", True),
        ("…denied…\n", "chronik: rejected\n", False),
        ("…\nlanded: 3\n", "x\ny\nlanded: 3\n", True),
        ("b\n", "ab\n", False),
    ],
)
def test_expected_output_is_matched_at_end_of_output(expected: str, output: str, is_match: bool) -> None:
    assert ends_with_output(expected, output) is is_match
