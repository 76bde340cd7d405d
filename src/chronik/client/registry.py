"""A blocking client of a schema registry's REST API: Chronik's, Confluent's or Karapace's.

Subjects are qualified names: those outside of the default context start with `:.CONTEXT:`.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, Self
from urllib.parse import SplitResult, quote, unquote, urlencode, urlsplit

import msgspec

from chronik.client.errors import ClientError
from chronik.registry.entities import SchemaReference

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
DEFAULT_CONTEXT: Final = "."
ALL_CONTEXTS: Final = ":*:"
"""The subject prefix that selects the subjects of all contexts."""
LATEST: Final = "latest"
MODE_READWRITE: Final = "READWRITE"
MODE_READONLY: Final = "READONLY"
MODE_IMPORT: Final = "IMPORT"
COMPATIBILITY_LEVELS: Final = (
    "NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE",
)  # fmt: skip
MODES: Final = (MODE_READWRITE, MODE_READONLY, MODE_IMPORT)

SUBJECT_SOFT_DELETED: Final = 40404
VERSION_SOFT_DELETED: Final = 40406
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_NOT_SOFT_DELETED: Final = 40407

RETRIED_STATUSES: Final = frozenset({429, 502, 503, 504})
RETRIED_ERROR_CODES: Final = (b"50002", b"50003", b"50004")
"""Error codes after which a request is repeated: a timeout, and a leader that is unreachable or unknown."""
BACKOFF_SECONDS_MIN: Final = 0.05
BACKOFF_SECONDS_MAX: Final = 2.0
BODY_CHARACTERS_SHOWN: Final = 200


class RegistryEndpoint(msgspec.Struct, frozen=True):
    """The URL of a schema registry and the credentials for it."""

    url: str
    authorization: str | None = None
    """The value of the Authorization header."""
    tls: ssl.SSLContext | None = None
    """The TLS context for `https` URLs; None for the default of this machine."""

    def __repr__(self) -> str:
        parts = parse_registry_url(self.url)
        return f"<registry {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()}>"


class RegistryAdminError(ClientError):
    """A schema registry could not be reached, or it rejected a request."""

    def __init__(self, message: str, status: int = 0, error_code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, or 0 without a response."""
        self.error_code = error_code
        """Confluent's error code, or 0 if the response has none."""


class SchemaVersion(msgspec.Struct, rename="camel", omit_defaults=True):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = "AVRO"
    references: list[SchemaReference] = []
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    deleted: bool = False

    @property
    def context(self) -> str:
        return get_context(self.subject)

    def to_request(self, *, with_identity: bool) -> dict[str, Any]:
        """Return the body of a request that registers, looks up or checks the schema."""
        body: dict[str, Any] = {"schema": self.schema, "schemaType": self.schema_type}
        if self.references:
            body["references"] = msgspec.to_builtins(self.references)
        if self.metadata is not None:
            body["metadata"] = self.metadata
        if self.rule_set is not None:
            body["ruleSet"] = self.rule_set
        return body | ({"id": self.id, "version": self.version} if with_identity else {})


class CompatibilityVerdict(msgspec.Struct):
    """The verdict of a registry about a schema."""

    is_compatible: bool
    messages: list[str] = []


def get_context(subject: str) -> str:
    """Return the context of a qualified subject: `.` or a name that starts with a dot."""
    if subject.startswith(":."):
        return subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT


def qualify_subject(subject: str, context: str) -> str:
    """Return the qualified name of a subject that is named in a context, such as by a reference."""
    return subject if subject.startswith(":.") or context == DEFAULT_CONTEXT else f":{context}:{subject}"


