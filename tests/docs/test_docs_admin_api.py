"""The commands in docs/reference/admin-api.md, on a node with logins and on an open node."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chronik.testing import Broker
from chronik.testing.ports import HOST, ReservedPorts
from chronik.testing.secured import SecuredBroker
from tests.docs.blocks import all_blocks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

PAGE = "admin-api.md"
DOCUMENTED_ADDRESS = "127.0.0.1:6092"
CURL_FUNCTION = 'set -e\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'


def blocks() -> tuple[list[str], list[str]]:
    """Return the blocks with a login, and the others."""
    page = [block.text for block in all_blocks() if block.page == f"docs/reference/{PAGE}" and block.language == "sh"]
    return [text for text in page if "wonderland" in text], [text for text in page if "wonderland" not in text]


def run_commands(commands: list[str], http: str, directory: Path) -> str:
    script = CURL_FUNCTION + "\n".join(commands).replace(DOCUMENTED_ADDRESS, http)
    completed = subprocess.run(
        ["bash", "-c", script], cwd=directory, capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def test_admin_api_login_commands(tmp_path: Path) -> None:
    with_login, _ = blocks()
    assert len(with_login) == 2
    http = f"{HOST}:{ReservedPorts(1).ports[0]}"
    with SecuredBroker(tls=False, acls=False, users={"alice": "wonderland"}, http=http):
        assert '"nodes"' in run_commands(with_login, http, tmp_path)


def test_admin_api_topic_and_message_commands(tmp_path: Path) -> None:
    _, without_login = blocks()
    assert len(without_login) == 3
    http = f"{HOST}:{ReservedPorts(1).ports[0]}"
    with Broker(http=http):
        output = run_commands(without_login, http, tmp_path)
    assert '"done":true' in output
    assert "event: match" in output
    shown = output.count('"key":{"kind":"text","text":"4711"')
    assert shown == 3, "by the page, the search and the condition"
