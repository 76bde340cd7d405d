"""A trip: a cluster grows from three to seven nodes, two of the first three are replaced, and it shrinks to three; or a
shorter variant. Operator commands change real processes while clients of every kind write and read, also under faults.

    .venv/bin/python -m tests.cluster.trips --seed 7              # a trip under faults
    .venv/bin/python -m tests.cluster.trips --seed 1 --seeds 20
"""

from __future__ import annotations

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from chronik.client.partitions import list_reassignments
from chronik.errors import ChronikError
from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos.history import Place
from tests.cli.command_line import COMMAND, CommandResult, environment
from tests.cluster import membership_helpers, replication_helpers
from tests.cluster.client_load import running_client_loads
from tests.cluster.diagnosis import describe_cluster_state
from tests.cluster.quorum_watch import QuorumWatch
from tests.cluster.trip_faults import TripFaults

Say = Callable[[str], None]

FIRST = (1, 2, 3)
VOTERS_ADDED = 2
"""Added voters, so that the full cluster has five."""


class TripNodes(NamedTuple):
    """The nodes that join during a trip."""

    added: tuple[int, ...]
    replacements: tuple[int, ...]
    """Nodes that replace one of the first each."""

    @property
    def joining(self) -> tuple[int, ...]:
        return *self.added, *self.replacements


FULL = TripNodes(added=(4, 5, 6, 7), replacements=(8, 9))
SHORT = TripNodes(added=(4, 5), replacements=(6,))

TOPIC, WATCHED = "travelling", "watched"
PARTITIONS = 3
RATE = 40.0
PAUSE_SECONDS = 0.5
"""Pause between the calls of driven clients. A JVM would use a whole core without it."""

COMMAND_SECONDS = 60
STEP_SECONDS_MAX = 240.0
"""Time limit for one step under faults, with all its repetitions."""
SETTLED_SECONDS_MAX = 120.0
CLIENT_SECONDS_MAX = 200.0

HANGING_READERS = ("kafka-python",)
"""Clients that may hang: if the metadata changes and changes back during a rejoin whose poll ends early, kafka-python
3.0.12 forgets to rejoin and waits forever. The metadata of an isolated node, and of the next one, is such a change."""

NOT_A_MEMBER_ERROR = "in this cluster; its nodes are"
"""The error of a repeated command whose work is already done."""


class TripStep(NamedTuple):
    """One command of a trip."""

    words: tuple[str, ...]
    starts: int | None = None
    stops: int | None = None

    @property
    def subject(self) -> int | None:
        """The node that the command is about."""
        return self.stops or self.starts


class TripPlan(NamedTuple):
    """The steps of a trip."""

    steps: list[TripStep]
    survivors: list[int]
    """The nodes of the first three that stay."""
    left: list[int]


def plan_trip(cluster: Cluster, party: TripNodes, randomness: random.Random) -> TripPlan:
    """Choose voters and leaving nodes at random. The steps are the same, and the Raft leader is replaced first."""

    def raft(node_id: int) -> tuple[str, str]:
        return "--raft", str(cluster.raft_address(node_id))

    leader = cluster.leader().node_id
    others = randomness.sample([node for node in FIRST if node != leader], len(FIRST) - 1)
    replaced, survivors = [leader, *others][: len(party.replacements)], [leader, *others][len(party.replacements) :]
    middle = [TripStep(("promote", str(node))) for node in randomness.sample(party.added, VOTERS_ADDED)]
    middle.append(TripStep(("rebalance",)))
    left = [*survivors, *randomness.sample(party.joining, len(FIRST) - len(survivors))]
    leaving = [node for node in party.joining if node not in left]
    randomness.shuffle(leaving)
    steps = [
        *(TripStep(("add-node", str(node), *raft(node)), starts=node) for node in party.added),
        *randomness.sample(middle, len(middle)),
        *(
            TripStep(("replace-node", str(old), str(new), *raft(new)), starts=new, stops=old)
            for old, new in zip(replaced, party.replacements, strict=True)
        ),
        *(TripStep(("remove-node", str(node)), stops=node) for node in leaving),
    ]
    return TripPlan(steps, survivors, sorted(left))


