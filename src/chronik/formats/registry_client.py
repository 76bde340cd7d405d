"""A blocking client of schema registries with Confluent's REST API.

Schemas are immutable, so they are cached by id. Requests are retried while the registry does not respond. Errors
distinguish a schema that the registry does not have from a registry that cannot say so: callers may discard records
only in the first case.
"""

from __future__ import annotations

import base64
import http.client
import logging
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote, urlsplit

import msgspec

from chronik.errors import ChronikError, ConfigError
from chronik.formats.codec import ReferencedSchema, UnsupportedSchemaError, ValueFormat, WriterSchema
from chronik.formats.framing import SchemaKey
from chronik.wording import format_spelling_suggestion

logger = logging.getLogger("chronik.formats")

TIMEOUT_SECONDS: Final = 10.0

ATTEMPTS_MAX: Final = 4
"""Maximum number of attempts of a request, over all URLs."""

RETRY_DELAY_SECONDS: Final = 0.1
"""Delay before the second attempt of a request; each further delay is twice as long."""

RETRY_DELAY_SECONDS_MAX: Final = 2.0

IMPATIENT_SECONDS: Final = 60.0
"""Time for which a client does not wait again for a registry for which it has waited in vain."""

CONFIRMATION_DELAY_SECONDS: Final = 0.2
"""Delay before an unknown schema is requested again: the replica that responded may not have it yet."""

CACHED_SCHEMAS_MAX: Final = 1000

CLIENTS_MAX: Final = 16
"""Maximum number of registries whose clients and schemas a process keeps."""

UNKNOWN_SECONDS: Final = 30.0
"""Time for which a schema that is unknown or not supported is not requested again."""

CACHED_PROBLEMS_MAX: Final = 100_000
"""Maximum number of schemas that are not requested again. Each of a batch of hostile records may name another one."""

RESPONSE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of a response. A schema has at most 1 MiB, and JSON escapes make it up to six times larger."""

REFERENCES_MAX: Final = 1000
"""Maximum number of schemas to which a schema refers, directly or indirectly."""

REFERENCE_DEPTH_MAX: Final = 200
"""Maximum number of schemas of which each refers to the next one. They are fetched recursively."""

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

SCHEMA_NOT_FOUND, VERSION_NOT_FOUND, SUBJECT_NOT_FOUND = 40403, 40402, 40401

_FORMATS: Final = {"AVRO": ValueFormat.AVRO, "JSON": ValueFormat.JSON_SCHEMA, "PROTOBUF": ValueFormat.PROTOBUF}
_TYPES: Final = {format: name for name, format in _FORMATS.items()}

_RETRIED_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})

_FIELD_BY_SETTING: Final = {
    "basic.auth.user.info": "login",
    "bearer.auth.token": "token",
    "ssl.ca.location": "ca_file",
    "ssl.truststore.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
    "ssl.endpoint.identification.algorithm": "identification",
}

_EXPECTED_VALUES: Final = {
    "basic.auth.credentials.source": ("USER_INFO", "URL"),
    "bearer.auth.credentials.source": ("STATIC_TOKEN",),
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.type": ("PEM",),
    "ssl.endpoint.identification.algorithm": ("https", ""),
}
"""The supported values of settings that have only a few."""

REGISTRY_SETTINGS: Final = tuple(dict.fromkeys((*_FIELD_BY_SETTING, *_EXPECTED_VALUES)))
"""Names of the settings besides the URL: those of Confluent's clients in Java and of those that use librdkafka."""


class RegistryUnavailableError(ChronikError):
    """The registry does not respond, or does not respond as a registry does. A retry may succeed."""


class RegistryRequestError(ChronikError):
    """The registry rejected a request."""


class SchemaUnknownError(RegistryRequestError):
    """The registry has no such schema, subject or version."""


