"""Permissions of the data directory: 0700 for directories and 0600 for files, regardless of the umask.

Permissions that an operator grants later are kept, and foreign files are not touched.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronik.node.identity import IDENTITY_FILE
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api.request_builders import batch, produce
from tests.raw import RawClient

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no POSIX permissions")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> set[tuple[str, int]]:
    found = {("folder" if path.is_dir() else "file", stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")}
    return found | {("folder", stat.S_IMODE(folder.stat().st_mode))}


def write(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=3)
    with RawClient(broker.bootstrap) as client:
        assert not produce(client, topic, batch(b"value")).error_code


def open_to_all(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)


def make_older(folder: Path) -> None:
    """Write `node.json` as versions did that did not restrict permissions."""
    identity = json.loads((folder / IDENTITY_FILE).read_text())
    (folder / IDENTITY_FILE).write_text(json.dumps({key: identity[key] for key in ("node_id", "directory_id")}))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_permissions_are_restricted_for_new_and_upgraded_directories(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    write(broker, "topic")
    broker.stop()
    assert modes(broker.data_dir) == {("folder", 0o700), ("file", 0o600)}
    open_to_all(broker.data_dir)
    make_older(broker.data_dir)
    broker.start()
    assert modes(broker.data_dir) == {("folder", 0o700), ("file", 0o600)}
    assert [record.value for record in broker.records("topic")] == [b"value"]


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_group_permissions_of_operator_apply_to_new_files(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    write(broker, "before")
    broker.stop()
    old_log, *_ = broker.data_dir.glob("topics/*/*/*.log")
    broker.data_dir.chmod(0o2750)
    old_log.chmod(0o640)
    broker.start()
    write(broker, "after")
    broker.stop()
    assert (mode(broker.data_dir), mode(old_log)) == (0o2750, 0o640)
    new_logs = [path for path in broker.data_dir.glob("topics/*/*/*.log") if path.parts[-3] != old_log.parts[-3]]
    assert {mode(path) for path in new_logs} == {0o640}
    assert {mode(path.parent) & 0o777 for path in new_logs} == {0o750}


def test_permissions_of_foreign_files_are_not_changed(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.stop()
    script = broker.data_dir / "hooks" / "backup.sh"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    open_to_all(broker.data_dir)
    script.chmod(0o755)
    make_older(broker.data_dir)
    broker.start()
    assert (mode(script.parent), mode(script)) == (0o755, 0o755)
    assert mode(broker.data_dir) == 0o700
