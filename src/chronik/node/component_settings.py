"""Settings of the components of a node, derived from its configs."""

from __future__ import annotations

import logging

from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.groups.config import GroupConfig
from chronik.node.descriptors import DescriptorLimits, divide_descriptors, raise_descriptor_limit
from chronik.server.listener_limits import ListenerLimits
from chronik.transactions.config import TransactionConfig

logger = logging.getLogger("chronik.node")


def group_config(configs: ConfigResolver) -> GroupConfig:
    """Return the settings of the group coordinator."""
    return GroupConfig.from_broker_configs(
        {
            name: configs.broker_value(name)
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
    """Return the settings of the transaction coordinator."""
    return TransactionConfig(
        timeout_ms_max=configs.broker_int("transaction.max.timeout.ms"),
        expiration_ms=configs.broker_int("transactional.id.expiration.ms"),
        expiration_check_interval_ms=configs.broker_int("transaction.remove.expired.transaction.cleanup.interval.ms"),
    )


def static_configs(config: NodeConfig) -> dict[str, str]:
    """Return the static broker configs, including those with their own config key, unless they have Kafka's default."""
    own = {"default.replication.factor": config.replication_factor, "min.insync.replicas": config.min_insync_replicas}
    return {name: str(value) for name, value in own.items() if value != 1} | dict(config.broker)


def divide_node_descriptors(configs: ConfigResolver) -> DescriptorLimits:
    """Divide the file descriptors of the process, and log a warning if they are too few for `max.connections`."""
    limit = raise_descriptor_limit()
    descriptors = divide_descriptors(limit)
    if descriptors.connections < configs.broker_int("max.connections"):
        message = "max.connections limited to %d: the process may open %d file descriptors; raise the limit (ulimit -n)"
        logger.warning(message, descriptors.connections, limit)
    return descriptors


def listener_limits(configs: ConfigResolver) -> ListenerLimits:
    """Return the limits of the client listeners."""
    return ListenerLimits(
        frame_bytes=configs.broker_int("socket.request.max.bytes"),
        idle_seconds=configs.broker_int("connections.max.idle.ms") / 1000,
    )
