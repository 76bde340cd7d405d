"""Errors of the schema registry, with the error codes and messages of Confluent's REST API."""

from __future__ import annotations

from typing import ClassVar

from chronik.errors import ChronikError


class RegistryError(ChronikError):
    """Base class of the errors that the registry reports to clients.

    `error_code` is the code in the body of the response. Codes of five digits start with the HTTP status.
    """

    error_code: ClassVar[int] = 50001
    status: ClassVar[int] = 500

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.status = cls.error_code if cls.error_code < 1000 else cls.error_code // 100

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class AccessDeniedError(RegistryError):
    """The principal lacks a permission."""

    error_code = 40301


class SubjectNotFoundError(RegistryError):
    """The subject does not exist, or all its versions are deleted."""

    error_code = 40401

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' not found.")


class VersionNotFoundError(RegistryError):
    """The subject has no such version, or the version is deleted."""

    error_code = 40402

    def __init__(self, version: int | str) -> None:
        super().__init__(f"Version {version} not found.")


class SchemaNotFoundError(RegistryError):
    """No schema has the id or GUID, or the subject has no version with the schema."""

    error_code = 40403

    def __init__(self, key: int | str | None = None) -> None:
        super().__init__("Schema not found" if key is None else f"Schema {key} not found")


class SubjectSoftDeletedError(RegistryError):
    """The subject is soft-deleted already."""

    error_code = 40404

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


class SubjectNotSoftDeletedError(RegistryError):
    """The subject must be soft-deleted before it can be deleted permanently."""

    error_code = 40405

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' was not deleted first before being permanently deleted")


class VersionSoftDeletedError(RegistryError):
    """The version is soft-deleted already."""

    error_code = 40406

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
        )


class VersionNotSoftDeletedError(RegistryError):
    """The version must be soft-deleted before it can be deleted permanently."""

    error_code = 40407

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
        )


class SubjectConfigNotFoundError(RegistryError):
    """The subject or context has no config of its own."""

    error_code = 40408

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level compatibility configured")


class SubjectModeNotFoundError(RegistryError):
    """The subject or context has no mode of its own."""

    error_code = 40409

    def __init__(self, subject: str) -> None:
        super().__init__(f"Subject '{subject}' does not have subject-level mode configured")


class IncompatibleSchemaError(RegistryError):
    """The schema is incompatible with earlier versions of the subject, or the id belongs to another schema."""

    error_code = 409


class UnprocessableSchemaError(RegistryError):
    """The schema, its type or one of its references is invalid."""

    error_code = 42201


class InvalidVersionError(RegistryError):
    """The version is neither a positive number nor "latest"."""

    error_code = 42202

    def __init__(self, version: int | str) -> None:
        super().__init__(
            f"The specified version '{version}' is not a valid version id. "
            'Allowed values are between [1, 2^31-1] and the string "latest"'
        )


class InvalidCompatibilityLevelError(RegistryError):
    """The compatibility level is unknown."""

    error_code = 42203

    def __init__(self, message: str | None = None) -> None:
        super().__init__(
            message
            or "Invalid compatibility level. Valid values are none, backward, forward, full, "
            "backward_transitive, forward_transitive, and full_transitive"
        )


class InvalidModeError(RegistryError):
    """The mode is unknown or not supported."""

    error_code = 42204

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "Invalid mode. Valid values are READWRITE, READONLY and IMPORT.")


class OperationNotPermittedError(RegistryError):
    """The mode of the subject forbids the operation, or a limit of the registry is reached."""

    error_code = 42205


class ReferenceExistsError(RegistryError):
    """Other schemas refer to a version that was to be deleted."""

    error_code = 42206

    def __init__(self, subject: str, version: int) -> None:
        super().__init__(
            "One or more references exist to the schema "
            f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}."
        )


class InvalidSubjectError(RegistryError):
    """The name of the subject or context is empty, reserved, too long, or has control characters."""

    error_code = 42208

    def __init__(self, subject: str) -> None:
        super().__init__(f"The specified subject '{subject}' is not a valid.")


class SchemaTooLargeError(RegistryError):
    """The schema, its metadata or its rules exceed a size limit."""

    error_code = 42209


class InvalidRuleSetError(RegistryError):
    """A rule set is invalid: it repeats a name, or lacks a field."""

    error_code = 42210


class ContextNotEmptyError(RegistryError):
    """A context that was to be deleted still has subjects."""

    error_code = 42211

    def __init__(self, context: str) -> None:
        super().__init__(f"The specified context '{context}' is not empty.")


class RegistryStoreError(RegistryError):
    """The metadata log did not accept a command, or its outcome is unknown."""

    error_code = 50001


class RegistryTimeoutError(RegistryError):
    """No majority of the cluster answered in time, so that a change or a read is not confirmed."""

    error_code = 50002
