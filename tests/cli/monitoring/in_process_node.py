"""A node that runs in a thread of the test process, with Kafka and HTTP ports."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from chronik.config import load_config
from chronik.node.node import Node


class InProcessNode(NamedTuple):
    bootstrap: str
    http: str


def free_port() -> int:
    """Return a free port; a node does not report the HTTP port that it has chosen."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def run_node_in_process(folder: Path, **configs: Any) -> Iterator[InProcessNode]:
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    http = f"127.0.0.1:{free_port()}"
    node = Node(load_config(None, {}, data_dir=folder, kafka="127.0.0.1:0", http=http, **configs))

    def wait(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    try:
        address = wait(node.start())
        yield InProcessNode(str(address), http)
    finally:
        wait(node.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
