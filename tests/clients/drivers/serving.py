"""The loop inside every driver written in Python: reads commands from standard input, answers on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


class Refused(Exception):
    """The broker answered with an error: `name` is Kafka's name for it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def serve(*parts: object) -> None:
    """Every public method of `parts` is a command. Returns when standard input ends."""
    commands = _public_methods(parts)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # whatever a library prints must not look like an answer
    for line in sys.stdin:
        answers.write(json.dumps(_answer(commands, json.loads(line))) + "\n")


def _answer(commands: dict[str, Command], request: dict[str, Any]) -> dict[str, Any]:
    try:
        result = commands[request["command"]](**request["arguments"])
    except Exception as error:  # a driver outlives a command that fails: the test is told and decides
        name = error.name if isinstance(error, Refused) else type(error).__name__
        return {"id": request["id"], "error": {"name": name, "message": str(error)}}
    return {"id": request["id"], "result": result}


def _public_methods(parts: tuple[object, ...]) -> dict[str, Command]:
    return {
        name: getattr(part, name)
        for part in parts
        for name in dir(type(part))
        if not name.startswith("_") and callable(getattr(part, name))
    }
