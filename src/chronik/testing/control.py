"""Control channel between a test and its broker process: JSON lines on stdin and stdout of the process.

It needs no port and no token, and the end of the pipe tells the process that its parent is gone, however it ended.
"""

from __future__ import annotations

import json
import queue
import threading
from contextlib import suppress
from typing import IO, Any

from chronik.errors import ChronikError
from chronik.testing.fork_server import BrokerProcess

RESPONSE_SECONDS_MAX = 30.0


class BrokerFailed(ChronikError):
    """The broker did not start, exited, or does not respond. The message ends with the last lines of its log."""


class ControlChannel:
    """The test process's end of the control channel."""

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
        """Send a message; raise BrokerFailed if the process has exited."""
        try:
            self._stdin.write(json.dumps(message, default=str).encode() + b"\n")
            self._stdin.flush()
        except OSError as error:
            raise BrokerFailed("the broker process has ended") from error

    def receive(self, seconds: float) -> dict[str, Any]:
        """Return the next message; raise BrokerFailed on a timeout or if the process has exited."""
        try:
            message = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise BrokerFailed(f"no response of the broker process within {seconds:g} s") from None
        if message is None:
            self._lines.put(None)  # for the next caller
            raise BrokerFailed("the broker process has ended")
        return message

    def call(self, command: str, **arguments: Any) -> Any:
        """Run a command in the broker process, and return its result."""
        with self._lock:
            self._last_id += 1
            self.send({"id": self._last_id, "command": command, **arguments})
            while True:
                answer = self.receive(RESPONSE_SECONDS_MAX)
                if answer.get("id") == self._last_id:  # otherwise: the response to a call that timed out
                    return answer["result"]

    def close(self) -> None:
        """Close the channel after the process has exited."""
        with suppress(OSError):  # buffered data cannot be written any more
            self._stdin.close()
        self._reader.join()
        self._stdout.close()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)
