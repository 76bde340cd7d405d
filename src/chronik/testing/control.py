"""How a test talks to its broker process: JSON lines on the process's own stdin and stdout.

No port and no token to guard, and the end of the pipe tells the process that its parent is gone, however it died.
"""

from __future__ import annotations

import json
import queue
import threading
from contextlib import suppress
from typing import IO, Any

from chronik.errors import ChronikError
from chronik.testing.nursery import BrokerProcess

ANSWER_SECONDS_MAX = 30.0


class BrokerFailed(ChronikError):
    """The broker did not start, died, or does not answer; the message ends with the last lines of its log."""


class ControlChannel:
    def __init__(self, process: BrokerProcess) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin: IO[bytes] = process.stdin
        self._stdout: IO[bytes] = process.stdout
        self._lock = threading.Lock()
        self._last_id = 0
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="chronik-broker-control", daemon=True)
        self._reader.start()

    def send(self, message: dict[str, Any]) -> None:
        """Raises BrokerFailed when the process is gone."""
        try:
            self._stdin.write(json.dumps(message, default=str).encode() + b"\n")
            self._stdin.flush()
        except OSError as error:
            raise BrokerFailed("the broker process is gone") from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """Raises BrokerFailed when nothing comes in time, or ever."""
        try:
            message = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise BrokerFailed(f"the broker process said nothing for {seconds:g} s") from None
        if message is None:
            self._lines.put(None)  # whoever asks next must not wait either
            raise BrokerFailed("the broker process has ended")
        return message

    def call(self, command: str, **arguments: Any) -> Any:
        with self._lock:
            self._last_id += 1
            self.send({"id": self._last_id, "command": command, **arguments})
            while True:
                answer = self.receive(ANSWER_SECONDS_MAX)
                if answer.get("id") == self._last_id:  # an older one was given up on while the broker was stopped
                    return answer["result"]

    def close(self) -> None:
        """To be called after the process has ended."""
        with suppress(OSError):  # what was still buffered has no reader any more
            self._stdin.close()
        self._reader.join()
        self._stdout.close()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)
