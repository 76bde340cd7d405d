"""One of three stores, in a process of its own. Says on stdout, a JSON line each, who leads and what it measured;
obeys lines on stdin, and ends with them."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from bench.cluster.stores import commit_in_parallel, found, open_store
from chronik.bench.cluster_pipes import run_on_best_loop
from chronik.node.run import THREAD_SWITCH_SECONDS


async def _serve(folder: str, node_id: int, ports: dict[str, int]) -> None:
    loop = asyncio.get_running_loop()
    raft_ports = {int(peer): port for peer, port in ports.items()}
    async with open_store(Path(folder), node_id, raft_ports) as (store, driver):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked: dict[str, Any] = json.loads(line)
            match asked["command"]:
                case "leader":
                    _say(driver.status.leader)
                case "found":
                    await found(store)
                    _say(driver.status.commit_index)
                case "load":
                    _say(await commit_in_parallel(store, asked["in_flight"], asked["seconds"], asked["batch"]))


def _say(answer: float) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    logging.getLogger("chronik").setLevel(logging.ERROR)  # that a loaded loop is held for a while is no news here
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    run_on_best_loop(_serve(**json.loads(sys.stdin.readline())))
