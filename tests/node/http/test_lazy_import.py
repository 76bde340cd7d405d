"""Lazy import of the console: a node whose HTTP port is not used imports nothing of it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60

START_AND_ASK = """
import asyncio, json, sys
from chronik.config import Address, load_config
from chronik.node.node import Node

WATCHED = ("h11", "chronik.console", "chronik.client", "chronik.console.rest", "chronik.console.rest.operation_table",
           "chronik.console.web.static_files")

def loaded():
    return [name for name in WATCHED if name in sys.modules]

async def ask(node, path):
    host, port = node.http.url.partition("://")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])

async def main():
    how = {"http_default": Address("127.0.0.1", 0)} if sys.argv[2] == "default" else {"http": "127.0.0.1:0"}
    node = Node(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0", **how))
    await node.start()
    seen = [["start", 0, loaded()]]
    for path in ("/healthz", "/metrics", "/status", "/api/v1/session"):
        status = await ask(node, path)
        seen.append([path, status, loaded()])
    await node.stop()
    print(json.dumps(seen))

asyncio.run(main())
"""


def imported_modules(folder: Path, how: str) -> list[tuple[str, int, list[str]]]:
    finished = subprocess.run(
        [sys.executable, "-c", START_AND_ASK, str(folder), how],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return [tuple(each) for each in json.loads(finished.stdout)]


def test_default_http_port_imports_nothing_at_start(tmp_path: Path) -> None:
    start, *pages, api = imported_modules(tmp_path / "data", "default")
    assert start == ("start", 0, [])
    for page in pages:
        assert page[1:] == (200, ["h11", "chronik.console"])
    assert api[1] == 200
    assert "chronik.console.rest.operation_table" in api[2]


def test_status_pages_do_not_import_rest_api(tmp_path: Path) -> None:
    start, *pages, api = imported_modules(tmp_path / "data", "configured")
    for page in (start, *pages):
        assert page[2] == ["h11", "chronik.console"]
    assert api[1] == 200


def test_port_in_use_fails_start_only_if_configured(tmp_path: Path) -> None:
    script = """
import asyncio, sys
from chronik.config import Address, load_config
from chronik.node.node import Node

async def main():
    taken = Address("127.0.0.1", int(sys.argv[2]))
    node = Node(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0", http_default=taken))
    await node.start()
    print(node.http.url)
    await node.stop()
    node = Node(load_config(None, {}, data_dir=sys.argv[1], kafka="127.0.0.1:0", http=str(taken)))
    try:
        await node.start()
    except OSError as error:
        print(error)

asyncio.run(main())
"""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finished = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "data"), str(port)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
    first, second = finished.stdout.splitlines()
    assert first == "None"
    assert str(port) in second
