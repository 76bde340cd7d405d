"""A model of the registry's service that looks at all versions for every answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Fields(NamedTuple):
    """A record with optional and required fields."""

    required: frozenset[str]
    optional: frozenset[str]


class Referring(NamedTuple):
    """A record with a field of the type of a version of a subject."""

    subject: str
    version: int


Content = Fields | Referring


class NaiveError(Exception):
    """An error with its code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def find_context(subject: str) -> str:
    return subject[1:].split(":")[0] if subject.startswith(":.") else "."


def qualify(context: str, subject: str) -> str:
    return subject if context == "." or subject.startswith(":.") else f":{context}:{subject}"


@dataclass
class Version:
    subject: str
    number: int
    id: int
    content: Content
    deleted: bool = False

    @property
    def target(self) -> tuple[str, int] | None:
        """Return the version that this one refers to."""
        if isinstance(self.content, Fields):
            return None
        return qualify(find_context(self.subject), self.content.subject), self.content.version


@dataclass
class NaiveService:
    """All versions, and settings by name."""

    versions: list[Version] = field(default_factory=list)
    next_versions: dict[str, int] = field(default_factory=dict)
    next_ids: dict[str, int] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    modes: dict[str, str] = field(default_factory=dict)

    # --- helpers ---

    def of(self, subject: str, *, deleted: bool = False) -> list[Version]:
        return sorted(
            (each for each in self.versions if each.subject == subject and (deleted or not each.deleted)),
            key=lambda each: each.number,
        )

    def find(self, subject: str, number: int, *, deleted: bool = False) -> Version | None:
        return next((each for each in self.of(subject, deleted=deleted) if each.number == number), None)

    def inherited(self, settings: dict[str, str], subject: str, default: str) -> str:
        context = find_context(subject)
        of_context = "" if context == "." else f":{context}:"
        for name in (subject, of_context, ":.__GLOBAL:"):
            if name in settings:
                return settings[name]
        return default

    def check_writable(self, subject: str) -> None:
        if self.inherited(self.modes, subject, "READWRITE") == "READONLY":
            raise NaiveError(42205)

    def check_exists(self, subject: str, *, deleted: bool) -> None:
        if not self.of(subject, deleted=deleted):
            raise NaiveError(40401)

    def resolve(self, subject: str, content: Content, *, deleted: bool) -> Fields:
        """Return the fields of a record, or of the record to which it refers."""
        if isinstance(content, Fields):
            return content
        found = self.find(qualify(find_context(subject), content.subject), content.version, deleted=deleted)
        if found is None or isinstance(found.content, Referring):
            raise NaiveError(42201)
        return found.content

    def can_read(self, subject: str, reader: Content, writer: Content) -> bool:
        if type(reader) is not type(writer):
            return False
        new, old = (self.resolve(subject, each, deleted=True) for each in (reader, writer))
        return new.required <= old.required | old.optional

    def is_compatible(self, subject: str, content: Content, version: Version) -> bool:
        level = self.inherited(self.levels, subject, "BACKWARD").removesuffix("_TRANSITIVE")
        if level in ("BACKWARD", "FULL") and not self.can_read(subject, content, version.content):
            return False
        return level not in ("FORWARD", "FULL") or self.can_read(subject, version.content, content)

    def find_incompatible(self, subject: str, content: Content) -> bool:
        level = self.inherited(self.levels, subject, "BACKWARD")
        compared = self.of(subject) if level.endswith("_TRANSITIVE") else self.of(subject)[-1:]
        return level != "NONE" and not all(self.is_compatible(subject, content, each) for each in compared)

    # --- operations ---

    def register(self, subject: str, content: Content) -> tuple[int, int]:
        if self.of(subject, deleted=True):
            self.resolve(subject, content, deleted=True)
        for version in reversed(self.of(subject)):
            if version.content == content:
                return version.id, version.number
        self.check_writable(subject)
        self.resolve(subject, content, deleted=False)
        if self.find_incompatible(subject, content):
            raise NaiveError(409)
        context = find_context(subject)
        known = [each.id for each in self.versions if find_context(each.subject) == context and each.content == content]
        schema_id = min(known) if known else self.next_ids.setdefault(context, 1)
        self.next_ids[context] = max(self.next_ids.get(context, 1), schema_id + 1)
        number = self.next_versions.get(subject, 1)
        self.next_versions[subject] = number + 1
        targets = {each.target for each in self.versions}
        self.versions = [
            each
            for each in self.versions
            if not (each.subject == subject and each.deleted and each.id == schema_id)
            or (subject, each.number) in targets
        ]
        self.versions.append(Version(subject, number, schema_id, content))
        return schema_id, number

    def look_up(self, subject: str, content: Content, deleted: bool) -> int:
        self.resolve(subject, content, deleted=True)
        for version in reversed(self.of(subject, deleted=deleted)):
            if version.content == content:
                return version.number
        self.check_exists(subject, deleted=deleted)
        raise NaiveError(40403)

    def check_compatibility(self, subject: str, content: Content) -> bool:
        self.resolve(subject, content, deleted=False)
        return not self.find_incompatible(subject, content)

    def get_version(self, subject: str, number: int, deleted: bool) -> tuple[int, int, bool]:
        found = self.of(subject)[-1:] if number == -1 else [self.find(subject, number, deleted=deleted)]
        if not found or found[0] is None:
            self.check_exists(subject, deleted=deleted)
            raise NaiveError(40402)
        return found[0].id, found[0].number, found[0].deleted

    def list_versions(self, subject: str, deleted: bool) -> list[int]:
        self.check_exists(subject, deleted=deleted)
        return [each.number for each in self.of(subject, deleted=deleted)]

    def list_subjects(self, deleted: bool) -> list[str]:
        return sorted({each.subject for each in self.versions if deleted or not each.deleted})

    def list_versions_of_id(self, context: str, schema_id: int) -> list[tuple[str, int]]:
        found = [each for each in self.versions if (find_context(each.subject), each.id) == (context, schema_id)]
        if not found:
            raise NaiveError(40403)
        return sorted((each.subject, each.number) for each in found if not each.deleted)

    def list_referencing_ids(self, subject: str, number: int) -> list[int]:
        self.get_version(subject, number, deleted=True)
        found = {
            (find_context(each.subject), each.id)
            for each in self.versions
            if each.target == (subject, number) and not each.deleted
        }
        return [schema_id for _, schema_id in sorted(found)]

    def delete_version(self, subject: str, number: int, permanent: bool) -> int:
        version = self.find(subject, number, deleted=True)
        if version is None:
            self.check_exists(subject, deleted=True)
            raise NaiveError(40402)
        if version.deleted and not permanent:
            raise NaiveError(40406)
        self.check_writable(subject)
        if any(each.target == (subject, number) and (permanent or not each.deleted) for each in self.versions):
            raise NaiveError(42206)
        if permanent and not version.deleted:
            raise NaiveError(40407)
        self.remove([version], permanent)
        return number

    def delete_subject(self, subject: str, permanent: bool) -> list[int]:
        self.check_exists(subject, deleted=True)
        if not permanent and not self.of(subject):
            raise NaiveError(40404)
        self.check_writable(subject)
        versions = self.of(subject, deleted=permanent)
        for version in versions:
            for each in self.versions:
                is_other = each.target == (subject, version.number) and each.subject != subject
                if is_other and (permanent or not each.deleted):
                    raise NaiveError(42206)
            if permanent and not version.deleted:
                raise NaiveError(40405)
        self.remove(versions, permanent)
        return [each.number for each in versions]

    def remove(self, versions: list[Version], permanent: bool) -> None:
        for version in versions:
            version.deleted = True
            if permanent:
                self.versions.remove(version)
        subject = versions[0].subject
        left = self.of(subject, deleted=True)
        if left:
            self.next_versions[subject] = left[-1].number + 1
        else:
            for settings in (self.next_versions, self.levels, self.modes):
                settings.pop(subject, None)

    def set_level(self, name: str, level: str) -> None:
        self.check_writable(name)
        self.levels[name] = level

    def set_mode(self, name: str, mode: str) -> None:
        self.modes[name] = mode
