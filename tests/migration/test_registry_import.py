"""Backup, check, restore and import of the schema registry, with all ids kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from chronik.cli.main import main
from chronik.client.cluster import ClusterClient
from chronik.metadata import levels
from chronik.metadata.commands.envelope import Command
from chronik.metadata.commands.schemas import (
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
    decode_importable_command,
)
from chronik.metadata.schemas import GLOBAL_SETTINGS, SchemaTable
from chronik.migration import failpoints, importer, registry_import
from chronik.migration.backup.backup_source import open_backup
from chronik.migration.backup.backup_writer import BackupWriter, create_backup_point
from chronik.migration.dry_run import dry_run_restore
from chronik.migration.import_plan import build_import_plan, find_import_obstacles
from chronik.migration.importer import Importer
from chronik.migration.registry_import import (
    build_registry_requests,
    find_missing_registry,
    find_registry_obstacles,
    read_registry_metadata,
)
from chronik.migration.source import MigrationError
from chronik.protocol.errors import ErrorCode
from tests.api.authorizing_node import AuthorizingNode, send_request
from tests.metadata.registry_world import RegistryWorld
from tests.migration.test_import_plan import MemorySource
from tests.raw import RawClient

IMPORT_ID = bytes(15) + b"\x07"
LAB = ":.lab:orders"


def populate(world: RegistryWorld) -> RegistryWorld:
    """Register schemas so that every kind of record and every special case of a restore occurs."""
    world.register_schema("z-common", "common")
    world.register_schema("orders", "a", references=[("z-common", 1)])
    world.register_schema("orders", "b", properties='{"metadata":{}}')
    world.register_schema("orders", "c")
    world.delete("orders", 3)
    world.destroy("orders", 3)  # the next version is 3, but id 4 is never assigned again
    world.register_schema("payments", "a", references=[("z-common", 1)])
    world.delete("orders", 1)
    world.register_schema(LAB, "a", schema_id=100, version=7)
    world.register_schema(":.gone:orders", "x")
    world.delete(":.gone:orders", 1)
    world.destroy(":.gone:orders", 1)
    world.accept(SetSchemaContext(".gone", is_deleted=True))
    world.configure("orders", '{"normalize":true}')
    world.configure(GLOBAL_SETTINGS, '{"compatibilityLevel":"FULL"}')
    world.accept(SetSchemaMode(("orders", ":.lab:"), "READONLY"))
    return world


def build_source() -> RegistryWorld:
    return populate(RegistryWorld(1, level=levels.HIGHEST))


def apply_requests(source: RegistryWorld, target: RegistryWorld) -> list[int]:
    """Import the registry of a world into another one. Return the number of commands per request."""
    requests = list(build_registry_requests(read_registry_metadata(source.image), IMPORT_ID))
    for request in requests:
        for command in reversed(request.commands):  # their order is irrelevant
            target.accept(decode_importable_command(command.data))
    return [len(request.commands) for request in requests]


def records_without_revisions(table: SchemaTable) -> tuple[object, ...]:
    return (
        dict(table.schemas),
        {name: replace(subject, revision=0) for name, subject in table.subjects.items()},
        {name: replace(settings, revision=0) for name, settings in table.settings.items()},
        dict(table.contexts),
    )


def test_import_requests_reproduce_registry() -> None:
    source, target = build_source(), RegistryWorld(1, level=levels.HIGHEST)
    apply_requests(source, target)
    assert records_without_revisions(target.table) == records_without_revisions(source.table)
    assert find_missing_registry(read_registry_metadata(source.image), target.table) == []
    assert target.register_schema("orders", "new") == source.register_schema("orders", "new") == (5, 3)
    assert target.register_schema(LAB, "new") == source.register_schema(LAB, "new") == (101, 8)
    assert target.register_schema(":.gone:orders", "new") == (2, 1)


def test_repeated_import_changes_nothing() -> None:
    source, target = build_source(), RegistryWorld(1, level=levels.HIGHEST)
    apply_requests(source, target)
    before = records_without_revisions(target.table)
    apply_requests(source, target)
    assert records_without_revisions(target.table) == before


def test_referenced_versions_are_imported_in_earlier_requests() -> None:
    source = RegistryWorld(level=levels.HIGHEST)
    source.register_schema("c", "1")
    source.register_schema("b", "2", references=[("c", 1)])
    source.register_schema("a", "3", references=[("b", 1), ("c", 1)])
    requests = list(build_registry_requests(read_registry_metadata(source.image), IMPORT_ID))
    commands = [[decode_importable_command(each.data) for each in request.commands] for request in requests]
    assert [[each.subject for each in some if isinstance(each, RegisterSchema)] for some in commands] == [
        [],
        ["c"],
        ["b"],
        ["a"],
    ]


def test_import_requests_are_limited_by_count_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    source = RegistryWorld(level=levels.HIGHEST)
    for number in range(7):
        source.register_schema(f"s{number}", "x" * 100 * (number % 2))
    monkeypatch.setattr(registry_import, "COMMANDS_PER_REQUEST", 3)
    assert apply_requests(source, RegistryWorld(level=levels.HIGHEST)) == [1, 3, 3, 1]
    monkeypatch.setattr(registry_import, "REQUEST_BYTES_MAX", 300)
    assert apply_requests(source, RegistryWorld(level=levels.HIGHEST)) == [1, 3, 2, 2]


def test_dangling_reference_is_reported() -> None:
    registry = read_registry_metadata(build_source().image)
    del registry.subjects["z-common"]
    with pytest.raises(MigrationError, match="subject z-common, which does not exist"):
        list(build_registry_requests(registry, IMPORT_ID))


def test_missing_entries_are_listed() -> None:
    found = find_missing_registry(read_registry_metadata(build_source().image), RegistryWorld().table)
    for sentence in (
        "schema id 100 of context .lab is missing",
        "version 2 of subject orders is missing",
        "the next schema id of context . is 1, not 5",
        "the next schema id of context .gone is 1, not 2",
        "the config of subject orders is missing",
        "the config of context :.__GLOBAL: is missing",
        "the mode of context :.lab: is missing",
    ):
        assert sentence in found


def test_lower_next_version_is_reported() -> None:
    source, target = build_source(), RegistryWorld(1, level=levels.HIGHEST)
    target.register_schema("z-common", "common")
    target.register_schema("orders", "a", references=[("z-common", 1)])
    found = find_missing_registry(read_registry_metadata(source.image), target.table)
    assert "the next version of subject orders is 2, not 3" in found


def test_other_schema_with_same_id_or_version_is_an_obstacle() -> None:
    registry, target = read_registry_metadata(build_source().image), RegistryWorld()
    target.register_schema("orders", "another")
    assert find_registry_obstacles(registry, target.table) == [
        "schema id 1 of context . is already another schema",
        "version 1 of subject orders already has another schema id",
    ]


def test_exceeded_limits_are_obstacles(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, target = read_registry_metadata(build_source().image), RegistryWorld()
    target.register_schema("mine", "y" * 10, schema_id=50)
    target.accept(SetSchemaContext(".mine"))
    limits = {
        "SUBJECTS_MAX": 5,
        "SCHEMA_CONTEXTS_MAX": 4,
        "SCHEMA_SETTINGS_MAX": 3,
        "SUBJECT_VERSIONS_MAX": 2,
        "SCHEMAS_BYTES_MAX": target.table.total_bytes + sum(each.size for each in registry.schemas.values()),
    }
    for name, limit in limits.items():
        monkeypatch.setattr(registry_import, name, limit)
    assert find_registry_obstacles(registry, target.table) == []
    for name, limit in limits.items():
        monkeypatch.setattr(registry_import, name, limit - 1)
    assert find_registry_obstacles(registry, target.table) == [
        "the cluster would have 5 subjects; the limit is 4",
        "the cluster would have 4 contexts of schemas; the limit is 3",
        "the cluster would have 3 settings of schemas; the limit is 2",
        f"the cluster would have {limits['SCHEMAS_BYTES_MAX']} bytes of schemas; the limit is "
        f"{limits['SCHEMAS_BYTES_MAX'] - 1}",
        "subject orders would have 2 versions; the limit is 1",
    ]


def test_registry_requires_schemas_feature_level() -> None:
    source = MemorySource(build_source().image, is_backup=True)
    (message,) = find_import_obstacles(
        build_import_plan(source), source, RegistryWorld(1, level=levels.SCHEMAS_LEVEL - 1).image
    )
    assert message == (
        "4 subjects, 5 schema versions, 4 schema ids need chronik.version 6, and the cluster is at 5: "
        "raise it with chronik cluster upgrade"
    )


def test_dry_run_accepts_registry() -> None:
    source = MemorySource(build_source().image, is_backup=True)
    dry_run_restore(source, build_import_plan(source))


def test_dry_run_reports_lost_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    source = MemorySource(build_source().image, is_backup=True)
    monkeypatch.setattr("chronik.migration.dry_run.build_registry_requests", lambda *_: iter(()))
    with pytest.raises(MigrationError, match=r"cannot be restored: schema id 1 of context \. is missing"):
        dry_run_restore(source, build_import_plan(source))


# --- running nodes ---


def list_commands() -> Sequence[Command]:
    """Return the commands that populate a registry."""
    world = build_source()
    return [each.command for each in world.envelopes if "Schema" in type(each.command).__name__]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "source", **{"super.users": "User:ANONYMOUS"})
    populate_node(node)
    yield node
    node.close()


def populate_node(node: AuthorizingNode) -> None:
    """Apply the commands of a populated registry, whatever the revisions on this node are."""
    for command in list_commands():
        match command:
            case RegisterSchema():
                command = replace(command, subject_revision=-1, settings_revisions=())
            case SetSchemaConfig():
                command = replace(command, revision=-1)
            case SetSchemaMode() | SetSchemaContext():
                pass
            case _:
                command = replace(command, subject_revision=-1)
        node.propose(command)


@pytest.fixture
def target(tmp_path: Path) -> Iterator[AuthorizingNode]:
    node = AuthorizingNode(tmp_path / "target", **{"super.users": "User:ANONYMOUS"})
    yield node
    node.close()


@pytest.fixture
def saved(source: AuthorizingNode, tmp_path: Path) -> Path:
    """Return a backup of the source."""
    path = tmp_path / "saved"
    with ClusterClient(source.bootstrap) as cluster, BackupWriter(path) as backup:
        backup.run(cluster, create_backup_point(cluster), 1, lambda _: None)
    return path


def restore(saved: Path, target: AuthorizingNode) -> list[str]:
    """Restore a backup. Return the entries that the target keeps."""
    with ClusterClient(target.bootstrap) as cluster, closing(open_backup(saved)) as backup:
        return Importer(backup, cluster, lambda _: None).run().kept


def test_restored_registry_equals_the_original(source: AuthorizingNode, saved: Path, target: AuthorizingNode) -> None:
    assert restore(saved, target) == []
    expected = records_without_revisions(source.services.image.schemas)
    assert records_without_revisions(target.services.image.schemas) == expected
    assert records_without_revisions(build_source().table) == expected


def test_check_reports_contents_of_registry(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backup", str(saved), "--check"]) == 0
    assert "is intact and can be restored" in (shown := capsys.readouterr().out)
    assert "4 subjects, 5 schema versions, 4 schema ids" in shown


def test_check_rejects_backup_whose_registry_was_damaged(saved: Path) -> None:
    (image,) = saved.glob("image-*")
    data = image.read_bytes()
    assert data.count(b"z-common") > 1
    image.write_bytes(data.replace(b"z-common", b"y-common", 1))
    assert main(["backup", str(saved), "--check"]) != 0


def test_restore_keeps_and_reports_existing_settings(saved: Path, target: AuthorizingNode) -> None:
    target.propose(SetSchemaConfig("orders", '{"normalize":false}', -1))
    target.propose(SetSchemaMode((":.lab:",), "IMPORT"))
    assert restore(saved, target) == [
        "subject orders already has another config",
        "context :.lab: already has mode IMPORT",
    ]
    settings = target.services.image.schemas.settings
    assert (settings["orders"].config, settings["orders"].mode) == ('{"normalize":false}', "READONLY")
    assert settings[":.lab:"].mode == "IMPORT"


def test_restore_is_rejected_if_an_id_has_another_schema(saved: Path, target: AuthorizingNode) -> None:
    target.propose(RegisterSchema("mine", 1, "another", (), "", bytes(16), (), -1, (), 0))
    with pytest.raises(MigrationError, match=r"schema id 1 of context \. is already another schema"):
        restore(saved, target)
    assert list(target.services.image.schemas.subjects) == ["mine"]


@pytest.mark.parametrize("request_number", [1, 2, 3])
def test_interrupted_import_of_registry_is_resumed(
    saved: Path, target: AuthorizingNode, monkeypatch: pytest.MonkeyPatch, request_number: int
) -> None:
    hits = 0

    def stop(point: str) -> None:
        nonlocal hits
        hits += point == failpoints.SCHEMAS
        if hits == request_number:
            raise KeyboardInterrupt

    monkeypatch.setattr(failpoints, failpoints.hit_failpoint.__name__, stop)
    with pytest.raises(KeyboardInterrupt):
        restore(saved, target)
    monkeypatch.undo()
    assert restore(saved, target) == []
    assert records_without_revisions(target.services.image.schemas) == records_without_revisions(build_source().table)


def test_lost_registry_is_reported_after_import(
    saved: Path, target: AuthorizingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importer, "build_registry_requests", lambda *_: iter(()))
    with pytest.raises(MigrationError, match=r"differs from the source: schema id 1 of context \. is missing"):
        restore(saved, target)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x5b\xa6orders"], ids=["empty", "malformed", "another command"])
def test_invalid_command_is_rejected(target: AuthorizingNode, data: bytes) -> None:
    with RawClient(target.bootstrap) as client:
        send_request(client, "AlterImport", 0, import_id=IMPORT_ID, action=0, source="a test", topic_count=1)
        response = send_request(client, "ImportSchemas", 0, import_id=IMPORT_ID, commands=[{"data": data}])
        assert response.error_code == ErrorCode.INVALID_REQUEST
