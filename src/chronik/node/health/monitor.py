"""The health monitor of a node.

Every node reports the facts that only it knows to the controller, every ten seconds. The controller evaluates the facts
of all nodes, and its response contains the problems of the cluster: all nodes therefore report the same problems. When
the controller changes, the new one continues the problems that it received last, with their start times. A node that
reaches no controller evaluates the facts that it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

import msgspec

from chronik.api.shared.context import Services
from chronik.broker.partition_counters import PartitionChangeCounters
from chronik.configs.keys import LAG_BUDGET
from chronik.errors import ChronikError
from chronik.health.engine import HealthEngine
from chronik.health.facts import HealthFacts, ObservedNode, ObservedQuorum
from chronik.health.reports import (
    REPORT_SECONDS,
    HealthReport,
    NodeHealthReport,
    ReportAggregator,
    ReportResponse,
)
from chronik.metadata.commands.brokers import BrokerStatus
from chronik.node.health.collector import NodeHealthCollector, PartitionHealthScan, list_open_transactions
from chronik.node.node_mode import NodeMode
from chronik.quorum.watchdog import EventLoopWatchdog

logger = logging.getLogger("chronik.node")

REFRESH_SECONDS: Final = 1.0
"""Minimum age in seconds of the problems before a request refreshes them."""

COST_FACTOR: Final = 200
"""Minimum interval between two collections, as a multiple of the event-loop time that one takes: half a percent."""

CALL_SECONDS: Final = 2.0

_encoder: Final = msgspec.msgpack.Encoder()
_response_decoder: Final = msgspec.msgpack.Decoder(ReportResponse)
_report_decoder: Final = msgspec.msgpack.Decoder(NodeHealthReport)


class HealthMonitor:
    """The problems of the cluster, as this node knows them."""

    def __init__(
        self, services: Services, node_mode: NodeMode, changes: PartitionChangeCounters, watchdog: EventLoopWatchdog
    ) -> None:
        self._services = services
        self._node_mode = node_mode
        self._collector = NodeHealthCollector(services, node_mode, changes, watchdog)
        self._partitions = PartitionHealthScan(services)
        self._aggregator = ReportAggregator()
        self._engine = HealthEngine()
        self._own: NodeHealthReport | None = None
        self._collected_at = float("-inf")
        self._evaluated_at = float("-inf")
        self._is_evaluator = False
        self._clock_offset: tuple[float | None, float] = None, 0.0
        self._lock: Final = asyncio.Lock()
        self.latest: HealthReport | None = None
        """The latest problems; None until they are known for the first time."""

    @property
    def _now_s(self) -> float:
        return self._services.clock.now_ms() / 1000

    async def run(self) -> None:
        """Refresh the problems periodically, until cancelled."""
        while True:
            await self.refresh(REPORT_SECONDS / 2)
            await asyncio.sleep(max(REPORT_SECONDS, COST_FACTOR * self._collector.loop_seconds))

    async def current(self) -> HealthReport:
        """Return the problems, refreshed unless they are recent."""
        return await self.refresh(REFRESH_SECONDS)

    async def refresh(self, age_max_s: float) -> HealthReport:
        """Return the problems. Find them again if they are older than `age_max_s` seconds."""
        async with self._lock:
            if self.latest is None or self._services.clock.monotonic() - self._evaluated_at >= age_max_s:
                own = await self._collect()
                if not await self._report(own):
                    await self._evaluate(own)
        assert self.latest is not None
        return self.latest

    async def _collect(self) -> NodeHealthReport:
        now = self._services.clock.monotonic()
        interval_s = max(REFRESH_SECONDS, COST_FACTOR * self._collector.loop_seconds)
        if self._own is None or now - self._collected_at >= interval_s:
            self._own, self._collected_at = await self._collector.collect(), now
        ahead_s, uncertainty_s = self._clock_offset
        return msgspec.structs.replace(
            self._own, time_s=self._now_s, clock_ahead_s=ahead_s, clock_uncertainty_s=uncertainty_s
        )

    async def _report(self, own: NodeHealthReport) -> bool:
        """Report to the controller, and return whether it has returned the problems."""
        controller = self._node_mode.controller_id
        if controller in (-1, self._services.node_id):
            return False
        clock = self._services.clock
        sent, sent_s = clock.monotonic(), self._now_s
        try:
            answer = await self._node_mode.report_health(controller, _encoder.encode(own), CALL_SECONDS)
            response = _response_decoder.decode(answer)
        except (ChronikError, msgspec.DecodeError):
            return False  # the controller is not reachable, or runs an earlier version
        took_s = clock.monotonic() - sent
        if response.time_s:
            self._clock_offset = sent_s + took_s / 2 - response.time_s, took_s
        if not response.is_controller or response.health is None:
            return False
        self.latest, self._evaluated_at = response.health, clock.monotonic()
        self._is_evaluator = False
        return True

    async def receive_report(self, payload: bytes) -> bytes:
        """Handle the report of another node: return the problems if this node is the controller."""
        report = _report_decoder.decode(payload)
        received_s = self._now_s
        if self._node_mode.controller_id != self._services.node_id:
            return _encoder.encode(ReportResponse(False, received_s))
        self._aggregator.add(report, received_s)
        async with self._lock:
            if self.latest is None or self._services.clock.monotonic() - self._evaluated_at >= REFRESH_SECONDS:
                await self._evaluate(await self._collect())
        return _encoder.encode(ReportResponse(True, received_s, self.latest))

    # Evaluation

    async def _evaluate(self, own: NodeHealthReport) -> None:
        now_s = self._now_s
        if not self._is_evaluator:
            self._is_evaluator = True
            self._aggregator, self._engine = self._start_evaluation(now_s)
        self._aggregator.add(msgspec.structs.replace(own, clock_ahead_s=0.0, clock_uncertainty_s=0.0), now_s)
        facts = await self._build_facts(now_s)
        problems = self._engine.evaluate(facts)
        self.latest = HealthReport(node_id=self._services.node_id, checked_at_s=now_s, problems=problems)
        self._evaluated_at = self._services.clock.monotonic()

    def _start_evaluation(self, now_s: float) -> tuple[ReportAggregator, HealthEngine]:
        """Return the aggregator and the engine of a node that becomes the evaluator.

        Reports that have arrived are kept, but not the history of an earlier term.
        """
        engine = HealthEngine()
        if self.latest is not None:
            engine.adopt(self.latest.problems, now_s)
        return self._aggregator.successor(), engine

    async def _build_facts(self, now_s: float) -> HealthFacts:
        partitions = await self._partitions.scan()
        image, configs = self._services.image, self._services.configs
        nodes = tuple(self._observe_nodes())
        return self._aggregator.build(
            now_s,
            nodes=nodes,
            quorum=self._observe_quorum(nodes),
            partitions=partitions,
            transactions=list_open_transactions(image, now_s),
            find_membership=lambda name: None if name not in image.groups else bool(image.groups[name].members),
            lag_budget=configs.broker_int(LAG_BUDGET),
            find_lag_budget=configs.lag_budget,
        )

    def _observe_nodes(self) -> Iterator[ObservedNode]:
        image, node_id = self._services.image, self._services.node_id
        status = self._node_mode.status()
        voters = {member["id"] for member in status.get("members", ()) if member["voter"]}
        connected = {node_id, *status.get("connected", ())}
        for each in sorted({*image.nodes, *image.brokers, node_id}):
            node, broker = image.nodes.get(each), image.brokers.get(each)
            is_lost = each not in connected and broker is not None
            yield ObservedNode(
                each,
                "absent" if broker is None else _STATUSES[broker.status] if each in connected else "offline",
                each in voters,
                node is not None and node.draining,
                "" if is_lost else None,
            )

    def _observe_quorum(self, nodes: tuple[ObservedNode, ...]) -> ObservedQuorum:
        voters = [node for node in nodes if node.is_voter]
        reached = sum(node.unreachable_why is None for node in voters)
        return ObservedQuorum(
            has_controller=self._node_mode.controller_id >= 0,
            is_isolated=bool(voters) and reached <= len(voters) // 2,
        )


_STATUSES: Final = {
    BrokerStatus.ONLINE: "online",
    BrokerStatus.OFFLINE: "fenced",
    BrokerStatus.MAINTENANCE: "maintenance",
}
"""The status of a broker that this node is connected to. It runs, so if it is offline, the controller has fenced it."""
