"""What Linux and the log tell about a node's process."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from chronik.testing.cluster import ClusterNode
from tests.abuse.budget import NodeMemory

SHOWN_CHARACTERS: Final = 300
"""Characters shown of each end of a long log line."""

TROUBLE: Final = re.compile(r"^(?:\S+ )*(?:ERROR|CRITICAL) .*|^[ |]*Traceback .*", re.MULTILINE)
"""What a node writes when something is wrong with it, and not with those who speak to it."""

RESET_PEAK: Final = "5"
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""


class Process:
    """A node's, from now on."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.pid = node.pid
        Path(f"/proc/{self.pid}/clear_refs").write_text(RESET_PEAK)
        self._memory_before = self._status_bytes("VmRSS")
        self._disk_before = self._disk_bytes()
        self._log_before = len(node.log)

    def memory(self) -> NodeMemory:
        """Return the memory so far; a process that has ended, which is reported separately, has not grown."""
        if not self._is_alive():
            return NodeMemory(self._memory_before, 0, 0)
        return NodeMemory(self._memory_before, self._status_bytes("VmRSS"), self._status_bytes("VmHWM"))

    def disk_growth(self) -> int:
        return max(0, self._disk_bytes() - self._disk_before)

    def _disk_bytes(self) -> int:
        """Return the allocated size of all data files. Files may vanish meanwhile."""
        total = 0
        for folder, _, names in os.walk(self.node.data_dir):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(os.path.join(folder, name)).st_blocks * BLOCK_BYTES
        return total

    def logged(self) -> str:
        return self.node.log[self._log_before :]

    def ailments(self) -> list[str]:
        if not self._is_alive():
            return [f"{self.node} is not the process that was attacked"]
        return [f"{self.node} logged: {shorten(line)}" for line in TROUBLE.findall(self.logged())[:3]]

    def _is_alive(self) -> bool:
        return self.node.running and self.node.pid == self.pid

    def _status_bytes(self, field: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith(field + ":"))
        return kilobytes * 1024


def shorten(line: str) -> str:
    """Return the line without its middle if it is long; an escaped traceback ends with the error."""
    return line if len(line) <= 2 * SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"
