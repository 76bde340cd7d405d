"""Iceberg catalogs by URL: REST catalogs (http, https) and SQL catalogs (sqlite, postgresql).

Further properties, such as credentials and the warehouse of a REST catalog, are those of a PyIceberg catalog named
`chronik`: in `~/.pyiceberg.yaml`, or in variables such as PYICEBERG_CATALOG__CHRONIK__TOKEN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from chronik.errors import ChronikError, ConfigError
from chronik.pipeline.tables.storage import make_directory_durably
from chronik.pipeline.tables.storage_options import (
    ACCESS_KEY_ID,
    ENDPOINT_URL,
    REGION,
    SECRET_ACCESS_KEY,
    SESSION_TOKEN,
)
from chronik.pipeline.tables.topic_table import TableError, TableMissingError

NAMESPACE: Final = "chronik"

PYICEBERG_CATALOG: Final = "chronik"
"""Name of the catalog in PyIceberg's configuration, and in the tables of a SQL catalog."""

REQUEST_SECONDS_MAX: Final = 60.0
"""Time limit of a request to a REST catalog. PyIceberg sets none."""

MESSAGE_CHARACTERS_MAX: Final = 400

FILE_IO_OPTIONS: Final = {
    ACCESS_KEY_ID: "s3.access-key-id",
    SECRET_ACCESS_KEY: "s3.secret-access-key",
    SESSION_TOKEN: "s3.session-token",
    REGION: "s3.region",
    ENDPOINT_URL: "s3.endpoint",
}
"""PyIceberg's names of storage options."""

_opened: dict[tuple[str, tuple[tuple[str, str], ...]], Catalog] = {}


def open_catalog(url: str, storage_options: Mapping[str, str]) -> Catalog:
    """Return the catalog at a URL, which this process opens once, and create its namespace if it does not exist.

    Raises:
        ConfigError: The URL is invalid.
        TableError: The catalog cannot be used.
    """
    file_io = {name: storage_options[option] for option, name in FILE_IO_OPTIONS.items() if option in storage_options}
    key = url, tuple(sorted(file_io.items()))
    if key not in _opened:
        with convert_catalog_errors(url):
            _opened[key] = _load(url, file_io)
    return _opened[key]


def _load(url: str, file_io: Mapping[str, str]) -> Catalog:
    parts = urlsplit(url)
    properties = {**file_io, "py-io-impl": "chronik.pipeline.tables.iceberg.file_io.DurableFileIO"}
    if parts.scheme in ("http", "https"):
        # Parameters of the URL are properties of the catalog, such as ?warehouse=s3://lake.
        uri = urlunsplit(parts._replace(query=""))
        properties.update(parse_qsl(parts.query))
        if "credential" in properties:
            properties.setdefault("oauth2-server-uri", f"{uri.rstrip('/')}/v1/oauth/tokens")
        catalog = load_catalog(PYICEBERG_CATALOG, type="rest", uri=uri, **properties)
        session = getattr(catalog, "_session", None)
        if session is not None:
            session.mount(f"{parts.scheme}://", _LimitedAdapter())
    elif parts.scheme.partition("+")[0] in ("sqlite", "postgresql"):
        database = url.partition(":///")[2]  # urlsplit would end the path at a #
        if parts.scheme == "sqlite" and database:
            make_directory_durably(Path(database).parent)
        catalog = load_catalog(PYICEBERG_CATALOG, type="sql", uri=url, **properties)
    else:
        raise ConfigError(f"catalog {hide_password(url)}: expected http://, https://, sqlite:/// or postgresql://")
    with suppress(NamespaceAlreadyExistsError):  # another process has created it at the same time
        catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog


class _LimitedAdapter(HTTPAdapter):  # type: ignore[misc]
    """An adapter with a time limit, so that a catalog that does not answer does not block a landing."""

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        if options.get("timeout") is None:
            options["timeout"] = REQUEST_SECONDS_MAX
        return super().send(request, *arguments, **options)


def load_table(catalog: Catalog, url: str, name: str, uri: str) -> Table:
    """Load the current metadata of a table.

    Raises:
        TableMissingError: The catalog has no table of this name.
        TableError: The catalog or the metadata cannot be read.
    """
    with convert_catalog_errors(url):
        try:
            return catalog.load_table((NAMESPACE, to_table_identifier(name)))
        except (NoSuchTableError, NoSuchNamespaceError):
            raise TableMissingError(
                f"no table at {uri}, and none named {name} in catalog {hide_password(url)}"
            ) from None


def list_tables(catalog: Catalog, url: str) -> list[str]:
    """Return the names of the tables in the catalog's namespace.

    Raises:
        TableError: The catalog cannot be read.
    """
    with convert_catalog_errors(url):
        return sorted(from_table_identifier(identifier[-1]) for identifier in catalog.list_tables(NAMESPACE))


# Names

_PLAIN: Final = re.compile("[a-z0-9]|_(?!x[0-9a-f]{2})")
_ENCODED: Final = re.compile("_x([0-9a-f]{2})")


def to_table_identifier(name: str) -> str:
    """Return the name of a topic's table in a catalog, which may allow only lower-case letters, digits and `_`.

    Other characters are encoded: `eu.orders` becomes `eu_x2eorders`.
    """
    parts, position = [], 0
    while position < len(name):
        if _PLAIN.match(name, position):
            parts.append(name[position])
        else:
            parts += [f"_x{byte:02x}" for byte in name[position].encode()]
        position += 1
    return "".join(parts)


def from_table_identifier(identifier: str) -> str:
    """Return the name of the topic's table that `to_table_identifier` has encoded."""
    return _ENCODED.sub(lambda match: chr(int(match[1], 16)), identifier)


# Errors


@contextmanager
def convert_catalog_errors(url: str) -> Iterator[None]:
    """Convert all errors of PyIceberg and its libraries to TableErrors, because callers do not depend on them."""
    try:
        yield
    except ChronikError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of a local disk
        raise TableError(f"catalog {hide_password(url)}: {summarize_error(error)}") from error


def summarize_error(error: Exception) -> str:
    """Return an error in one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MESSAGE_CHARACTERS_MAX else f"{text[: MESSAGE_CHARACTERS_MAX - 1]}…"


def hide_password(url: str) -> str:
    """Return a URL without its password, and without the parameters of a REST catalog."""
    return re.sub("(//[^/@:]*):[^/@]*@", r"\1:…@", url).partition("?")[0]
