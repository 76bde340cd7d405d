"""One chaos run: a cluster, clients, faults, a final read of everything, and the verdict of the checkers."""

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
from tests.chaos import partition_states
from tests.chaos.checkers import judge
from tests.chaos.clients import AckProgress, ChaosClient, EndOffsetWatcher, running_clients, wait_for
from tests.chaos.cluster import ChaosCluster
from tests.chaos.evidence import Range
from tests.chaos.final_read import read_everything, read_offset_ranges, stable_ends
from tests.chaos.findings import Finding
from tests.chaos.history import AnyEvent, FaultBegan, FaultEnded, Journal, NodeStarted, Place, now
from tests.chaos.probes import Probe, Subjects, create_probes
from tests.chaos.raw_clients import CommitWriter, PulseProducer, TopicCreator, TopicNames
from tests.chaos.replicas import compare_replica_logs, partition_directory, read_log
from tests.chaos.schedules import FAULT_KINDS, FaultKind, FaultStep, FaultTarget, choose_minority, schedule
from tests.chaos.workloads import (
    GROUPS,
    PULSE,
    WORKLOADS,
    Workload,
    WorkloadClients,
    wait_until_copied,
    wait_until_read,
)

JOURNAL = "journal.jsonl"
NODES = 3

IN_SYNC_SECONDS_MAX = 60.0
"""Time limit for replicas to catch up. A few seconds suffice for this load."""

PROGRESS_SECONDS_MAX = 30.0
"""Time limit for progress: a session of 3 s, an election, and client timeouts of 5 s take about ten seconds."""

LEADER_SECONDS_MAX = 30.0
DRAIN_SECONDS_MAX = 120.0
"""Time limit for groups to read everything. A dead coordinator may cost a session of its members (45 s)."""

STRAGGLERS_SECONDS = 12.0
"""Time after which no abandoned request can arrive: a client's kernel retransmits with growing delays until a packet
gets through, up to about the duration of the longest fault of that kind."""

POLL_SECONDS = 0.05
STEP_SECONDS = 6.0
"""Approximate duration of one fault, used to show the upcoming schedule."""

RECOVERY_SECONDS_MAX = 30.0
"""Time limit for recovery after a fault."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class ChaosOptions:
    """The options of a run."""

    folder: Path
    seconds: float = 60.0
    steps_max: int | None = None
    """Maximum number of faults, after which the run ends early."""
    seed: int = 1
    faults: tuple[str, ...] = tuple(FAULT_KINDS)
    workloads: tuple[Workload, ...] = tuple(WORKLOADS.values())
    rate: float = 120.0
    """Records per second of each workload."""
    replication: int = 3
    min_insync: int = 2
    kinds: Mapping[str, FaultKind] = field(default_factory=lambda: FAULT_KINDS)
    has_network: bool = False
    """Whether nodes and clients run in their own network namespaces. Raises NoNamespaces where not available."""

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
class ChaosOutcome:
    """The result of a run."""

    events: list[AnyEvent]
    findings: list[Finding]
    steps: int


def run_chaos(options: ChaosOptions, say: Say) -> ChaosOutcome:
    """Run a cluster with faults and return all findings. The directory keeps logs and data for analysis."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with closing(Journal(options.folder / JOURNAL)) as journal, closing(_cluster(options, journal)) as cluster:
        run = _Run(options, cluster, journal, say)
        try:
            with cluster.in_client_namespace():
                run.go()
        except (ChronikError, KafkaError) as failure:
            run.findings.append(Finding("interrupted", f"{type(failure).__name__}: {failure}"))
        events = journal.events()
    return ChaosOutcome(events, [*run.findings, *judge(events)], run.steps)


def _cluster(options: ChaosOptions, journal: Journal) -> ChaosCluster:
    return ChaosCluster(
        NODES,
        options.folder / "cluster",
        has_network=options.has_network,
        started=lambda node, at: journal.add(NodeStarted(at=at, node=node)),
        replication_factor=options.replication,
        min_insync_replicas=options.min_insync,
    )


