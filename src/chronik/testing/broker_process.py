"""The broker that a test runs: a real node in a process of its own, with faults on demand.

Reads its config as the first line of stdin, says `{"ready": PORT}` on stdout, then answers one JSON line with another.
When stdin ends the parent is gone, and the process ends at once: a killed test run leaves no broker behind.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import IO, Any

from chronik.config import Address, load_config
from chronik.node.node import Node
from chronik.node.run import run
from chronik.protocol.errors import ErrorCode
from chronik.testing.faults import Faults
from chronik.testing.seen import SeenRequests

EXIT_ORPHANED = 3

DETOURS = "detours"
FIRST_USER = "first_user"
KEEPS_REQUESTS = "keeps_requests"
"""What the config's line has beside the config: see `Broker.detours` and `Broker.keeps_requests`."""


class Control:
    """The test's side of the broker. Everything but the reading of lines happens on the node's event loop."""

    def __init__(self, commands: io.FileIO, answers: IO[bytes], faults: Faults, seen: SeenRequests) -> None:
        self._commands = commands
        self._answers = answers
        self._faults = faults
        self._seen = seen
        self._node: Node | None = None

    def ready(self, node: Node, address: Address) -> None:
        self._node = node
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="control", daemon=True).start()
        self._say({"ready": address.port})

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in self._commands:
            try:
                loop.call_soon_threadsafe(self._obey, json.loads(line))
            except RuntimeError:  # the loop has ended, and the process is about to
                return
        os._exit(EXIT_ORPHANED)

    def _obey(self, message: dict[str, Any]) -> None:
        self._say({"id": message["id"], "result": self._result(message)})

    def _result(self, message: dict[str, Any]) -> Any:
        match message["command"]:
            case "fail":
                self._faults.fail(message["api"], ErrorCode[message["error"]], message["times"])
            case "delay":
                self._faults.delay(message["api"], message["seconds"], message["times"])
            case "clear_faults":
                self._faults.clear()
            case "time_out":
                assert self._node is not None
                assert self._node.transactions is not None
                return self._node.transactions.time_out(message["transactional_id"]).name
            case "last_requests":
                return self._seen.last(message["count"])
        return None

    def _say(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.flush()


def take_detours(detours: Mapping[str, str]) -> None:
    """Has peers dialled where the test wants them to be. All that nodes tell each other stays as it is."""
    if not detours:
        return
    from chronik.peers.link import PeerLink  # a node that stands alone needs none

    begin = PeerLink.__init__

    def begin_elsewhere(self: PeerLink, identity: Any, peer: int, address: Address, *others: Any) -> None:
        begin(self, identity, peer, Address.parse(detours.get(str(address), str(address))), *others)

    setattr(PeerLink, "__init__", begin_elsewhere)  # noqa: B010 - of other arguments, as far as types are concerned


def main() -> int:
    # A private copy of stdout: whatever else prints must not get between the answers.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Unbuffered: the thread that waits for commands must not hold a lock that the end of the process waits for.
    commands = open(os.dup(sys.stdin.fileno()), "rb", buffering=0)  # noqa: SIM115 - read until the process ends
    told = json.loads(commands.readline())
    take_detours(told.pop(DETOURS, {}))
    name_and_password = told.pop(FIRST_USER, None)
    keeps_requests = told.pop(KEEPS_REQUESTS, True)
    config = load_config(None, {}, **told)
    faults = Faults()
    seen = SeenRequests(also_logged=config.log_level == "debug")
    if keeps_requests:
        seen.watch(logging.getLogger("chronik.api"))
    control = Control(commands, answers, faults, seen)
    first = None
    if name_and_password is not None:
        from chronik.admin.users import first_user

        first = first_user(*name_and_password)
    return run(config, interceptor=faults, ready=control.ready, first_user=first)


if __name__ == "__main__":
    sys.exit(main())
