"""What parts of a node are told of its configs."""

from __future__ import annotations

import logging

from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.groups.config import GroupConfig
from chronik.node.descriptors import Descriptors, claim_descriptors, shared_out
from chronik.server.listener_limits import ListenerLimits
from chronik.transactions.config import TransactionConfig

logger = logging.getLogger("chronik.node")


def group_config(configs: ConfigResolver) -> GroupConfig:
    return GroupConfig.from_broker_configs(
        {
            name: configs.broker(name)
            for name in (
                "group.min.session.timeout.ms",
                "group.max.session.timeout.ms",
                "group.max.size",
                "group.initial.rebalance.delay.ms",
                "offset.metadata.max.bytes",
                "offsets.retention.minutes",
                "offsets.retention.check.interval.ms",
            )
        }
    )


def transaction_config(configs: ConfigResolver) -> TransactionConfig:
    return TransactionConfig(
        timeout_ms_max=configs.broker_int("transaction.max.timeout.ms"),
        expiration_ms=configs.broker_int("transactional.id.expiration.ms"),
        expiration_check_interval_ms=configs.broker_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


def static_configs(config: NodeConfig) -> dict[str, str]:
    """Includes those that have a key of their own in the node's config, unless that has Kafka's default."""
    own = {"default.replication.factor": config.replication_factor, "min.insync.replicas": config.min_insync_replicas}
    return {name: str(value) for name, value in own.items() if value != 1} | dict(config.broker)


def node_descriptors(configs: ConfigResolver) -> Descriptors:
    limit = claim_descriptors()
    descriptors = shared_out(limit)
    if descriptors.connections < configs.broker_int("max.connections"):
        told = "no more than %d clients can be connected: this process may have %d files and connections in all"
        logger.warning(told, descriptors.connections, limit)
    return descriptors


def listener_limits(configs: ConfigResolver) -> ListenerLimits:
    return ListenerLimits(
        frame_bytes=configs.broker_int("socket.request.max.bytes"),
        idle_seconds=configs.broker_int("connections.max.idle.ms") / 1000,
    )