class _Run:
    def __init__(self, options: ChaosOptions, cluster: ChaosCluster, journal: Journal, say: Say) -> None:
        self.options = options
        self.cluster = cluster
        self.journal = journal
        self.findings: list[Finding] = []
        self.steps = 0
        self._progress = AckProgress()
        self._places = options.places()
        self._topics = [workload.name for workload in options.all_workloads]
        self._passing = TopicNames()
        self._began = now()
        self._say_line = say

    def go(self) -> None:
        """Run the whole schedule.

        Raises:
            BrokerFailed: A node does not start.
            ClientError, KafkaError: The final read failed.
        """
        self.cluster.start()
        self.cluster.wait_until_ready()
        self._create_topics()
        crews = [
            WorkloadClients.of(each, self.journal, self._progress, self.cluster.bootstrap, self.options.rate)
            for each in self.options.workloads
        ]
        watcher = EndOffsetWatcher("watcher", self.journal, self.cluster.bootstrap, self._places)
        senders = [*(sender for crew in crews for sender in crew.senders), *self._writers()]
        copiers = [copier for crew in crews for copier in crew.copiers]
        with running_clients([watcher, *self._probes(), *(member for crew in crews for member in crew.members)]):
            with running_clients(copiers):
                with running_clients(senders):
                    with self._report_interruption():
                        self._inject_faults()
                    self._heal()
                self._say(
                    f"faults ended; {self._progress.acknowledged:,} acknowledged; groups read the remaining records"
                )
                self._await_sync()
                wait_until_copied(crews, self._settled_ends(), DRAIN_SECONDS_MAX)
            self._await_stable()
            wait_until_read(crews, self._settled_ends(), DRAIN_SECONDS_MAX)
        self._read_everything()

    def _writers(self) -> list[ChaosClient]:
        nodes = {node_id: node.kafka for node_id, node in self.cluster.nodes.items()}
        pulses = [
            PulseProducer(f"{place.topic}-p{place.partition}", self.journal, self._progress, nodes, place)
            for place in PULSE.places()
        ]
        ledger = CommitWriter("ledger", self.journal, nodes, GROUPS, PULSE.places()[0])
        return [*pulses, ledger, TopicCreator("founder", self.journal, self.cluster.bootstrap, self._passing)]

    def _probes(self) -> list[Probe]:
        subjects = Subjects(self._places, self._passing, GROUPS, PULSE.places()[0])
        return [
            probe
            for node_id, node in self.cluster.nodes.items()
            for probe in create_probes(node_id, self.journal, node.kafka, subjects)
        ]

    def _say(self, line: str) -> None:
        self._say_line(f"{now() - self._began:6.1f} s  {line}")

    def _create_topics(self) -> None:
        # Clocks are shifted by more than a week, and the records of pulses have the timestamp 0.
        configs = {"min.insync.replicas": str(self.options.min_insync), "retention.ms": "-1"}
        with self.cluster.nodes[1].cluster() as client:
            for each in self.options.all_workloads:
                topic = NewTopic(each.name, each.partitions, self.options.replication, configs)
                create_topics(client, [topic])
                self.journal.add(each.promise(now()))
        self._say(f"{NODES} nodes are up, with {', '.join(self._topics)} in {len(self._places)} partitions")

    # Faults

    def _inject_faults(self) -> None:
        self._await_progress(now(), "no progress in some partitions before the first fault")
        ends_at = now() + self.options.seconds
        planned = schedule(self.options.seed, self.options.faults, self.options.kinds)
        for step in islice(planned, self.options.steps_max):
            if now() >= ends_at or (step.is_patient and not self._await_sync()):
                return
            self._inject_fault(step)
            self._report_dead_nodes()
            if step.is_patient or self.options.kinds[step.kind].recovery_s_max is not None:
                self._await_recovery()
            wait_for(lambda: now() >= ends_at, step.rest_s, POLL_SECONDS)

    def _inject_fault(self, step: FaultStep) -> None:
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
            progressed_s = self._hold(step.hold_s, began, demands, self._available_partitions(kind))
        self.journal.add(FaultEnded(at=now(), number=step.number, progressed_s=progressed_s))
        went = "" if progressed_s is None else f"; every partition made progress after {progressed_s:.1f} s"
        self._say(f"   ended after {now() - began:.1f} s{went}; {self._progress.acknowledged:,} acknowledged")

    def _await_recovery(self) -> None:
        healed_at = now()
        is_back = wait_for(lambda: not self._progress.silent_partitions(self._places, healed_at), RECOVERY_SECONDS_MAX)
        if is_back:
            self._say(f"   every partition acknowledged again after {now() - healed_at:.1f} s")
        else:
            silent = ", ".join(map(str, self._progress.silent_partitions(self._places, healed_at)))
            what = f"no acknowledgement {RECOVERY_SECONDS_MAX:g} s after the end of fault {self.steps} in {silent}"
            self._say(f"   {what}")
            self.findings.append(Finding("stalled", what))

    def _victims(self, step: FaultStep, rng: random.Random) -> list[ClusterNode]:
        place, anyone = rng.choice(self._places), rng.choice(list(self.cluster.nodes.values()))
        match step.target:
            case FaultTarget.CONTROLLER:
                first = self.cluster.leader(LEADER_SECONDS_MAX)
            case FaultTarget.PARTITION_LEADER:
                first = self.cluster.nodes.get(partition_states.leader_of(self.cluster, place), anyone)
            case FaultTarget.ANY:
                first = anyone
        return choose_minority(self.cluster, first, rng)

    def _available_partitions(self, kind: FaultKind) -> list[Place]:
        copies = set(self.options.copies()) if kind.cuts_pairs else ()
        return [place for place in self._places if place not in copies]

    def _hold(self, seconds: float, began: float, demands_progress: bool, places: Sequence[Place]) -> float | None:
        """Wait until the time is over, or longer if progress is required. Return when every partition made progress."""
        progressed_s: float | None = None

        def is_over() -> bool:
            nonlocal progressed_s
            if progressed_s is None and not self._progress.partitions_without_progress(places, began):
                progressed_s = now() - began
            return now() - began >= seconds and (progressed_s is not None or not demands_progress)

        wait_for(is_over, max(seconds, PROGRESS_SECONDS_MAX) if demands_progress else seconds, POLL_SECONDS)
        return progressed_s

    def _report_dead_nodes(self) -> None:
        """Report nodes that exited without a fault."""
        for node in self.cluster.nodes.values():
            if not node.is_running:
                last = " | ".join(node.log.splitlines()[-3:])
                self.findings.append(Finding("node exited", f"node {node.node_id} exited unexpectedly: {last}"))
                node.kill()
                node.start()

    @contextmanager
    def _report_interruption(self) -> Iterator[None]:
        """Report an interruption of the faults as a finding and continue with the final read."""
        try:
            yield
        except (BrokerFailed, ClientError) as failure:
            self.findings.append(Finding("interrupted", str(failure)))

    # The end of the run

    def _heal(self) -> None:
        self.cluster.restore_links()
        for node in self.cluster.nodes.values():
            if not node.is_running:
                node.kill()
            node.heal()
        self.cluster.wait_until_ready()
        self._await_progress(now(), "no progress in some partitions after the faults")

    def _await_progress(self, since: float, otherwise: str) -> None:
        if not wait_for(
            lambda: not self._progress.partitions_without_progress(self._places, since), IN_SYNC_SECONDS_MAX
        ):
            waiting = ", ".join(map(str, self._progress.partitions_without_progress(self._places, since)))
            self.findings.append(Finding("stalled", f"{otherwise}: {waiting}"))

    def _await_sync(self) -> bool:
        if wait_for(
            lambda: partition_states.out_of_sync_reason(self.cluster, self._places) is None, IN_SYNC_SECONDS_MAX
        ):
            return True
        why = partition_states.out_of_sync_reason(self.cluster, self._places)
        self.findings.append(Finding("not in sync", f"{IN_SYNC_SECONDS_MAX:g} s after the faults: {why}"))
        return False

    def _await_stable(self) -> None:
        """Wait until transactions that their copiers left open have timed out."""

        def hanging() -> list[Place]:
            ranges = read_offset_ranges(self.cluster.bootstrap, self.options.copies())
            stable = stable_ends(self.cluster.bootstrap, ranges)
            return [place for place, (_, end) in ranges.items() if stable[place] < end]

        if self.options.copies() and not wait_for(lambda: not hanging(), IN_SYNC_SECONDS_MAX, poll_s=0.5):
            where = ", ".join(map(str, hanging()))
            what = f"{IN_SYNC_SECONDS_MAX:g} s after the faults a transaction is still open in {where}"
            self.findings.append(Finding("hanging", what))

    def _settled_ends(self) -> dict[Place, int]:
        return {place: end for place, (_, end) in self._settled_ranges().items()}

    def _settled_ranges(self) -> dict[Place, Range]:
        """Return the offset ranges when no abandoned request can arrive any more."""

        def has_moved(seen: dict[Place, Range]) -> bool:
            return read_offset_ranges(self.cluster.bootstrap, self._places) != seen

        found = read_offset_ranges(self.cluster.bootstrap, self._places)
        while self.cluster.has_network and wait_for(partial(has_moved, found), STRAGGLERS_SECONDS, poll_s=1.0):
            found = read_offset_ranges(self.cluster.bootstrap, self._places)
        return found

    def _read_everything(self) -> None:
        ranges = read_offset_ranges(self.cluster.bootstrap, self._places)
        records = sum(end - start for start, end in ranges.values())
        self._say(f"reading {records:,} records by two clients, and comparing the disks of all replicas")
        read_everything(self.cluster.bootstrap, ranges, self.journal, self.options.copies())
        self._compare_replicas(ranges)

    def _compare_replicas(self, ranges: Mapping[Place, Range]) -> None:
        anyone = self.cluster.nodes[1]
        ids, states = (
            partition_states.topic_ids(anyone, self._topics),
            partition_states.read_partition_states(anyone, self._topics),
        )
        for place, (_, end) in ranges.items():
            folders = {
                node_id: partition_directory(self.cluster.nodes[node_id].data_dir, ids[place.topic], place.partition)
                for node_id in states[place].replicas
            }
            logs = {node_id: read_log(folder) for node_id, folder in folders.items()}
            self.findings += compare_replica_logs(place, logs, end)


def planned_steps(options: ChaosOptions) -> Sequence[FaultStep]:
    """Return the first steps of the schedule, slightly more than the time allows."""
    count = max(1, round(options.seconds / STEP_SECONDS))
    return list(islice(schedule(options.seed, options.faults, options.kinds), min(count, options.steps_max or count)))
