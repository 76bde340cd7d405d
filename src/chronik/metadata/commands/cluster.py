"""Commands that change the cluster as a whole and its nodes."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import BrokerId, CommandBase, Port, TimeMs
from chronik.metadata.levels import DYNAMIC_MEMBERSHIP_LEVEL, since_level

SET_FEATURE_LEVEL_TAG: Final = 4
"""The type tag of SetFeatureLevel commands, by which a node finds the feature level in a log that it cannot decode yet.
"""


class CreateCluster(CommandBase, frozen=True, tag=1):
    """A command that sets the cluster id. Rejected if the cluster already has an id."""

    cluster_id: Annotated[str, Meta(min_length=1, max_length=64)]
    time_ms: TimeMs


class AddNode(CommandBase, frozen=True, tag=2):
    """A command that adds a node with its peer address, or changes the address of a known node."""

    node_id: BrokerId
    host: str
    port: Port
    voter: bool = True


class RemoveNode(CommandBase, frozen=True, tag=3):
    """A command that removes a node from the cluster.

    From level 3 on, the command is rejected while the node hosts replicas, and it unregisters the node's broker.
    """

    node_id: BrokerId


@since_level(DYNAMIC_MEMBERSHIP_LEVEL)
class UpdateNode(CommandBase, frozen=True, tag=6):
    """A command that updates a node. Fields that are None keep their values.

    Concurrent updates of different fields do not conflict.
    """

    node_id: BrokerId
    host: str | None = None
    port: Port | None = None
    voter: bool | None = None
    """Whether the node should be a voter of the metadata log. The controller changes the membership accordingly."""
    draining: bool | None = None
    """Whether to drain the node: its broker transfers leadership where possible and gets no new replicas."""


class SetFeatureLevel(CommandBase, frozen=True, tag=SET_FEATURE_LEVEL_TAG):
    """A command that sets the level of a cluster feature, as in Kafka's UpdateFeatures. Level 0 removes the feature.

    `chronik.metadata.levels` defines which levels of `chronik.version` are allowed.
    """

    name: str
    level: Annotated[int, Meta(ge=0, le=2**15 - 1)]


class AllocateProducerIds(CommandBase, frozen=True, tag=5):
    """A command that allocates a block of producer ids to a broker. The result's `value` is the first id."""

    broker_id: BrokerId
    broker_epoch: int
    count: Annotated[int, Meta(ge=1, le=1_000_000)]