class Trip:
    """A running trip."""

    def __init__(self, cluster: Cluster, itinerary: TripPlan, spare: dict[int, ClusterNode], say: Say) -> None:
        """`spare` are nodes that have been created but not started."""
        self.cluster, self.itinerary, self.spare = cluster, itinerary, spare
        self._say = say
        self.node_lock = threading.RLock()
        """A lock for starting, stopping and otherwise affecting nodes."""
        first = sorted(FIRST, key=lambda each: each not in itinerary.survivors)
        self.bootstrap = ",".join(cluster[each].bootstrap for each in first)
        """The bootstrap addresses of the clients: the first three nodes, a staying one first."""
        self.step: TripStep | None = None
        self.command: subprocess.Popen[bytes] | None = None
        self.repeated: list[str] = []
        """The errors of commands that had to be repeated."""

    @property
    def subject(self) -> int | None:
        return self.step.subject if self.step is not None else None

    @property
    def leaving(self) -> int | None:
        return self.step.stops if self.step is not None else None

    def describe_step(self) -> str:
        return " ".join(self.step.words[:2]) if self.step is not None else "between steps"

    def run_step(self, step: TripStep, *, may_repeat: bool) -> None:
        self.step = step
        began = time.monotonic()
        if step.starts is not None:
            with self.node_lock:
                self._start(step.starts)
        self._run_until_done(step, began + STEP_SECONDS_MAX, may_repeat)
        if step.stops is not None:
            with self.node_lock:
                self._stop(step.stops)
        self._say(f"{time.monotonic() - began:6.1f} s  {' '.join(step.words[:2])}")
        self.step = None

    def _run_until_done(self, step: TripStep, deadline: float, may_repeat: bool) -> None:
        """Run the command until it succeeds. A repeated command may find that its work is done."""
        outcome = self._run(step)
        while outcome.code != 0:
            told = f"{' '.join(step.words[:2])}: {outcome.err.strip() or 'killed'}"
            assert may_repeat, told
            assert time.monotonic() < deadline, f"{told}\n{outcome.out}"
            self.repeated.append(told)
            self._say(f"  again: {told}")
            outcome = self._run(step)
            if NOT_A_MEMBER_ERROR in outcome.err:
                return

    def _run(self, step: TripStep) -> CommandResult:
        """Run the command through random nodes of the cluster."""
        asked = [node.bootstrap for node_id, node in self.cluster.nodes.items() if node_id != step.starts]
        random.shuffle(asked)
        words = ["cluster", *step.words, "--yes", "--wait", str(COMMAND_SECONDS)]
        with subprocess.Popen(
            [*COMMAND, *words], env=environment(",".join(asked)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as self.command:
            out, err = self.command.communicate()
            return CommandResult(self.command.returncode, out.decode(), err.decode())

    # Other threads read the nodes concurrently, so the dictionary is replaced, not changed.

    def _start(self, node_id: int) -> None:
        node = self.spare.pop(node_id)
        self.cluster.nodes = {**self.cluster.nodes, node_id: node}
        node.start()

    def _stop(self, node_id: int) -> None:
        node = self.cluster.nodes[node_id]
        node.stop()
        self.cluster.nodes = {each: node for each, node in self.cluster.nodes.items() if each != node_id}

    # The end of the trip

    def check(self) -> None:
        """Check the final nodes, voters and replicas, and that no reassignment is in progress."""
        left = self.itinerary.left
        assert sorted(self.cluster.nodes) == left
        self.cluster.wait_until_ready(SETTLED_SECONDS_MAX)
        self.cluster.wait_until_listed(left)
        self.cluster.wait_until(self._missing, "all three to vote, and no reassignments", SETTLED_SECONDS_MAX)

    def _missing(self) -> str | None:
        for node in self.cluster.live_nodes:
            told = membership_helpers.described_nodes(node)
            if sorted(told) != self.itinerary.left:
                return f"node {node.node_id} lists the nodes {sorted(told)}"
            if odd := [each for each in told.values() if not each.is_voter or each.draining or each.status != "online"]:
                return f"node {node.node_id} reports {odd}"
        with self.cluster.live_nodes[0].cluster() as client:
            moves = list_reassignments(client)
        return f"{len(moves)} reassignments in progress" if moves else None


@contextmanager
def prepare_cluster(
    folder: Path, party: TripNodes, randomness: random.Random, say: Say, *, links: bool = False
) -> Iterator[tuple[Trip, list[Place]]]:
    """Run a cluster of three with a topic, and create nodes that the cluster does not know."""
    with closing(Cluster(len(FIRST), folder, links=links)) as cluster:
        for node_id in party.added:
            cluster.add_node(node_id, known=FIRST)
        for node_id in party.replacements:
            cluster.add_node(node_id, known=(*FIRST, *party.added))
        spare = {node_id: cluster.nodes.pop(node_id) for node_id in party.joining}
        cluster.start()
        cluster.wait_until_ready()
        trip = Trip(cluster, plan_trip(cluster, party, randomness), spare, say)
        places = replication_helpers.create_topic(cluster, TOPIC, PARTITIONS)
        replication_helpers.create_topic(cluster, WATCHED, 1)
        yield trip, places


class TripResult(NamedTuple):
    """The result of a trip."""

    records: int
    watch: QuorumWatch
    problems: dict[str, list[str]]
    repeated: list[str]
    faults: dict[str, int]
    clients: list[str]

    def summary(self) -> str:
        done = f"{self.records:,} records of {', '.join(self.clients)}, 0 lost, 0 duplicated"
        errors = sum(map(len, self.problems.values()))
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        troubles = f"; {sum(self.faults.values())} faults ({faults}), {len(self.repeated)} commands repeated"
        return f"{done}, {errors or 'no'} errors{troubles if self.faults else ''}; {self.watch.summary()}"


def run_trip(
    folder: Path,
    seed: int,
    *,
    driven: Sequence[str],
    party: TripNodes = FULL,
    with_faults: bool = False,
    say: Say = lambda line: None,
) -> TripResult:
    """Run a trip. Raises AssertionError on lost or duplicated records or a wrong final state.

    The caller judges the errors of the clients.
    """
    randomness = random.Random(seed)
    with prepare_cluster(folder, party, randomness, say, links=with_faults) as (trip, places):
        cluster = trip.cluster
        watch = QuorumWatch(cluster, WATCHED, trip.describe_step, lambda: trip.leaving)
        trouble = TripFaults(trip, random.Random(seed + 1), say)
        clients = running_client_loads(
            trip.bootstrap,
            TOPIC,
            PARTITIONS,
            driven,
            rate=RATE,
            pause_s=PAUSE_SECONDS,
            not_reading=HANGING_READERS if with_faults else (),
        )
        with clients as (loads, followers):
            everyone: list[replication_helpers.ProducerLoad | replication_helpers.ConsumerLoad] = [*loads, *followers]
            for client in everyone:
                client.wait_until_progress()
            with watch:
                with trouble.running(with_faults):
                    for step in trip.itinerary.steps:
                        trip.run_step(step, may_repeat=with_faults)
                        if not with_faults:
                            loads[0].wait_until_progress()
                trip.check()
                replication_helpers.wait_until_in_sync(cluster, places, SETTLED_SECONDS_MAX)
                for client in everyone:
                    wait_until_progress(client, cluster)
        problems = {client.name: client.problems for client in everyone if client.problems}
        records = replication_helpers.check_records(trip.bootstrap, places, loads)
        for follower in followers:
            replication_helpers.check_consumer(trip.bootstrap, places, follower)
        replication_helpers.check_replicas(cluster, places)
        cluster.wait_until_agreed()
        watch.check_last()
        kinds = [load.client for load in loads]
        return TripResult(records, watch, problems, trip.repeated, trouble.counts, kinds)


def wait_until_progress(
    client: replication_helpers.ProducerLoad | replication_helpers.ConsumerLoad, cluster: Cluster
) -> None:
    """Wait until a client continues. A lost group member may have to wait for several sessions of 45 s.

    On failure, the state of the cluster is reported.
    """
    try:
        client.wait_until_progress(seconds=CLIENT_SECONDS_MAX)
    except AssertionError as stuck:
        group = client.group if isinstance(client, replication_helpers.ConsumerLoad) else ""
        stuck.add_note(describe_cluster_state(cluster.live_nodes, [TOPIC], group))
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds, starting at --seed")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--driven", default="java-4", help="comma-separated clients in addition to the Python ones")
    parser.add_argument("--keep", type=Path, help="directory in which the nodes' data is kept")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # clients log every lost node
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    failed = [seed for seed in seeds if not _run_seed(seed, arguments)]
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds passed" + f", failed: {failed}" * bool(failed), flush=True)
    return bool(failed)


def _run_seed(seed: int, arguments: argparse.Namespace) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chronik-trip-") as temporary:
        folder = arguments.keep / f"seed{seed}" if arguments.keep else Path(temporary)
        driven, with_faults = arguments.driven.split(","), not arguments.no_faults
        try:
            travelled = run_trip(folder, seed, driven=driven, with_faults=with_faults, say=partial(print, flush=True))
        except (AssertionError, ChronikError):
            traceback.print_exc()
            print(f"seed {seed}, {time.monotonic() - began:.0f} s: FAILED", flush=True)
            return False
    print(f"seed {seed}, {time.monotonic() - began:.0f} s: {travelled.summary()}", flush=True)
    for name, problems in travelled.problems.items():
        print(f"  {name}: {len(problems)} errors, first {problems[:3]}", flush=True)
    return not travelled.problems


if __name__ == "__main__":
    sys.exit(main())
