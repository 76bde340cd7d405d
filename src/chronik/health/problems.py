"""Problems of a cluster, and the kinds of problems that the health checks find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any, Final

import msgspec

from chronik.wording import pluralize

DOCS_PAGE: Final = "docs/operate/health.md"


class ProblemSeverity(IntEnum):
    """How urgent a problem is."""

    INFO = 0
    """A state that is worth knowing, and that may be intended."""
    WARNING = 1
    """Fault tolerance is reduced, or the state will become critical."""
    CRITICAL = 2
    """Data is unavailable, lost, or about to be."""

    @property
    def label(self) -> str:
        """The severity in JSON and in labels of metrics: info, warning or critical."""
        return self.name.lower()


class ProblemKind(msgspec.Struct, frozen=True):
    """A kind of problem: its stable id, its page in the console, and how quickly it is raised."""

    id: str
    title: str
    severity: ProblemSeverity
    """The severity that most problems of the kind have."""
    effect: str
    """The consequence of the problem."""
    console: str
    """The console page with details. `{}` stands for the subject."""
    raise_after_s: float = 0.0
    """How long the condition must persist before it is a problem."""
    clear_after_s: float = 10.0
    """How long the condition must be absent before the problem is cleared."""
    superseded_by: str | None = None
    """A kind that replaces this one if both have the same subject."""


_DECLARED: Final = (
    ProblemKind(
        "no-leader",
        "No controller",
        ProblemSeverity.CRITICAL,
        "Topics, groups and offsets cannot change until a majority of the voters runs",
        "/nodes",
        raise_after_s=3.0,
    ),
    ProblemKind(
        "no-voter-to-spare",
        "Controller quorum at risk",
        ProblemSeverity.WARNING,
        "If one more voter stops, the metadata cannot change",
        "/nodes",
        superseded_by="no-leader",
    ),
    ProblemKind(
        "diverged-states",
        "Nodes with different metadata",
        ProblemSeverity.CRITICAL,
        "The same commands must lead to the same state on every node: this is a bug, and responses differ by node",
        "/nodes",
    ),
    ProblemKind(
        "unreachable-node",
        "Node stopped or not reachable",
        ProblemSeverity.CRITICAL,
        "Its replicas fall behind, and partitions that only it hosts are unavailable",
        "/nodes/{}",
        raise_after_s=3.0,
    ),
    ProblemKind(
        "unresponsive-node",
        "Node does not respond",
        ProblemSeverity.CRITICAL,
        "Its replicas fall behind, and partitions that only it hosts are unavailable",
        "/nodes/{}",
    ),
    ProblemKind(
        "fenced-node",
        "Node fenced",
        ProblemSeverity.CRITICAL,
        "The node is overloaded, its network is partitioned, or its cluster secret or certificate is wrong",
        "/nodes/{}",
        raise_after_s=3.0,
        superseded_by="unreachable-node",
    ),
    ProblemKind(
        "absent-node",
        "Node not joined",
        ProblemSeverity.INFO,
        "It takes part in the cluster when it has registered once",
        "/nodes/{}",
        raise_after_s=10.0,
    ),
    ProblemKind(
        "drained-node",
        "Node drained",
        ProblemSeverity.INFO,
        "The node leads no partitions until it is undrained",
        "/nodes/{}",
    ),
    ProblemKind(
        "damaged-logs",
        "Damaged logs",
        ProblemSeverity.CRITICAL,
        "The node does not serve the missing records; they are copied from other replicas that have them",
        "/nodes/{}",
    ),
    ProblemKind(
        "offline-partitions",
        "Offline partitions",
        ProblemSeverity.CRITICAL,
        "They are unavailable until an in-sync replica is back",
        "/topics",
    ),
    ProblemKind(
        "below-min-insync",
        "Partitions under min.insync.replicas",
        ProblemSeverity.CRITICAL,
        "Produce requests with acks=all fail with NOT_ENOUGH_REPLICAS",
        "/topics",
        raise_after_s=3.0,
    ),
    ProblemKind(
        "under-replicated",
        "Under-replicated partitions",
        ProblemSeverity.WARNING,
        "One more failure may make them unavailable or lose records",
        "/topics",
        raise_after_s=3.0,
    ),
    ProblemKind(
        "isr-flapping",
        "Flapping ISR",
        ProblemSeverity.WARNING,
        "Produce requests with acks=all are delayed whenever a replica leaves the ISR",
        "/topics",
        clear_after_s=60.0,
    ),
    ProblemKind(
        "lagging-group",
        "Growing consumer lag",
        ProblemSeverity.WARNING,
        "Records that retention deletes before the group reads them are lost to it",
        "/groups/{}",
        raise_after_s=30.0,
        clear_after_s=30.0,
    ),
    ProblemKind(
        "steady-lag",
        "Consumer lag",
        ProblemSeverity.INFO,
        "The group reads records late, and those that retention deletes first are lost to it",
        "/groups/{}",
        clear_after_s=30.0,
        superseded_by="lagging-group",
    ),
    ProblemKind(
        "stopped-group",
        "Stopped consumer group",
        ProblemSeverity.INFO,
        "Records that retention deletes before the group reads them are lost to it",
        "/groups/{}",
        clear_after_s=30.0,
        superseded_by="lagging-group",
    ),
    ProblemKind(
        "long-transaction",
        "Long transaction",
        ProblemSeverity.WARNING,
        "Consumers with isolation.level=read_committed are blocked there",
        "/transactions",
    ),
    ProblemKind(
        "full-disk",
        "Disk almost full",
        ProblemSeverity.WARNING,
        "A node stops when its disk is full",
        "/nodes/{}",
        clear_after_s=60.0,
    ),
    ProblemKind(
        "filling-disk",
        "Disk filling up",
        ProblemSeverity.WARNING,
        "A node stops when its disk is full",
        "/nodes/{}",
        raise_after_s=60.0,
        clear_after_s=300.0,
        superseded_by="full-disk",
    ),
    ProblemKind(
        "different-clocks",
        "Clock skew",
        ProblemSeverity.WARNING,
        "Clock skew affects timestamps, time-based retention and transaction timeouts (but not leader elections)",
        "/nodes",
        raise_after_s=20.0,
        clear_after_s=30.0,
    ),
    ProblemKind(
        "event-loop-stalls",
        "Event-loop stalls",
        ProblemSeverity.WARNING,
        "All requests to the node are delayed, and a node that stalls for seconds is fenced",
        "/nodes/{}",
        clear_after_s=60.0,
    ),
    ProblemKind(
        "expired-certificate",
        "Expired certificate",
        ProblemSeverity.CRITICAL,
        "Clients and nodes that verify it cannot connect",
        "/nodes",
    ),
    ProblemKind(
        "expiring-certificate",
        "Certificate expires soon",
        ProblemSeverity.WARNING,
        "After that, clients and nodes that verify it cannot connect",
        "/nodes",
        superseded_by="expired-certificate",
    ),
    ProblemKind(
        "failing-pipeline",
        "Failing pipeline",
        ProblemSeverity.WARNING,
        "The topic's table gets no new rows until an attempt succeeds",
        "/tables",
        raise_after_s=10.0,
        clear_after_s=30.0,
    ),
    ProblemKind(
        "silent-pipeline",
        "Pipeline without reports",
        ProblemSeverity.WARNING,
        "The topic's table gets no new rows if the driver does not run",
        "/tables",
    ),
    ProblemKind(
        "lagging-pipeline",
        "Growing pipeline lag",
        ProblemSeverity.WARNING,
        "The topic's table falls behind, and records that retention deletes first never reach it",
        "/tables",
        raise_after_s=30.0,
        clear_after_s=30.0,
    ),
)

KINDS: Final = {kind.id: kind for kind in _DECLARED}
"""All kinds of problems by id, in the order in which problems of the same severity are shown. Ids never change: alert
rules depend on them."""

_ORDER: Final = {kind: number for number, kind in enumerate(KINDS)}


class Problem(msgspec.Struct, frozen=True):
    """A problem of a cluster."""

    kind: str
    """The id of its kind; see `KINDS`."""
    severity: ProblemSeverity
    subject: str
    """What has the problem: a group, a node id, a transactional id, …; empty for the whole cluster."""
    since_s: float
    """The time since which the condition has persisted, in seconds since the epoch."""
    message: str
    """One sentence in lower case without a period."""
    action: str
    """What to do."""
    console: str
    """The console page with details, as a path such as /groups/billing."""

    @property
    def id(self) -> str:
        """The stable id of the problem: its kind and its subject."""
        return f"{self.kind}:{self.subject}" if self.subject else self.kind

    @property
    def docs(self) -> str:
        """The section of the documentation about problems of this kind."""
        return f"{DOCS_PAGE}#{self.kind}"

    @property
    def effect(self) -> str:
        """The consequence of the problem."""
        return KINDS[self.kind].effect if self.kind in KINDS else ""


class SubjectType(Enum):
    """A type of subjects whose names not everyone who may describe the cluster may see."""

    GROUP = "group"
    TRANSACTIONAL_ID = "transactional id"
    PIPELINE = "pipeline"


_SUBJECT_TYPES: Final = {
    "lagging-group": SubjectType.GROUP,
    "steady-lag": SubjectType.GROUP,
    "stopped-group": SubjectType.GROUP,
    "long-transaction": SubjectType.TRANSACTIONAL_ID,
    "failing-pipeline": SubjectType.PIPELINE,
    "silent-pipeline": SubjectType.PIPELINE,
    "lagging-pipeline": SubjectType.PIPELINE,
}


def find_subject_type(problem: Problem) -> SubjectType | None:
    """Return the type of a problem's subject, or None if everyone who may describe the cluster may see it."""
    return _SUBJECT_TYPES.get(problem.kind)


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as the JSON object that all interfaces show."""
    return {
        "id": problem.id,
        "kind": problem.kind,
        "severity": problem.severity.label,
        "subject": problem.subject,
        "since_ms": round(problem.since_s * 1000),
        "message": problem.message,
        "effect": problem.effect,
        "action": problem.action,
        "console": problem.console,
        "docs": problem.docs,
    }


def problem_from_json(values: Mapping[str, Any]) -> Problem:
    """Return the problem of a JSON object. Raise KeyError or ValueError if it is malformed."""
    return Problem(
        values["kind"],
        ProblemSeverity[values["severity"].upper()],
        values["subject"],
        values["since_ms"] / 1000,
        values["message"],
        values["action"],
        values["console"],
    )


def hide_subjects(problems: Iterable[Problem], is_visible: Callable[[Problem], bool]) -> tuple[Problem, ...]:
    """Replace the problems whose subjects the caller may not see by one without names for each kind."""
    shown, hidden = [], defaultdict(list)
    for each in problems:
        if is_visible(each):
            shown.append(each)
        else:
            hidden[each.kind].append(each)
    for kind, found in hidden.items():
        worst = max(found, key=lambda each: each.severity).severity
        page = KINDS[kind].console.removesuffix("/{}")
        message = f"{KINDS[kind].title.lower()}: {pluralize(len(found), 'problem')} whose names you may not see"
        action = "ask an administrator, or for the Describe permission"
        shown.append(Problem(kind, worst, "", min(each.since_s for each in found), message, action, page))
    return sort_problems(shown)


def sort_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return problems with the most severe first."""
    key = len(_ORDER)
    return tuple(sorted(problems, key=lambda each: (-each.severity, _ORDER.get(each.kind, key), each.subject)))


def find_worst_severity(problems: Iterable[Problem]) -> ProblemSeverity | None:
    """Return the highest severity of some problems, or None if there are none."""
    return max((each.severity for each in problems), default=None)
