"""Check that an object store supports conditional writes (PUT with If-None-Match), on which commits depend.

Two drivers that commit the same table version write the same log entry, and the store must reject the second one. A
store that ignores the condition overwrites the first entry, and its rows are lost without an error. Therefore a process
writes a probe object twice before its first write to a table root; the second write must fail.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from chronik.errors import ConfigError
from chronik.pipeline.tables.storage_errors import (
    TableStorageAccessError,
    build_storage_error,
    summarize_storage_error,
)
from chronik.pipeline.tables.storage_options import (
    ALLOW_HTTP,
    CERTIFICATE_PATH,
    LOAD_WITH_SDK,
    is_s3,
    is_true,
)
from chronik.wording import format_install_hint

logger = logging.getLogger("chronik.pipeline")

PROBE_PREFIX: Final = "_chronik_probe-"
"""Prefix of the probe object's name in the table root. It contains no `/`, so that it never looks like a table."""

PROBE_RETRIES_MAX: Final = 3

STORE_OPTIONS: Final = frozenset(
    {
        "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region", "aws_endpoint_url",
        "aws_skip_signature", "aws_virtual_hosted_style_request", "aws_conditional_put", "aws_unsigned_payload",
        "aws_checksum_algorithm", "aws_request_payer", "aws_s3_express", "aws_server_side_encryption",
        "aws_sse_kms_key_id", "aws_sse_bucket_key_enabled", "aws_sse_customer_key_base64",
    }
)  # fmt: skip
"""Object store options that the probe passes on: those of delta-rs that its client supports."""

CLIENT_OPTIONS: Final = frozenset(
    {"connect_timeout", "proxy_ca_certificate", "proxy_excludes", "proxy_url", "timeout", "user_agent"}
)
"""HTTP client options that the probe passes on."""

_checked_roots: set[str] = set()


def require_conditional_writes(root: str, options: Mapping[str, str]) -> None:
    """Check once per process that the store of an S3 root rejects a conditional write to an existing object.

    Raises:
        TableStorageAccessError: The store ignores or rejects conditional writes, or denies access.
        TableStorageError: A request failed.
        ConfigError: obstore is not installed, or an option is invalid.
    """
    if not is_s3(root) or root in _checked_roots:
        return
    if LOAD_WITH_SDK in options:
        # Only delta-rs can load these credentials; they are those of AWS, whose S3 supports conditional writes.
        logger.debug("%s: conditional writes not checked: credentials are loaded by the AWS SDK", root)
    else:
        _write_probe_twice(root, options)
    _checked_roots.add(root)


def _write_probe_twice(root: str, options: Mapping[str, str]) -> None:
    try:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError
    except ImportError as error:
        hint = format_install_hint("spark")
        raise ConfigError(f"{root}: obstore, which checks the store, is not installed: {hint}") from error

    path = f"{PROBE_PREFIX}{uuid.uuid4().hex}"
    try:
        store = _open_store(root, options)
        try:
            obstore.put(store, path, b"", mode="create")
            obstore.put(store, path, b"", mode="create")
        except AlreadyExistsError:
            return
        finally:
            # Without the permission to delete it, the empty object remains.
            with suppress(BaseError, OSError):
                obstore.delete(store, path)
    except NotImplementedError as error:
        raise TableStorageAccessError(
            f"{root}: conditional writes are disabled: remove the storage option aws_conditional_put"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{root}: {str(error).splitlines()[0]}") from error
    except (BaseError, OSError) as error:
        if "501 Not Implemented" in str(error) or "NotImplemented" in str(error):
            raise _build_unsupported_error(root, f"rejects them ({summarize_storage_error(str(error))})") from error
        raise build_storage_error(root, error, options) from error
    raise _build_unsupported_error(root, "overwrote an object despite If-None-Match")


def _build_unsupported_error(root: str, observation: str) -> TableStorageAccessError:
    return TableStorageAccessError(
        f"{root}: the store does not support conditional writes: it {observation}; concurrent pipelines would lose"
        " rows: use a store that supports PUT with If-None-Match"
    )


def _open_store(root: str, options: Mapping[str, str]) -> Any:
    from obstore.store import S3Store

    client: dict[str, Any] = {name: value for name, value in options.items() if name in CLIENT_OPTIONS}
    if is_true(options.get(ALLOW_HTTP)):
        client["allow_http"] = True
    if certificate := options.get(CERTIFICATE_PATH):
        client["root_certificate"] = Path(certificate).read_bytes()
    return S3Store.from_url(
        root.replace("s3a://", "s3://", 1),
        config={name: value for name, value in options.items() if name in STORE_OPTIONS},
        client_options=client,
        retry_config={"max_retries": PROBE_RETRIES_MAX, "retry_timeout": timedelta(seconds=30)},
    )
