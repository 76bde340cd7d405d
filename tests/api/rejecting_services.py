"""Services of a node whose store rejects every command, for handlers that are called directly."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

from chronik.admin.topic_planner import TopicPlanner
from chronik.admin.topics import TopicAdmin
from chronik.clock import SystemClock
from chronik.configs.resolver import ConfigResolver
from chronik.ids import generate_id
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import MetadataWorld, build_assignment

KNOWN: Final = "known"
UNKNOWN: Final = "unknown"


class RejectingStore:
    """A store that rejects every command, and every read if it has no quorum."""

    is_shared = True

    def __init__(self, has_quorum: bool) -> None:
        world = MetadataWorld(1)
        world.accept(UpdateBrokerStatus(1, BrokerStatus.ONLINE, world.image.brokers[1].epoch))
        world.create(KNOWN, build_assignment(1))
        self.image = world.image
        self._has_quorum = has_quorum

    async def read_barrier(self) -> None:
        if not self._has_quorum:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    async def propose(self, command: object) -> None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def quorum(self) -> None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class NoReplicas:
    def find_lost_replica(self, topic: str, index: int) -> None: ...

    def find(self, topic: str, index: int) -> None: ...

    def get_leader(self, topic: str, index: int) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def rejecting_services(has_quorum: bool = True) -> Any:
    store: Any = RejectingStore(has_quorum)
    configs = ConfigResolver(store, 1, {})
    planner = TopicPlanner(store, configs, SystemClock(), generate_id, Random(1).randrange)
    return SimpleNamespace(
        authorizer=None,
        store=store,
        image=store.image,
        configs=configs,
        topics=TopicAdmin(store, configs, planner),
        replicas=NoReplicas(),
        config=SimpleNamespace(node_id=1, data_dir=Path()),
        node_id=1,
        clock=SystemClock(),
    )
