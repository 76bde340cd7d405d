"""An in-process node with an authorizer, whose clients are User:ANONYMOUS.

Tests grant permissions through the node's own metadata store.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from chronik.api.shared.context import Services
from chronik.config import load_config
from chronik.history.metrics import Scope
from chronik.history.series import STEP_S, Reading, Subject
from chronik.history.store import HistoryAnswer, HistoryQuery
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.security import CreateAcls, DeleteAcls
from chronik.metadata.records import Acl
from chronik.node.node import Node
from chronik.protocol.apis import APIS
from chronik.protocol.codec import REQUESTS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.protocol.schema import Request, Response, Struct
from tests.metadata.metadata_world import image_records
from tests.raw import RawClient

T = TypeVar("T")

ANONYMOUS = "User:ANONYMOUS"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALLOW_ALL = tuple(
    Acl(
        kind, CLUSTER_NAME if kind is AclResourceType.CLUSTER else "*", LITERAL, ANONYMOUS, "*", AclOperation.ALL, ALLOW
    )
    for kind in AclResourceType
)


class AuthorizingNode:
    """A node with an authorizer that runs in a thread of the test process."""

    def __init__(
        self,
        folder: Path,
        http: str | None = None,
        peers: Any = None,
        http_token: Any = None,
        http_keystore: str | None = None,
        http_truststore: str | None = None,
        registry: str | None = None,
        **configs: str,
    ) -> None:
        """Start a node.

        With `http`, the node also has an HTTP port, and with `registry` one for its schema registry; with `peers`, it
        is the only node of a cluster.
        """
        broker = {"authorizer.class.name": "standard", "auto.create.topics.enable": "true", **configs}
        endpoints: dict[str, Any] = {"kafka": "127.0.0.1:0", "http": http, "http_token": http_token}
        endpoints |= {"http_keystore": http_keystore, "http_truststore": http_truststore, "registry": registry}
        config = load_config(None, {}, data_dir=folder, **endpoints, peers=peers, broker=broker)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever)
        self._thread.start()
        self._node = Node(config)
        self.bootstrap = str(self._wait(self._node.start()))

    def close(self) -> None:
        self._wait(self._node.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _wait(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(30)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until the condition is true; it is evaluated on the node's event loop."""

        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(0.001)

        self._wait(wait())

    @property
    def http(self) -> str:
        """Return the address of the HTTP port as HOST:PORT."""
        assert self._node.http is not None
        assert self._node.http.url is not None
        return self._node.http.url.partition("://")[2]

    @property
    def services(self) -> Services:
        assert self._node.router is not None
        return self._node.router._services

    def propose(self, command: Command) -> None:
        self._wait(self.services.store.propose(command))

    def stored_records(self) -> tuple[object, ...]:
        """Return all records of the image, and the log end offsets of the non-empty logs.

        Empty logs are left out, because background work may open them at any time.
        """
        replicas = [replica for replica in self.services.replicas if replica._log is not None]
        ends = {(replica.topic_name, replica.index): replica.log.log_end_offset for replica in replicas}
        return (*image_records(self.services.image), {endpoints: end for endpoints, end in ends.items() if end})

    def sample_history(self) -> None:
        """Let the node sample its history, including that of topics and groups."""

        async def sample() -> None:
            assert self.services.find_history is not None
            await self.services.find_history(HistoryQuery(Scope.NODE))
            assert self._node._history is not None
            self._node._history._survey_started_s = -math.inf
            await self._node._history.sample()

        self._wait(sample())

    def query_history(self, query: HistoryQuery) -> HistoryAnswer:
        """Return the node's answer to a query of its history."""
        assert self.services.find_history is not None
        answer = self._wait(self.services.find_history(query))
        assert isinstance(answer, HistoryAnswer)
        return answer

    def record_history(self, at_s: float, samples: Mapping[Scope, Mapping[Subject, Reading]]) -> None:
        """Record samples in the history of the node, as if they had been taken at a time."""

        async def record() -> None:
            if self._node._history is None:
                assert self.services.find_history is not None
                await self.services.find_history(HistoryQuery(Scope.NODE))
            assert self._node._history is not None
            for scope, readings in samples.items():
                for _ in self._node._history.store.tables[scope].record(at_s, at_s, STEP_S, readings):
                    pass

        self._wait(record())

    # Permissions

    def allow(self, operation: AclOperation, kind: AclResourceType, name: str = CLUSTER_NAME, **how: int) -> None:
        """Create an ACL for User:ANONYMOUS, which allows the operation by default."""
        acl = Acl(kind, name, how.get("pattern", LITERAL), ANONYMOUS, "*", operation, how.get("permission", ALLOW))
        self._wait(self.services.store.propose(CreateAcls((acl,))))

    def revoke(self, operation: AclOperation, kind: AclResourceType, name: str = CLUSTER_NAME) -> None:
        acl = Acl(kind, name, LITERAL, ANONYMOUS, "*", operation, ALLOW)
        assert acl in self.services.image.acls
        self._wait(self.services.store.propose(DeleteAcls((acl,))))

    def revoke_all(self) -> None:
        self._wait(self.services.store.propose(DeleteAcls(tuple(self.services.image.acls))))

    @contextmanager
    def all_permitted(self) -> Iterator[None]:
        """Grant all permissions within the context."""
        before = tuple(self.services.image.acls)
        self._wait(self.services.store.propose(CreateAcls(ALLOW_ALL)))
        try:
            yield
        finally:
            self._wait(self.services.store.propose(DeleteAcls(tuple(set(ALLOW_ALL) - set(before)))))


def build_request(api: str, values: dict[str, Any]) -> Request:
    """Build a request from plain values; structs are dictionaries."""
    keys = {each.name: each.key for each in APIS.values()}
    assert api in keys, f"protocol/apis.py has no line for {api}"
    request = build_struct(REQUESTS[keys[api]], values)
    assert isinstance(request, Request)
    return request


def build_struct(cls: type[Struct], values: dict[str, Any]) -> Struct:
    """Build a struct from plain values, recursively."""
    elements = {field.name: field.element for field in cls.__schema__.fields}
    found = {}
    for name, value in values.items():
        element = elements[name]
        if isinstance(element, type) and isinstance(value, list):
            value = [build_struct(element, each) for each in value]
        elif isinstance(element, type) and isinstance(value, dict):
            value = build_struct(element, value)
        found[name] = value
    return cls(**found)


def send_request(client: RawClient, api: str, version: int, **values: Any) -> Any:
    """Send a request that is built from plain values, and return the response."""
    return client.request(build_request(api, values), version, Response)


def error_codes_in(part: object) -> list[ErrorCode]:
    """Return the distinct non-zero error codes in a response, at any depth."""
    return list(dict.fromkeys(_errors(part)))


def _errors(part: object) -> Iterable[ErrorCode]:
    if isinstance(part, list):
        for each in part:
            yield from _errors(each)
    elif isinstance(part, Struct):
        for name in part.__struct_fields__:
            value = getattr(part, name)
            if name == "error_code" and value:
                yield ErrorCode(value)
            elif isinstance(value, list | Struct):
                yield from _errors(value)
