"""Random commands of the schema registry have the same effect on the metadata image as on a naive model."""

from __future__ import annotations

import random

import pytest

from chronik.metadata.commands.schemas import (
    DeleteSchemaVersions,
    ReferencedVersion,
    RegisterSchema,
    SetSchemaConfig,
    SetSchemaContext,
    SetSchemaMode,
)
from chronik.metadata.schemas import split_registration
from chronik.metadata.snapshot import decode_snapshot
from chronik.protocol.errors import ErrorCode
from tests.metadata.metadata_world import MetadataWorld, encode_verified_snapshot
from tests.metadata.naive_registry import NaiveRegistry, RegistryCommand, find_context
from tests.run_size import SEED, sized

SUBJECTS = ("a", "b", ":.lab:a", ":.lab:c")
SCOPES = (*SUBJECTS, "", ":.lab:", ":.__GLOBAL:")


def build_command(random_: random.Random, model: NaiveRegistry) -> RegistryCommand:
    subject = random_.choice(SUBJECTS)
    revision = random_.choice((-1, model.revisions.get(subject, 0), model.revisions.get(subject, 0), 1))
    kind = random_.random()
    if kind < 0.5:
        return build_registration(random_, model, subject, revision)
    if kind < 0.8:
        known = [each for each in model.versions if each.subject == subject]
        permanent = random_.random() < 0.5
        fitting = [each.number for each in known if each.is_deleted == permanent] or [1]
        numbers = random_.sample(fitting, random_.randint(1, min(3, len(fitting))))
        return DeleteSchemaVersions(subject, tuple(numbers), permanent, revision)
    scope = random_.choice(SCOPES)
    if kind < 0.87:
        revision = model.settings.get(scope, ("", "", 0))[2]
        return SetSchemaConfig(scope, random_.choice(("", "{}", "{ }")), random_.choice((-1, revision, 0, 3)))
    if kind < 0.94:
        names = tuple(random_.sample(SCOPES, random_.randint(1, 2)))
        return SetSchemaMode(names, random_.choice(("", "READONLY", "IMPORT")), random_.random() < 0.3)
    return SetSchemaContext(random_.choice((".", ".lab", ".x")), random_.randint(0, 12), random_.random() < 0.5)


def build_registration(random_: random.Random, model: NaiveRegistry, subject: str, revision: int) -> RegisterSchema:
    text = random_.choice("vwxyz")
    references: tuple[ReferencedVersion, ...] = ()
    ids: tuple[int, ...] = ()
    targets = [each for each in model.versions if find_context(each.subject) == find_context(subject)]
    if targets and random_.random() < 0.4:
        target = random_.choice(targets)
        references = (ReferencedVersion("n", target.subject, target.number),)
        ids = (random_.choice((target.id, target.id, target.id, 1)),)
    given_id, given_version = random_.choice(((-1, -1), (-1, -1), (random_.randint(1, 9), random_.randint(1, 6))))
    guid = b"equal for v or w" if text in "vw" else text.encode() * 16
    restored = (random_.randint(0, 9), random_.random() < 0.5) if given_version > 0 else (0, False)
    return RegisterSchema(
        subject, 1, text, references, "", guid, ids, revision, (), 1, given_id, given_version, *restored
    )


@pytest.mark.parametrize("round_number", range(sized(8, 200)))
def test_registry_agrees_with_naive_model(round_number: int) -> None:
    random_ = random.Random(f"{SEED} {round_number}")
    world, model = MetadataWorld(), NaiveRegistry()
    accepted = 0
    for _ in range(300):
        command = build_command(random_, model)
        result = world.apply(command)
        expected = model.apply(command, world.image.applied_index)
        assert (result.code is ErrorCode.NONE) == (expected is not None), (command, result)
        if result.code is ErrorCode.NONE:
            accepted += 1
            if isinstance(command, RegisterSchema):
                assert split_registration(result.value) == expected
        model.assert_equals(world.image.schemas)
    assert accepted > 100
    restored = decode_snapshot(encode_verified_snapshot(world.image))
    model.assert_equals(restored.schemas)
    assert restored.state_hash == world.image.state_hash == world.replay().state_hash
