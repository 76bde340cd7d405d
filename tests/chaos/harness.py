"""One run: a cluster, clients, faults; then peace, a last look at everything, and a judgement."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from chronik.client.admin import NewTopic, create_topics
from chronik.client.errors import ClientError
from chronik.errors import ChronikError
from chronik.protocol.errors import KafkaError
from chronik.testing.cluster import ClusterNode
from chronik.testing.control import BrokerFailed
from tests.chaos import standing
from tests.chaos.checkers import judge
from tests.chaos.clients import Client, Progress, Watcher, running, wait_for
from tests.chaos.cluster import ChaosCluster
from tests.chaos.evidence import Range
from tests.chaos.final import ranges_of, read_everything, stable_ends
from tests.chaos.findings import Finding
from tests.chaos.history import AnyEvent, FaultBegan, FaultEnded, Journal, NodeStarted, Place, now
from tests.chaos.probes import Probe, Subjects, probes
from tests.chaos.replicas import compare, partition_folder, read_log
from tests.chaos.schedules import KINDS, Kind, Step, Target, minority, schedule
from tests.chaos.witnesses import Founder, Ledger, Names, Pulse
from tests.chaos.workloads import GROUPS, PULSE, WORKLOADS, Crew, Workload, copy_all, drain

JOURNAL = "journal.jsonl"
NODES = 3

IN_SYNC_SECONDS_MAX = 60.0
"""Some seconds suffice for replicas to catch up with what this little load has written meanwhile."""

PROGRESS_SECONDS_MAX = 30.0
"""A session of 3 s, an election, and clients that time out after 5 s and back off: ten seconds, on a busy machine."""

LEADER_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 120.0
"""A group whose coordinator was killed last may have to wait for a session of its members: 45 s."""

STRAGGLERS_SECONDS = 12.0
"""What a client has given up may still come: its kernel sends it again, ever more seldom, for as long as no answer got
through; up to the longest fault of that kind, and a little."""

POLL_SECONDS = 0.05
STEP_SECONDS = 6.0
"""About what one fault takes: how many of the schedule are shown beforehand."""

RECOVERY_SECONDS_MAX = 30.0
"""As for going on: after that something hangs."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    folder: Path
    seconds: float = 60.0
    steps_max: int | None = None
    """Ends sooner, after so many faults."""
    seed: int = 1
    faults: tuple[str, ...] = tuple(KINDS)
    workloads: tuple[Workload, ...] = tuple(WORKLOADS.values())
    rate: float = 120.0
    """Records per second of each workload."""
    replication: int = 3
    min_insync: int = 2
    kinds: Mapping[str, Kind] = field(default_factory=lambda: KINDS)
    has_network: bool = False
    """Nodes and clients in namespaces of their own. Raises NoNamespaces where there are none."""

    @property
    def all_workloads(self) -> tuple[Workload, ...]:
        return (*(topic for workload in self.workloads for topic in workload.topics), PULSE)

    def copies(self) -> list[Place]:
        return [place for workload in self.all_workloads if workload.copies_of for place in workload.places()]

    def places(self) -> list[Place]:
        return [place for workload in self.all_workloads for place in workload.places()]

    @property
    def survives_a_minority(self) -> bool:
        return self.min_insync < self.replication


@dataclass(frozen=True)
class Outcome:
    events: list[AnyEvent]
    findings: list[Finding]
    steps: int


