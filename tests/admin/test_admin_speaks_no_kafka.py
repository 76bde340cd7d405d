"""What administration does can be asked for by anybody: it knows nothing of Kafka's messages, nor of who sends them."""

from __future__ import annotations

import ast
from pathlib import Path

import chronik.admin

OF_KAFKAS_MESSAGES = ("chronik.protocol.messages", "chronik.protocol.schema", "chronik.protocol.codec", "chronik.api")


def test_no_module_of_the_room_imports_a_message() -> None:
    (room,) = map(Path, chronik.admin.__path__)
    modules = list(room.glob("*.py"))
    assert len(modules) > 5
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(OF_KAFKAS_MESSAGES), f"{module.name}:{node.lineno}"
