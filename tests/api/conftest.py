"""Fixture with a raw connection to the broker that the API tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chronik.testing import Broker
from tests.raw import RawClient


@pytest.fixture
def client(chronik_broker: Broker) -> Iterator[RawClient]:
    with RawClient(chronik_broker.bootstrap) as client:
        yield client
