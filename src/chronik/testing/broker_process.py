"""Process of a test broker: a real node with fault injection, controlled through stdin and stdout.

The first line on stdin is the config. The process writes `{"ready": PORT}` to stdout, then answers each JSON line with
one. When stdin is closed, the parent is gone, and the process exits: a killed test run leaves no broker behind.
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
from chronik.testing.faults import FaultInjector
from chronik.testing.seen import RequestRecorder

EXIT_ORPHANED = 3

PEER_PROXIES_KEY = "detours"
FIRST_USER_KEY = "first_user"
RECORDS_REQUESTS_KEY = "keeps_requests"
"""Key of `Broker.records_requests` in the first line on stdin, which otherwise contains the broker's config."""


class BrokerControl:
    """The broker's end of the control channel. A thread reads commands, and the node's event loop runs them."""

    def __init__(self, commands: io.FileIO, answers: IO[bytes], faults: FaultInjector, seen: RequestRecorder) -> None:
        self._commands = commands
        self._answers = answers
        self._faults = faults
        self._seen = seen
        self._node: Node | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def on_ready(self, node: Node, address: Address) -> None:
        """Report the port to the test process, and start reading commands."""
        self._node = node
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="control", daemon=True).start()
        self._write_message({"ready": address.port})

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in self._commands:
            try:
                loop.call_soon_threadsafe(self._run_command, json.loads(line))
            except RuntimeError:  # the loop is closed, and the process is about to exit
                return
        os._exit(EXIT_ORPHANED)

    def _run_command(self, message: dict[str, Any]) -> None:
        if message["command"] == "serve_registry":
            task = asyncio.ensure_future(self._serve_registry(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._write_message({"id": message["id"], "result": self._execute_command(message)})

    def _execute_command(self, message: dict[str, Any]) -> Any:
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
                return self._node.transactions.time_out_transaction(message["transactional_id"]).name
            case "last_requests":
                return self._seen.last(message["count"])
        return None

    async def _serve_registry(self, message: dict[str, Any]) -> None:
        assert self._node is not None
        try:
            result = {"url": await self._node.open_registry(Address(message["host"], message["port"]))}
        except OSError as error:
            result = {"error": str(error)}
        self._write_message({"id": message["id"], "result": result})

    def _write_message(self, message: dict[str, Any]) -> None:
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.flush()


def install_peer_proxies(detours: Mapping[str, str]) -> None:
    """Make the node connect to its peers through proxies. The advertised addresses do not change."""
    if not detours:
        return
    from chronik.peers.link import PeerLink  # not needed by a standalone node

    original_init = PeerLink.__init__

    def init_with_proxy(self: PeerLink, identity: Any, peer: int, address: Address, *others: Any) -> None:
        original_init(self, identity, peer, Address.parse(detours.get(str(address), str(address))), *others)

    setattr(PeerLink, "__init__", init_with_proxy)  # noqa: B010 - its signature differs from the original


def main() -> int:
    """Run the broker with the config from stdin, and return the exit code."""
    # A private copy of stdout, so that other output cannot mix with the responses.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Unbuffered: the reading thread must not hold a lock that the interpreter's shutdown waits for.
    commands = open(os.dup(sys.stdin.fileno()), "rb", buffering=0)  # noqa: SIM115 - read until the process ends
    options = json.loads(commands.readline())
    install_peer_proxies(options.pop(PEER_PROXIES_KEY, {}))
    name_and_password = options.pop(FIRST_USER_KEY, None)
    keeps_requests = options.pop(RECORDS_REQUESTS_KEY, True)
    config = load_config(None, {}, **options)
    faults = FaultInjector()
    seen = RequestRecorder(also_logged=config.log_level == "debug")
    if keeps_requests:
        seen.attach_to(logging.getLogger("chronik.api"))
    control = BrokerControl(commands, answers, faults, seen)
    first = None
    if name_and_password is not None:
        from chronik.admin.users import create_first_user_command

        first = create_first_user_command(*name_and_password)
    return run(config, interceptor=faults, ready=control.on_ready, first_user=first)


if __name__ == "__main__":
    sys.exit(main())
