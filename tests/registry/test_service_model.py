"""Random operations of the registry have the results of a naive model."""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chronik.registry.entities import RegistryConfigChange, SchemaReference, SchemaRequest
from chronik.registry.errors import RegistryError
from tests.registry.naive_service import Content, Fields, NaiveError, NaiveService, Referring
from tests.registry.registry_node import RegistryNode, build_record, run_with_registry
from tests.run_size import SEED, sized

OPERATIONS = sized(400, 2000)
SEEDS = sized(4, 100)

SUBJECTS = ("a", "b", ":.lab:a", ":.lab:b")
SETTINGS = (*SUBJECTS, "", ":.lab:", ":.__GLOBAL:")
LEVELS = ("NONE", "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
MODES = ("READONLY", "READWRITE", "READWRITE")
FIELD_NAMES = ("x", "y", "z")


def choose_content(chance: random.Random) -> Content:
    if chance.random() < 0.25:
        return Referring(chance.choice(("a", "b", ":.lab:a")), chance.randrange(1, 6))
    chosen = chance.sample(FIELD_NAMES, chance.randrange(3))
    kinds = {name: chance.random() < 0.6 for name in chosen}
    return Fields(
        frozenset(name for name, is_optional in kinds.items() if not is_optional),
        frozenset(name for name, is_optional in kinds.items() if is_optional),
    )


def build_content(content: Content) -> SchemaRequest:
    if isinstance(content, Fields):
        optional = (f"{each}=0" for each in sorted(content.optional))
        return SchemaRequest(schema=build_record(*sorted(content.required), *optional))
    schema = json.dumps({"type": "record", "name": "Line", "fields": [{"name": "order", "type": "Order"}]})
    return SchemaRequest(schema=schema, references=[SchemaReference("Order", content.subject, content.version)])


def choose_operation(
    chance: random.Random, model: NaiveService, node: RegistryNode
) -> tuple[str, Callable[[], Any], Callable[[], Awaitable[Any]]]:
    """Return a description of an operation, the operation of the model, and that of the registry."""
    subject, number, flag = chance.choice(SUBJECTS), chance.choice((-1, 1, 2, 3, 4)), chance.random() < 0.5
    content, schema_id = choose_content(chance), chance.randrange(1, 12)
    registry, request = node.registry, build_content(content)
    context = chance.choice((".", ".lab"))
    name, level, mode = chance.choice(SETTINGS), chance.choice(LEVELS), chance.choice(MODES)
    version = number if number > 0 else 1

    async def register() -> tuple[int, int]:
        found = await registry.register(subject, request)
        return found.id, found.version

    async def look_up() -> int:
        return (await registry.look_up(subject, request, deleted=flag)).version

    async def check_compatibility() -> bool:
        return not await registry.check_compatibility(subject, request)

    async def get_version() -> tuple[int, int, bool]:
        found = await registry.get_version(subject, number, deleted=flag)
        return found.id, found.version, found.deleted

    async def list_versions_of_id() -> list[tuple[str, int]]:
        listed = await registry.list_versions_of_id(schema_id, f":{context}:")
        return [(each.subject, each.version) for each in listed]

    async def set_level() -> None:
        await registry.update_config(name, RegistryConfigChange(compatibility_level=level))

    async def set_mode() -> None:
        await registry.set_mode(name, mode)

    choices: dict[str, tuple[int, Callable[[], Any], Callable[[], Awaitable[Any]]]] = {
        f"register {subject} {content}": (40, lambda: model.register(subject, content), register),
        f"look up {subject} {content}": (10, lambda: model.look_up(subject, content, flag), look_up),
        f"check {subject} {content}": (5, lambda: model.check_compatibility(subject, content), check_compatibility),
        f"get {subject} {number}": (5, lambda: model.get_version(subject, number, flag), get_version),
        f"list versions {subject} {flag}": (
            3, lambda: model.list_versions(subject, flag), lambda: registry.list_versions(subject, deleted=flag),
        ),
        f"list subjects {flag}": (
            3, lambda: model.list_subjects(flag), lambda: registry.list_subjects(deleted=flag),
        ),
        f"versions of {context} {schema_id}": (
            3, lambda: model.list_versions_of_id(context, schema_id), list_versions_of_id,
        ),
        f"referencing {subject} {version}": (
            3, lambda: model.list_referencing_ids(subject, version),
            lambda: registry.list_referencing_ids(subject, version),
        ),
        f"delete {subject} {version} {flag}": (
            14, lambda: model.delete_version(subject, version, flag),
            lambda: registry.delete_version(subject, version, permanent=flag),
        ),
        f"delete {subject} {flag}": (
            6, lambda: model.delete_subject(subject, flag), lambda: registry.delete_subject(subject, permanent=flag),
        ),
        f"level {name} {level}": (6, lambda: model.set_level(name, level), set_level),
        f"mode {name} {mode}": (2, lambda: model.set_mode(name, mode), set_mode),
    }  # fmt: skip
    description = chance.choices(list(choices), [weight for weight, *_ in choices.values()])[0]
    return description, *choices[description][1:]


def get_expected(operation: Callable[[], Any]) -> Any:
    try:
        return operation()
    except NaiveError as error:
        return error.code


async def get_result(operation: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await operation()
    except RegistryError as error:
        return error.error_code


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_random_operations_have_results_of_naive_model(seed: int) -> None:
    async def scenario(node: RegistryNode) -> None:
        chance, model = random.Random(seed), NaiveService()
        done, outcomes = [], set()
        for _ in range(OPERATIONS):
            description, expect, operate = choose_operation(chance, model, node)
            expected = get_expected(expect)
            found = await get_result(operate)
            done.append(f"{description}: {expected}")
            outcomes.add((description.split()[0], expected if isinstance(expected, int) and expected > 400 else "done"))
            assert found == expected, "\n".join(done[-15:])
        assert len(outcomes) > 20

    run_with_registry(scenario)
