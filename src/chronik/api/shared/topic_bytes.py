"""Topics as Metadata responses have them, encoded once per version and listener, and dropped when they change.

Clients ask for the same topics all the time, some for all of them: to encode 3,000 topics takes 20 ms of the loop, to
copy their bytes a fraction of one. Offsets, groups and watermarks are not in them and do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.metadata.delta import Delta
from chronik.metadata.image import Image

KEPT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Half a million partitions in one version. Beyond it all of them go, and are encoded again as they are asked for."""

Form = tuple[int, bool, str]
"""The version, whether operations are told too, and the listener of whoever asks."""


class TopicBytes:
    def __init__(self) -> None:
        self._kept: dict[bytes, dict[Form, bytes]] = {}
        self._size = 0

    def get(self, topic_id: bytes, form: Form, encode: Callable[[], bytes]) -> bytes:
        forms = self._kept.get(topic_id)
        encoded = forms.get(form) if forms is not None else None
        if encoded is None:
            encoded = encode()
            self._keep(topic_id, form, encoded)
        return encoded

    def follow(self, delta: Delta, image: Image) -> None:
        """Drops what has changed. A topic says which of its replicas are offline, and so depends on their brokers; one
        that has just come holds nothing, and changes nothing."""
        for change in delta.brokers:
            broker = change.new or change.old
            assert broker is not None
            for held in image.topics_on(broker.id):
                self._drop(held.id)
        for changed in delta.topics:
            topic = changed.new or changed.old
            assert topic is not None
            self._drop(topic.id)

    def _drop(self, topic_id: bytes) -> None:
        self._size -= sum(map(len, self._kept.pop(topic_id, {}).values()))

    def _keep(self, topic_id: bytes, form: Form, encoded: bytes) -> None:
        if self._size + len(encoded) > KEPT_BYTES_MAX:
            self._drop_all()
        self._kept.setdefault(topic_id, {})[form] = encoded
        self._size += len(encoded)

    def _drop_all(self) -> None:
        self._kept.clear()
        self._size = 0
