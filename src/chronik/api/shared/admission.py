"""Which requests a node may answer now: not every one of them while it is cut off, and reads only with a quorum.

A broker's lease does not protect its readers: one whose port refuses is taken for dead, and replaced, long before the
lease ends, and a firewall refuses for a broker that lives (docs/decisions/2026-11-16-reads-are-confirmed.md). So what
is read from the image, or by a leader or a coordinator that the image names, is read after a majority has confirmed
that the image holds all that was answered before. Fetch is not: what it shows was committed, and stays so.
"""

from __future__ import annotations

import asyncio
from typing import Final

from chronik.api.shared.context import Services
from chronik.exchange import Disconnect
from chronik.metadata.image import Image
from chronik.protocol.apis import APIS, Asked
from chronik.protocol.errors import ErrorCode

_WHEN_FENCED: Final = {
    Asked.LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Asked.COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Asked.COORDINATOR_STATE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}

FENCED: Final = {api.key: _WHEN_FENCED[api.asked] for api in APIS.values() if api.asked in _WHEN_FENCED}
"""What a fenced broker answers: clients then look elsewhere. Metadata and ApiVersions it still answers, and OffsetFetch
if a majority confirms that it knows of every commit."""

_WHEN_UNCONFIRMED: Final = {
    Asked.LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Asked.COORDINATOR_STATE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Every node tells offsets. Of all that could be said, this alone has every client ask again.
    Asked.OFFSETS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}

UNCONFIRMED: Final = {api.key: _WHEN_UNCONFIRMED[api.asked] for api in APIS.values() if api.asked in _WHEN_UNCONFIRMED}
"""What is answered when no majority confirms that the image is fresh: clients look elsewhere, or ask again. What is
asked of the metadata is answered all the same, unless `read_quorum` forbids it, by a node that may be behind and says
no more than it knows (`Context.may_be_behind`)."""

CONFIRMED_READS: Final = frozenset({*UNCONFIRMED, *(api.key for api in APIS.values() if api.asked is Asked.METADATA)})
"""Where the image is shared, these are answered after a majority has confirmed that it is fresh."""

CONFIRM_SECONDS: Final = 3.0
"""Time for a majority to do so: usually a round trip between nodes, at worst an election; on a line of 1.2 s each way
it takes 2.4 s."""

OF_THE_IMAGE: Final = frozenset(api.key for api in APIS.values() if api.asked is Asked.METADATA)
"""Answered from the image alone: a node whose image is still empty has no answer to them."""

IMAGE_SECONDS: Final = 1.0
"""How long they are held while no broker is known, or none is online: a cluster that starts has its first broker by
then. Clients that try one bootstrap server after the other wait as long before they try the next one."""

IMAGE_LOOK_SECONDS: Final = 0.05


async def wait_for_brokers(services: Services) -> None:
    """Wait up to IMAGE_SECONDS until the image has a broker that is online. Raise Disconnect if it has no broker then:
    a node that was not admitted to a cluster knows nothing. An empty list of brokers would make librdkafka forget the
    brokers that it knows, and other clients ask the same node again; without a connection they ask another one."""
    for _ in range(round(IMAGE_SECONDS / IMAGE_LOOK_SECONDS)):
        if _has_online(services.image):
            return
        await asyncio.sleep(IMAGE_LOOK_SECONDS)
    if not services.image.brokers:
        raise Disconnect("this node has not been admitted to a cluster: it knows no brokers")


def _has_online(image: Image) -> bool:
    return any(not broker.fenced for broker in image.brokers.values())
