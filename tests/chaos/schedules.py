"""The kinds of faults, and a schedule of them that is determined by a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos import faults, network_faults
from tests.chaos.faults import Fault

HOLD_SECONDS = (2.0, 6.0)
"""Duration of a fault, shorter or longer than a broker session of 3 s: some faults end before a failover."""

LONG_CUT_SECONDS = 10.0
"""Longer than any session timeout, so that every node considers every other one dead."""

RECOVERY_SECONDS_MAX = 2.0
"""Time limit from the end of a long cut to acknowledgements of all partitions: an election and new connections."""

REST_SECONDS = (0.5, 2.0)
PATIENT_SHARE = 0.7


@dataclass(frozen=True)
class FaultKind:
    """A kind of fault."""

    befall: Fault
    hits_minority: bool = True
    """Whether only a minority is affected, so that the cluster must stay available."""
    needs_network: bool = False
    """Whether it requires network namespaces, because proxies on the loopback address cannot do it."""
    hold_s: tuple[float, float] = HOLD_SECONDS
    recovery_s_max: float | None = None
    """Time limit for every partition to acknowledge records after the fault, if any."""
    cuts_pairs: bool = False
    """Whether two nodes may be disconnected while a third reaches both. Then the markers of a transaction wait if its
    coordinator and a partition leader are disconnected."""


def _of_network(fault: Fault, *, hits_minority: bool = False, cuts_pairs: bool = False) -> FaultKind:
    return FaultKind(fault, hits_minority, needs_network=True, cuts_pairs=cuts_pairs)


FAULT_KINDS: dict[str, FaultKind] = {
    "kill": FaultKind(faults.killed),
    "killall": FaultKind(faults.all_killed, hits_minority=False),
    "pause": FaultKind(faults.paused),
    "stutter": FaultKind(faults.stuttering),
    "clock": FaultKind(faults.clock_jumping),
    "partition": FaultKind(faults.cut_off, cuts_pairs=True),
    "oneway": FaultKind(faults.cut_one_way),
    "longcut": FaultKind(
        faults.all_cut_off,
        hits_minority=False,
        hold_s=(LONG_CUT_SECONDS, LONG_CUT_SECONDS),
        recovery_s_max=RECOVERY_SECONDS_MAX,
    ),
    "diskfull": FaultKind(faults.disk_full),
    "laggard": FaultKind(faults.overtaken),
    "mixed": FaultKind(faults.mixed, hits_minority=False),
    "reject": _of_network(network_faults.rejected, hits_minority=True),
    "rejectclients": _of_network(network_faults.clients_rejected),
    "isolated": _of_network(network_faults.isolated, hits_minority=True),
    "ring": _of_network(network_faults.cut_ring),
    "bridge": _of_network(network_faults.bridged, hits_minority=True, cuts_pairs=True),
    "slow": _of_network(network_faults.slow, hits_minority=True),
    "lossy": _of_network(network_faults.lossy),
    "answers": _of_network(network_faults.responses_lost),
    "flap": _of_network(network_faults.flapping, hits_minority=True),
    "storm": _of_network(network_faults.all_faults),
}


class FaultTarget(Enum):
    """The node that a fault affects."""

    PARTITION_LEADER = "the leader of a partition"
    CONTROLLER = "the controller"
    ANY = "any node"


TARGET_WEIGHTS = {FaultTarget.PARTITION_LEADER: 5, FaultTarget.CONTROLLER: 3, FaultTarget.ANY: 2}


@dataclass(frozen=True)
class FaultStep:
    """A scheduled fault."""

    number: int
    kind: str
    target: FaultTarget
    hold_s: float
    rest_s: float
    is_patient: bool
    """Whether the fault waits until all replicas are in sync. Then the cluster must stay available."""
    seed: str
    """The seed of all further choices, such as the partition."""

    def __str__(self) -> str:
        manner = "when all are in sync" if self.is_patient else "immediately"
        return f"{self.number:3d}. {self.kind:<13} of {self.target.value:<25} for {self.hold_s:.1f} s, {manner}"


def schedule(seed: int, kinds: Sequence[str], known: Mapping[str, FaultKind] = FAULT_KINDS) -> Iterator[FaultStep]:
    """Yield an endless schedule. Every kind appears once before one is repeated."""
    rng = random.Random(f"chaos {seed}")
    number = 0
    while True:
        for kind in rng.sample(kinds, len(kinds)):
            number += 1
            (target,) = rng.choices(list(TARGET_WEIGHTS), list(TARGET_WEIGHTS.values()))
            yield FaultStep(
                number,
                kind,
                target,
                hold_s=round(rng.uniform(*known[kind].hold_s), 1),
                rest_s=round(rng.uniform(*REST_SECONDS), 1),
                is_patient=rng.random() < PATIENT_SHARE,
                seed=f"{seed} {number}",
            )


def choose_minority(cluster: Cluster, first: ClusterNode, rng: random.Random) -> list[ClusterNode]:
    """Return `first` and as many others as the cluster can lose."""
    others = [node for node in cluster.nodes.values() if node is not first]
    count = rng.randint(1, max(1, (len(cluster.nodes) - 1) // 2))
    return [first, *rng.sample(others, count - 1)]
