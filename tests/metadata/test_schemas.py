"""Commands of the schema registry: ids, versions, references, revisions, deletion, settings, contexts and limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chronik.limits import (
    SCHEMA_BYTES_MAX,
    SCHEMA_PROPERTIES_BYTES_MAX,
    SCHEMA_REFERENCE_NAME_CHARACTERS_MAX,
    SCHEMA_REFERENCES_MAX,
    SUBJECT_NAME_CHARACTERS_MAX,
    SUBJECT_VERSIONS_MAX,
)
from chronik.metadata import levels
from chronik.metadata.commands.envelope import UnknownCommandError
from chronik.metadata.commands.schemas import (
    ANY_REVISION,
    MODES_PER_COMMAND_MAX,
    DeleteSchemaVersions,
    ReferencedVersion,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.delta import diff_images
from chronik.metadata.handlers import schemas as handlers
from chronik.metadata.image import Image
from chronik.metadata.schemas import (
    GLOBAL_SETTINGS,
    StoredSubject,
    join_subject,
    list_settings_names,
    split_registration,
    split_subject,
)
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode, KafkaError
from tests.metadata.metadata_world import encode_verified_snapshot, image_records
from tests.metadata.registry_world import AVRO, NOW_MS, PROTOBUF, RegistryWorld

STALE = ErrorCode.INVALID_UPDATE_VERSION

LAB_ORDERS = ":.lab:orders"


@pytest.fixture
def world() -> RegistryWorld:
    return RegistryWorld()


# --- names ---


@pytest.mark.parametrize(
    ("name", "context", "subject"),
    [
        ("orders", ".", "orders"),
        (LAB_ORDERS, ".lab", "orders"),
        (":.lab:", ".lab", ""),
        (":.lab", ".lab", ""),
        (":.:orders", ".", "orders"),
        ("", ".", ""),
        (":.lab:a:b", ".lab", "a:b"),
        ("a:b", ".", "a:b"),
    ],
)
def test_subject_name_splits_into_context_and_name(name: str, context: str, subject: str) -> None:
    assert split_subject(name) == (context, subject)
    assert split_subject(join_subject(context, subject)) == (context, subject)


def test_settings_of_subject_precede_those_of_its_context() -> None:
    assert list_settings_names(LAB_ORDERS) == (LAB_ORDERS, ":.lab:", "", GLOBAL_SETTINGS)
    assert list_settings_names("orders") == ("orders", "", "", GLOBAL_SETTINGS)


# --- registration ---


def test_new_schemas_get_consecutive_ids_and_versions(world: RegistryWorld) -> None:
    assert world.register_schema("orders", "a") == (1, 1)
    assert world.register_schema("orders", "b") == (2, 2)
    assert world.register_schema("payments", "c") == (3, 1)
    assert world.table.next_id(".") == 4
    assert world.table.subjects["orders"].versions[0].time_ms == NOW_MS


def test_equal_schemas_of_a_context_share_an_id(world: RegistryWorld) -> None:
    assert world.register_schema("orders", "a") == (1, 1)
    assert world.register_schema("payments", "a") == (1, 1)
    assert world.table.versions_with_schema((".", 1)) == {"orders": (1,), "payments": (1,)}
    assert world.table.total_bytes == 1


@pytest.mark.parametrize(
    "difference", [{"schema_type": PROTOBUF}, {"properties": "{}"}, {"references": [("other", 1)]}]
)
def test_schemas_that_differ_only_beside_the_text_have_different_ids(
    world: RegistryWorld, difference: dict[str, object]
) -> None:
    world.register_schema("other", "b")
    world.register_schema("orders", "a")
    assert world.register_schema("orders", "a", **difference) == (3, 2)  # type: ignore[arg-type]


def test_schemas_with_equal_guid_but_different_content_have_different_ids(world: RegistryWorld) -> None:
    world.accept(world.build_registration("orders", "a"))
    collision = replace(world.build_registration("orders", "b"), guid=world.table.schemas[".", 1].guid)
    assert split_registration(world.accept(collision).value) == (2, 2)
    assert world.table.find_ids_by_guid(".", collision.guid) == (1, 2)


def test_contexts_have_ids_of_their_own(world: RegistryWorld) -> None:
    assert world.register_schema("orders", "a") == (1, 1)
    assert world.register_schema("orders", "b") == (2, 2)
    assert world.register_schema(LAB_ORDERS, "b") == (1, 1)
    assert set(world.table.schemas) == {(".", 1), (".", 2), (".lab", 1)}
    assert world.table.count_subjects(".") == world.table.count_subjects(".lab") == 1


@pytest.mark.parametrize("name", [":.lab:", ":.__GLOBAL:orders", ":.:orders", ":.lab", ":*:orders"])
def test_registration_under_invalid_name_is_rejected(world: RegistryWorld, name: str) -> None:
    assert world.reject(world.build_registration(name, "a"))[0] is ErrorCode.INVALID_REQUEST


def test_registration_based_on_older_subject_is_rejected(world: RegistryWorld) -> None:
    first, second = world.build_registration("orders", "a"), world.build_registration("orders", "b")
    world.accept(first)
    assert world.reject(second)[0] is STALE
    world.accept(world.build_registration("orders", "b"))


@pytest.mark.parametrize("name", ["orders", "", GLOBAL_SETTINGS])
def test_registration_based_on_older_settings_is_rejected(world: RegistryWorld, name: str) -> None:
    command = world.build_registration("orders", "a")
    world.configure(name, '{"compatibilityLevel":"FULL"}')
    assert world.reject(command)[0] is STALE


def test_change_of_unrelated_settings_does_not_affect_registration(world: RegistryWorld) -> None:
    command = world.build_registration("orders", "a")
    world.configure("payments", '{"compatibilityLevel":"FULL"}')
    world.configure(":.lab:", '{"compatibilityLevel":"FULL"}')
    world.accept(command)


def test_registration_without_revisions_is_accepted_in_any_state(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.configure("orders", "{}")
    command = world.build_registration("orders", "b", version=7)
    world.configure("orders", '{"normalize":true}')
    world.accept(replace(command, subject_revision=ANY_REVISION, settings_revisions=()))
    assert world.versions("orders") == {1: 1, 7: 2}


# --- given ids and versions ---


def test_given_id_and_version_are_kept(world: RegistryWorld) -> None:
    assert world.register_schema("orders", "a", schema_id=100, version=5) == (100, 5)
    assert world.register_schema("orders", "b") == (101, 6)
    assert world.register_schema("orders", "c", schema_id=50, version=2) == (50, 2)
    assert list(world.versions("orders")) == [2, 5, 6]
    assert world.table.next_id(".") == 102


def test_given_id_of_another_schema_is_rejected(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    code, message = world.reject(world.build_registration("orders", "b", schema_id=1))
    assert code is ErrorCode.DUPLICATE_RESOURCE
    assert message == "Overwrite new schema with id 1 in context . is not permitted."
    assert world.register_schema("payments", "a", schema_id=1) == (1, 1)


def test_given_version_of_another_schema_is_rejected(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    assert world.reject(world.build_registration("orders", "b", version=1))[0] is ErrorCode.DUPLICATE_RESOURCE


def test_repeated_registration_of_given_version_changes_nothing(world: RegistryWorld) -> None:
    world.register_schema("orders", "a", schema_id=7, version=3)
    assert world.register_schema("orders", "a", schema_id=7, version=3) == (7, 3)
    assert not world.delta


def test_given_version_restores_soft_deleted_version(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.delete("orders", 1)
    assert world.register_schema("orders", "a", version=1) == (1, 1)
    assert world.versions("orders") == {1: 1}


def test_restored_version_may_be_soft_deleted_although_schemas_refer_to_it(world: RegistryWorld) -> None:
    restored = replace(world.build_registration("common", "a", version=2), next_version=7, is_deleted=True)
    assert split_registration(world.accept(restored).value) == (1, 2)
    world.register_schema("orders", "b", references=[("common", 2)])
    assert world.table.subjects["common"].is_deleted
    world.accept(replace(restored, subject_revision=ANY_REVISION, settings_revisions=()))
    assert not world.delta
    assert world.register_schema("common", "c") == (3, 7)


def test_restore_does_not_delete_live_version(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.accept(replace(world.build_registration("orders", "a", version=1), is_deleted=True))
    assert world.versions("orders") == {1: 1}


def test_highest_id_and_version_are_accepted_and_next_ones_are_rejected(world: RegistryWorld) -> None:
    highest = 2**31 - 1
    assert world.register_schema("orders", "a", schema_id=highest) == (highest, 1)
    assert world.reject(world.build_registration("orders", "b"))[0] is ErrorCode.POLICY_VIOLATION
    assert world.register_schema(LAB_ORDERS, "a", version=highest) == (1, highest)
    code, message = world.reject(world.build_registration(LAB_ORDERS, "b"))
    assert (code, message) == (ErrorCode.POLICY_VIOLATION, "all version numbers of subject ':.lab:orders' are used")
    world.accept(SetSchemaContext(".lab", highest + 1))
    assert world.table.next_id(".lab") == highest + 1


# --- references ---


def test_reference_is_resolved_in_context_of_schema(world: RegistryWorld) -> None:
    world.register_schema("common", "a")
    assert world.reject(world.build_registration(LAB_ORDERS, "b", references=[("common", 1)]))[0] is STALE
    world.register_schema(":.lab:common", "a")
    world.register_schema(LAB_ORDERS, "b", references=[("common", 1)])
    assert list(world.table.find_referrers((":.lab:common", 1))) == [(".lab", 2)]
    assert not list(world.table.find_referrers(("common", 1)))


@pytest.mark.parametrize("reference", [("common", 2), ("other", 1)])
def test_registration_with_unknown_reference_is_rejected(world: RegistryWorld, reference: tuple[str, int]) -> None:
    world.register_schema("common", "a")
    assert world.reject(world.build_registration("orders", "b", references=[reference]))[0] is STALE


def test_registration_is_rejected_if_referenced_version_got_another_schema(world: RegistryWorld) -> None:
    world.register_schema("common", "a")
    command = world.build_registration("orders", "b", references=[("common", 1)])
    world.delete("common", 1)
    world.destroy("common", 1)
    assert world.reject(command)[0] is STALE
    world.register_schema("common", "c")
    assert world.reject(command)[0] is STALE


def test_registration_with_unresolved_references_is_rejected(world: RegistryWorld) -> None:
    world.register_schema("common", "a")
    command = world.build_registration("orders", "b", references=[("common", 1)])
    assert world.reject(replace(command, referenced_ids=()))[0] is ErrorCode.INVALID_REQUEST


def test_referenced_version_cannot_be_deleted(world: RegistryWorld) -> None:
    world.register_schema("common", "a")
    world.register_schema("orders", "b", references=[("common", 1)])
    assert world.reject(world.build_deletion("common", 1))[0] is STALE
    world.delete("orders", 1)
    world.delete("common", 1)
    assert world.reject(world.build_deletion("common", 1, permanent=True))[0] is STALE
    world.destroy("orders", 1)
    world.destroy("common", 1)
    assert not world.table.schemas


def test_versions_that_refer_to_each_other_can_be_deleted_together(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.register_schema("orders", "b", references=[("orders", 1)])
    assert world.reject(world.build_deletion("orders", 1))[0] is STALE
    world.delete("orders", 1, 2)
    world.destroy("orders", 1, 2)
    assert not world.table.schemas
    assert not world.table.subjects


def test_schema_that_another_subject_also_has_still_refers_to_version(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.register_schema("orders", "b", references=[("orders", 1)])
    world.register_schema("payments", "b", references=[("orders", 1)])
    assert world.reject(world.build_deletion("orders", 1, 2))[0] is STALE


# --- deletion ---


def test_soft_deleted_version_keeps_its_number_and_schema(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.register_schema("orders", "b")
    world.delete("orders", 1)
    assert world.versions("orders") == {2: 2}
    assert not world.table.is_schema_live((".", 1))
    assert not world.table.has_version_with_schema("orders", 1)
    assert world.table.has_version_with_schema("orders", 2)
    assert not world.table.has_version_with_schema("payments", 2)
    assert world.table.schemas[".", 1].text == "a"
    assert world.register_schema("orders", "c") == (3, 3)


def test_reregistered_schema_gets_new_version_with_its_id(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.delete("orders", 1)
    assert world.table.subjects["orders"].is_deleted
    assert world.register_schema("orders", "a") == (1, 2)
    assert [each.number for each in world.table.subjects["orders"].versions] == [2]  # the deleted one is replaced


def test_soft_deleted_version_stays_while_schemas_refer_to_it(world: RegistryWorld) -> None:
    world.register_schema("common", "a")
    world.register_schema("orders", "b", references=[("common", 1)])
    world.delete("orders", 1)
    world.delete("common", 1)
    assert world.register_schema("common", "a") == (1, 2)
    assert [each.number for each in world.table.subjects["common"].versions] == [1, 2]


def test_permanent_deletion_requires_soft_deletion(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    assert world.reject(world.build_deletion("orders", 1, permanent=True))[0] is STALE
    world.delete("orders", 1)
    assert world.reject(world.build_deletion("orders", 1))[0] is STALE
    world.destroy("orders", 1)
    assert world.reject(world.build_deletion("orders", 1, permanent=True))[0] is STALE


def test_deletion_is_atomic(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    assert world.reject(world.build_deletion("orders", 1, 2))[0] is STALE
    assert world.versions("orders") == {1: 1}


def test_deletion_based_on_older_subject_is_rejected(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    command = world.build_deletion("orders", 1)
    world.register_schema("orders", "b")
    assert world.reject(command)[0] is STALE


def test_ids_are_not_reused_after_permanent_deletion(world: RegistryWorld) -> None:
    world.register_schema(LAB_ORDERS, "a")
    world.delete(LAB_ORDERS, 1)
    world.destroy(LAB_ORDERS, 1)
    assert not world.table.schemas
    assert world.table.total_bytes == 0
    assert world.register_schema(LAB_ORDERS, "a") == (2, 1)
    world.delete(LAB_ORDERS, 1)
    world.destroy(LAB_ORDERS, 1)
    world.accept(SetSchemaContext(".lab", is_deleted=True))
    assert world.register_schema(LAB_ORDERS, "a") == (3, 1)
    assert not world.table.contexts[".lab"].is_deleted


def test_permanent_deletion_keeps_schema_that_another_version_has(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.register_schema("payments", "a")
    world.delete("orders", 1)
    world.destroy("orders", 1)
    assert world.table.is_schema_live((".", 1))
    assert list(world.table.subjects) == ["payments"]


def test_permanent_deletion_of_last_version_removes_settings_of_subject(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.configure("orders", "{}")
    world.delete("orders", 1)
    assert "orders" in world.table.settings
    world.destroy("orders", 1)
    assert not world.table.settings


# --- configs and modes ---


def test_config_and_mode_share_a_record_that_disappears_with_both(world: RegistryWorld) -> None:
    world.configure("orders", '{"normalize":true}')
    world.accept(SetSchemaMode(("orders",), "READONLY"))
    settings = world.table.settings["orders"]
    assert (settings.config, settings.mode, settings.revision) == ('{"normalize":true}', "READONLY", 2)
    world.configure("orders", "")
    assert world.table.settings["orders"].mode == "READONLY"
    world.accept(SetSchemaMode(("orders",), ""))
    assert not world.table.settings
    world.accept(SetSchemaMode(("orders",), ""))
    world.configure("orders", "")
    assert not world.delta


def test_config_based_on_older_settings_is_rejected(world: RegistryWorld) -> None:
    world.configure("orders", "{}")
    world.accept(SetSchemaMode(("orders",), "READONLY"))
    assert world.reject(SetSchemaConfig("orders", '{"alias":"x"}', 1))[0] is STALE
    assert world.reject(SetSchemaConfig("orders", '{"alias":"x"}', 0))[0] is STALE
    world.accept(SetSchemaConfig("orders", '{"alias":"x"}', ANY_REVISION))


def test_effective_mode_is_that_of_the_most_specific_scope(world: RegistryWorld) -> None:
    assert world.table.effective_mode(LAB_ORDERS) == ""
    for name, mode in ((GLOBAL_SETTINGS, "READONLY"), (":.lab:", "IMPORT"), (LAB_ORDERS, "READWRITE")):
        world.accept(SetSchemaMode((name,), mode))
        assert world.table.effective_mode(LAB_ORDERS) == mode
    assert world.table.effective_mode(":.lab:payments") == "IMPORT"
    assert world.table.effective_mode("orders") == "READONLY"


@pytest.mark.parametrize("name", ["orders", "", GLOBAL_SETTINGS])
def test_mode_that_requires_empty_scope_is_rejected_if_there_are_versions(world: RegistryWorld, name: str) -> None:
    command = SetSchemaMode((":.lab:", name), "IMPORT", requires_empty=True)
    world.register_schema("orders", "a")
    world.delete("orders", 1)
    assert world.reject(command)[0] is STALE
    world.destroy("orders", 1)
    world.accept(command)
    assert set(world.table.settings) == {":.lab:", name}


# --- contexts ---


def test_context_with_subjects_cannot_be_deleted(world: RegistryWorld) -> None:
    world.register_schema(LAB_ORDERS, "a")
    world.configure(":.lab:", "{}")
    assert world.reject(SetSchemaContext(".lab", is_deleted=True))[0] is STALE
    world.delete(LAB_ORDERS, 1)
    world.destroy(LAB_ORDERS, 1)
    world.accept(SetSchemaContext(".lab", is_deleted=True))
    assert world.table.contexts[".lab"].is_deleted
    assert not world.table.settings


def test_default_context_and_its_settings_cannot_be_deleted(world: RegistryWorld) -> None:
    world.configure("", "{}")
    world.accept(SetSchemaContext(".", is_deleted=True))
    assert not world.table.contexts["."].is_deleted
    assert "" in world.table.settings


def test_next_id_of_context_is_never_lowered(world: RegistryWorld) -> None:
    world.accept(SetSchemaContext(".lab", 50))
    world.accept(SetSchemaContext(".lab", 20))
    assert world.register_schema(LAB_ORDERS, "a") == (50, 1)


@pytest.mark.parametrize("name", ["lab", ".a:b", ".__GLOBAL"])
def test_invalid_context_name_is_rejected(world: RegistryWorld, name: str) -> None:
    assert world.reject(SetSchemaContext(name))[0] is ErrorCode.INVALID_REQUEST


# --- limits ---


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SUBJECT_VERSIONS_MAX": 3,
        "SUBJECTS_MAX": 2,
        "SCHEMAS_BYTES_MAX": 100,
        "SCHEMA_CONTEXTS_MAX": 2,
        "SCHEMA_SETTINGS_MAX": 2,
    }.items():
        monkeypatch.setattr(handlers, name, value)


@pytest.mark.usefixtures("small_limits")
def test_number_of_versions_per_subject_is_limited(world: RegistryWorld) -> None:
    for text in "abc":
        world.register_schema("orders", text)
    world.delete("orders", 1)
    assert world.reject(world.build_registration("orders", "d"))[0] is ErrorCode.POLICY_VIOLATION
    assert world.register_schema("orders", "a", version=1) == (1, 1)  # it replaces the deleted version
    world.delete("orders", 1)
    assert world.register_schema("orders", "a") == (1, 4)
    world.delete("orders", 2)
    world.destroy("orders", 2)
    assert world.register_schema("orders", "d") == (4, 5)


@pytest.mark.usefixtures("small_limits")
def test_number_of_subjects_is_limited(world: RegistryWorld) -> None:
    world.register_schema("a", "a")
    world.register_schema("b", "a")
    assert world.reject(world.build_registration("c", "a"))[0] is ErrorCode.POLICY_VIOLATION
    world.register_schema("b", "b")


@pytest.mark.usefixtures("small_limits")
def test_total_size_of_schemas_is_limited(world: RegistryWorld) -> None:
    world.register_schema("orders", "a" * 60)
    assert world.reject(world.build_registration("orders", "b" * 41))[0] is ErrorCode.POLICY_VIOLATION
    world.register_schema("orders", "ü" * 18, properties="{  }")
    assert world.table.total_bytes == 100
    world.register_schema("payments", "a" * 60)  # a known schema takes no more space
    assert world.table.total_bytes == 100


@pytest.mark.usefixtures("small_limits")
def test_number_of_contexts_is_limited(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    world.accept(SetSchemaContext(".lab"))
    world.accept(SetSchemaContext(".lab", is_deleted=True))
    assert world.reject(SetSchemaContext(".other"))[0] is ErrorCode.POLICY_VIOLATION
    assert world.reject(world.build_registration(":.other:x", "a"))[0] is ErrorCode.POLICY_VIOLATION
    world.register_schema(LAB_ORDERS, "a")


@pytest.mark.usefixtures("small_limits")
def test_number_of_settings_is_limited(world: RegistryWorld) -> None:
    world.accept(SetSchemaMode(("a", "b", "a"), "READONLY"))
    assert world.reject(SetSchemaMode(("c",), "READONLY"))[0] is ErrorCode.POLICY_VIOLATION
    assert world.reject(SetSchemaConfig("c", "{}", 0))[0] is ErrorCode.POLICY_VIOLATION
    world.configure("a", "{}")
    world.accept(SetSchemaMode(("c",), ""))  # without effect
    world.accept(SetSchemaConfig("c", "", 0))


REGISTRATION = RegisterSchema("orders", AVRO, "a", (), "", bytes(16), (), 0, (), NOW_MS)


def reference(name: str = "n", subject: str = "orders") -> ReferencedVersion:
    return ReferencedVersion(name, subject, 1)


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        ({"text": "x" * SCHEMA_BYTES_MAX}, {"text": "x" * (SCHEMA_BYTES_MAX + 1)}),
        ({"subject": "x" * SUBJECT_NAME_CHARACTERS_MAX}, {"subject": "x" * (SUBJECT_NAME_CHARACTERS_MAX + 1)}),
        (
            {"properties": "x" * SCHEMA_PROPERTIES_BYTES_MAX},
            {"properties": "x" * (SCHEMA_PROPERTIES_BYTES_MAX + 1)},
        ),
        (
            {"references": (reference(),) * SCHEMA_REFERENCES_MAX},
            {"references": (reference(),) * (SCHEMA_REFERENCES_MAX + 1)},
        ),
        (
            {"references": (reference("x" * SCHEMA_REFERENCE_NAME_CHARACTERS_MAX),)},
            {"references": (reference("x" * (SCHEMA_REFERENCE_NAME_CHARACTERS_MAX + 1)),)},
        ),
        (
            {"references": (reference(subject="x" * SUBJECT_NAME_CHARACTERS_MAX),)},
            {"references": (reference(subject="x" * (SUBJECT_NAME_CHARACTERS_MAX + 1)),)},
        ),
        (
            {"referenced_ids": (1,) * SCHEMA_REFERENCES_MAX},
            {"referenced_ids": (1,) * (SCHEMA_REFERENCES_MAX + 1)},
        ),
        ({"schema_id": 2**31 - 1}, {"schema_id": 2**31}),
        ({"version": 2**31 - 1}, {"version": 2**31}),
        ({"schema_type": 3}, {"schema_type": 4}),
        ({"settings_revisions": (0,) * 4}, {"settings_revisions": (0,) * 5}),
        ({"guid": bytes(16)}, {"guid": bytes(17)}),
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_field_of_registration_is_limited(largest: dict[str, object], too_large: dict[str, object]) -> None:
    RegistryWorld().apply(replace(REGISTRATION, **largest))
    with pytest.raises(UnknownCommandError):
        RegistryWorld().apply(replace(REGISTRATION, **too_large))


@pytest.mark.parametrize(
    ("largest", "too_large"),
    [
        (
            DeleteSchemaVersions("orders", (1,) * SUBJECT_VERSIONS_MAX, False, 0),
            DeleteSchemaVersions("orders", (1,) * (SUBJECT_VERSIONS_MAX + 1), False, 0),
        ),
        (
            SetSchemaMode(("orders",) * MODES_PER_COMMAND_MAX, "READONLY"),
            SetSchemaMode(("orders",) * (MODES_PER_COMMAND_MAX + 1), "READONLY"),
        ),
        (SetSchemaMode(("orders",), "x" * 32), SetSchemaMode(("orders",), "x" * 33)),
        (
            SetSchemaConfig("x" * SUBJECT_NAME_CHARACTERS_MAX, "x" * SCHEMA_PROPERTIES_BYTES_MAX, 0),
            SetSchemaConfig("orders", "x" * (SCHEMA_PROPERTIES_BYTES_MAX + 1), 0),
        ),
        (
            SetSchemaContext("." + "x" * (SUBJECT_NAME_CHARACTERS_MAX - 1)),
            SetSchemaContext("." + "x" * SUBJECT_NAME_CHARACTERS_MAX),
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_size_of_command_is_limited(
    largest: DeleteSchemaVersions | SetSchemaMode | SetSchemaConfig | SetSchemaContext,
    too_large: DeleteSchemaVersions | SetSchemaMode | SetSchemaConfig | SetSchemaContext,
) -> None:
    RegistryWorld().apply(largest)
    with pytest.raises(UnknownCommandError):
        RegistryWorld().apply(too_large)


# --- snapshots, deltas, listings, feature level ---


def populate(world: RegistryWorld) -> None:
    """Leave records of every kind in the image, including deleted ones."""
    world.register_schema("common", "a", properties='{"metadata":{}}')
    world.register_schema("orders", "b", references=[("common", 1)])
    world.register_schema("orders", "c")
    world.delete("orders", 2)
    world.register_schema(LAB_ORDERS, "b", schema_id=9, version=4)
    world.configure("orders", '{"normalize":true}')
    world.accept(SetSchemaMode((GLOBAL_SETTINGS,), "READONLY"))
    world.accept(SetSchemaContext(".gone", 77, is_deleted=True))


def test_snapshot_contains_registry(world: RegistryWorld) -> None:
    populate(world)
    restored = decode_snapshot(encode_verified_snapshot(world.image))
    assert image_records(restored) == image_records(world.image)
    assert restored.state_hash == world.image.state_hash == world.replay().state_hash
    table, other = restored.schemas, world.table
    assert table.total_bytes == other.total_bytes > 0
    assert list(table.iter_names()) == list(other.iter_names()) == [LAB_ORDERS, "common", "orders"]
    assert list(table.find_referrers(("common", 1))) == [(".", 2)]
    assert table.find_ids_by_guid(".", other.schemas[".", 2].guid) == (2,)
    assert table.versions_with_schema((".", 3)) == {"orders": (2,)}


def test_snapshot_chunks_stay_small_with_large_schemas(world: RegistryWorld) -> None:
    for number in range(12):
        world.register_schema("orders", f"{number:2d}" * (SCHEMA_BYTES_MAX // 2))
    chunks = encode_verified_snapshot(world.image)
    assert max(map(len, chunks)) < 2_500_000
    assert image_records(decode_snapshot(chunks)) == image_records(world.image)


def test_delta_names_changed_subjects_and_settings(world: RegistryWorld) -> None:
    world.register_schema("orders", "a")
    assert (world.delta.subjects, world.delta.schema_settings) == (("orders",), (".",))
    world.register_schema("orders", "b")
    before = world.replay()
    world.delete("orders", 1)
    assert (world.delta.subjects, world.delta.schema_settings) == (("orders",), ())
    world.configure("payments", "{}")
    assert (world.delta.subjects, world.delta.schema_settings) == ((), ("payments",))
    changes = diff_images(before, world.image)
    assert (changes.subjects, changes.schema_settings) == (("orders",), ("payments",))
    assert diff_images(Image(), world.image).schema_settings == (".", "payments")
    assert diff_images(world.image, Image()).subjects == ("orders",)


def test_names_are_listed_by_prefix_in_order(world: RegistryWorld) -> None:
    for name in ("b", "ab", ":.lab:a", "a", "aa"):
        world.register_schema(name, "x")
    assert list(world.table.iter_names("a")) == ["a", "aa", "ab"]
    assert list(world.table.iter_names(":.lab:")) == [":.lab:a"]
    assert list(world.table.iter_names("c")) == []


@pytest.mark.parametrize(
    "command",
    [
        REGISTRATION,
        DeleteSchemaVersions("orders", (1,), False, 0),
        SetSchemaConfig("orders", "{}", 0),
        SetSchemaMode(("orders",), "READONLY"),
        SetSchemaContext(".lab"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_registry_commands_require_schemas_feature_level(
    command: RegisterSchema | DeleteSchemaVersions | SetSchemaConfig | SetSchemaMode | SetSchemaContext,
) -> None:
    levels.check_command_level(command, levels.SCHEMAS_LEVEL)
    with pytest.raises(KafkaError, match=r"needs chronik\.version 6") as error:
        levels.check_command_level(command, levels.SCHEMAS_LEVEL - 1)
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_deleting_all_versions_of_a_large_subject_takes_linear_time(
    world: RegistryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counts lookups of versions instead of measuring time."""
    for number in range(300):
        world.register_schema("orders", str(number))
    lookups, find_version = 0, StoredSubject.find_version

    def count_lookup(self: StoredSubject, number: int) -> object:
        nonlocal lookups
        lookups += 1
        return find_version(self, number)

    monkeypatch.setattr(StoredSubject, "find_version", count_lookup)
    world.delete("orders", *range(1, 301))
    world.destroy("orders", *range(1, 301))
    assert 600 <= lookups < 1000