def run_chaos(options: Options, say: Say) -> Outcome:
    """All that went wrong is in the findings. What is left in the folder is for whoever looks into them."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with closing(Journal(options.folder / JOURNAL)) as journal, closing(_cluster(options, journal)) as cluster:
        run = _Run(options, cluster, journal, say)
        try:
            with cluster.with_clients():
                run.go()
        except (ChronikError, KafkaError) as failure:
            run.findings.append(Finding("broken off", f"{type(failure).__name__}: {failure}"))
        events = journal.events()
    return Outcome(events, [*run.findings, *judge(events)], run.steps)


def _cluster(options: Options, journal: Journal) -> ChaosCluster:
    return ChaosCluster(
        NODES,
        options.folder / "cluster",
        has_network=options.has_network,
        started=lambda node, at: journal.add(NodeStarted(at=at, node=node)),
        replication_factor=options.replication,
        min_insync_replicas=options.min_insync,
    )


class _Run:
    def __init__(self, options: Options, cluster: ChaosCluster, journal: Journal, say: Say) -> None:
        self.options = options
        self.cluster = cluster
        self.journal = journal
        self.findings: list[Finding] = []
        self.steps = 0
        self._progress = Progress()
        self._places = options.places()
        self._topics = [workload.name for workload in options.all_workloads]
        self._passing = Names()
        self._began = now()
        self._say_line = say

    def go(self) -> None:
        """Raises BrokerFailed when a node does not come up, ClientError or KafkaError when no last look is possible."""
        self.cluster.start()
        self.cluster.wait_until_ready()
        self._make_topics()
        crews = [
            Crew.of(each, self.journal, self._progress, self.cluster.bootstrap, self.options.rate)
            for each in self.options.workloads
        ]
        watcher = Watcher("watcher", self.journal, self.cluster.bootstrap, self._places)
        senders = [*(sender for crew in crews for sender in crew.senders), *self._changers()]
        copiers = [copier for crew in crews for copier in crew.copiers]
        with running([watcher, *self._probes(), *(member for crew in crews for member in crew.members)]):
            with running(copiers):
                with running(senders):
                    with self._told():
                        self._torment()
                    self._heal()
                self._say(f"peace; {self._progress.acknowledged:,} acknowledged; the groups read what is left")
                self._await_sync()
                copy_all(crews, self._settled_ends(), DRAIN_SECONDS_MAX)
            self._await_stable()
            drain(crews, self._settled_ends(), DRAIN_SECONDS_MAX)
        self._look_at_everything()

    def _changers(self) -> list[Client]:
        nodes = {node_id: node.kafka for node_id, node in self.cluster.nodes.items()}
        pulses = [
            Pulse(f"{place.topic}-p{place.partition}", self.journal, self._progress, nodes, place)
            for place in PULSE.places()
        ]
        ledger = Ledger("ledger", self.journal, nodes, GROUPS, PULSE.places()[0])
        return [*pulses, ledger, Founder("founder", self.journal, self.cluster.bootstrap, self._passing)]

    def _probes(self) -> list[Probe]:
        subjects = Subjects(self._places, self._passing, GROUPS, PULSE.places()[0])
        return [
            probe
            for node_id, node in self.cluster.nodes.items()
            for probe in probes(node_id, self.journal, node.kafka, subjects)
        ]

    def _say(self, line: str) -> None:
        self._say_line(f"{now() - self._began:6.1f} s  {line}")

    def _make_topics(self) -> None:
        configs = {"min.insync.replicas": str(self.options.min_insync)}
        with self.cluster.nodes[1].cluster() as client:
            for each in self.options.all_workloads:
                topic = NewTopic(each.name, each.partitions, self.options.replication, configs)
                create_topics(client, [topic])
                self.journal.add(each.promise(now()))
        self._say(f"{NODES} nodes are up, with {', '.join(self._topics)} in {len(self._places)} partitions")

    # Faults

    def _torment(self) -> None:
        self._await_progress(now(), "no partition takes records before the first fault")
        ends_at = now() + self.options.seconds
        planned = schedule(self.options.seed, self.options.faults, self.options.kinds)
        for step in islice(planned, self.options.steps_max):
            if now() >= ends_at or (step.is_patient and not self._await_sync()):
                return
            self._suffer(step)
            self._note_deaths()
            if step.is_patient or self.options.kinds[step.kind].recovery_s_max is not None:
                self._await_recovery()
            wait_for(lambda: now() >= ends_at, step.rest_s, POLL_SECONDS)

    def _suffer(self, step: Step) -> None:
        rng = random.Random(step.seed)
        victims = self._victims(step, rng)
        kind = self.options.kinds[step.kind]
        demands = step.is_patient and kind.hits_minority and self.options.survives_a_minority
        with kind.befall(self.cluster, victims, rng) as what:
            self.steps += 1
            began = now()
            began_event = FaultBegan(
                at=began,
                number=step.number,
                kind=step.kind,
                what=what,
                demands_progress=demands,
                recovery_s_max=kind.recovery_s_max,
            )
            self.journal.add(began_event)
            self._say(f"{step.number}. {step.kind}: {what} ({step.target.value})")
            progressed_s = self._hold(step.hold_s, began, demands, self._that_go_on(kind))
        self.journal.add(FaultEnded(at=now(), number=step.number, progressed_s=progressed_s))
        went = "" if progressed_s is None else f"; every partition went on after {progressed_s:.1f} s"
        self._say(f"   over after {now() - began:.1f} s{went}; {self._progress.acknowledged:,} acknowledged")

    def _await_recovery(self) -> None:
        healed_at = now()
        is_back = wait_for(lambda: not self._progress.silent(self._places, healed_at), RECOVERY_SECONDS_MAX)
        self._say(f"   every partition acknowledged again after {now() - healed_at:.1f} s")
        if not is_back:
            silent = ", ".join(map(str, self._progress.silent(self._places, healed_at)))
            what = f"{RECOVERY_SECONDS_MAX:g} s after fault {self.steps} was over, nothing is acknowledged in {silent}"
            self.findings.append(Finding("stalled", what))

    def _victims(self, step: Step, rng: random.Random) -> list[ClusterNode]:
        place, anyone = rng.choice(self._places), rng.choice(list(self.cluster.nodes.values()))
        match step.target:
            case Target.CONTROLLER:
                first = self.cluster.leader(LEADER_SECONDS_MAX)
            case Target.PARTITION_LEADER:
                first = self.cluster.nodes.get(standing.leader_of(self.cluster, place), anyone)
            case Target.ANY:
                first = anyone
        return minority(self.cluster, first, rng)

    def _that_go_on(self, kind: Kind) -> list[Place]:
        copies = set(self.options.copies()) if kind.cuts_pairs else ()
        return [place for place in self._places if place not in copies]

    def _hold(self, seconds: float, began: float, demands_progress: bool, places: Sequence[Place]) -> float | None:
        """Until the time is over, and longer if need be to see whether all goes on. Says after how long it did."""
        progressed_s: float | None = None

        def is_over() -> bool:
            nonlocal progressed_s
            if progressed_s is None and not self._progress.waiting_for(places, began):
                progressed_s = now() - began
            return now() - began >= seconds and (progressed_s is not None or not demands_progress)

        wait_for(is_over, max(seconds, PROGRESS_SECONDS_MAX) if demands_progress else seconds, POLL_SECONDS)
        return progressed_s

    def _note_deaths(self) -> None:
        """Those that no fault explains: what a fault ended it has also started again."""
        for node in self.cluster.nodes.values():
            if not node.running:
                last = " | ".join(node.log.splitlines()[-3:])
                self.findings.append(Finding("node died", f"node {node.node_id} ended by itself: {last}"))
                node.kill()
                node.start()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What breaks the faults off is a finding; the last look is taken all the same."""
        try:
            yield
        except (BrokerFailed, ClientError) as failure:
            self.findings.append(Finding("broken off", str(failure)))

    # Peace

    def _heal(self) -> None:
        self.cluster.heal()
        for node in self.cluster.nodes.values():
            if not node.running:
                node.kill()
            node.heal()
        self.cluster.wait_until_ready()
        self._await_progress(now(), "not every partition takes records again after the faults")

    def _await_progress(self, since: float, otherwise: str) -> None:
        if not wait_for(lambda: not self._progress.waiting_for(self._places, since), IN_SYNC_SECONDS_MAX):
            waiting = ", ".join(map(str, self._progress.waiting_for(self._places, since)))
            self.findings.append(Finding("stalled", f"{otherwise}: {waiting}"))

    def _await_sync(self) -> bool:
        if wait_for(lambda: standing.not_in_sync(self.cluster, self._places) is None, IN_SYNC_SECONDS_MAX):
            return True
        why = standing.not_in_sync(self.cluster, self._places)
        self.findings.append(Finding("not in sync", f"after {IN_SYNC_SECONDS_MAX:g} s in peace: {why}"))
        return False

    def _await_stable(self) -> None:
        """What was left open when its copier ended has timed out."""

        def hanging() -> list[Place]:
            ranges = ranges_of(self.cluster.bootstrap, self.options.copies())
            stable = stable_ends(self.cluster.bootstrap, ranges)
            return [place for place, (_, end) in ranges.items() if stable[place] < end]

        if self.options.copies() and not wait_for(lambda: not hanging(), IN_SYNC_SECONDS_MAX, poll_s=0.5):
            where = ", ".join(map(str, hanging()))
            what = f"after {IN_SYNC_SECONDS_MAX:g} s in peace a transaction is still open in {where}"
            self.findings.append(Finding("hanging", what))

    def _settled_ends(self) -> dict[Place, int]:
        return {place: end for place, (_, end) in self._settled_ranges().items()}

    def _settled_ranges(self) -> dict[Place, Range]:
        """Once nobody writes any more, not even what was sent long ago and given up since."""

        def has_moved(seen: dict[Place, Range]) -> bool:
            return ranges_of(self.cluster.bootstrap, self._places) != seen

        found = ranges_of(self.cluster.bootstrap, self._places)
        while self.cluster.has_network and wait_for(partial(has_moved, found), STRAGGLERS_SECONDS, poll_s=1.0):
            found = ranges_of(self.cluster.bootstrap, self._places)
        return found

    def _look_at_everything(self) -> None:
        ranges = ranges_of(self.cluster.bootstrap, self._places)
        records = sum(end - start for start, end in ranges.values())
        self._say(f"{records:,} records are read by two clients, and compared on the disks of all replicas")
        read_everything(self.cluster.bootstrap, ranges, self.journal, self.options.copies())
        self._compare_replicas(ranges)

    def _compare_replicas(self, ranges: Mapping[Place, Range]) -> None:
        anyone = self.cluster.nodes[1]
        ids, told = standing.topic_ids(anyone, self._topics), standing.ask(anyone, self._topics)
        for place, (_, end) in ranges.items():
            folders = {
                node_id: partition_folder(self.cluster.nodes[node_id].data_dir, ids[place.topic], place.partition)
                for node_id in told[place].replicas
            }
            logs = {node_id: read_log(folder) for node_id, folder in folders.items()}
            self.findings += compare(place, logs, end)


def planned_steps(options: Options) -> Sequence[Step]:
    """Those that there will be time for, or a few more."""
    count = max(1, round(options.seconds / STEP_SECONDS))
    return list(islice(schedule(options.seed, options.faults, options.kinds), min(count, options.steps_max or count)))
