"""The fenced code blocks of README.md and docs/, and the HTML comments before them that control their tests:

    <!-- not run: why -->        a block that cannot be run
    <!-- in the background -->   commands that run until the end of the page
    <!-- once it works -->       commands that are retried until they succeed, because something is still starting
    <!-- file: NAME -->          the content of a file with this name

A `text` block directly after an `sh` or `python` block is its expected output; `…` matches anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
MARKS = re.compile(r"(?:^ *<!-- [^\n]*? -->\n)+\Z", re.MULTILINE)
MARK = re.compile(r"<!-- (.*?)(?:: (.*?))? -->")
NOT_RUN, BACKGROUND, ONCE_IT_WORKS, FILE = "not run", "in the background", "once it works", "file"


@dataclass(frozen=True)
class CodeBlock:
    """A fenced code block of a page."""

    page: str
    line: int
    language: str
    text: str
    marks: tuple[tuple[str, str], ...] = ()
    expected_output: str | None = None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def mark(self, name: str) -> str | None:
        return dict(self.marks).get(name)


@cache
def parse_blocks(page: Path) -> list[CodeBlock]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    blocks = []
    for number, fence in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        is_output = following and following[2] == "text" and not text[fence.end() : following.start()].strip()
        blocks.append(
            CodeBlock(
                page.relative_to(ROOT).as_posix(),
                text.count("\n", 0, fence.start()) + 1,
                fence[2],
                _dedent(fence),
                _marks_before(text[: fence.start()]),
                _dedent(following) if following and is_output and fence[2] in ("sh", "python") else None,
            )
        )
    return blocks


def _dedent(fence: re.Match[str]) -> str:
    """Return the text of a block without the indentation of a list item."""
    return re.sub(rf"^{fence[1]}", "", fence[3], flags=re.MULTILINE)


def _marks_before(text: str) -> tuple[tuple[str, str], ...]:
    comments = MARKS.search(text)
    return tuple((name, value or "") for name, value in MARK.findall(comments[0])) if comments else ()


def all_blocks() -> list[CodeBlock]:
    found = [block for page in PAGES for block in parse_blocks(page)]
    assert len(found) > 100
    return found


def ends_with_output(expected: str, output: str) -> bool:
    """Return whether the output ends with the expected text."""
    pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("…")))
    return re.search(rf"(?:\A|\n){pattern}\n?\Z", output, re.DOTALL) is not None


AUTHORIZER_CONFIG = {"broker": {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}}

PAGES_RUN_HERE: dict[str, dict[str, Any] | None] = {
    "README.md": None,
    "docs/get-started/quick-start.md": None,
    "docs/get-started/tutorial.md": None,
    "docs/guides/backfill.md": {},
    "docs/guides/iceberg.md": {},
    "docs/guides/schema-registry.md": None,
    "docs/guides/schemas.md": {},
    "docs/guides/typed-tables.md": None,
    "docs/operate/cluster.md": None,
    "docs/operate/health.md": {},
    "docs/operate/monitoring.md": {},
    "docs/operate/security.md": AUTHORIZER_CONFIG,
}
"""Pages run by `test_docs_pages`, and the config of the broker that each needs, if any."""

PAGES_RUN_ELSEWHERE = {
    ("docs/reference/admin-api.md", "sh"): "tests/docs/test_docs_admin_api.py",
    ("docs/reference/schema-registry-api.md", "sh"): "tests/docs/test_docs_schema_registry_api.py",
    ("docs/operate/apply.md", "sh"): "tests/cli/apply/test_docs_apply.py",
    ("docs/operate/backup.md", "sh"): "tests/cli/migration/test_docs_backup.py",
    ("docs/guides/command-line.md", "sh"): "tests/cli/records/test_docs_command_line.py",
    ("docs/guides/from-apache-kafka.md", "sh"): "tests/migration/test_mirror_maker.py",
    (
        "docs/guides/from-confluent-schema-registry.md",
        "sh",
    ): "tests/cli/schemas/test_docs_from_confluent_schema_registry.py",
    ("docs/guides/from-spark-kafka.md", "python"): "tests/pipeline/spark/test_docs_from_spark_kafka.py",
    ("docs/operate/operations.md", "sh"): "tests/cli/cluster/test_docs_operations.py",
    ("docs/guides/orchestration.md", "python"): "tests/pipeline/landing/test_docs_orchestration.py",
    ("docs/guides/orchestration.md", "sh"): "tests/pipeline/landing/test_docs_orchestration.py",
    ("docs/guides/pipeline.md", "python"): "tests/pipeline/spark/test_docs_pipeline.py",
    ("docs/operate/security.md", "sh"): "tests/cli/test_docs_security.py",
    ("docs/guides/tables-on-s3.md", "python"): "tests/pipeline/object_store/test_docs_tables_on_s3.py",
    ("docs/guides/tables-on-s3.md", "sh"): "tests/pipeline/object_store/test_docs_tables_on_s3.py",
    ("docs/guides/testing.md", "python"): "tests/testing/test_plugin.py",
    ("docs/guides/transactions.md", "python"): "tests/docs/test_docs_transactions.py",
    ("docs/operate/upgrading.md", "sh"): "tests/feature_levels/test_upgrade_procedure.py",
}
"""Pages run by other tests, all blocks of a language.

Of docs/operate/security.md, only the first block is run elsewhere.
"""


def is_run(block: CodeBlock) -> bool:
    has_test = block.page in PAGES_RUN_HERE or (block.page, block.language) in PAGES_RUN_ELSEWHERE
    return has_test and block.mark(NOT_RUN) is None
