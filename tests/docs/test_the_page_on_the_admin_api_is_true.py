"""docs/admin-api.md: its commands, against a node where people log in and against an open one."""

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
USUAL = "127.0.0.1:6092"
STRICT = 'set -e\ncurl() { command curl --silent --show-error --fail-with-body "$@"; }\n'


def blocks() -> tuple[list[str], list[str]]:
    """Those in which somebody logs in, and the others."""
    page = [block.text for block in all_blocks() if block.page == f"docs/{PAGE}" and block.language == "sh"]
    return [text for text in page if "wonderland" in text], [text for text in page if "wonderland" not in text]


def follow(commands: list[str], http: str, folder: Path) -> str:
    script = STRICT + "\n".join(commands).replace(USUAL, http)
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_script_logs_in(tmp_path: Path) -> None:
    with_login, _ = blocks()
    assert len(with_login) == 2
    http = f"{HOST}:{ReservedPorts(1).ports[0]}"
    with SecuredBroker(tls=False, rights=False, users={"alice": "wonderland"}, http=http):
        assert '"nodes"' in follow(with_login, http, tmp_path)


def test_topics_and_messages_are_made_read_and_found(tmp_path: Path) -> None:
    _, open_to_all = blocks()
    assert len(open_to_all) == 1
    http = f"{HOST}:{ReservedPorts(1).ports[0]}"
    with Broker(http=http):
        told = follow(open_to_all, http, tmp_path)
    assert '"done":true' in told
    assert "event: match" in told
