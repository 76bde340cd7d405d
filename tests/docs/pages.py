"""Which test runs the code blocks of which page."""

from __future__ import annotations

from typing import Any

from tests.docs.blocks import NOT_RUN, CodeBlock

AUTHORIZER_CONFIG = {"broker": {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}}

PAGES_RUN_HERE: dict[str, dict[str, Any] | None] = {
    "README.md": None,
    "docs/quick-start.md": None,
    "docs/tutorial.md": None,
    "docs/cluster.md": None,
    "docs/security.md": AUTHORIZER_CONFIG,
}
"""Pages run by `test_docs_pages`, and the config of the broker that each needs, if any."""

PAGES_RUN_ELSEWHERE = {
    ("docs/admin-api.md", "sh"): "tests/docs/test_docs_admin_api.py",
    ("docs/apply.md", "sh"): "tests/cli/apply/test_docs_apply.py",
    ("docs/backup.md", "sh"): "tests/cli/migration/test_docs_backup.py",
    ("docs/command-line.md", "sh"): "tests/cli/records/test_docs_command_line.py",
    ("docs/from-apache-kafka.md", "sh"): "tests/migration/test_mirror_maker.py",
    ("docs/operations.md", "sh"): "tests/cli/cluster/test_docs_operations.py",
    ("docs/pipeline.md", "python"): "tests/pipeline/spark/test_the_page_on_the_pipeline_is_true.py",
    ("docs/security.md", "sh"): "tests/cli/test_docs_security.py",
    ("docs/testing.md", "python"): "tests/testing/test_plugin.py",
    ("docs/transactions.md", "python"): "tests/docs/test_docs_transactions.py",
    ("docs/upgrading.md", "sh"): "tests/feature_levels/test_upgrade_procedure.py",
}
"""Pages run by other tests, all blocks of a language. Of docs/security.md, only the first block is run elsewhere."""


def is_run(block: CodeBlock) -> bool:
    has_test = block.page in PAGES_RUN_HERE or (block.page, block.language) in PAGES_RUN_ELSEWHERE
    return has_test and block.mark(NOT_RUN) is None
