"""How each command is applied: one function per command, which first makes all its checks and then writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronik.metadata.commands.base import Base
from chronik.metadata.records import Result
from chronik.metadata.writer import ImageWriter

Handlers = dict[type[Base], Callable[[ImageWriter, Any, int], Result]]
"""The last argument is the command's index in the log."""
