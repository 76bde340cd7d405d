"""A schema registry on the metadata store of a standalone node, for tests of the service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, Final

from chronik.clock import ManualClock
from chronik.metadata.schemas import SchemaTable
from chronik.metadata.stores.local_store import LocalStore
from chronik.metadata.stores.store import MetadataStore
from chronik.registry.entities import Metadata, RegistryConfigChange, Rule, RuleSet, SchemaReference, SchemaRequest
from chronik.registry.errors import RegistryError
from chronik.registry.service import SchemaRegistry
from tests.files.simulated_files import SimulatedFileSystem

DEADLINE_SECONDS: Final = 60


def build_record(*fields: str, name: str = "Order", **more: Any) -> str:
    """Return the Avro schema of a record: `id` is an int field, `id=0` an int field with a default value."""
    built = []
    for field in fields:
        field_name, _, default = field.partition("=")
        built.append({"name": field_name, "type": "int"} | ({"default": int(default)} if default else {}))
    return json.dumps({"type": "record", "name": name, "fields": built} | more, separators=(",", ":"))


def build_request(*fields: str, **more: Any) -> SchemaRequest:
    """Return a request for the record with the fields."""
    return SchemaRequest(schema=build_record(*fields), **more)


def build_referring_request(
    subject: str, version: int = 1, name: str = "Line", type_name: str = "Order", **more: Any
) -> SchemaRequest:
    """Return a request for a record with a field of a type that a version of a subject defines."""
    field = {"name": "order", "type": type_name}
    schema = json.dumps({"type": "record", "name": name, "fields": [field]}, separators=(",", ":"))
    return SchemaRequest(schema=schema, references=[SchemaReference(type_name, subject, version)], **more)


def build_metadata(**properties: str) -> Metadata:
    return Metadata(properties=dict(sorted(properties.items())))


def build_rule_set(*names: str) -> RuleSet:
    """Return a rule set with rules as they are stored."""
    return RuleSet(domain_rules=[Rule(name, kind="CONDITION", mode="WRITE", type="CEL", expr="true") for name in names])


class RegistryNode:
    """A registry, its store and its clock."""

    def __init__(self, store: MetadataStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.registry = SchemaRegistry(store, now_ms=self.clock.now_ms)

    @property
    def table(self) -> SchemaTable:
        return self.store.image.schemas

    async def register(self, subject: str, *fields: str, **more: Any) -> tuple[int, int]:
        """Register the record with the fields. Return the id and the version."""
        found = await self.registry.register(subject, build_request(*fields, **more))
        return found.id, found.version

    async def set_level(self, level: str, subject: str | None = None) -> None:
        await self.registry.update_config(subject, RegistryConfigChange(compatibility_level=level))

    async def delete_permanently(self, subject: str, version: int | None = None) -> None:
        """Soft-delete a subject or a version, and then delete it permanently."""
        for permanent in (False, True):
            if version is None:
                await self.registry.delete_subject(subject, permanent=permanent)
            else:
                await self.registry.delete_version(subject, version, permanent=permanent)


Scenario = Callable[[RegistryNode], Coroutine[Any, Any, None]]


def run_with_registry(scenario: Scenario) -> None:
    """Run a scenario with the registry of a standalone node."""

    async def run() -> None:
        store = LocalStore(SimulatedFileSystem())
        await store.start()
        node = RegistryNode(store)
        try:
            await scenario(node)
        finally:
            await node.registry.close()
            await store.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE_SECONDS))


async def catch_error(operation: Coroutine[Any, Any, Any]) -> RegistryError:
    """Return the error that an operation raises."""
    try:
        result = await operation
    except RegistryError as error:
        return error
    raise AssertionError(f"no error, but {result}")
