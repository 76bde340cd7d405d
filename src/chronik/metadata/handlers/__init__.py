"""Handlers that apply commands to the image: each validates its command completely before it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronik.metadata.commands.base import CommandBase
from chronik.metadata.records import ApplyResult
from chronik.metadata.writer import ImageWriter

CommandHandlers = dict[type[CommandBase], Callable[[ImageWriter, Any, int], ApplyResult]]
"""Handlers by command class. A handler takes the image writer, the command and its log index."""