class RegistrySettings(NamedTuple):
    """The address of a registry, and the settings to connect to it."""

    url: str
    """One URL, or a comma-separated list of URLs of the same registry."""
    login: str = ""
    """User name and password for Basic authentication, separated by a colon."""
    token: str = ""
    """Bearer token."""
    ca_file: str = ""
    certificate_file: str = ""
    """PEM file with the client certificate, and with its private key unless `key_file` is set."""
    key_file: str = ""
    key_password: str = ""
    identification: str = "https"
    """Endpoint identification algorithm: "https" verifies the host name; an empty string disables the check."""
    timeout_s: float = TIMEOUT_SECONDS
    patience_s: float = 0.0
    """Time for which requests are retried while the registry is not available, after the usual attempts."""

    def __repr__(self) -> str:
        return f"<registry {self.display_url}>"

    @property
    def display_url(self) -> str:
        """The URLs without credentials, for messages."""
        return ",".join(_strip_login(each) for each in self.url.split(","))

    def with_defaults_of(self, other: RegistrySettings) -> RegistrySettings:
        """Return these settings, with those of `other` for all that have their default.

        A login and a token are alternatives: if one is set here, the other one is not taken over.
        """
        own = {name: value for name, value in self._asdict().items() if value != _DEFAULTS[name]}
        if self.login or self.token:
            own |= {"login": self.login, "token": self.token}
        return other._replace(**own)


_DEFAULTS: Final = RegistrySettings("")._asdict()


def parse_registry_settings(url: str, settings: Mapping[str, str] | None = None) -> RegistrySettings:
    """Parse the URL of a registry and settings with the names of Confluent's clients, such as `basic.auth.user.info`.

    Raises:
        ConfigError: The URL or a setting is invalid.
    """
    fields: dict[str, str] = {}
    for name, value in (settings or {}).items():
        if name not in REGISTRY_SETTINGS:
            hint = format_spelling_suggestion(name, REGISTRY_SETTINGS) or f": expected {', '.join(REGISTRY_SETTINGS)}"
            raise ConfigError(f"unknown registry setting {name!r}{hint}")
        expected = _EXPECTED_VALUES.get(name)
        if expected is not None and value.lower() not in map(str.lower, expected):
            supported = " or ".join(each or "an empty value" for each in expected)
            raise ConfigError(f"registry setting {name} = {value[:100]!r}: expected {supported}")
        if (field := _FIELD_BY_SETTING.get(name)) is not None:
            fields[field] = value
    parsed = RegistrySettings(url.strip(), **fields)  # type: ignore[arg-type]
    for each in parsed.url.split(","):
        _parse_url(each)
    return parsed


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    id: int
    schema: WriterSchema


class _Endpoint(NamedTuple):
    """A parsed URL of a registry."""

    host: str
    port: int
    path: str
    is_tls: bool
    login: str


def _strip_login(url: str) -> str:
    scheme, separator, rest = url.strip().partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def _parse_url(url: str) -> _Endpoint:
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"invalid registry URL {_strip_login(url)!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"invalid registry URL {_strip_login(url)!r}: expected a URL such as http://localhost:8081")
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    is_tls = parts.scheme == "https"
    return _Endpoint(parts.hostname, port or (443 if is_tls else 80), parts.path.rstrip("/"), is_tls, login)


class _SchemaProblem(NamedTuple):
    """The reason why a schema cannot be returned, and the time until which it is not requested again."""

    kind: type[SchemaUnknownError | UnsupportedSchemaError]
    message: str
    until: float


Result = TypeVar("Result")


