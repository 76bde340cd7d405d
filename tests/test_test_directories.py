"""Test directories mirror the packages: tests/log/files for src/chronik/log/files.

Tests of top-level modules and of the whole source tree are in tests itself. Tests of the whole platform have
directories of their own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "chronik"

PLATFORM = {
    "abuse": "hostile clients alongside well-behaved ones: make abuse",
    "chaos": "three nodes under faults: make chaos",
    "clients": "third-party clients with one broker",
    "cluster": "three nodes from the clients' point of view",
    "data_directories": "data directories of earlier versions",
    "docs": "documentation: examples are run, and generated pages are up to date",
    "faults": "one node with crashes, damage and lack of resources",
    "feature_levels": "clusters with two versions",
    "linearizability": "a checker of cluster histories",
    "packaging": "wheels, a systemd unit and an image: make package",
}
HELPERS = {
    "abuse/authentication": "attacks on listeners with TLS and authentication",
    "abuse/floods": "many connections that repeat expensive requests, in their own process",
    "bench/pipeline": "benchmarks of tables, as in bench/pipeline",
    "clients/drivers": "programs that drive third-party clients",
    "groups/failover": "a simulation of failing coordinators",
    "pipeline/object_store": "tables on S3, in all packages of the pipeline",
    "raft/scenarios": "scenarios in plain text",
    "transactions/simulation": "the simulation of replication, with transactions",
}
TESTED_ELSEWHERE = {
    "api/routing": "through requests, in tests/api",
    "api/shared": "through the APIs that use it",
    "console/rest/operations": "through operations, in tests/console/rest",
    "console/rest/models": "through operations, in tests/console/rest",
    "metadata/commands": "through their effects, in tests/metadata",
    "metadata/handlers": "through commands, in tests/metadata",
    "migration/schemas": "through chronik schemas, in tests/cli/schemas",
    "node/health": "through the interfaces that report it, in tests/cluster",
    "pipeline": "its top-level modules, through those that use them",
    "pipeline/tables/delta": "through tables of all formats",
    "pipeline/tables/values": "through tables of all formats",
}
"""Packages without a test directory of their own, and where they are tested."""


def packages() -> set[str]:
    return {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")} - {"."}


def directories_of_tests() -> set[str]:
    return {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py")} - {"."}


def test_every_package_has_tests() -> None:
    tested = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert len(packages()) > 20
    assert packages() - tested == set(TESTED_ELSEWHERE)


def test_every_test_directory_mirrors_a_package_or_is_described() -> None:
    assert directories_of_tests() - packages() <= set(PLATFORM) | set(HELPERS)


@pytest.mark.parametrize("name", [*PLATFORM, *HELPERS])
def test_described_test_directory_exists(name: str) -> None:
    assert any((TESTS / name).iterdir())
    assert name not in packages()
