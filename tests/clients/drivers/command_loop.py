"""The main loop of Python drivers: reads commands from standard input and writes responses to standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


class CommandRejected(Exception):
    """The broker responded with an error; `name` is Kafka's error name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def serve(*parts: object) -> None:
    """Serve every public method of `parts` as a command until standard input ends."""
    commands = _public_methods(parts)
    responses = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    sys.stdout = sys.stderr  # output of libraries must not be mistaken for a response
    for line in sys.stdin:
        responses.write(json.dumps(_respond(commands, json.loads(line))) + "\n")


def _respond(commands: dict[str, Command], request: dict[str, Any]) -> dict[str, Any]:
    try:
        result = commands[request["command"]](**request["arguments"])
    except Exception as error:  # a failed command does not end the driver; the test decides
        name = error.name if isinstance(error, CommandRejected) else type(error).__name__
        return {"id": request["id"], "error": {"name": name, "message": str(error)}}
    return {"id": request["id"], "result": result}


def _public_methods(parts: tuple[object, ...]) -> dict[str, Command]:
    return {
        name: getattr(part, name)
        for part in parts
        for name in dir(type(part))
        if not name.startswith("_") and callable(getattr(part, name))
    }
