"""What a plan is made from, and of: nodes and partitions as far as plans need to know them, and moves of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chronik.errors import ChronikError

NO_LEADER: Final = -1
NAMES_SHOWN_MAX: Final = 3
"""How many partitions a sentence names; the rest is counted."""


class Refused(ChronikError):
    """What was asked for would do harm, or cannot be done; the message says why."""


@dataclass(frozen=True, slots=True)
class NodeView:
    id: int
    rack: str | None = None
    """Nodes that name no rack share one."""
    is_online: bool = True
    """Whether its broker is heard from, be it drained or not."""
    is_draining: bool = False
    is_member: bool = True
    is_voter: bool = False
    """What Raft's membership says."""
    meant_to_vote: bool = False
    """What operators want; Raft's membership follows."""

    @property
    def takes_replicas(self) -> bool:
        return self.is_online and not self.is_draining


@dataclass(frozen=True, slots=True)
class PartitionView:
    topic: str
    index: int
    replicas: tuple[int, ...]
    """Where it is or, while it moves, will be; the preferred leader first."""
    in_sync: tuple[int, ...] = ()
    leader: int = NO_LEADER
    min_in_sync: int = 1
    lives_in_metadata: bool = False
    """Partitions of system topics have no records of their own: each replica that is online has everything."""
    leaving: tuple[int, ...] = ()
    """Replicas that it still has, and will not have when its move is done."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that is to get other replicas, or the same in another order."""

    partition: PartitionView
    replicas: tuple[int, ...]

    @property
    def added(self) -> tuple[int, ...]:
        """The replicas that have to be copied."""
        return tuple(replica for replica in self.replicas if replica not in self.partition.replicas)


def named(partitions: Iterable[PartitionView]) -> str:
    """Names some of them: `orders-0, orders-1 and 12 more`."""
    names = [str(partition) for partition in partitions]
    if len(names) > NAMES_SHOWN_MAX + 1:
        names[NAMES_SHOWN_MAX:] = [f"{len(names) - NAMES_SHOWN_MAX} more"]
    return enumerated(names)


def enumerated(words: Iterable[object]) -> str:
    """Joins words as one says them: `1, 2 and 3`."""
    texts = [str(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