class RegistryClient:
    """A client of one registry with a bounded cache. Thread-safe."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create a client; it connects with the first request.

        Raises:
            ConfigError: The URL is invalid, or a certificate file cannot be read.
        """
        self.settings = settings
        self._endpoints = [_parse_url(each) for each in settings.url.split(",")]
        self._tls = _create_tls_context(settings) if any(each.is_tls for each in self._endpoints) else None
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.RLock()
        self._connection: http.client.HTTPConnection | None = None
        self._current = 0
        self._schemas: OrderedDict[SchemaKey, WriterSchema] = OrderedDict()
        self._problems: OrderedDict[SchemaKey, _SchemaProblem] = OrderedDict()
        """Schemas that are unknown or not supported."""
        self._impatient_until = 0.0
        """Time until which requests get only the usual attempts."""

    # Reading

    def fetch_schema(self, key: SchemaKey, *, confirms: bool = True) -> WriterSchema:
        """Return the schema with an id or GUID, with all schemas to which it refers.

        Without `confirms`, an unknown schema is requested only once: another replica may have it.

        Raises:
            SchemaUnknownError: The registry has confirmed that it has no such schema.
            UnsupportedSchemaError: The registry has the schema, but in an unknown format.
            RegistryUnavailableError: The registry does not respond.
            RegistryRequestError: The registry rejected the request.
        """
        with self._lock:
            schema = self._schemas.get(key)
            if schema is not None:
                self._schemas.move_to_end(key)
                return schema
            problem = self._problems.get(key)
            if problem is not None and problem.until > self._monotonic():
                raise problem.kind(problem.message)
            try:
                if confirms:
                    return self._confirm_if_unknown(lambda: self._request_schema(key))
                return self._request_schema(key)
            except SchemaUnknownError:
                raise self._remember_problem(key, SchemaUnknownError, self._describe_unknown(key)) from None

    def prefetch_schemas(self, keys: Iterable[SchemaKey]) -> None:
        """Request schemas, so that `fetch_schema` knows which of them exist. Unknown ones are confirmed together.

        Confirming them one by one would take a delay for each.

        Raises:
            RegistryUnavailableError, RegistryRequestError: See `fetch_schema`.
        """
        with self._lock:
            now = self._monotonic()
            wanted = [
                key
                for key in keys
                if key not in self._schemas and (key not in self._problems or self._problems[key].until <= now)
            ]
            if len(wanted) < 2:  # `fetch_schema` confirms a single one
                return
            unknown = [key for key in wanted if not self._can_fetch(key)]
            if unknown:
                self._sleep(CONFIRMATION_DELAY_SECONDS)
                self._use_next_endpoint()
            for key in unknown:
                if not self._can_fetch(key):
                    self._remember_problem(key, SchemaUnknownError, self._describe_unknown(key))

    def _can_fetch(self, key: SchemaKey) -> bool:
        """Request a schema, and return whether the registry has it."""
        try:
            self._request_schema(key)
        except SchemaUnknownError:
            return False
        except UnsupportedSchemaError:
            return True
        return True

    def _request_schema(self, key: SchemaKey) -> WriterSchema:
        path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
        document = self._request("GET", path)
        try:
            schema = self._parse_schema(document)
        except UnsupportedSchemaError as error:
            raise self._remember_problem(key, UnsupportedSchemaError, str(error)) from None
        _remember(self._schemas, key, schema)
        return schema

    def _remember_problem(
        self, key: SchemaKey, kind: type[SchemaUnknownError | UnsupportedSchemaError], message: str
    ) -> ChronikError:
        problem = _SchemaProblem(kind, message, self._monotonic() + UNKNOWN_SECONDS)
        _remember(self._problems, key, problem, CACHED_PROBLEMS_MAX)
        return kind(message)

    def fetch_latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject.

        Raises:
            SchemaUnknownError: The registry has confirmed that the subject does not exist.
            UnsupportedSchemaError, RegistryUnavailableError, RegistryRequestError: See `fetch_schema`.
        """
        with self._lock:
            path = f"/subjects/{_quote(subject)}/versions/latest"
            document = self._confirm_if_unknown(lambda: self._request("GET", path))
            return self._parse_registered(subject, document)

    def register(self, subject: str, schema: WriterSchema, references: tuple[SchemaVersionReference, ...] = ()) -> int:
        """Register a schema as the latest version of a subject, unless a version has it, and return its id.

        Raises:
            RegistryRequestError: The registry rejects the schema, for example because it is not compatible.
            RegistryUnavailableError: The registry does not respond. The schema may have been registered.
        """
        body: dict[str, Any] = {"schema": schema.text, "schemaType": _TYPES[schema.format]}
        if references:
            body["references"] = [each._asdict() for each in references]
        with self._lock:
            document = self._request("POST", f"/subjects/{_quote(subject)}/versions", msgspec.json.encode(body))
            return self._get_int(document, "id")

    def find_id(self, subject: str, schema: WriterSchema) -> int:
        """Return the id of a schema that is a version of a subject.

        Raises:
            SchemaUnknownError: The registry has confirmed that no version of the subject has the schema.
            RegistryUnavailableError, RegistryRequestError: See `fetch_schema`.
        """
        body = msgspec.json.encode({"schema": schema.text, "schemaType": _TYPES[schema.format]})
        with self._lock:
            document = self._confirm_if_unknown(lambda: self._request("POST", f"/subjects/{_quote(subject)}", body))
            return self._get_int(document, "id")

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # Parsing

    def _parse_schema(self, document: Mapping[str, Any]) -> WriterSchema:
        kind, text = document.get("schemaType") or "AVRO", document.get("schema")
        if not isinstance(text, str):
            raise self._unexpected("it has no schema")
        if kind not in _FORMATS:
            raise UnsupportedSchemaError(f"schemas of type {kind} are not supported")
        found: dict[str, ReferencedSchema] = {}
        self._resolve_references(document, found, set())
        return WriterSchema(_FORMATS[kind], text, tuple(found.values()))

    def _resolve_references(
        self,
        document: Mapping[str, Any],
        found: dict[str, ReferencedSchema],
        visited: set[tuple[str, int]],
        depth: int = 1,
    ) -> None:
        """Add the schemas to which a schema refers, each after those to which it refers itself."""
        if depth > REFERENCE_DEPTH_MAX:
            raise UnsupportedSchemaError(f"the schemas refer to each other more than {REFERENCE_DEPTH_MAX} levels deep")
        for reference in document.get("references") or ():
            try:
                name, subject, version = reference["name"], reference["subject"], reference["version"]
            except (KeyError, TypeError):
                raise self._unexpected("it has an invalid reference") from None
            if name in found or (subject, version) in visited:
                continue
            if len(visited) >= REFERENCES_MAX:
                raise UnsupportedSchemaError(f"the schema refers to more than {REFERENCES_MAX} other schemas")
            visited.add((subject, version))
            # A referenced version may be deleted softly; schemas that refer to it stay valid.
            path = f"/subjects/{_quote(str(subject))}/versions/{version}?deleted=true"
            try:
                referenced = self._confirm_if_unknown(lambda path=path: self._request("GET", path))  # type: ignore[misc]
            except SchemaUnknownError as error:
                raise UnsupportedSchemaError(f"the schema refers to {name}, which is missing: {error}") from None
            text = referenced.get("schema")
            if not isinstance(text, str):
                raise self._unexpected("it has no schema")
            self._resolve_references(referenced, found, visited, depth + 1)
            found[name] = ReferencedSchema(name, text)

    def _parse_registered(self, subject: str, document: Mapping[str, Any]) -> RegisteredSchema:
        id, version = self._get_int(document, "id"), self._get_int(document, "version")
        schema = self._schemas.get(id) or self._parse_schema(document)
        _remember(self._schemas, id, schema)
        return RegisteredSchema(subject, version, id, schema)

    def _get_int(self, document: Mapping[str, Any], name: str) -> int:
        value = document.get(name)
        if type(value) is not int:
            raise self._unexpected(f"it has no {name}")
        return value

    def _unexpected(self, reason: str) -> RegistryUnavailableError:
        return RegistryUnavailableError(
            f"schema registry {self.settings.display_url}: the response is not that of a schema registry: {reason}"
        )

    def _describe_unknown(self, key: SchemaKey) -> str:
        name = "id" if isinstance(key, int) else "GUID"
        return f"schema registry {self.settings.display_url} has no schema with {name} {key}"

    # Requests

    def _confirm_if_unknown(self, request: Callable[[], Result]) -> Result:
        """Send a request, and send it to another URL if there is one, before reporting that a schema is unknown."""
        try:
            return request()
        except SchemaUnknownError:
            self._sleep(CONFIRMATION_DELAY_SECONDS)
            self._use_next_endpoint()
            return request()

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Send a request until the registry responds, and return the JSON object of the response."""
        delay, attempts_max = RETRY_DELAY_SECONDS, max(ATTEMPTS_MAX, len(self._endpoints))
        now = self._monotonic()
        patient_until = now + self.settings.patience_s if now >= self._impatient_until else now
        attempt = 0
        while True:
            attempt += 1
            try:
                status, content = self._send(method, path, body)
                if status not in _RETRIED_STATUSES:
                    return self._parse_response(status, content)
                problem = f"HTTP status {status}{_format_message(content)}"
            except (OSError, http.client.HTTPException) as error:
                problem = _describe_connection_error(error, self.settings.timeout_s)
            self._use_next_endpoint()
            message = f"schema registry {self.settings.display_url} is not available: {problem}"
            now = self._monotonic()
            if attempt >= attempts_max and now >= patient_until:
                if self.settings.patience_s:
                    self._impatient_until = now + IMPATIENT_SECONDS
                raise RegistryUnavailableError(message)
            if attempt == attempts_max:
                logger.warning("%s; retrying for %.0f s", message, patient_until - now)
            self._sleep(delay)
            delay = min(2 * delay, RETRY_DELAY_SECONDS_MAX)

    def _parse_response(self, status: int, content: bytes) -> dict[str, Any]:
        document: Any = None
        with suppress(msgspec.DecodeError, UnicodeError):
            document = msgspec.json.decode(content)
        code = document.get("error_code") if isinstance(document, dict) else None
        if status == http.client.OK:
            if not isinstance(document, dict):
                raise self._unexpected("it is not a JSON object")
            return document
        message = f"schema registry {self.settings.display_url}: HTTP status {status}{_format_message(content)}"
        if status == http.client.NOT_FOUND:
            if code in (SCHEMA_NOT_FOUND, VERSION_NOT_FOUND, SUBJECT_NOT_FOUND):
                raise SchemaUnknownError(message)
            raise RegistryUnavailableError(f"{message}; check the path of the URL")
        raise RegistryRequestError(message)

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        endpoint = self._endpoints[self._current]
        headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        if body is not None:
            headers["Content-Type"] = CONTENT_TYPE
        login = self.settings.login or endpoint.login
        if self.settings.token:
            headers["Authorization"] = f"Bearer {self.settings.token}"
        elif login:
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        with self._open_connection(endpoint) as connection:
            connection.request(method, endpoint.path + path, body, headers)
            response = connection.getresponse()
            content = response.read(RESPONSE_BYTES_MAX + 1)
            if len(content) > RESPONSE_BYTES_MAX:
                raise http.client.HTTPException(f"the response has more than {RESPONSE_BYTES_MAX} bytes")
            if response.will_close:
                self.close()
            return response.status, content

    @contextmanager
    def _open_connection(self, endpoint: _Endpoint) -> Iterator[http.client.HTTPConnection]:
        """Return the open connection or a new one. An error closes it."""
        if self._connection is None:
            timeout_s = self.settings.timeout_s
            self._connection = (
                http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=self._tls)
                if endpoint.is_tls
                else http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
            )
        try:
            yield self._connection
        except BaseException:
            self.close()
            raise

    def _use_next_endpoint(self) -> None:
        if len(self._endpoints) > 1:
            self.close()
            self._current = (self._current + 1) % len(self._endpoints)


