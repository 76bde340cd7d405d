"""Commands of the cluster and its nodes."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from chronik.metadata.commands.base import Base, BrokerId, Port, TimeMs

SET_FEATURE_LEVEL_TAG: Final = 4
"""By which it is known without knowing the rest: a node asks which level a log is at before it reads it."""


class CreateCluster(Base, frozen=True, tag=1):
    """The first command of all: gives the cluster its id. Refused when it has one."""

    cluster_id: Annotated[str, Meta(min_length=1, max_length=64)]
    time_ms: TimeMs


class AddNode(Base, frozen=True, tag=2):
    """A Raft member; adding a known one changes its address."""

    node_id: BrokerId
    host: str
    port: Port
    voter: bool = True


class RemoveNode(Base, frozen=True, tag=3):
    node_id: BrokerId


class SetFeatureLevel(Base, frozen=True, tag=SET_FEATURE_LEVEL_TAG):
    """Level 0 takes the feature away. What the level of the cluster is, and may become: see `levels`."""

    name: str
    level: Annotated[int, Meta(ge=0, le=2**15 - 1)]


class AllocateProducerIds(Base, frozen=True, tag=5):
    """A block of ids for one broker; the result's `value` is the first of them."""

    broker_id: BrokerId
    broker_epoch: int
    count: Annotated[int, Meta(ge=1, le=1_000_000)]
