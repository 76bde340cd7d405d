"""A dry run of a restore: handles the requests of an import like a broker, on an image in memory.

It proves that a cluster of this version would accept all metadata of the source. Records are verified separately, by
their checksums.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chronik.admin.topic_planner import TopicPlanner
from chronik.api.alter_import import alter_import
from chronik.api.import_schemas import import_schemas
from chronik.api.import_security import import_security
from chronik.client.cluster import raise_for_code
from chronik.clock import SystemClock
from chronik.configs.resolver import ConfigResolver
from chronik.ids import generate_id
from chronik.limits import NON_PRODUCE_REQUEST_BYTES_MAX
from chronik.metadata import levels
from chronik.metadata.apply import apply
from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import CreateCluster, SetFeatureLevel
from chronik.metadata.commands.envelope import COMMAND_BYTES_MAX, Command, Envelope, decode_command, encode_command
from chronik.metadata.image import Image
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.store import BARRIER_SECONDS, Acks, DeltaSubscriber
from chronik.migration.import_plan import (
    ImportPlan,
    build_begin_request,
    build_finish_request,
    build_group_requests,
    build_topic_requests,
)
from chronik.migration.registry_import import build_registry_requests, find_missing_registry
from chronik.migration.security_import import build_security_requests, find_missing_security
from chronik.migration.source import ImportSource, MigrationError
from chronik.migration.verification import find_metadata_differences
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.alter_import import AlterImportRequest
from chronik.protocol.schema import Request
from chronik.protocol.wire import UnencodableMessage

_NODE_ID: Final = 1
_DIFFERENCES_SHOWN: Final = 5


def dry_run_restore(source: ImportSource, plan: ImportPlan) -> None:
    """Check that an empty cluster of this version would accept the source's metadata; raise MigrationError if not."""
    asyncio.run(_run(source, plan))


async def _run(source: ImportSource, plan: ImportPlan) -> None:
    store, clock = _InMemoryMetadataStore(), SystemClock()
    configs = ConfigResolver(store, _NODE_ID, {})
    planner = TopicPlanner(store, configs, clock, generate_id, lambda count: 0)

    async def alter(request: AlterImportRequest) -> None:
        _check_request_size(request)
        response = await alter_import(store, planner, configs, clock, request)
        raise_for_code(response.error_code, "not imported", response.error_message)

    try:
        await store.create_cluster()
        await alter(build_begin_request(source, plan))
        for request in build_topic_requests(source, plan, lambda topic: 1):
            await alter(request)
        for security_request in build_security_requests(plan.security, source.id):
            _check_request_size(security_request)
            security_response = await import_security(store, security_request)
            raise_for_code(security_response.error_code, "not imported", security_response.error_message)
        for schemas_request in build_registry_requests(plan.registry, source.id):
            _check_request_size(schemas_request)
            schemas_response = await import_schemas(store, schemas_request)
            raise_for_code(schemas_response.error_code, "not imported", schemas_response.error_message)
        for request in build_group_requests(source, plan.groups):
            await alter(request)
        await alter(build_finish_request(source))
    except KafkaError as error:
        raise MigrationError(f"{source.name} cannot be restored: {error.message}") from error
    found = find_metadata_differences(store.image, plan.topics, plan.groups)
    found += find_missing_security(plan.security, store.image)
    found += find_missing_registry(plan.registry, store.image.schemas)
    if found:
        raise MigrationError(f"{source.name} cannot be restored: {'; '.join(found[:_DIFFERENCES_SHOWN])}")


def _check_request_size(request: Request) -> None:
    """Raise KafkaError if the request exceeds the size limit of a broker."""
    try:
        size = len(encode_request(RequestHeader(request.__schema__.api_key, 0, 1, None), request))
    except UnencodableMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if size > NON_PRODUCE_REQUEST_BYTES_MAX:
        message = f"a request has {size:,} bytes; a broker accepts {NON_PRODUCE_REQUEST_BYTES_MAX:,}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


class _InMemoryMetadataStore:
    """A metadata store that keeps the image in memory only."""

    def __init__(self) -> None:
        self.image: Final = Image()
        self._incarnation = generate_id()
        self._sequence = 0

    @property
    def is_shared(self) -> bool:
        return False

    async def create_cluster(self) -> None:
        """Create a cluster with one broker, at the highest feature level of this version."""
        await self.propose(SetFeatureLevel(levels.FEATURE_NAME, levels.HIGHEST))
        await self.propose(CreateCluster("rehearsal", 0))
        supported = (levels.LOWEST, levels.HIGHEST)
        await self.propose(
            RegisterBroker(_NODE_ID, "localhost", 9092, None, generate_id(), generate_id(), levels=supported)
        )

    async def propose(self, command: Command, *, acks: Acks = Acks.ALL) -> ApplyResult:
        levels.check_command_level(command, levels.get_cluster_level(self.image.features))
        self._sequence += 1
        data = encode_command(Envelope(_NODE_ID, self._incarnation, self._sequence, self._sequence - 1, command))
        if len(data) > COMMAND_BYTES_MAX:
            message = f"{type(command).__name__} is larger than {COMMAND_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        result, _ = apply(self.image, decode_command(data), self.image.applied_index + 1)
        if result.code is not ErrorCode.NONE:
            raise KafkaError(result.code, result.message)
        return result

    def subscribe(self, subscriber: DeltaSubscriber) -> None:
        """Do nothing, because a dry run has no components that react to deltas."""

    async def read_barrier(self, seconds: float = BARRIER_SECONDS) -> None:
        """Return immediately, because the in-memory image is always current."""

    def is_durable(self, index: int) -> bool:
        return True

    async def wait_durable(self, index: int, seconds: float = BARRIER_SECONDS) -> None:
        """Return immediately, because the in-memory store writes nothing to disk."""

    async def start(self) -> None:
        """Do nothing: the store has no files."""

    async def close(self) -> None:
        """Do nothing: the store has no files."""
