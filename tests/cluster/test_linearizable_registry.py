"""Three nodes under kills, pauses and partitions: the registry's responses are linearizable, and ids are unique."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.linearizability.checker import check_history
from tests.linearizability.faults import choose_faults
from tests.linearizability.registry_clients import (
    KEPT_PREFIX,
    LONG_TIMEOUT_SECONDS,
    READS,
    WRITES,
    Registration,
    RegistryConnection,
    RegistryLoad,
    parse_content,
)
from tests.linearizability.subjects import SUBJECTS
from tests.run_size import IS_LONG_RUN, SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

OPERATIONS = sized(900, 100_000)
"""Requests with a response: registrations, lookups, deletions and other reads."""

FAULTS = sized(3, 50)
OPERATIONS_PER_PHASE = OPERATIONS // FAULTS // 3
"""Operations before a fault, so that reads can be stale; during it, so that there are newer values; and after it, so
that delayed operations have completed."""

FAULT_SECONDS = (2.0, 10.0 if IS_LONG_RUN else 3.0)
"""Longer than an election, sometimes longer than a client timeout and, in the long run, than a node's own timeout."""


def wait_for_operations(cluster: Cluster, load: RegistryLoad, number: int = OPERATIONS_PER_PHASE) -> None:
    enough = load.answered() + number

    def missing() -> str | None:
        load.raise_failure()
        return None if load.answered() >= enough else f"{load.answered()} of {enough} operations"

    cluster.wait_until(missing, "responses to clients", 300)


def wait_for_effect(cluster: Cluster, load: RegistryLoad, seconds: float) -> None:
    """Wait until requests of clients have failed and the fault has lasted long enough."""
    before, until = load.unanswered(), time.monotonic() + seconds

    def missing() -> str | None:
        load.raise_failure()
        if load.unanswered() == before:
            return "every request got a response"
        return None if time.monotonic() >= until else f"not {seconds:.1f} s yet"

    cluster.wait_until(missing, "an effect of the fault")


def check_ids(registrations: list[Registration]) -> None:
    """Check that no id was assigned to two schemas, and that a version never has two schemas."""
    contents, ids = defaultdict(set), defaultdict(set)
    for each in registrations:
        contents[each.id].add(each.content)
        if each.subject.startswith(KEPT_PREFIX):
            ids[each.subject, each.version].add((each.id, each.content))
    assert not [schema_id for schema_id, found in contents.items() if len(found) > 1]
    assert not [version for version, found in ids.items() if len(found) > 1]


def check_kept_versions(cluster: Cluster, registrations: list[Registration]) -> int:
    """Check that every node has all acknowledged versions that were not deleted. Return their number."""
    expected = {each for each in registrations if each.subject.startswith(KEPT_PREFIX)}
    for node in cluster.nodes.values():
        connection = RegistryConnection(node.http, LONG_TIMEOUT_SECONDS)
        found: set[Registration] = set()
        while page := connection.send("GET", f"/schemas?subjectPrefix={KEPT_PREFIX}&offset={len(found)}&limit=500"):
            found |= {
                Registration(each["subject"], each["version"], each["id"], parse_content(each["schema"]))
                for each in page
            }
        connection.close()
        assert not expected - found, f"{node} lost versions"
    return len(expected)


def test_registry_is_linearizable_on_all_nodes_under_faults(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(links=True)
    chance = random.Random(SEED)
    load = RegistryLoad([node.http for node in cluster.nodes.values()], SEED)
    fault_names: Counter[str] = Counter()
    started = time.monotonic()
    try:
        load.start()
        for fault in choose_faults(FAULTS, chance):
            load.subjects.replace_all()
            wait_for_operations(cluster, load)
            with fault.befall(cluster, fault.victim(cluster, chance)):
                wait_for_effect(cluster, load, chance.uniform(*FAULT_SECONDS))
                wait_for_operations(cluster, load)
            cluster.wait_until_ready()
            wait_for_operations(cluster, load)
            fault_names[str(fault)] += 1
    finally:
        load.stop()
    seconds = time.monotonic() - started
    assert load.answered() >= OPERATIONS - 2 * FAULTS
    violations = check_history(SUBJECTS, load.history)
    assert not violations, "\n\n".join(map(str, violations))
    check_ids(load.registrations)
    kept = check_kept_versions(cluster, load.registrations)

    for client in load.clients:
        assert client.outcomes[READS], f"no successful read: {client}"
        assert client.outcomes[WRITES], f"no successful write: {client}"
    outcomes_text = ", ".join(f"{number} {name}" for name, number in sorted(load.outcomes().items()))
    schema_ids = {each.id for each in load.registrations}
    record_property(
        "summary",
        f"linearizable over {FAULTS} faults ({', '.join(sorted(fault_names))}) in {seconds:.0f} s: {outcomes_text}; "
        f"{len(schema_ids)} ids up to {max(schema_ids)}, each with one schema; {kept} kept versions on every node",
    )
