"""One of three stores, in its own process. It executes JSON commands from stdin and prints JSON results to stdout."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from bench.cluster.stores import create_broker_and_topic, measure_commit_rate, open_store
from chronik.bench.pipelined import run_with_uvloop
from chronik.node.run import THREAD_SWITCH_SECONDS


async def _serve(directory: str, node_id: int, ports: dict[str, int]) -> None:
    loop = asyncio.get_running_loop()
    raft_ports = {int(peer): port for peer, port in ports.items()}
    async with open_store(Path(directory), node_id, raft_ports) as (store, driver):
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            request: dict[str, Any] = json.loads(line)
            match request["command"]:
                case "leader":
                    _print_result(driver.status.leader)
                case "found":
                    await create_broker_and_topic(store)
                    _print_result(driver.status.commit_index)
                case "load":
                    _print_result(
                        await measure_commit_rate(store, request["in_flight"], request["seconds"], request["batch"])
                    )


def _print_result(result: float) -> None:
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    logging.getLogger("chronik").setLevel(logging.ERROR)  # warnings about a stalled event loop are expected under load
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    run_with_uvloop(_serve(**json.loads(sys.stdin.readline())))
