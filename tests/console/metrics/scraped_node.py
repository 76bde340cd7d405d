"""An in-process node, and its metrics as parsed by the official Prometheus client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from chronik.api.shared.context import Services
from chronik.config import Address, load_config
from chronik.ids import generate_id
from chronik.metadata.commands.topics import CreateTopic, CreateTopics, PartitionAssignment
from chronik.node.node import Node
from chronik.node.status import NodeStatusSource
from tests.console.http_harness import RawHttpClient

TOPICS_PER_COMMAND = 500
Labels = tuple[tuple[str, str], ...]


class ScrapedMetrics:
    """The metrics of a page, parsed by the official Prometheus parser."""

    def __init__(self, text: str) -> None:
        families = list(text_string_to_metric_families(text))
        self.types = {family.name: family.type for family in families}
        self.descriptions = {family.name: family.documentation for family in families}
        self.values: dict[str, dict[Labels, float]] = {}
        self.series = 0
        for family in families:
            for sample in family.samples:
                labels = tuple(sorted(sample.labels.items()))
                samples = self.values.setdefault(sample.name, {})
                assert labels not in samples, f"{sample.name}{labels} occurs twice"
                samples[labels] = sample.value
                self.series += 1

    def value(self, name: str, **labels: str) -> float:
        return self.values[name][tuple(sorted(labels.items()))]

    def values_by_label(self, name: str, label: str) -> dict[str, float]:
        """Return the samples of a family by the value of one label."""
        return {dict(labels)[label]: value for labels, value in self.values.get(name, {}).items()}


class ScrapedNode:
    def __init__(self, node: Node, address: Address) -> None:
        self._node = node
        self.address = address

    @property
    def services(self) -> Services:
        assert self._node.router is not None
        return self._node.router._services

    @property
    def status(self) -> NodeStatusSource:
        assert self._node._node_status is not None
        return self._node._node_status

    async def scrape(self) -> ScrapedMetrics:
        peer = RawHttpClient(*await asyncio.open_connection(*self.http))
        answer = await peer.get("/metrics")
        peer.writer.close()
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return ScrapedMetrics(answer.body.decode())

    async def scrape_until(self, holds: Callable[[ScrapedMetrics], bool]) -> ScrapedMetrics:
        """Scrape until a condition holds: partition statistics are cached for a short time."""
        async with asyncio.timeout(30):
            while not holds(samples := await self.scrape()):
                await asyncio.sleep(0.01)
        return samples

    @property
    def http(self) -> Address:
        assert self._node.http is not None
        assert self._node.http.url is not None
        return Address.parse(self._node.http.url.removeprefix("http://"))

    async def create_topics(self, names: Iterable[str], partitions: int = 1) -> None:
        node_id = self.services.node_id
        assigned = (PartitionAssignment((node_id,), (node_id,), node_id),) * partitions
        topics = [CreateTopic(generate_id(), name, assigned, {}, 1) for name in names]
        for first in range(0, len(topics), TOPICS_PER_COMMAND):
            command = CreateTopics(tuple(topics[first : first + TOPICS_PER_COMMAND]))
            assert not (await self.services.store.propose(command)).failures


@asynccontextmanager
async def start_scraped_node(folder: Path, **broker: str) -> AsyncIterator[ScrapedNode]:
    config = load_config(None, {}, data_dir=folder, kafka="127.0.0.1:0", http="127.0.0.1:0", broker=broker)
    node = Node(config)
    try:
        yield ScrapedNode(node, await node.start())
    finally:
        await node.stop()
