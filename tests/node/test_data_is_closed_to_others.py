"""What a node keeps is for its own user: folders are 0700, files 0600, whatever the umask is; older ones become so."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.testing.plugin import BrokerFactory
from tests.api.talk import batch, produce
from tests.raw import RawClient

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, int]]:
    found = {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}
    return found | {("folder", stat.S_IMODE(folder.stat().st_mode))}


@pytest.mark.usefixtures("umask")
def test_new_folders_are_closed_and_old_ones_are_when_they_are_started(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("topic", partitions=3)
    with RawClient(broker.bootstrap) as client:
        assert not produce(client, "topic", batch(b"value")).error_code
    broker.stop()
    assert modes(broker.data_dir) == {("folder", 0o700), ("file", 0o600)}
    for path in [broker.data_dir, *broker.data_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    broker.start()
    assert modes(broker.data_dir) == {("folder", 0o700), ("file", 0o600)}
    assert [record.value for record in broker.records("topic")] == [b"value"]
