"""Which test runs the code blocks of which page."""

from __future__ import annotations

from typing import Any

from tests.docs.blocks import NOT_RUN, CodeBlock

AUTHORIZER_CONFIG = {"broker": {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}}

PAGES_RUN_HERE: dict[str, dict[str, Any] | None] = {
    "README.md": None,
    "docs/get-started/quick-start.md": None,
    "docs/get-started/tutorial.md": None,
    "docs/operate/cluster.md": None,
    "docs/operate/monitoring.md": {},
    "docs/operate/security.md": AUTHORIZER_CONFIG,
}
"""Pages run by `test_docs_pages`, and the config of the broker that each needs, if any."""

PAGES_RUN_ELSEWHERE = {
    ("docs/reference/admin-api.md", "sh"): "tests/docs/test_docs_admin_api.py",
    ("docs/operate/apply.md", "sh"): "tests/cli/apply/test_docs_apply.py",
    ("docs/operate/backup.md", "sh"): "tests/cli/migration/test_docs_backup.py",
    ("docs/guides/command-line.md", "sh"): "tests/cli/records/test_docs_command_line.py",
    ("docs/guides/from-apache-kafka.md", "sh"): "tests/migration/test_mirror_maker.py",
    ("docs/operate/operations.md", "sh"): "tests/cli/cluster/test_docs_operations.py",
    ("docs/guides/pipeline.md", "python"): "tests/pipeline/spark/test_the_page_on_the_pipeline_is_true.py",
    ("docs/operate/security.md", "sh"): "tests/cli/test_docs_security.py",
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
