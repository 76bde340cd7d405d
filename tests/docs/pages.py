"""Which test runs the blocks of which page."""

from __future__ import annotations

from typing import Any

from tests.docs.blocks import NOT_RUN, Block

RIGHTS = {"broker": {"authorizer.class.name": "standard", "super.users": "User:ANONYMOUS"}}

RUN_HERE: dict[str, dict[str, Any] | None] = {
    "README.md": None,
    "docs/quick-start.md": None,
    "docs/tutorial.md": None,
    "docs/cluster.md": None,
    "docs/security.md": RIGHTS,
}
"""By `test_pages_do_what_they_say`, with the config of a broker that must be there, if there must be one."""

RUN_ELSEWHERE = {
    ("docs/admin-api.md", "sh"): "tests/docs/test_the_page_on_the_admin_api_is_true.py",
    ("docs/apply.md", "sh"): "tests/cli/applying/test_the_page_on_apply_is_true.py",
    ("docs/backup.md", "sh"): "tests/cli/moving/test_what_is_said_of_backups_is_run.py",
    ("docs/command-line.md", "sh"): "tests/cli/records/test_the_page_on_the_command_line_is_true.py",
    ("docs/from-apache-kafka.md", "sh"): "tests/moving/test_topics_come_from_apache_kafka.py",
    ("docs/operations.md", "sh"): "tests/cli/cluster/test_the_page_for_operators_is_true.py",
    ("docs/pipeline.md", "python"): "tests/pipeline/spark/test_the_page_on_the_pipeline_is_true.py",
    ("docs/security.md", "sh"): "tests/cli/test_the_page_on_security_is_true.py",
    ("docs/testing.md", "python"): "tests/testing/test_a_test_run_gets_its_broker.py",
    ("docs/transactions.md", "python"): "tests/docs/test_the_loop_of_transactions_is_true.py",
    ("docs/upgrading.md", "sh"): "tests/levels/test_operators_upgrade_and_go_back.py",
}
"""By tests of their own, all blocks of a language; of docs/security.md only the first, the others are run here."""


def is_run(block: Block) -> bool:
    known = block.page in RUN_HERE or (block.page, block.language) in RUN_ELSEWHERE
    return known and block.mark(NOT_RUN) is None
