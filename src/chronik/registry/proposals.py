"""The registry's access to the metadata store: confirmed reads, and changes that are retried if they are stale."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, NamedTuple, TypeVar

from chronik.errors import StorageError
from chronik.metadata.commands.envelope import Command
from chronik.metadata.handlers.schemas import STALE
from chronik.metadata.records import ApplyResult
from chronik.metadata.schemas import SchemaTable
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.registry.errors import OperationNotPermittedError, RegistryStoreError, RegistryTimeoutError

CONFIRM_SECONDS: Final = 5.0
"""The maximum time in seconds to confirm a read with a majority, long enough for an election."""

OPERATION_SECONDS: Final = 25.0
"""The maximum time in seconds of a change or a comparison, below the usual timeout of HTTP clients."""

ATTEMPTS_MAX: Final = 50
"""The maximum number of attempts to make a change while other nodes change the same subject. One of the attempts made
at a time succeeds, and a node makes one at a time per subject."""

RETRIABLE_CODES: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
"""The error codes of commands that clients may repeat: the outcome is unknown, or nothing was changed."""

T = TypeVar("T")


class Proposal(NamedTuple, Generic[T]):
    """A command, and the function that turns its result into the result of the operation."""

    command: Command
    finish: Callable[[ApplyResult], T]


class StateChangedError(Exception):
    """The subject or its settings changed while their state was being evaluated, or before a command was applied."""


class RegistryStore:
    """The schemas in the metadata image of a node, and the way to change them.

    Operations of the same name are serialized, so that the requests of a node do not make each other's commands stale.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._locks = _NamedLocks()

    @property
    def table(self) -> SchemaTable:
        """Return the schemas in the local image. Do not keep the object: a store may replace the image."""
        return self._store.image.schemas

    async def confirm(self) -> None:
        """Wait until the image contains all changes that any node acknowledged before the call.

        Raises:
            RegistryTimeoutError: No majority of the nodes answered in time.
            RegistryStoreError: The node is stopping.
        """
        if not self._store.is_shared:
            return
        try:
            await self._store.read_barrier(CONFIRM_SECONDS)
        except KafkaError as error:
            raise RegistryTimeoutError(f"The answer cannot be confirmed: {error.message}") from error
        except (StoreClosedError, StorageError) as error:
            raise RegistryStoreError(f"The answer cannot be confirmed: {error}") from error

    async def change(self, name: str, plan: Callable[[], Awaitable[T | Proposal[T]]]) -> T:
        """Make a change of a subject or context: plan it, propose the command, and plan again if the state has changed.

        Raises:
            RegistryTimeoutError: No majority answered in time; the outcome may be unknown.
            RegistryStoreError: The store failed, or other nodes changed the subject all the time.
        """
        try:
            async with asyncio.timeout(OPERATION_SECONDS), self._locks.hold(name):
                await self.confirm()
                for _ in range(ATTEMPTS_MAX):
                    try:
                        planned = await plan()
                        if not isinstance(planned, Proposal):
                            return planned
                        result: T = planned.finish(await self._propose(planned.command))
                        return result
                    except StateChangedError:
                        continue
        except TimeoutError:
            raise RegistryTimeoutError(
                f"The change of {name!r} was not confirmed in {OPERATION_SECONDS:.0f} s; the outcome is unknown"
            ) from None
        raise RegistryStoreError(f"{name!r} was changed by other requests during {ATTEMPTS_MAX} attempts: retry later")

    async def evaluate(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """Run a read that takes several steps, and repeat it if the subject has changed between them.

        Raises:
            RegistryTimeoutError: The schemas were not parsed and compared in time.
            RegistryStoreError: The subject changed during all attempts.
        """
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                for _ in range(ATTEMPTS_MAX):
                    try:
                        return await read()
                    except StateChangedError:
                        continue
        except TimeoutError:
            raise RegistryTimeoutError(
                f"The request about {name!r} was not answered in {OPERATION_SECONDS:.0f} s: retry later"
            ) from None
        raise RegistryStoreError(f"{name!r} was changed by other requests during {ATTEMPTS_MAX} attempts: retry later")

    async def _propose(self, command: Command) -> ApplyResult:
        """Propose a command and return its result.

        Raises:
            StateChangedError: The state on which the command is based has changed. The image has the new state.
            OperationNotPermittedError: A limit of the registry is reached, or the id or version is in use.
            RegistryTimeoutError, RegistryStoreError: The command was not accepted, or its outcome is unknown.
        """
        try:
            return await self._store.propose(command)
        except KafkaError as error:
            if error.code is STALE:
                raise StateChangedError from None
            if error.code in (ErrorCode.DUPLICATE_RESOURCE, ErrorCode.POLICY_VIOLATION):
                raise OperationNotPermittedError(error.message) from None
            if error.code in RETRIABLE_CODES:
                raise RegistryTimeoutError(f"The change was not confirmed: {error.message}") from error
            raise RegistryStoreError(f"The change was not accepted: {error.message}") from error
        except (StoreClosedError, StorageError) as error:
            raise RegistryStoreError(f"The change was not accepted, or its outcome is unknown: {error}") from error


class _NamedLocks:
    """Locks by name, which exist as long as they are used."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)
