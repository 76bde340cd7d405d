"""The admin package is independent of Kafka's protocol messages and of the API layer."""

from __future__ import annotations

import ast
from pathlib import Path

import chronik.admin

PROTOCOL_PACKAGES = ("chronik.protocol.messages", "chronik.protocol.schema", "chronik.protocol.codec", "chronik.api")


def test_admin_modules_import_no_protocol_messages() -> None:
    (package,) = map(Path, chronik.admin.__path__)
    modules = list(package.glob("*.py"))
    assert len(modules) > 5
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(PROTOCOL_PACKAGES), f"{module.name}:{node.lineno}"