class RegistryAdminClient:
    """A client of one schema registry. It can be used by several threads, each with its own connection.

    The context manager closes the connections.
    """

    def __init__(self, access: RegistryEndpoint, *, timeout_s: float = 30.0) -> None:
        self._parts = parse_registry_url(access.url)
        self._access = access
        self._timeout_s = timeout_s
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    @property
    def url(self) -> str:
        """Return the URL without credentials."""
        host = self._parts.netloc.rpartition("@")[2]
        return f"{self._parts.scheme}://{host}{self._parts.path}"

    # Subjects and versions

    def list_contexts(self) -> list[str]:
        """Return the contexts, starting with the default one. Registries without contexts have only that one."""
        found = self.find("contexts")
        names = [name for name in found if name != DEFAULT_CONTEXT] if isinstance(found, list) else []
        return [DEFAULT_CONTEXT, *names]

    def list_subjects(self, *, prefix: str = ALL_CONTEXTS, deleted: bool = False) -> list[str]:
        """Return the names of the subjects with the prefix, optionally with the deleted ones."""
        found: list[str] = self.get("subjects", subjectPrefix=prefix, deleted=deleted)
        # Karapace ignores the prefix.
        return sorted(found if prefix == ALL_CONTEXTS else (name for name in found if name.startswith(prefix)))

    def list_versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Return the versions of a subject, none if it does not exist."""
        found = self.find("subjects", subject, "versions", deleted=deleted)
        return sorted(found or ())

    def get_version(self, subject: str, version: int | str = LATEST, *, deleted: bool = False) -> SchemaVersion:
        """Return a version of a subject.

        Raises:
            RegistryAdminError: The subject has no such version.
        """
        return self._convert(self.get("subjects", subject, "versions", str(version), deleted=deleted))

    def find_schema_by_id(self, schema_id: int, context: str = DEFAULT_CONTEXT) -> SchemaVersion | None:
        """Return the schema with an id in a context, without subject and version; None if there is none."""
        subject = {} if context == DEFAULT_CONTEXT else {"subject": f":{context}:"}
        found = self.find("schemas", "ids", str(schema_id), **subject)
        return None if found is None else self._convert({"subject": "", "version": 0} | found | {"id": schema_id})

    def list_versions_of_id(self, schema_id: int) -> list[tuple[str, int]]:
        """Return the subjects and versions that have a schema id."""
        found = self.find("schemas", "ids", str(schema_id), "versions") or ()
        return sorted((each["subject"], each["version"]) for each in found)

    def find_registered(self, schema: SchemaVersion) -> SchemaVersion | None:
        """Return the version of the schema's subject, deleted or not, that has this schema; None if there is none."""
        body = schema.to_request(with_identity=False)
        found = self.find("subjects", schema.subject, method="POST", body=body, deleted=True)
        return None if found is None else self._convert({"schema": ""} | found)

    def register(self, schema: SchemaVersion, *, normalize: bool = False, keep_identity: bool = False) -> int:
        """Register a schema and return its id. `keep_identity` registers it under its own version and id.

        Raises:
            RegistryAdminError: The schema is invalid or incompatible, or the subject's mode does not allow it.
        """
        body = schema.to_request(with_identity=keep_identity)
        parameters = {"normalize": True} if normalize else {}
        found = self.request("POST", ("subjects", schema.subject, "versions"), body, **parameters)
        return int(found["id"])

    def check_compatibility(
        self, schema: SchemaVersion, version: int | str | None = None, *, normalize: bool = False
    ) -> CompatibilityVerdict:
        """Return whether a schema is compatible with a version of its subject, by default with those that count."""
        path = ("compatibility", "subjects", schema.subject, "versions", *(() if version is None else (str(version),)))
        parameters = {"verbose": True} | ({"normalize": True} if normalize else {})
        found = self.request("POST", path, schema.to_request(with_identity=False), **parameters)
        return CompatibilityVerdict(bool(found["is_compatible"]), list(found.get("messages") or ()))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Delete all versions of a subject and return them. Only deleted versions can be deleted permanently."""
        return sorted(self.request("DELETE", ("subjects", subject), **_permanent(permanent)))

    def delete_version(self, subject: str, version: int | str, *, permanent: bool = False) -> int:
        """Delete a version of a subject and return it. Only a deleted version can be deleted permanently."""
        return int(self.request("DELETE", ("subjects", subject, "versions", str(version)), **_permanent(permanent)))

    # Configs and modes; None is the registry itself, and `:.CONTEXT:` a context

    def find_config(self, subject: str | None = None) -> dict[str, Any] | None:
        """Return the config of a subject or context, or the global config; None if it has none of its own."""
        return _rename_level(self.find("config", *_optional(subject)))

    def get_effective_level(self, subject: str) -> str:
        """Return the compatibility level that applies to a subject."""
        found = self.find("config", subject, defaultToGlobal=True) or self.get("config")
        return str((_rename_level(found) or {}).get("compatibility", "BACKWARD"))

    def set_config(self, subject: str | None, config: Mapping[str, Any]) -> None:
        self.request("PUT", ("config", *_optional(subject)), dict(config))

    def delete_config(self, subject: str | None) -> None:
        """Delete the config of a subject or context, if it has one."""
        self.find("config", *_optional(subject), method="DELETE")

    def find_mode(self, subject: str | None = None) -> str | None:
        """Return the mode of a subject or context, or the global mode; None if it has none of its own."""
        found = self.find("mode", *_optional(subject))
        return None if found is None else str(found["mode"])

    def set_mode(self, subject: str | None, mode: str, *, force: bool = False) -> None:
        """Set a mode. IMPORT needs `force` if versions exist."""
        self.request("PUT", ("mode", *_optional(subject)), {"mode": mode}, **({"force": True} if force else {}))

    def delete_mode(self, subject: str) -> None:
        """Delete the mode of a subject or context, if it has one."""
        self.find("mode", subject, method="DELETE")

    # Requests

    def get(self, *path: str, **parameters: Any) -> Any:
        """Return the response to a GET request. Parameters that are False are omitted."""
        return self.request("GET", path, **parameters)

    def find(self, *path: str, method: str = "GET", body: Any = None, **parameters: Any) -> Any:
        """Return the response to a request, or None if the resource or the operation does not exist."""
        try:
            return self.request(method, path, body, **parameters)
        except RegistryAdminError as error:
            if error.status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
                return None
            raise

    def request(self, method: str, path: Iterable[str], body: Any = None, **parameters: Any) -> Any:
        """Send a request and return the JSON value of the response; repeat it while the registry is unavailable.

        Raises:
            RegistryAdminError: The registry rejects the request, or does not answer in time.
        """
        target = self._parts.path + "".join(f"/{quote(part, safe='')}" for part in path)
        if given := {name: _format_parameter(value) for name, value in parameters.items() if value is not False}:
            target += f"?{urlencode(given)}"
        deadline, backoff_s = time.monotonic() + self._timeout_s, BACKOFF_SECONDS_MIN
        while True:
            try:
                status, content = self._exchange(method, target, body)
            except RegistryAdminError:
                if time.monotonic() + backoff_s > deadline or not self._was_reached:
                    raise
            else:
                is_retried = status in RETRIED_STATUSES or (
                    status == http.client.INTERNAL_SERVER_ERROR and any(code in content for code in RETRIED_ERROR_CODES)
                )
                if not is_retried or time.monotonic() + backoff_s > deadline:
                    return self._parse(status, content)
            time.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_SECONDS_MAX)

    @property
    def _was_reached(self) -> bool:
        return getattr(self._local, "was_reached", False)

    def _exchange(self, method: str, target: str, body: Any) -> tuple[int, bytes]:
        headers = {"Accept": f"{MEDIA_TYPE}, application/json"}
        if self._access.authorization is not None:
            headers["Authorization"] = self._access.authorization
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode()
            headers["Content-Type"] = MEDIA_TYPE
        connection = self._connect()
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            received = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RegistryAdminError(f"schema registry {self.url}: {self._describe_failure(error)}") from error
        self._local.was_reached = True
        return received

    def _describe_failure(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no response within {self._timeout_s:g} s"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate was rejected: {error.verify_message} (see ssl.ca.location)"
        if isinstance(error, ssl.SSLError):
            return f"TLS failed: {(error.reason or str(error)).lower().replace('_', ' ')}; does it use TLS?"
        if isinstance(error, http.client.HTTPException | ConnectionResetError):
            return "the connection was closed without a response; does it use TLS (https://)?"
        return f"cannot connect: {getattr(error, 'strerror', None) or error}"

    def _connect(self) -> http.client.HTTPConnection:
        """Return this thread's connection. http.client reconnects it after the registry has closed it."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            host, port = self._parts.hostname or "", self._parts.port
            if self._parts.scheme == "https":
                connection = http.client.HTTPSConnection(
                    host, port, timeout=self._timeout_s, context=self._access.tls or ssl.create_default_context()
                )
            else:
                connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _parse(self, status: int, content: bytes) -> Any:
        try:
            value = json.loads(content) if content else None
        except ValueError:
            value = content.decode(errors="replace")[:BODY_CHARACTERS_SHOWN]
            if status < http.client.BAD_REQUEST:
                raise RegistryAdminError(f"{self.url} is not a schema registry: it does not answer in JSON") from None
        if status < http.client.BAD_REQUEST:
            return value
        error_code = value.get("error_code", 0) if isinstance(value, dict) else 0
        message = value.get("message") if isinstance(value, dict) else value
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            hint = "set basic.auth.user.info=NAME:PASSWORD or bearer.auth.token in the file of --client-config"
            message = f"{message or 'not authorized'}" + (f"; {hint}" if status == http.client.UNAUTHORIZED else "")
        elif not message:
            message = f"HTTP status {status}"
        raise RegistryAdminError(f"schema registry {self.url}: {message}", status, int(error_code or 0))

    def _convert(self, value: Any) -> SchemaVersion:
        """Return a schema of a response. Confluent's registry returns null for empty fields."""
        try:
            return msgspec.convert({key: each for key, each in value.items() if each is not None}, SchemaVersion)
        except (msgspec.ValidationError, AttributeError) as error:
            raise RegistryAdminError(f"schema registry {self.url}: unexpected response: {error}") from None


def parse_registry_url(url: str) -> SplitResult:
    """Parse the URL of a schema registry; raise ClientError if it is invalid."""
    expected = "an URL such as http://127.0.0.1:8081 or https://node1.example:6092/registry"
    try:
        parts = urlsplit(url.rstrip("/"))
        _ = parts.port
    except ValueError:
        raise ClientError(f"schema registry: expected {expected}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ClientError(f"schema registry: expected {expected}")
    return parts


def get_user_info(parts: SplitResult) -> tuple[str, str] | None:
    """Return the user name and password in an URL, or None."""
    return None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))


def _optional(subject: str | None) -> tuple[str, ...]:
    return () if subject is None else (subject,)


def _permanent(permanent: bool) -> dict[str, bool]:
    return {"permanent": True} if permanent else {}


def _format_parameter(value: object) -> str:
    return "true" if value is True else str(value)


def _rename_level(config: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a config under the names of requests: responses name the compatibility level differently."""
    if config is None:
        return None
    renamed = {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}
    return {name: value for name, value in renamed.items() if value is not None}
