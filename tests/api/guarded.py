"""A node of this process that has an authorizer. Its clients are User:ANONYMOUS, and have the rights that a test gives
them, through the node's own store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from chronik.api.shared.context import Services
from chronik.config import load_config
from chronik.metadata.commands.acls import CreateAcls, DeleteAcls
from chronik.metadata.commands.envelope import Command
from chronik.metadata.records import Acl
from chronik.node.node import Node
from chronik.protocol.apis import APIS
from chronik.protocol.errors import ErrorCode
from chronik.protocol.message_types import REQUESTS
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType
from chronik.protocol.schema import Request, Response, Struct
from tests.metadata.world import records_of
from tests.raw import RawClient

T = TypeVar("T")

ANONYMOUS = "User:ANONYMOUS"
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
EVERYWHERE = tuple(
    Acl(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", LITERAL, ANONYMOUS, "*", Operation.ALL, ALLOW)
    for kind in ResourceType
)


class GuardedNode:
    def __init__(
        self,
        folder: Path,
        http: str | None = None,
        peers: Any = None,
        http_token: Any = None,
        http_keystore: str | None = None,
        http_truststore: str | None = None,
        **configs: str,
    ) -> None:
        """With `http` it has a port for that, too; with `peers` it is a cluster, of which it is the only node."""
        broker = {"authorizer.class.name": "standard", "auto.create.topics.enable": "true", **configs}
        place: dict[str, Any] = {"kafka": "127.0.0.1:0", "http": http, "http_token": http_token}
        place |= {"http_keystore": http_keystore, "http_truststore": http_truststore}
        config = load_config(None, {}, data_dir=folder, **place, peers=peers, broker=broker)
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

    def until(self, is_so: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits for a state of the node, which is looked at where it changes."""

        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not is_so():
                    await asyncio.sleep(0.001)

        self._wait(wait())

    @property
    def http(self) -> str:
        """Where it is spoken to over HTTP, as HOST:PORT."""
        assert self._node.http is not None
        assert self._node.http.url is not None
        return self._node.http.url.partition("://")[2]

    @property
    def services(self) -> Services:
        assert self._node.router is not None
        return self._node.router._services

    def propose(self, command: Command) -> None:
        self._wait(self.services.store.propose(command))

    def records(self) -> tuple[object, ...]:
        """All that is in its image, and how long the logs are that have something in them: opening an empty one, which
        whoever looks after logs does in its own time, changes nothing."""
        replicas = [replica for replica in self.services.replicas if replica._log is not None]
        ends = {(replica.topic_name, replica.index): replica.log.log_end_offset for replica in replicas}
        return (*records_of(self.services.image), {place: end for place, end in ends.items() if end})

    # Rights

    def allow(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME, **how: int) -> None:
        acl = Acl(kind, name, how.get("pattern", LITERAL), ANONYMOUS, "*", operation, how.get("permission", ALLOW))
        self._wait(self.services.store.propose(CreateAcls((acl,))))

    def forbid(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        acl = Acl(kind, name, LITERAL, ANONYMOUS, "*", operation, ALLOW)
        assert acl in self.services.image.acls
        self._wait(self.services.store.propose(DeleteAcls((acl,))))

    def forbid_all(self) -> None:
        self._wait(self.services.store.propose(DeleteAcls(tuple(self.services.image.acls))))

    @contextmanager
    def all_allowed(self) -> Iterator[None]:
        before = tuple(self.services.image.acls)
        self._wait(self.services.store.propose(CreateAcls(EVERYWHERE)))
        try:
            yield
        finally:
            self._wait(self.services.store.propose(DeleteAcls(tuple(set(EVERYWHERE) - set(before)))))


def build(api: str, values: dict[str, Any]) -> Request:
    """Makes a request of plain values: structs are dictionaries."""
    keys = {each.name: each.key for each in APIS.values()}
    assert api in keys, f"protocol/apis.py has no line for {api}"
    made = built(REQUESTS[keys[api]], values)
    assert isinstance(made, Request)
    return made


def built(cls: type[Struct], values: dict[str, Any]) -> Struct:
    elements = {field.name: field.element for field in cls.__schema__.fields}
    found = {}
    for name, value in values.items():
        element = elements[name]
        if isinstance(element, type) and isinstance(value, list):
            value = [built(element, each) for each in value]
        elif isinstance(element, type) and isinstance(value, dict):
            value = built(element, value)
        found[name] = value
    return cls(**found)


def ask(client: RawClient, api: str, version: int, **values: Any) -> Any:
    return client.ask(build(api, values), version, Response)


def errors(part: object) -> list[ErrorCode]:
    """Every error in a response, wherever it stands."""
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
