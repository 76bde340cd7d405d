"""Import of users, ACLs and quotas, and what the cluster keeps."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chronik.admin.users import create_first_user_command
from chronik.cli.migration.import_runner import execute_import
from chronik.client.cluster import ClusterClient
from chronik.metadata.commands.security import AlterQuotas, AlterScramUser, CreateAcls, QuotaAlteration
from chronik.metadata.records import Acl
from chronik.migration import failpoints, importer
from chronik.migration.backup.backup_source import open_backup
from chronik.migration.backup.backup_writer import BackupWriter, create_backup_point
from chronik.migration.directory_source import DirectorySource
from chronik.migration.import_plan import build_import_plan, find_import_obstacles
from chronik.migration.importer import Importer, ImportResult
from chronik.migration.security_import import (
    build_security_requests,
    find_missing_security,
    find_security_conflicts,
    read_security_metadata,
)
from chronik.migration.source import MigrationError
from chronik.protocol.errors import ErrorCode
from chronik.security.sasl.scram_keys import ITERATIONS_MAX, MECHANISMS_BY_NUMBER
from tests.api.authorizing_node import AuthorizingNode, send_request
from tests.metadata.metadata_world import MetadataWorld
from tests.migration.test_import_plan import MemorySource
from tests.raw import RawClient

ACLS = (Acl(2, "orders", 3, "User:alice", "*", 3, 3), Acl(2, "*", 3, "User:bob", "10.0.0.1", 2, 2))
ALICE = (("user", "alice"),)
DEFAULTS = (("client-id", ""), ("user", ""))


def quotas(entity: tuple[tuple[str, str], ...], rate: float) -> QuotaAlteration:
    return QuotaAlteration(entity, {"producer_byte_rate": rate})


def user(name: str, password: str) -> AlterScramUser:
    made = create_first_user_command(name, password)
    return AlterScramUser(name, made.put, (), made.secret)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "data"
    node = AuthorizingNode(path, **{"super.users": "User:ANONYMOUS"})
    with RawClient(node.bootstrap) as client:
        send_request(
            client, "CreateTopics", 7, topics=[{"name": "orders", "num_partitions": 1, "replication_factor": 1}]
        )
    for command in (
        user("alice", "of alice"),
        user("bob", "of bob"),
        CreateAcls(ACLS),
        AlterQuotas((quotas(ALICE, 1000.0), quotas(DEFAULTS, 5000.0))),
    ):
        node.propose(command)
    node.close()
    return path


@pytest.fixture
def source(folder: Path) -> Iterator[DirectorySource]:
    source = DirectorySource(folder)
    yield source
    source.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "target", **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


def run(source: DirectorySource, target: AuthorizingNode) -> ImportResult:
    with ClusterClient(target.bootstrap) as cluster:
        return Importer(source, cluster, lambda _: None).run()


def test_import_copies_users_acls_and_quotas(source: DirectorySource, target: AuthorizingNode) -> None:
    assert run(source, target).kept == []
    assert read_security_metadata(target.services.image) == read_security_metadata(source.image)
    assert str(read_security_metadata(target.services.image)) == "2 users, 2 ACLs, quotas of 2 entities"
    assert target.services.image.salt_secret, "without a secret, clients could probe which users exist"
    with ClusterClient(target.bootstrap) as cluster:
        assert Importer(source, cluster, lambda _: None).is_finished


def test_backup_files_are_private_and_restore_copies_security_metadata(
    source: DirectorySource, target: AuthorizingNode, tmp_path: Path
) -> None:
    run(source, target)
    saved, other = tmp_path / "saved", AuthorizingNode(tmp_path / "other", **{"super.users": "User:ANONYMOUS"})
    try:
        before = os.umask(0)  # files with keys must be private regardless of the umask
        try:
            with ClusterClient(target.bootstrap) as cluster, BackupWriter(saved) as backup:
                backup.run(cluster, create_backup_point(cluster), 1, lambda _: None)
        finally:
            os.umask(before)
        modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in [saved, *saved.rglob("*")]}
        assert modes == {(True, 0o700), (False, 0o600)}
        with ClusterClient(other.bootstrap) as cluster, closing(open_backup(saved)) as restored:
            assert Importer(restored, cluster, lambda _: None).run().kept == []
        assert read_security_metadata(other.services.image) == read_security_metadata(source.image)
    finally:
        other.close()


def test_import_keeps_and_reports_existing_users_and_quotas(
    source: DirectorySource, target: AuthorizingNode, capsys: pytest.CaptureFixture[str]
) -> None:
    one_mechanism = user("alice", "another")
    target.propose(AlterScramUser("alice", one_mechanism.put[:1], (), one_mechanism.secret))
    target.propose(AlterQuotas((quotas(ALICE, 7.0),)))
    target.propose(CreateAcls(ACLS[:1]))
    with ClusterClient(target.bootstrap) as cluster:
        assert (
            execute_import(source, cluster, argparse.Namespace(replication_factor=None, dry_run=False, yes=True)) == 0
        )
    kept_user, kept_quotas = capsys.readouterr().out.splitlines()[-3:-1]
    assert kept_user.startswith("user alice already exists with another password or other mechanisms")
    assert kept_quotas.startswith("user alice already has other quotas")
    image = target.services.image
    (credential,) = image.users.credentials("alice").values()
    assert credential.salt == one_mechanism.put[0].salt, "no credential of the imported user may be added"
    assert image.quotas[ALICE] == {"producer_byte_rate": 7.0}
    assert image.users.credentials("bob") == source.image.users.credentials("bob")
    assert list(image.acls) == list(ACLS)


@pytest.mark.parametrize("request_number", [1, 2, 3])
def test_interrupted_import_of_security_metadata_is_resumed(
    source: DirectorySource, target: AuthorizingNode, monkeypatch: pytest.MonkeyPatch, request_number: int
) -> None:
    hits = 0

    def stop(point: str) -> None:
        nonlocal hits
        hits += point == failpoints.SECURED
        if hits == request_number:
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, failpoints.hit_failpoint.__name__, stop)
    with pytest.raises(KeyboardInterrupt):
        run(source, target)
    assert not target.services.image.topics, "topics must stay invisible until their ACLs are imported"
    assert bool(target.services.image.users.by_name)
    monkeypatch.undo()
    assert run(source, target).kept == []
    assert read_security_metadata(target.services.image) == read_security_metadata(source.image)
    assert list(target.services.image.topics) == ["orders"]


def test_missing_user_or_acl_is_reported_after_import(
    source: DirectorySource, target: AuthorizingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, build_security_requests.__name__, lambda *_: iter(()))
    with pytest.raises(MigrationError, match="user alice is missing; user bob is missing; an ACL of User:alice for"):
        run(source, target)


def test_missing_security_metadata_is_listed(source: DirectorySource) -> None:
    wanted = read_security_metadata(source.image)
    world = MetadataWorld(1)
    assert len(find_missing_security(wanted, world.image)) == 6
    assert find_missing_security(wanted, world.image)[-2] == "quotas of client-id (default), user (default) are missing"
    assert find_security_conflicts(wanted, world.image) == []
    assert (find_missing_security(wanted, source.image), find_security_conflicts(wanted, source.image)) == ([], [])


def test_import_requires_security_feature_level(source: DirectorySource) -> None:
    world = MetadataWorld(1)
    (message,) = find_import_obstacles(build_import_plan(source), source, world.image)
    assert message.startswith("2 users, 2 ACLs, quotas of 2 entities need chronik.version 4, and the cluster is at 1")
    none = MemorySource(MetadataWorld(1).image)
    assert find_import_obstacles(build_import_plan(none), none, world.image) == []


# --- invalid requests ---


def keys(**changed: Any) -> dict[str, Any]:
    size = MECHANISMS_BY_NUMBER[1].size
    good = {"mechanism": 1, "iterations": 4096, "salt": b"s", "stored_key": bytes(size), "server_key": bytes(size)}
    return {**good, **changed}


INVALID_REQUESTS = (
    {"users": [{"name": "a", "keys": [keys(mechanism=3)]}]},
    {"users": [{"name": "a", "keys": [keys(stored_key=b"short")]}]},
    {"users": [{"name": "a", "keys": [keys(server_key=bytes(64))]}]},
    {"users": [{"name": "a", "keys": [keys(salt=b"")]}]},
    {"users": [{"name": "a", "keys": [keys(iterations=1)]}]},
    {"users": [{"name": "a", "keys": [keys(iterations=ITERATIONS_MAX + 1)]}]},
    {"users": [{"name": "a", "keys": [keys(), keys()]}]},
    {"users": [{"name": "a", "keys": []}]},
    {"users": [{"name": "", "keys": [keys()]}]},
    {"acls": [{"name": "t", "resource_type": 99}]},
    {"quotas": [{"entity": [{"kind": "planet", "name": "mars"}], "values": []}]},
    {"quotas": [{"entity": [{"kind": "user", "name": "a"}], "values": [{"key": "none", "value": 1.0}]}]},
)


def test_invalid_security_metadata_is_rejected(target: AuthorizingNode) -> None:
    """Invalid keys must be rejected before they are in the log: a node could not decode them and would stop."""
    import_id = bytes(16)
    with RawClient(target.bootstrap) as client:
        assert send_request(client, "AlterImport", 0, import_id=import_id, action=0, source="x").error_code == 0

        def send(**values: Any) -> Any:
            return send_request(client, "ImportSecurity", 0, import_id=import_id, **values)

        before = target.stored_records()
        for each in INVALID_REQUESTS:
            assert send(**each).error_code, each
        assert target.stored_records() == before
        assert send(users=[{"name": "a", "keys": [keys()]}]).error_code == 0
        assert send_request(client, "AlterImport", 0, import_id=import_id, action=2).error_code == 0
        late = send(users=[{"name": "b", "keys": [keys()]}])
        assert late.error_code == ErrorCode.RESOURCE_NOT_FOUND, (
            "keys may be imported only while the import is in progress"
        )
