"""A trip: three nodes become seven, two of the first three are replaced, and three are left; or a shorter one. It is
done by operators' own commands, on real processes, while clients of every kind write and read; or also under faults.

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
from tests.cli.running import COMMAND, Outcome, environment
from tests.cluster import growing, replicated
from tests.cluster.every_client import every_client
from tests.cluster.quorum_watch import QuorumWatch
from tests.cluster.standing import how_it_stands
from tests.cluster.trip_faults import Trouble

Say = Callable[[str], None]

FIRST = (1, 2, 3)
VOTERS_ADDED = 2
"""Five vote when all have come."""


class Party(NamedTuple):
    added: tuple[int, ...]
    heirs: tuple[int, ...]
    """Each of them replaces one of the first."""

    @property
    def coming(self) -> tuple[int, ...]:
        return *self.added, *self.heirs


FULL = Party(added=(4, 5, 6, 7), heirs=(8, 9))
SHORT = Party(added=(4, 5), heirs=(6,))

TOPIC, WATCHED = "travelling", "watched"
PARTITIONS = 3
RATE = 40.0
PAUSE_SECONDS = 0.5
"""Between the calls of clients that are driven: a JVM would take a processor for itself."""

COMMAND_SECONDS = 60
STEP_SECONDS_MAX = 240.0
"""For one step under faults, with all its repetitions."""
SETTLED_SECONDS_MAX = 120.0
CLIENT_SECONDS_MAX = 200.0

HANGING_READERS = ("kafka-python",)
"""A member that rejoins because the metadata has changed, and whose poll ends before it has, forgets that it rejoins if
the metadata is as before by then: kafka-python 3.0.12 waits forever then, out of its group. The metadata of a node that
is cut off, and of the next one, is such a change."""

GONE = "there is no node"
"""What a command says that is run again when its work is done."""


class Step(NamedTuple):
    words: tuple[str, ...]
    starts: int | None = None
    stops: int | None = None

    @property
    def subject(self) -> int | None:
        """Which node it is about."""
        return self.stops or self.starts


class Itinerary(NamedTuple):
    steps: list[Step]
    survivors: list[int]
    """Of the first three."""
    left: list[int]


def itinerary(cluster: Cluster, party: Party, randomness: random.Random) -> Itinerary:
    """Who votes and who leaves, by chance; what is done is the same in every one. The leader of the metadata log is
    replaced first."""

    def raft(node_id: int) -> tuple[str, str]:
        return "--raft", str(cluster.raft_address(node_id))

    leader = cluster.leader().node_id
    others = randomness.sample([node for node in FIRST if node != leader], len(FIRST) - 1)
    replaced, survivors = [leader, *others][: len(party.heirs)], [leader, *others][len(party.heirs) :]
    middle = [Step(("promote", str(node))) for node in randomness.sample(party.added, VOTERS_ADDED)]
    middle.append(Step(("rebalance",)))
    left = [*survivors, *randomness.sample(party.coming, len(FIRST) - len(survivors))]
    leaving = [node for node in party.coming if node not in left]
    randomness.shuffle(leaving)
    steps = [
        *(Step(("add-node", str(node), *raft(node)), starts=node) for node in party.added),
        *randomness.sample(middle, len(middle)),
        *(
            Step(("replace-node", str(old), str(new), *raft(new)), starts=new, stops=old)
            for old, new in zip(replaced, party.heirs, strict=True)
        ),
        *(Step(("remove-node", str(node)), stops=node) for node in leaving),
    ]
    return Itinerary(steps, survivors, sorted(left))


class Trip:
    def __init__(self, cluster: Cluster, itinerary: Itinerary, spare: dict[int, ClusterNode], say: Say) -> None:
        """`spare` are nodes that are made, and not started."""
        self.cluster, self.itinerary, self.spare = cluster, itinerary, spare
        self._say = say
        self.hands = threading.RLock()
        """Held by whoever starts or stops a node, or does something to it."""
        first = sorted(FIRST, key=lambda each: each not in itinerary.survivors)
        self.bootstrap = ",".join(cluster[each].bootstrap for each in first)
        """What clients are given: the first three, one that stays before the others."""
        self.step: Step | None = None
        self.command: subprocess.Popen[bytes] | None = None
        self.repeated: list[str] = []
        """What commands said that had to be run again."""

    @property
    def subject(self) -> int | None:
        return self.step.subject if self.step is not None else None

    @property
    def leaving(self) -> int | None:
        return self.step.stops if self.step is not None else None

    def whereabouts(self) -> str:
        return " ".join(self.step.words[:2]) if self.step is not None else "on the way"

    def take(self, step: Step, *, may_repeat: bool) -> None:
        self.step = step
        began = time.monotonic()
        if step.starts is not None:
            with self.hands:
                self._start(step.starts)
        self._carry_out(step, began + STEP_SECONDS_MAX, may_repeat)
        if step.stops is not None:
            with self.hands:
                self._stop(step.stops)
        self._say(f"{time.monotonic() - began:6.1f} s  {' '.join(step.words[:2])}")
        self.step = None

    def _carry_out(self, step: Step, deadline: float, may_repeat: bool) -> None:
        """Runs the command until it ends well. Run again, it may find that all is done."""
        outcome = self._run(step)
        while outcome.code != 0:
            told = f"{' '.join(step.words[:2])}: {outcome.err.strip() or 'killed'}"
            assert may_repeat, told
            assert time.monotonic() < deadline, f"{told}\n{outcome.out}"
            self.repeated.append(told)
            self._say(f"  again: {told}")
            outcome = self._run(step)
            if outcome.err.startswith(f"chronik: {GONE}"):
                return

    def _run(self, step: Step) -> Outcome:
        """Through whichever nodes an operator names: those that are in, or were when it began."""
        asked = [node.bootstrap for node_id, node in self.cluster.nodes.items() if node_id != step.starts]
        random.shuffle(asked)
        words = ["cluster", *step.words, "--yes", "--wait", str(COMMAND_SECONDS)]
        with subprocess.Popen(
            [*COMMAND, *words], env=environment(",".join(asked)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as self.command:
            out, err = self.command.communicate()
            return Outcome(self.command.returncode, out.decode(), err.decode())

    # Others look at the nodes meanwhile: so there is another dictionary each time.

    def _start(self, node_id: int) -> None:
        node = self.spare.pop(node_id)
        self.cluster.nodes = {**self.cluster.nodes, node_id: node}
        node.start()

    def _stop(self, node_id: int) -> None:
        node = self.cluster.nodes[node_id]
        node.stop()
        self.cluster.nodes = {each: node for each, node in self.cluster.nodes.items() if each != node_id}

    # When it is over

    def check(self) -> None:
        """All is as it was meant to be: who is there, who votes, who holds what, and nothing is under way."""
        left = self.itinerary.left
        assert sorted(self.cluster.nodes) == left
        self.cluster.wait_until_ready(SETTLED_SECONDS_MAX)
        self.cluster.wait_until_listed(left)
        self.cluster.wait_until(self._missing, "all three vote, and nothing is under way", SETTLED_SECONDS_MAX)

    def _missing(self) -> str | None:
        for node in self.cluster.live:
            told = growing.nodes_of(node)
            if sorted(told) != self.itinerary.left:
                return f"node {node.node_id} says that there are {sorted(told)}"
            if odd := [each for each in told.values() if not each.is_voter or each.draining or each.status != "online"]:
                return f"node {node.node_id} tells {odd}"
        with self.cluster.live[0].cluster() as client:
            moves = list_reassignments(client)
        return f"{len(moves)} moves under way" if moves else None


@contextmanager
def prepared(
    folder: Path, party: Party, randomness: random.Random, say: Say, *, links: bool = False
) -> Iterator[tuple[Trip, list[Place]]]:
    """A cluster of three that is ready, with a topic, and nodes that nobody has heard of."""
    with closing(Cluster(len(FIRST), folder, links=links)) as cluster:
        for node_id in party.added:
            cluster.add_node(node_id, known=FIRST)
        for node_id in party.heirs:
            cluster.add_node(node_id, known=(*FIRST, *party.added))
        spare = {node_id: cluster.nodes.pop(node_id) for node_id in party.coming}
        cluster.start()
        cluster.wait_until_ready()
        trip = Trip(cluster, itinerary(cluster, party, randomness), spare, say)
        places = replicated.make_topic(cluster, TOPIC, PARTITIONS)
        replicated.make_topic(cluster, WATCHED, 1)
        yield trip, places


class Travelled(NamedTuple):
    records: int
    watch: QuorumWatch
    problems: dict[str, list[str]]
    repeated: list[str]
    faults: dict[str, int]
    clients: list[str]

    def told(self) -> str:
        done = f"{self.records:,} records of {', '.join(self.clients)}, 0 lost, 0 doubled"
        errors = sum(map(len, self.problems.values()))
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        troubles = f"; {sum(self.faults.values())} faults ({faults}), {len(self.repeated)} commands run again"
        return f"{done}, {errors or 'no'} errors{troubles if self.faults else ''}; {self.watch.told()}"


def travel(
    folder: Path,
    seed: int,
    *,
    driven: Sequence[str],
    party: Party = FULL,
    with_faults: bool = False,
    say: Say = lambda line: None,
) -> Travelled:
    """Raises AssertionError when anything is lost, doubled or not as it was meant; what clients say is for the caller
    to judge."""
    randomness = random.Random(seed)
    with prepared(folder, party, randomness, say, links=with_faults) as (trip, places):
        cluster = trip.cluster
        watch = QuorumWatch(cluster, WATCHED, trip.whereabouts, lambda: trip.leaving)
        trouble = Trouble(trip, random.Random(seed + 1), say)
        clients = every_client(
            trip.bootstrap,
            TOPIC,
            PARTITIONS,
            driven,
            rate=RATE,
            pause_s=PAUSE_SECONDS,
            not_reading=HANGING_READERS if with_faults else (),
        )
        with clients as (loads, followers):
            everyone: list[replicated.Load | replicated.Follower] = [*loads, *followers]
            for client in everyone:
                client.wait_until_it_goes_on()
            with watch:
                with trouble.running(with_faults):
                    for step in trip.itinerary.steps:
                        trip.take(step, may_repeat=with_faults)
                        if not with_faults:
                            loads[0].wait_until_it_goes_on()
                trip.check()
                replicated.wait_until_in_sync(cluster, places, SETTLED_SECONDS_MAX)
                for client in everyone:
                    see_it_go_on(client, cluster)
        problems = {client.name: client.problems for client in everyone if client.problems}
        records = replicated.check_records(trip.bootstrap, places, loads)
        for follower in followers:
            replicated.check_follower(trip.bootstrap, places, follower)
        replicated.check_replicas(cluster, places)
        cluster.wait_until_agreed()
        watch.check_last()
        kinds = [load.client for load in loads]
        return Travelled(records, watch, problems, trip.repeated, trouble.counts, kinds)


def see_it_go_on(client: replicated.Load | replicated.Follower, cluster: Cluster) -> None:
    """A member that a group has lost may have to wait until its place is given up, which takes as long as its session:
    45 s, or several of them. If it does not go on, tells how everything stands."""
    try:
        client.wait_until_it_goes_on(seconds=CLIENT_SECONDS_MAX)
    except AssertionError as stuck:
        group = client.group if isinstance(client, replicated.Follower) else ""
        stuck.add_note(how_it_stands(cluster.live, [TOPIC], group))
        raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--driven", default="java-4", help="clients beside those of Python, with commas")
    parser.add_argument("--keep", type=Path, help="where folders of the nodes are left")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # clients tell of every node that they lose
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    failed = [seed for seed in seeds if not _goes_well(seed, arguments)]
    print(f"{len(seeds) - len(failed)} of {len(seeds)} seeds went well" + f", not {failed}" * bool(failed), flush=True)
    return bool(failed)


def _goes_well(seed: int, arguments: argparse.Namespace) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="chronik-trip-") as temporary:
        folder = arguments.keep / f"seed{seed}" if arguments.keep else Path(temporary)
        driven, with_faults = arguments.driven.split(","), not arguments.no_faults
        try:
            travelled = travel(folder, seed, driven=driven, with_faults=with_faults, say=partial(print, flush=True))
        except (AssertionError, ChronikError):
            traceback.print_exc()
            print(f"seed {seed}, {time.monotonic() - began:.0f} s: FAILED", flush=True)
            return False
    print(f"seed {seed}, {time.monotonic() - began:.0f} s: {travelled.told()}", flush=True)
    for name, problems in travelled.problems.items():
        print(f"  {name}: {len(problems)} errors, first {problems[:3]}", flush=True)
    return not travelled.problems


if __name__ == "__main__":
    sys.exit(main())
