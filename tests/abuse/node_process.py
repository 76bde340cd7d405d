"""Memory, disk and log usage of a node's process."""

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

FAULT_LINE: Final = re.compile(r"^(?:\S+ )*(?:ERROR|CRITICAL) .*|^[ |]*Traceback .*", re.MULTILINE)
"""Log lines that indicate a fault of the node, not of its clients."""

RESET_PEAK: Final = "5"
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""


class MeasuredProcess:
    """A node's process, measured relative to the creation of this object."""

    def __init__(self, node: ClusterNode) -> None:
        self.node = node
        self.pid = node.pid
        Path(f"/proc/{self.pid}/clear_refs").write_text(RESET_PEAK)
        self._memory_before = self._status_bytes("VmRSS")
        self._disk_before = self._disk_bytes()
        self._log_before = len(node.log)

    def memory(self) -> NodeMemory:
        """Return the memory usage. A process that has exited, which is reported separately, counts as not grown."""
        if not self._is_alive():
            return NodeMemory(self._memory_before, 0, 0)
        return NodeMemory(self._memory_before, self._status_bytes("VmRSS"), self._status_bytes("VmHWM"))

    def disk_growth(self) -> int:
        """Return the growth of the data directory in bytes."""
        return max(0, self._disk_bytes() - self._disk_before)

    def _disk_bytes(self) -> int:
        """Return the allocated size of all data files. Files may be deleted concurrently."""
        total = 0
        for directory, _, names in os.walk(self.node.data_dir):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.stat(os.path.join(directory, name)).st_blocks * BLOCK_BYTES
        return total

    def new_log_output(self) -> str:
        """Return the log output since the creation of this object."""
        return self.node.log[self._log_before :]

    def problems(self) -> list[str]:
        """Return the problems of the process."""
        if not self._is_alive():
            return [f"{self.node} was restarted or has exited"]
        return [f"{self.node} logged: {shorten(line)}" for line in FAULT_LINE.findall(self.new_log_output())[:3]]

    def _is_alive(self) -> bool:
        return self.node.is_running and self.node.pid == self.pid

    def _status_bytes(self, field: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (kilobytes,) = (int(line.split()[1]) for line in lines if line.startswith(field + ":"))
        return kilobytes * 1024


def shorten(line: str) -> str:
    """Return the line without its middle if it is long; an escaped traceback ends with the error."""
    return line if len(line) <= 2 * SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"
