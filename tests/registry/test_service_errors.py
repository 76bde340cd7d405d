"""Error codes and messages of the service, and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from chronik.errors import StorageError
from chronik.limits import (
    SCHEMA_BYTES_MAX,
    SCHEMA_PROPERTIES_BYTES_MAX,
    SCHEMA_REFERENCE_DEPTH_MAX,
    SCHEMA_REFERENCE_NAME_CHARACTERS_MAX,
    SCHEMA_REFERENCES_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    SUBJECT_NAME_CHARACTERS_MAX,
    SUBJECT_VERSIONS_MAX,
)
from chronik.metadata.commands.base import CommandBase
from chronik.metadata.handlers import schemas as handlers
from chronik.metadata.handlers.schemas import STALE
from chronik.metadata.stores.store import StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.registry import matching, proposals, references
from chronik.registry.entities import (
    RegistryConfigChange,
    Rule,
    RuleSet,
    SchemaReference,
    SchemaRequest,
)
from chronik.registry.errors import RegistryError
from chronik.registry.service import SchemaRegistry
from tests.registry.registry_node import (
    RegistryNode,
    build_metadata,
    build_record,
    build_referring_request,
    build_request,
    catch_error,
    run_with_registry,
)

Operation = Callable[[SchemaRegistry], Awaitable[Any]]

ERRORS: dict[str, tuple[Operation, int, int, str]] = {
    "unknown subject": (lambda r: r.list_versions("x"), 40401, 404, "Subject 'x' not found."),
    "unknown version": (lambda r: r.get_version("live", 9), 40402, 404, "Version 9 not found."),
    "no latest version": (lambda r: r.get_version("soft", "latest", deleted=True), 40402, 404, "Version -1 not found."),
    "unknown id": (lambda r: r.get_by_id(99), 40403, 404, "Schema 99 not found"),
    "unknown schema": (lambda r: r.look_up("live", build_request("z")), 40403, 404, "Schema not found"),
    "subject soft-deleted": (
        lambda r: r.delete_subject("soft"), 40404, 404,
        "Subject 'soft' was soft deleted.Set permanent=true to delete permanently",
    ),
    "subject not soft-deleted": (
        lambda r: r.delete_subject("live", permanent=True), 40405, 404,
        "Subject 'live' was not deleted first before being permanently deleted",
    ),
    "version soft-deleted": (
        lambda r: r.delete_version("soft", 1), 40406, 404,
        "Subject 'soft' Version 1 was soft deleted.Set permanent=true to delete permanently",
    ),
    "version not soft-deleted": (
        lambda r: r.delete_version("live", "latest", permanent=True), 40407, 404,
        "Subject 'live' Version 1 was not deleted first before being permanently deleted",
    ),
    "no config": (
        lambda r: r.get_config("live"), 40408, 404,
        "Subject 'live' does not have subject-level compatibility configured",
    ),
    "no mode": (
        lambda r: r.get_mode("live"), 40409, 404, "Subject 'live' does not have subject-level mode configured"
    ),
    "incompatible": (
        lambda r: r.register("live", build_request("z")), 409, 409,
        'Schema being registered is incompatible with an earlier schema for subject "live", details: [{errorType:',
    ),
    "invalid schema": (
        lambda r: r.register("live", SchemaRequest(schema="{")), 42201, 422,
        "Invalid schema of type AVRO, details: ",
    ),
    "invalid version": (
        lambda r: r.get_version("live", "first"), 42202, 422,
        "The specified version 'first' is not a valid version id. Allowed values are between [1, 2^31-1] and the "
        'string "latest"',
    ),
    "invalid level": (
        lambda r: r.update_config("live", RegistryConfigChange(compatibility_level="UP")), 42203, 422,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    ),
    "invalid mode": (
        lambda r: r.set_mode("live", "WRITE"), 42204, 422,
        "Invalid mode. Valid values are ",
    ),
    "not permitted": (
        lambda r: r.register("live", build_request("id", "z=0", id=7)), 42205, 422,
        "Subject live in context  is not in import mode",
    ),
    "referenced": (
        lambda r: r.delete_version("target", 1), 42206, 422,
        "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=target,version=1}.",
    ),
    "invalid subject": (
        lambda r: r.register("__EMPTY", build_request("id")), 42208, 422,
        "The specified subject '__EMPTY' is not a valid.",
    ),
    "too large": (
        lambda r: r.register("live", SchemaRequest(schema=" " * (SCHEMA_BYTES_MAX + 1))), 42209, 422,
        "Register operation failed because schema is too large",
    ),
    "invalid rule set": (
        lambda r: r.register("live", build_request("id", rule_set=RuleSet(domain_rules=[Rule("a"), Rule("a")]))),
        42210, 422, "Missing rule type",
    ),
    "context not empty": (
        lambda r: r.delete_context(".lab"), 42211, 422, "The specified context ':.lab:' is not empty."
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_operation_raises_error_with_code_and_message(case: str) -> None:
    operation, code, status, message = ERRORS[case]

    async def scenario(node: RegistryNode) -> None:
        await node.register("live", "id")
        await node.register("soft", "id")
        await node.registry.delete_subject("soft")
        await node.register("target", "id")
        await node.registry.register("referrer", build_referring_request("target"))
        await node.register(":.lab:a", "id")
        error = await catch_error(cast(Any, operation(node.registry)))
        assert (error.error_code, error.status) == (code, status)
        assert error.message.startswith(message)

    run_with_registry(scenario)


@pytest.mark.parametrize(
    "subject",
    ["", "__GLOBAL", ":.lab:", ":.lab:__EMPTY", ":.__GLOBAL:a", "a\n", "x" * (SUBJECT_NAME_CHARACTERS_MAX + 1)],
)
def test_invalid_name_of_subject_is_rejected(subject: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        assert (await catch_error(node.registry.register(subject, build_request("id")))).error_code == 42208
        assert not node.table.subjects

    run_with_registry(scenario)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule(type="CEL"), "Missing rule name"),
        (Rule("", type="CEL"), "Empty rule name"),
        (Rule("x" * 257, type="CEL"), "Rule name too long"),
        (Rule("1", type="CEL"), "Illegal initial character in rule name: 1"),
        (Rule("a b", type="CEL"), "Illegal character in rule name: a b"),
        (Rule("a", type="CEL", mode="UPGRADE"), "Domain rules can only be WRITE, READ, WRITEREAD"),
        (
            Rule("a", type="CEL", mode="WRITE", on_failure="x,y"),
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
        (Rule("a", type="CEL", kind="WISH"), "Rules can only have the kinds TRANSFORM, CONDITION"),
    ],
)
def test_invalid_rule_is_rejected(rule: Rule, message: str) -> None:
    async def scenario(node: RegistryNode) -> None:
        request = build_request("id", rule_set=RuleSet(domain_rules=[rule]))
        error = await catch_error(node.registry.register("orders", request))
        assert (error.error_code, error.message) == (42210, message)

    run_with_registry(scenario)


# --- the metadata log ---


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no majority"), 50002),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "no leader"), 50002),
        (KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many"), 50002),
        (KafkaError(ErrorCode.UNSUPPORTED_VERSION, "needs level 6"), 50001),
        (KafkaError(ErrorCode.POLICY_VIOLATION, "full"), 42205),
        (StoreClosedError("closing"), 50001),
        (StorageError("disk"), 50001),
    ],
)
def test_failed_proposal_raises_typed_error(failure: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(command: CommandBase) -> None:
        raise failure

    async def scenario(node: RegistryNode) -> None:
        monkeypatch.setattr(node.store, "propose", fail)
        error = await catch_error(node.registry.register("orders", build_request("id")))
        assert error.error_code == code
        assert str(failure).rpartition(": ")[2] in error.message

    run_with_registry(scenario)


def test_change_that_stays_stale_fails_after_bounded_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def reject(command: CommandBase) -> None:
        nonlocal attempts
        attempts += 1
        raise KafkaError(STALE, "changed")

    async def scenario(node: RegistryNode) -> None:
        monkeypatch.setattr(node.store, "propose", reject)
        assert (await catch_error(node.registry.register("orders", build_request("id")))).error_code == 50001
        assert attempts == proposals.ATTEMPTS_MAX

    run_with_registry(scenario)


def test_change_without_outcome_fails_after_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(command: CommandBase) -> None:
        await asyncio.Event().wait()

    async def scenario(node: RegistryNode) -> None:
        monkeypatch.setattr(proposals, "OPERATION_SECONDS", 0.02)
        with monkeypatch.context() as patched:
            patched.setattr(node.store, "propose", wait)
            error = await catch_error(node.registry.register("orders", build_request("id")))
        assert error.error_code == 50002
        assert "the outcome is unknown" in error.message
        monkeypatch.setattr(proposals, "OPERATION_SECONDS", 20)
        assert await node.register("orders", "id") == (1, 1)

    run_with_registry(scenario)


# --- limits ---


def test_schema_may_have_the_maximum_size() -> None:
    async def scenario(node: RegistryNode) -> None:
        before, after = '{"type":"record","name":"Order","doc":"', '","fields":[]}'
        pairs, odd = divmod(SCHEMA_BYTES_MAX - len(before) - len(after), 2)
        largest = before + "é" * pairs + "x" * odd + after
        assert (await node.registry.register("orders", SchemaRequest(schema=largest))).schema == largest
        error = await catch_error(node.registry.register("lines", SchemaRequest(schema=f"{largest} ")))
        assert error.error_code == 42209

    run_with_registry(scenario)


def test_properties_have_a_maximum_size() -> None:
    async def scenario(node: RegistryNode) -> None:
        overhead = len('{"metadata":{"properties":{"a":""}}}')
        largest = build_metadata(a="x" * (SCHEMA_PROPERTIES_BYTES_MAX - overhead))
        await node.registry.register("orders", build_request("id", metadata=largest))
        larger = build_metadata(a="x" * (SCHEMA_PROPERTIES_BYTES_MAX - overhead + 1))
        error = await catch_error(node.registry.register("lines", build_request("id", metadata=larger)))
        assert error.error_code == 42209
        error = await catch_error(node.registry.update_config("lines", RegistryConfigChange(default_metadata=larger)))
        assert error.error_code == 42209

    run_with_registry(scenario)


def test_versions_of_a_subject_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SUBJECT_VERSIONS_MAX > 100
    monkeypatch.setattr(handlers, "SUBJECT_VERSIONS_MAX", 2)

    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        await node.register("orders", "id", "a=0")
        error = await catch_error(node.registry.register("orders", build_request("id", "b=0")))
        assert (error.error_code, node.table.next_id(".")) == (42205, 3)

    run_with_registry(scenario)


async def register_chain(node: RegistryNode, length: int) -> RegistryError | None:
    """Register a schema, and schemas that each refer to the previous one. Return the error of the last one, if any."""
    await node.register("s0", "id")
    for number in range(1, length + 1):
        previous = "Order" if number == 1 else f"T{number - 1}"
        request = build_referring_request(f"s{number - 1}", name=f"T{number}", type_name=previous)
        if number == length:
            try:
                await node.registry.register(f"s{number}", request)
            except RegistryError as error:
                return error
        else:
            await node.registry.register(f"s{number}", request)
    return None


def test_chain_of_references_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SCHEMA_REFERENCE_DEPTH_MAX >= 5
    monkeypatch.setattr(references, "SCHEMA_REFERENCE_DEPTH_MAX", 5)

    async def scenario(node: RegistryNode) -> None:
        assert await register_chain(node, 5) is None

    run_with_registry(scenario)

    async def longer_scenario(node: RegistryNode) -> None:
        error = await register_chain(node, 6)
        assert error is not None
        assert (error.error_code, "5 levels" in error.message) == (42201, True)

    run_with_registry(longer_scenario)


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("SCHEMA_REFERENCES_MAX", 2),
        ("SCHEMA_REFERENCE_STEPS_MAX", 2),
        ("SCHEMA_REFERENCES_BYTES_MAX", 260),
    ],
)
def test_references_are_limited(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(SCHEMA_REFERENCES_MAX, SCHEMA_REFERENCES_BYTES_MAX) > 260

    async def scenario(node: RegistryNode) -> None:
        assert await register_chain(node, 1) is None
        monkeypatch.setattr(references, limit, value)
        assert await register_chain(node, 2) is None
        error = await register_chain(node, 3)
        assert error is not None
        assert error.error_code == 42201
        monkeypatch.undo()

    run_with_registry(scenario)


def test_lengths_of_reference_names_are_limited() -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.register("orders", "id")
        schema = build_record("id", name="Line")
        longest = SchemaReference("n" * SCHEMA_REFERENCE_NAME_CHARACTERS_MAX, "orders", 1)
        await node.registry.register("lines", SchemaRequest(schema=schema, references=[longest]))
        longer = SchemaReference(f"{longest.name}n", "orders", 1)
        error = await catch_error(node.registry.register("other", SchemaRequest(schema=schema, references=[longer])))
        assert error.error_code == 42201

    run_with_registry(scenario)


def test_references_that_multiply_are_rejected_quickly() -> None:
    """Each schema refers to the previous one by many names: without a limit, resolving takes exponential time."""

    async def scenario(node: RegistryNode) -> None:
        await node.set_level("NONE")
        await node.register("s0", "id", "a=0")
        number, error = 0, None
        while error is None:
            number += 1
            names = [SchemaReference(f"n{number}-{each}", f"s{number - 1}", 1) for each in range(50)]
            request = SchemaRequest(schema=build_record("id", f"f{number}=0", name=f"T{number}"), references=names)
            try:
                await node.registry.register(f"s{number}", request)
            except RegistryError as found:
                error = found
        assert error.error_code == 42201
        assert 2 < number < 30

    run_with_registry(scenario)


def test_comparison_with_many_versions_ends_at_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(node: RegistryNode) -> None:
        await node.set_level("BACKWARD_TRANSITIVE")
        await node.register("orders", "a=0")
        monkeypatch.setattr(matching, "SCHEMA_COMPARISON_SECONDS_MAX", -1)
        for request in (build_request("b=0"), build_request("c=0", "d=0")):  # One has a text of the same length.
            assert (await catch_error(node.registry.register("orders", request))).error_code == 50002

    run_with_registry(scenario)
