"""The registry in a cluster of three nodes: concurrent registrations, fresh reads, and nodes without a majority."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from pathlib import Path

import pytest

from chronik.registry import proposals
from chronik.registry.entities import RegistryConfigChange
from chronik.registry.errors import (
    RegistryStoreError,
    RegistryTimeoutError,
    SchemaNotFoundError,
    SubjectNotFoundError,
)
from tests.peers.helpers import run
from tests.registry.registry_cluster import running_registries
from tests.registry.registry_node import build_request, catch_error
from tests.run_size import SEED, sized

REGISTRATIONS = sized(150, 3000)


def test_concurrent_registrations_of_same_schema_return_one_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_registries(tmp_path) as cluster:
            found = await asyncio.gather(*(node.register("orders", "id") for node in cluster.nodes * 10))
            assert set(found) == {(1, 1)}

    run(scenario())


def test_concurrent_registrations_give_one_id_per_schema(tmp_path: Path) -> None:
    async def scenario() -> None:
        randomness = random.Random(SEED)
        async with running_registries(tmp_path) as cluster:
            wanted = [
                (randomness.choice(cluster.nodes), f"subject-{randomness.randrange(5)}", randomness.randrange(40))
                for _ in range(REGISTRATIONS)
            ]
            found = await asyncio.gather(
                *(node.register(subject, "id", f"f{content}=0") for node, subject, content in wanted)
            )
            ids, versions = defaultdict(set), defaultdict(set)
            for (_, subject, content), (schema_id, version) in zip(wanted, found, strict=True):
                ids[content].add(schema_id)
                versions[subject, content].add(version)
            assert all(len(each) == 1 for each in (*ids.values(), *versions.values()))
            assert sorted(schema_id for (schema_id,) in ids.values()) == list(range(1, len(ids) + 1))
            for subject in {subject for subject, _ in versions}:
                numbers = sorted(number for (name, _), (number,) in versions.items() if name == subject)
                assert numbers == list(range(1, len(numbers) + 1))
                for node in cluster.nodes:
                    assert await node.registry.list_versions(subject) == numbers
            await cluster.wait_for_agreement()

    run(scenario())


def test_every_node_reads_what_another_has_acknowledged(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_registries(tmp_path) as cluster:
            for number in range(30):
                writer, *readers = (cluster.nodes * 2)[number % 3 : number % 3 + 3]
                schema_id, version = await writer.register("orders", "id", f"f{number}=0")
                for reader in readers:
                    assert (await reader.registry.get_version("orders", "latest")).id == schema_id
                    assert await reader.registry.list_versions("orders") == list(range(1, version + 1))
                    assert (await reader.registry.get_by_id(schema_id)).schema
                await readers[0].registry.delete_version("orders", version)
                error = await catch_error(writer.registry.look_up("orders", build_request("id", f"f{number}=0")))
                assert isinstance(error, SchemaNotFoundError | SubjectNotFoundError)
                assert await readers[1].register("orders", "id", f"f{number}=0") == (schema_id, version + 1)
                await writer.delete_permanently("orders")
                assert await readers[0].registry.list_subjects(deleted=True) == []
                assert isinstance(await catch_error(readers[1].registry.get_version("orders", 1)), SubjectNotFoundError)

    run(scenario())


def test_config_of_another_node_applies_to_the_next_registration(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_registries(tmp_path) as cluster:
            first, second, third = cluster.nodes
            await first.register("orders", "id")
            for number in range(10):
                await second.set_level("NONE" if number % 2 else "FULL", "orders")
                messages = await third.registry.check_compatibility("orders", build_request("x"))
                assert bool(messages) is (number % 2 == 0)
            await first.registry.update_config("alias", RegistryConfigChange(alias="orders"))
            assert await second.registry.list_versions("alias") == [1]

    run(scenario())


def test_node_without_majority_serves_only_schemas_by_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposals, "CONFIRM_SECONDS", 0.5)

    async def scenario() -> None:
        async with running_registries(tmp_path) as cluster:
            await cluster.nodes[0].register("orders", "id")
            await cluster.wait_for_agreement()
            isolated = cluster.followers[0]
            guid = (await isolated.registry.get_version("orders", 1)).guid
            await cluster.stop(*(node.node_id for node in cluster.nodes if node is not isolated))
            registry = isolated.registry
            assert (await registry.get_by_id(1)).schema
            assert (await registry.get_by_guid(guid)).schema
            for operation in (
                registry.get_version("orders", 1),
                registry.get_by_id(2),
                registry.get_by_id(1, fetch_max_id=True),
                registry.list_subjects(),
                registry.register("orders", build_request("id")),
                registry.look_up("orders", build_request("id")),
                registry.get_config("orders"),
                registry.delete_subject("orders"),
            ):
                error = await catch_error(operation)
                assert isinstance(error, RegistryTimeoutError), operation
                assert error.error_code == 50002

    run(scenario())


def test_registrations_survive_restarts_of_all_nodes(tmp_path: Path) -> None:
    async def scenario() -> None:
        acknowledged: dict[int, tuple[int, int]] = {}

        async def register(number: int) -> None:  # The outcome of an attempt on a node that stops is unknown.
            while number not in acknowledged:
                nodes = cluster.nodes
                try:
                    acknowledged[number] = await nodes[number % len(nodes)].register("orders", "id", f"f{number}=0")
                except (RegistryTimeoutError, RegistryStoreError):
                    await asyncio.sleep(0.01)

        async with running_registries(tmp_path) as cluster:
            for round_number, node_id in enumerate((1, 2, 3)):
                numbers = range(round_number * 20, round_number * 20 + 20)
                tasks = [asyncio.create_task(register(number)) for number in numbers]
                await cluster.stop(node_id)
                await asyncio.gather(*tasks)
                await cluster.restart(node_id)
            for node in cluster.nodes:
                for number, (schema_id, version) in acknowledged.items():
                    found = await node.registry.get_version("orders", version)
                    assert found.id == schema_id
                    assert f'"f{number}"' in found.schema
            assert sorted(schema_id for schema_id, _ in acknowledged.values()) == list(range(1, 61))

    run(scenario())
