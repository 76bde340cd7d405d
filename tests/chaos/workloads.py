"""Workloads of the chaos tests, each with its own topic and guarantees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.clients import AckProgress, ChaosConsumer, ChaosProducer, Settings, wait_for
from tests.chaos.copiers import ChaosCopier
from tests.chaos.history import Journal, Place, Promised

MEMBERS = 2
COPIERS = 2


@dataclass(frozen=True)
class Workload:
    """A topic, its producers and consumers, and its guarantees."""

    name: str
    is_ordered: bool
    is_once: bool
    senders: tuple[Settings, ...]
    """The settings of each producer, in addition to the common ones."""
    timeout_s: float
    """Time after which a producer abandons a record, whose outcome is then unknown."""
    keys: int = 0
    """Number of keys of each producer; 0 for records without keys."""
    partitions: int = 3
    has_group: bool = True
    copies: tuple[Workload, ...] = ()
    """Topics to which the records are copied in transactions."""
    copies_of: str | None = None

    @property
    def topics(self) -> tuple[Workload, ...]:
        return (self, *self.copies)

    @property
    def group(self) -> str:
        return f"{self.name}-readers"

    def places(self) -> list[Place]:
        return [Place(self.name, partition) for partition in range(self.partitions)]

    def promise(self, at: float) -> Promised:
        return Promised(
            at=at,
            topic=self.name,
            partitions=self.partitions,
            is_ordered=self.is_ordered,
            is_once=self.is_once,
            groups=(self.group,) if self.has_group else (),
            copies_of=self.copies_of,
        )


def _copy(of: str, name: str) -> Workload:
    return Workload(name, True, True, senders=(), timeout_s=0.0, copies_of=of)


WORKLOADS = {
    each.name: each
    for each in (
        # Common settings, and a producer without retries: its rejected records must not exist.
        Workload("queue", False, False, senders=({}, {}, {"retries": 0}), timeout_s=20.0),
        # The next record of a key is sent when the previous one is settled. (One request in flight is not enough:
        # librdkafka counts them by connection, and forgets those of an abandoned leader.)
        Workload("keyed", True, False, senders=({}, {}), timeout_s=20.0, keys=60),
        # Long timeouts: an abandoned record would end the sequence of an idempotent producer.
        Workload("idempotent", True, True, senders=({"enable.idempotence": True},) * 2, timeout_s=60.0),
        # Records that are consumed and produced to two other topics in transactions.
        Workload(
            "transactions",
            True,
            True,
            senders=({"enable.idempotence": True},),
            timeout_s=60.0,
            has_group=False,
            copies=(_copy("transactions", "copies-a"), _copy("transactions", "copies-b")),
        ),
    )
}


PULSE = Workload("pulse", False, False, senders=(), timeout_s=0.0, has_group=False)
"""One record at a time to each partition, by `witnesses.Pulse`. It always runs in addition to the other workloads."""

GROUPS = tuple(f"ledger-{number}" for number in range(1, 7))
"""Groups without members, enough for every node to coordinate some of them."""


@dataclass
class WorkloadClients:
    """The clients of one workload."""

    workload: Workload
    senders: list[ChaosProducer]
    members: list[ChaosConsumer]
    copiers: list[ChaosCopier]

    @classmethod
    def of(
        cls, workload: Workload, journal: Journal, progress: AckProgress, bootstrap: str, rate: float
    ) -> WorkloadClients:
        """Create the clients. `rate` is in records per second for the whole workload."""
        share = rate / len(workload.senders)
        senders = [
            ChaosProducer(
                f"{workload.name}-p{number}",
                journal,
                progress,
                bootstrap,
                workload.name,
                share,
                timeout_s=workload.timeout_s,
                keys=workload.keys,
                settings=settings,
            )
            for number, settings in enumerate(workload.senders, 1)
        ]
        members = [
            ChaosConsumer(f"{each.name}-c{number}", journal, bootstrap, each.name, each.group)
            for each in workload.topics
            if each.has_group
            for number in range(1, MEMBERS + 1)
        ]
        targets = [each.name for each in workload.copies]
        copiers = [
            ChaosCopier(f"{workload.name}-t{number}", journal, progress, bootstrap, workload.name, targets)
            for number in range(1, COPIERS + 1)
            if targets
        ]
        return cls(workload, senders, members, copiers)

    def have_read(self, ends: dict[Place, int]) -> bool:
        """Return whether the members together have read up to these offsets."""
        read = [each for each in self.workload.topics if each.has_group]
        return all(_position(self.members, place) >= ends[place] for each in read for place in each.places())

    def have_copied(self, ends: dict[Place, int]) -> bool:
        return not self.copiers or all(
            _position(self.copiers, place) >= ends[place] for place in self.workload.places()
        )


def _position(clients: Iterable[ChaosConsumer | ChaosCopier], place: Place) -> int:
    """Return the highest position of all clients."""
    return max((client.positions.get(place, 0) for client in clients), default=0)


def wait_until_read(crews: Iterable[WorkloadClients], ends: dict[Place, int], seconds: float) -> None:
    """Wait until the groups have read everything. After a timeout, the checkers report what is missing."""
    crews = list(crews)
    wait_for(lambda: all(crew.have_read(ends) for crew in crews), seconds)


def wait_until_copied(crews: Iterable[WorkloadClients], ends: dict[Place, int], seconds: float) -> None:
    """Wait until everything is copied. After a timeout, the checkers report what is missing."""
    crews = list(crews)
    wait_for(lambda: all(crew.have_copied(ends) for crew in crews), seconds)
