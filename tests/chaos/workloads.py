"""What clients do while the cluster is tormented: each workload has a topic of its own, and its own promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.chaos.clients import Member, Progress, Sender, Settings, wait_for
from tests.chaos.history import Journal, Place, Promised

MEMBERS = 2


@dataclass(frozen=True)
class Workload:
    name: str
    is_ordered: bool
    is_once: bool
    senders: tuple[Settings, ...]
    """The settings of each, beside the client's own."""
    timeout_s: float
    """After which a producer gives a record up: what became of it is unknown."""
    keys: int = 0
    """Of each producer; 0: records have none."""
    partitions: int = 3
    has_group: bool = True

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
        )


WORKLOADS = {
    each.name: each
    for each in (
        # As most people have it, beside one that tries once: what it was refused must not be there.
        Workload("queue", False, False, senders=({}, {}, {"retries": 0}), timeout_s=20.0),
        # The next record of a key is sent when the last is settled. (One request in flight would not do: librdkafka
        # counts them by connection, and forgets those of a leader that it has given up.)
        Workload("keyed", True, False, senders=({}, {}), timeout_s=20.0, keys=60),
        # Patient: a record that it gives up ends a sequence, which is another thing to test than going on with it.
        Workload("idempotent", True, True, senders=({"enable.idempotence": True},) * 2, timeout_s=60.0),
    )
}


PULSE = Workload("pulse", False, False, senders=(), timeout_s=0.0, has_group=False)
"""One record at a time into each partition, by `witnesses.Pulse`: always there, beside what was asked for."""

GROUPS = tuple(f"ledger-{number}" for number in range(1, 7))
"""Enough for every node to coordinate some of them. They have no members."""


@dataclass
class Crew:
    """The clients of one workload."""

    workload: Workload
    senders: list[Sender]
    members: list[Member]

    @classmethod
    def of(cls, workload: Workload, journal: Journal, progress: Progress, bootstrap: str, rate: float) -> Crew:
        """`rate`: records per second of the whole workload."""
        share = rate / len(workload.senders)
        senders = [
            Sender(
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
            Member(f"{workload.name}-c{number}", journal, bootstrap, workload.name, workload.group)
            for number in range(1, MEMBERS + 1)
        ]
        return cls(workload, senders, members)

    def have_read(self, ends: dict[Place, int]) -> bool:
        """Whether the members together have come to these ends."""
        return all(
            max((member.positions.get(place, 0) for member in self.members), default=0) >= ends[place]
            for place in self.workload.places()
        )


def drain(crews: Iterable[Crew], ends: dict[Place, int], seconds: float) -> None:
    """Returns when the groups have read all, or when it takes too long: then the checkers say what they have not."""
    crews = list(crews)
    wait_for(lambda: all(crew.have_read(ends) for crew in crews), seconds)
