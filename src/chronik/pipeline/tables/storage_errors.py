"""Errors of object stores in one line: the location, the cause, and the option or permission that is missing.

Delta-rs reports an error as a tree with ANSI escape codes, the URL of the request and the store's XML response.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from chronik.errors import ChronikError
from chronik.pipeline.tables.storage_options import is_s3

MESSAGE_CHARACTERS_MAX: Final = 400
"""Maximum length of an unknown error in a message."""


class TableStorageError(ChronikError, OSError):
    """A request to an object store failed. The message is one line with the location, the cause and the remedy."""


class TableStorageAccessError(TableStorageError):
    """An object store rejects all requests until an operator changes an option, a credential or a permission."""


class _FailedRequest(NamedTuple):
    location: str
    """Bucket URI, such as `s3://lake`."""
    text: str
    """Error message without escape codes, in one line."""
    options: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        """The address of the store in the error message, else in the options."""
        found = re.search(r"performing \w+ (https?://[^/\s]+)", self.text)
        return found[1] if found else self.options.get("aws_endpoint_url", "the store")

    def extract(self, pattern: str, default: str = "") -> str:
        found = re.search(pattern, self.text)
        return found[1] if found else default


ESCAPE_CODE: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
TREE_PREFIX: Final = re.compile(
    r"^(?:Kernel error -> |Generic (?:S3 |delta kernel |DeltaTable |Config )?error:? )+", re.IGNORECASE
)
APPENDIX: Final = re.compile(
    r"\s*(?:Debug source:|Backtrace:|stack backtrace:|\d+: std::backtrace|<\?xml).*$", re.DOTALL
)
MEASURED_TIME: Final = re.compile(
    r" in [\d.]+(?:ns|µs|ms|s)\b(?:, after \d+ retries, max_retries: \d+, retry_timeout: \w+)?"
)

CREDENTIALS_ADVICE: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or --storage-option aws_access_key_id=… and"
    " aws_secret_access_key=…"
)

Describe = Callable[[_FailedRequest], str]


def _describe_missing_credentials(request: _FailedRequest) -> str:
    profile = request.extract(r"profile `([^`]+)` was not defined")
    if profile:
        return f"profile {profile} is not defined in ~/.aws/config or ~/.aws/credentials: correct AWS_PROFILE"
    return f"no credentials: {CREDENTIALS_ADVICE}"


def _describe_unloadable_credentials(request: _FailedRequest) -> str:
    reason = request.extract(r'message: "([^"]+)"') or request.extract(r"loading credentials: (.+?)(?:: Error \{|$)")
    return f"cannot load credentials: {reason or request.text}: check AWS_PROFILE or AWS_ROLE_ARN"


def _describe_unknown_key(request: _FailedRequest) -> str:
    hint = ""
    if "aws_session_token" not in request.options:
        found = [name for name in SESSION_TOKEN_VARIABLES if os.environ.get(name)]
        hint = f", or unset {found[0]}, which is sent as the session token" if found else ""
    return (
        "the store does not know the access key ID: correct AWS_ACCESS_KEY_ID or --storage-option"
        f" aws_access_key_id=…{hint}"
    )


SESSION_TOKEN_VARIABLES: Final = ("AWS_SESSION_TOKEN", "SESSION_TOKEN", "TOKEN")
"""Environment variables that delta-rs uses as the session token if no option sets one."""

PERMISSIONS: Final = {"GET": "s3:GetObject and s3:ListBucket", "HEAD": "s3:GetObject", "PUT": "s3:PutObject",
                      "POST": "s3:PutObject", "DELETE": "s3:DeleteObject"}  # fmt: skip


def _describe_denied_access(request: _FailedRequest) -> str:
    method = request.extract(r"performing (\w+) ") or "GET"
    permission = PERMISSIONS.get(method, "the S3 permission")
    return f"access denied ({method}): grant the access key {permission}, or use another one"


def _describe_region(request: _FailedRequest) -> str:
    region = request.extract(r"<Region>([^<]+)</Region>") or request.extract(r"expecting '([^']+)'")
    where = f"in region {region}" if region else "in another region"
    return f"the bucket is {where}: set AWS_REGION={region or '…'} or --storage-option aws_region={region or '…'}"


def _describe_invalid_option(request: _FailedRequest) -> str:
    value, kind = request.extract(r'failed to parse \\?"([^"\\]*)'), request.extract(r'\\?" as (\w+)')
    names = [name for name, given in request.options.items() if given == value]
    name = request.extract(r'\("(\w+)"') or next(iter(names), "")
    expected = {"boolean": "true or false", "usize": "an integer", "u64": "an integer"}.get(kind, f"a {kind}")
    return f"invalid storage option {name}={value}: expected {expected}"


CONNECTION_FAILURE: Final = (
    r"(Connection refused|Connection reset by peer|Name or service not known|No route to host|Network is unreachable"
    r"|operation timed out|nodename nor servname provided)"
)


def _describe_connection(request: _FailedRequest) -> str:
    reason = request.extract(CONNECTION_FAILURE, "no response")
    return (
        f"cannot connect to {request.endpoint}: {reason}: check AWS_ENDPOINT_URL or --storage-option aws_endpoint_url=…"
    )


INTERRUPTED: Final = (
    r"(end of file before message length reached|connection closed before message completed|Connection reset by peer"
    r"|connection error|Broken pipe|error reading a body from connection|error sending request|unexpected EOF)"
)


def _describe_interruption(request: _FailedRequest) -> str:
    method = request.extract(r"performing (\w+) ", "a request")
    return f"{request.endpoint} closed the connection during {method}: try again, and check the network and the store"


CAUSES_OF_ALL_STORES: Final[tuple[tuple[str, Describe], ...]] = (
    (r"SlowDown|503 Service Unavailable|429 Too Many", lambda _: "the store limits the request rate: try again later"),
    (INTERRUPTED, _describe_interruption),
    (
        r"InternalError|50[024] \w+",
        lambda request: f"{request.endpoint} failed with an internal error: try again later, and check the store's log",
    ),
)
"""The last of the `CAUSES`, which do not depend on the kind of the store."""

CAUSES: Final[tuple[tuple[str, Describe], ...]] = (
    (
        "NoSuchBucket",
        lambda request: f"the bucket does not exist at {request.endpoint}: create it, or correct --table-root",
    ),
    (
        "URL scheme is not allowed",
        lambda request: (
            f"{request.endpoint} is not encrypted: use https, or accept it with AWS_ALLOW_HTTP=true or"
            " --storage-option allow_http=true"
        ),
    ),
    (r'failed to parse \\?"', _describe_invalid_option),
    (r"an error occurred while loading credentials", _describe_unloadable_credentials),
    (
        r"no credentials found in chain|credential provider was not enabled|//169\.254\.169\.254/|"
        r"/latest/(?:api/token|meta-data)",
        _describe_missing_credentials,
    ),
    ("InvalidAccessKeyId", _describe_unknown_key),
    (
        "SignatureDoesNotMatch",
        lambda _: (
            "the secret access key does not belong to the access key ID: correct AWS_SECRET_ACCESS_KEY or"
            " --storage-option aws_secret_access_key=…"
        ),
    ),
    (
        "ExpiredToken|TokenRefreshRequired",
        lambda _: "the session token has expired: renew AWS_SESSION_TOKEN or the credentials of AWS_PROFILE",
    ),
    (
        "InvalidToken",
        lambda _: "the store rejects the session token: correct or unset AWS_SESSION_TOKEN",
    ),
    ("RequestTimeTooSkewed", lambda _: "the clock of this machine differs from the store's: synchronize it"),
    (
        r"PermanentRedirect|301 Moved|AuthorizationHeaderMalformed|IllegalLocationConstraint|"
        r"[Rr]eceived redirect without LOCATION",
        _describe_region,
    ),
    (r"AccessDenied|403 Forbidden|401 Unauthorized|lacked the necessary privileges", _describe_denied_access),
    (
        "InvalidContentType|wrong version number",
        lambda request: (
            f"{request.endpoint} does not support TLS: use http:// in AWS_ENDPOINT_URL, with AWS_ALLOW_HTTP=true"
        ),
    ),
    (
        r"invalid peer certificate|certificate verify failed",
        lambda request: f"the certificate of {request.endpoint} is not trusted: set AWS_CA_BUNDLE to its CA's file",
    ),
    (r"client error \(Connect\)|dns error|Connection refused|operation timed out", _describe_connection),
    *CAUSES_OF_ALL_STORES,
)
"""Patterns of error messages with functions that describe the cause and the remedy; the first match counts."""

TRANSIENT: Final = re.compile(
    r"client error \(Connect\)|dns error|Connection refused|operation timed out|SlowDown|InternalError|50[0234] \w+"
    rf"|429 Too Many|{INTERRUPTED}"
)


def build_storage_error(uri: str, error: object, options: Mapping[str, str] | None = None) -> TableStorageError:
    """Return an error with a one-line message for a failed request to an object store."""
    known = find_known_cause(uri, error, options)
    return known or TableStorageError(f"{uri}: {summarize_storage_error(str(error))}")


def find_known_cause(uri: str, error: object, options: Mapping[str, str] | None = None) -> TableStorageError | None:
    """Return an error with the cause and the remedy of a failed request, or None if the cause is unknown."""
    text = _join_lines(str(error))
    request = _FailedRequest(extract_bucket_uri(uri), text, options or {})
    for pattern, describe in CAUSES if is_s3(uri) else CAUSES_OF_ALL_STORES:
        if re.search(pattern, text):
            kind = TableStorageError if TRANSIENT.search(text) else TableStorageAccessError
            return kind(f"{request.location}: {describe(request)}")
    return None


def summarize_storage_error(text: str) -> str:
    """Return delta-rs's error message in one line, without escape codes, backtraces and XML."""
    message = MEASURED_TIME.sub("", APPENDIX.sub("", _join_lines(text))).strip(" :-")
    code = re.search(r"<Code>(\w+)</Code>", text)
    if code is not None and code[1] not in message:
        message = f"{message}: {code[1]}"
    message = TREE_PREFIX.sub("", message) or "unknown error"
    return message if len(message) <= MESSAGE_CHARACTERS_MAX else f"{message[: MESSAGE_CHARACTERS_MAX - 1]}…"


def extract_bucket_uri(uri: str) -> str:
    """Return the URI of a table's bucket, such as `s3://lake`."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"


def _join_lines(text: str) -> str:
    """Join the lines of delta-rs's error tree with colons."""
    plain = ESCAPE_CODE.sub("", text)
    return " ".join(re.sub(r"\s*\n\s*↳\s*", ": ", plain).split())


@contextmanager
def convert_storage_errors(uri: str, options: Mapping[str, str] | None) -> Iterator[None]:
    """Convert errors of requests to an object store to TableStorageErrors.

    Raises:
        FileNotFoundError: An object does not exist.
        TableStorageError: A request failed for another reason.
    """
    try:
        yield
    except TableStorageError:
        raise
    except FileNotFoundError as error:
        if "NoSuchBucket" in str(error):
            raise build_storage_error(uri, error, options) from error
        raise FileNotFoundError(f"{uri}: {summarize_storage_error(str(error))}") from error
    except OSError as error:
        raise build_storage_error(uri, error, options) from error
