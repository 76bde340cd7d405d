"""Handlers that apply commands to the image: each validates its command completely before it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chronik.metadata.commands.base import Base
from chronik.metadata.records import Result
from chronik.metadata.writer import ImageWriter

Handlers = dict[type[Base], Callable[[ImageWriter, Any, int], Result]]
"""Handlers by command class. The last argument is the command's log index."""
