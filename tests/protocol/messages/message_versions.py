"""All declared message versions."""

from __future__ import annotations

from itertools import groupby
from typing import Final, NamedTuple

from chronik.protocol.apis import APIS
from chronik.protocol.message_types import REQUESTS, RESPONSES
from chronik.protocol.schema import Struct


class MessageVersion(NamedTuple):
    cls: type[Struct]
    version: int

    def __str__(self) -> str:
        return f"{self.cls.__name__}-v{self.version}"


MESSAGE_VERSIONS: Final = [
    MessageVersion(cls, version)
    for api in APIS.values()
    for cls in (REQUESTS[api.key], RESPONSES[api.key])
    for version in range(api.min_version, api.max_version + 1)
]

BY_MESSAGE: Final = [list(pairs) for _, pairs in groupby(MESSAGE_VERSIONS, key=lambda pair: pair.cls)]


def format_versions(pairs: list[MessageVersion]) -> str:
    return pairs[0].cls.__name__
