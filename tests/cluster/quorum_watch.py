"""Checks continuously that there is a quorum: by writes to the metadata log, and by the voters that nodes report."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chronik.client.admin import describe_topic_configs
from chronik.client.configs import TOPIC_RESOURCE
from chronik.client.connection import BrokerConnection
from chronik.console.http_client import NodeRequestError
from chronik.errors import ChronikError
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from chronik.testing.cluster import ROLE_LEADER, Cluster, ClusterNode

ANSWER_SECONDS_MAX = 5.0
WRITE_SECONDS = 0.05
LOOK_SECONDS = 0.5
COUNTER_CONFIG = "retention.ms"
"""A numeric config of the watched topic; its first value is the default."""
FIRST = 604_800_000

SILENT = (ChronikError, OSError)


class QuorumWatch:
    """A watch on two threads.

    One writes a number to the metadata log in a loop, through all live nodes in turn; each acknowledgement proves a
    majority of voters. The other requests the voters from all live nodes.

    `leaving` returns the node that is being removed, which is not asked to write.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        whereabouts: Callable[[], str],
        leaving: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._cluster, self._topic, self._whereabouts, self._leaving = cluster, topic, whereabouts, leaving
        self._ending = threading.Event()
        watching = (self._write, self._watch_voters)
        self._threads = [threading.Thread(target=self._run_and_catch, args=(each,), name="watch") for each in watching]
        self._failures: list[Exception] = []
        self._connections: dict[int, BrokerConnection] = {}
        self.writes = 0
        self.longest = (0.0, "")
        """The longest time without an acknowledgement, and the step during which it occurred."""
        self.last_written = FIRST
        """The last number that was acknowledged."""
        self.voters_seen: list[tuple[int, ...]] = []
        """The voters according to leaders, after each change."""
        self.terms: set[int] = set()
        self.without_majority: list[str] = []
        """Observations of voters without a majority of live processes."""

    def __enter__(self) -> QuorumWatch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        for connection in self._connections.values():
            connection.close()
        if self._failures:
            raise self._failures[0]

    def _run_and_catch(self, watch: Callable[[], None]) -> None:
        try:
            watch()
        except Exception as failure:  # raised at the end: the watch has stopped
            self._failures.append(failure)

    # Writes

    def _write(self) -> None:
        acknowledged_at = time.monotonic()
        numbers = itertools.count(FIRST + 1)
        turns = itertools.count()
        while not self._ending.wait(WRITE_SECONDS):
            live = [node for node in self._cluster.live_nodes if node.node_id != self._leaving()]
            number = next(numbers)
            if not live or not self._is_written(live[next(turns) % len(live)], number):
                continue
            now = time.monotonic()
            self.longest = max(self.longest, (now - acknowledged_at, self._whereabouts()))
            acknowledged_at, self.last_written = now, number
            self.writes += 1

    def _is_written(self, node: ClusterNode, number: int) -> bool:
        config = IncrementalAlterableConfig(name=COUNTER_CONFIG, config_operation=0, value=str(number))
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self._topic, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        connection = self._connections.pop(node.node_id, None)
        try:
            connection = connection or BrokerConnection(
                node.kafka, client_id="quorum-watch", timeout_s=ANSWER_SECONDS_MAX
            )
            answer = connection.request(request, IncrementalAlterConfigsResponse)
        except SILENT:
            if connection is not None:
                connection.close()
            return False
        self._connections[node.node_id] = connection
        return answer.responses[0].error_code == ErrorCode.NONE

    def check_last(self) -> None:
        """Check that the last acknowledged number, or a later one, is stored."""
        with self._cluster.live_nodes[0].cluster() as client:
            told = {each.name: each.value for each in describe_topic_configs(client, self._topic)}
        assert int(told[COUNTER_CONFIG] or 0) >= self.last_written, (told[COUNTER_CONFIG], self.last_written)

    # Voters

    def _watch_voters(self) -> None:
        while not self._ending.wait(LOOK_SECONDS):
            statuses = []
            for node in self._cluster.live_nodes:
                with suppress(NodeRequestError, OSError):
                    statuses.append(node.status())
            leaders = [each for each in statuses if each["role"] == ROLE_LEADER]
            if leaders:
                self._check_majority(max(leaders, key=lambda each: each["term"]))

    def _check_majority(self, leader: dict[str, Any]) -> None:
        members = leader["members"]
        voters = tuple(sorted(member["id"] for member in members if member["voter"]))
        self.terms.add(leader["term"])
        if not self.voters_seen or self.voters_seen[-1] != voters:
            self.voters_seen.append(voters)
        live = {node.node_id for node in self._cluster.live_nodes}
        if 2 * len(live & set(voters)) <= len(voters):
            self.without_majority.append(f"{self._whereabouts()}: voters {voters}, alive {sorted(live)}")

    def summary(self) -> str:
        seconds, where = self.longest
        return (
            f"{self.writes:,} writes to the metadata log, at most {seconds:.2f} s apart ({where}); "
            f"{min(map(len, self.voters_seen))} to {max(map(len, self.voters_seen))} voters, {len(self.terms)} terms"
        )