class SchemaVersionReference(NamedTuple):
    """A reference of a schema to a version of a subject."""

    name: str
    subject: str
    version: int


_clients: Final[OrderedDict[RegistrySettings, RegistryClient]] = OrderedDict()
_clients_lock: Final = threading.Lock()


def get_registry_client(settings: RegistrySettings) -> RegistryClient:
    """Return this process's client of a registry, so that tasks share the cache.

    Raises:
        ConfigError: The URL is invalid, or a certificate file cannot be read.
    """
    with _clients_lock:
        client = _clients.get(settings)
        if client is None:
            client = _clients[settings] = RegistryClient(settings)
            if len(_clients) > CLIENTS_MAX:
                _clients.popitem(last=False)[1].close()  # if it is still used, it connects again
        _clients.move_to_end(settings)
        return client


def _create_tls_context(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file or None)
        context.check_hostname = bool(settings.identification)
        if settings.certificate_file:
            password = settings.key_password or (lambda: "")  # prevents OpenSSL from prompting
            context.load_cert_chain(settings.certificate_file, settings.key_file or None, password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"schema registry {settings.display_url}: invalid TLS settings: {error}; expected PEM files"
        ) from None
    return context


def _describe_connection_error(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {timeout_s:g} s"
    reason = error.strerror if isinstance(error, OSError) else None
    return (reason or str(error) or type(error).__name__).splitlines()[0]


def _format_message(content: bytes) -> str:
    """Return the message of an error response for a line of text; empty if it has none."""
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError):
        return ""
    message = document.get("message") if isinstance(document, dict) else None
    return f": {' '.join(message.split())[:500]}" if isinstance(message, str) else ""


def _quote(name: str) -> str:
    return quote(name, safe="")


def _remember(
    cache: OrderedDict[SchemaKey, Any], key: SchemaKey, value: Any, size_max: int = CACHED_SCHEMAS_MAX
) -> None:
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > size_max:
        cache.popitem(last=False)
