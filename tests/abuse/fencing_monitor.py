"""Detection of brokers that are fenced during an attack."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final

from chronik.console.http_client import NodeRequestError
from tests.abuse.attack import AttackTarget

POLL_SECONDS: Final = 0.2
ONLINE: Final = "online"


class FencingMonitor:
    """A thread that polls the status of every node; a standalone node is not polled."""

    def __init__(self, target: AttackTarget) -> None:
        self._target = target
        self._stop = threading.Event()
        self._offline: dict[int, str] = {}
        self._threads = [
            threading.Thread(target=self._poll, args=(node.node_id,))
            for node in (target.nodes if target.cluster is not None else ())
        ]

    def __enter__(self) -> FencingMonitor:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def findings(self) -> list[str]:
        return [f"broker {broker} was fenced (status {status})" for broker, status in sorted(self._offline.items())]

    def _poll(self, node_id: int) -> None:
        assert self._target.cluster is not None
        while not self._stop.wait(POLL_SECONDS):
            try:
                brokers = self._target.cluster.status(node_id)["brokers"]
            except NodeRequestError:  # the attack may be on the HTTP port
                continue
            for broker in brokers:
                if broker["status"] != ONLINE:
                    self._offline.setdefault(broker["id"], broker["status"])
