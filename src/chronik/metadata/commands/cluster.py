"""Commands of the cluster and its nodes."""

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import Base, BrokerId, Port, TimeMs
from chronik.metadata.levels import GROWTH, since_level

SET_FEATURE_LEVEL_TAG: Final = 4
"""The tag by which it is found without knowing the rest: a node looks which level a log is at before it reads it."""


class CreateCluster(Base, frozen=True, tag=1):
    """Gives the cluster its id: the very first command. It is refused when there is an id already."""

    cluster_id: Annotated[str, Meta(min_length=1, max_length=64)]
    time_ms: TimeMs


class AddNode(Base, frozen=True, tag=2):
    """Adds a node, which others find at this address; adding a known one changes its address."""

    node_id: BrokerId
    host: str
    port: Port
    voter: bool = True


class RemoveNode(Base, frozen=True, tag=3):
    """A node does not belong to the cluster any more. From level 3 on it is refused while the node holds replicas, and
    its broker is forgotten with it."""

    node_id: BrokerId


@since_level(GROWTH)
class UpdateNode(Base, frozen=True, tag=6):
    """Changes what is not None, and leaves the rest as it is: two who change a node at once both have their way."""

    node_id: BrokerId
    host: str | None = None
    port: Port | None = None
    voter: bool | None = None
    """Whether it is meant to vote; the membership of the metadata log says whether it does."""
    draining: bool | None = None
    """A broker that is drained leads nothing that another could lead, and gets nothing new."""


class SetFeatureLevel(Base, frozen=True, tag=SET_FEATURE_LEVEL_TAG):
    """Level 0 removes the feature. `levels` says what the level of the cluster is, and may become."""

    name: str
    level: Annotated[int, Meta(ge=0, le=2**15 - 1)]


class AllocateProducerIds(Base, frozen=True, tag=5):
    """Allocates a block of ids for one broker; the result's `value` is the first of them."""

    broker_id: BrokerId
    broker_epoch: int
    count: Annotated[int, Meta(ge=1, le=1_000_000)]
