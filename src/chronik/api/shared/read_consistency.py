"""Read consistency: which requests a node may serve while it is fenced or cannot confirm its metadata image.

A broker's lease alone does not protect readers. A broker whose port refuses connections is replaced long before its
lease expires, and a firewall can refuse connections for a broker that is alive
(docs/internals/decisions/2026-11-16-confirmed-reads.md). Reads of the image, and reads by a leader or coordinator
that the image names, therefore wait until a majority has confirmed that the image is current. Fetch does not wait: it
only returns committed records, and these stay committed.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chronik.api.shared.context import Services
from chronik.metadata.image import Image
from chronik.protocol.apis import APIS, ApiTarget
from chronik.protocol.errors import ErrorCode
from chronik.request_reply import Disconnect

_FENCED_ERROR_BY_TARGET: Final = {
    ApiTarget.LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiTarget.COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiTarget.COORDINATOR_STATE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

FENCED_ERRORS: Final = {
    api.key: _FENCED_ERROR_BY_TARGET[api.target] for api in APIS.values() if api.target in _FENCED_ERROR_BY_TARGET
}
"""Error codes by API key with which a fenced broker rejects client requests.

A fenced broker still serves Metadata and ApiVersions, and OffsetFetch if a majority confirms its image. FindCoordinator
redirects clients to another broker.
"""

UNCONFIRMED_WHEN_FENCED: Final = frozenset(
    {*FENCED_ERRORS, *(api.key for api in APIS.values() if api.target is ApiTarget.COORDINATOR_LOOKUP)}
)
"""API keys that a fenced broker serves without confirming its metadata image by a majority.

It cannot reach a majority.
"""

_UNCONFIRMED_ERROR_BY_TARGET: Final = {
    ApiTarget.LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ApiTarget.COORDINATOR_STATE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ApiTarget.COORDINATOR_LOOKUP: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Every node serves offsets. COORDINATOR_LOAD_IN_PROGRESS is the only error after which every client retries.
    ApiTarget.OFFSETS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

UNCONFIRMED_ERRORS: Final = {
    api.key: _UNCONFIRMED_ERROR_BY_TARGET[api.target]
    for api in APIS.values()
    if api.target in _UNCONFIRMED_ERROR_BY_TARGET
}
"""Error codes by API key for requests that fail because no majority confirms the metadata image.

They make clients retry or try another broker. Metadata requests are not listed: unless `read_quorum` is set, the
node serves them from an image that may be stale (`RequestContext.may_be_stale`).
"""

CONFIRMED_READS: Final = frozenset(
    {*UNCONFIRMED_ERRORS, *(api.key for api in APIS.values() if api.target is ApiTarget.METADATA)}
)
"""API keys that a cluster node serves only after a majority has confirmed its metadata image."""

CONFIRM_TIMEOUT_SECONDS: Final = 3.0
"""Timeout in seconds for the confirmation by a majority that the metadata image is current.

A confirmation usually takes one round trip between nodes, and at worst an election; with a one-way latency of 1.2 s it
takes 2.4 s.
"""

METADATA_READS: Final = frozenset(api.key for api in APIS.values() if api.target is ApiTarget.METADATA)
"""Keys of the APIs that are served from the metadata image alone. A node with an empty image cannot serve them."""

BROKERS_WAIT_SECONDS: Final = 1.0
"""Maximum time in seconds that metadata requests wait while the image has no online broker.

A starting cluster usually registers its first broker within this time. Clients that try the bootstrap servers in
sequence wait this long before they try the next server.
"""

BROKERS_POLL_SECONDS: Final = 0.05
"""Interval in seconds at which a waiting metadata request checks for an online broker."""


async def wait_for_brokers(services: Services) -> None:
    """Wait until the image has an online broker, for at most BROKERS_WAIT_SECONDS.

    Raises:
        Disconnect: The image has no broker at all, because this node has not been admitted to a cluster. An empty
            broker list would make librdkafka forget its brokers and other clients ask the same node again; after a
            disconnect they try another node.
    """
    for _ in range(round(BROKERS_WAIT_SECONDS / BROKERS_POLL_SECONDS)):
        if _has_online_broker(services.image):
            return
        await asyncio.sleep(BROKERS_POLL_SECONDS)
    if not services.image.brokers:
        raise Disconnect("this node has not been admitted to a cluster and knows no brokers")


def _has_online_broker(image: Image) -> bool:
    return any(not broker.is_fenced for broker in image.brokers.values())
