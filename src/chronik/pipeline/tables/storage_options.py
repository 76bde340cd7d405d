"""Storage options of S3 locations: given ones, completed from the AWS environment variables and profile files.

Delta-rs reads the environment of its own process only, ignores profiles if an endpoint is set, and never reads a
profile's region and endpoint. Therefore the driver resolves all options once, and passes them to its tasks. Credentials
that expire (assumed roles, web identity, instance metadata) are not resolved here: each process loads them with the AWS
SDK of delta-rs.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chronik.errors import ConfigError
from chronik.wording import find_closest_name

S3_SCHEMES: Final = ("s3", "s3a")

ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
REGION, ENDPOINT_URL, ALLOW_HTTP = "aws_region", "aws_endpoint_url", "aws_allow_http"
PROFILE, SKIP_SIGNATURE, CERTIFICATE_PATH = "aws_profile", "aws_skip_signature", "certificate_path"
VIRTUAL_HOSTED_STYLE = "aws_virtual_hosted_style_request"

LOAD_WITH_SDK: Final = "aws_force_credential_load"
"""Option with which delta-rs loads credentials with the AWS SDK, even if an endpoint is set."""

ICEBERG_CATALOG: Final = "iceberg_catalog"
"""Option with the URL of the Iceberg catalog, which is passed with those of the object store to all processes."""

ALIASES: Final = {
    "access_key_id": ACCESS_KEY_ID,
    "secret_access_key": SECRET_ACCESS_KEY,
    "session_token": SESSION_TOKEN,
    "token": SESSION_TOKEN,
    "aws_token": SESSION_TOKEN,
    "region": REGION,
    "default_region": REGION,
    "aws_default_region": REGION,
    "endpoint": ENDPOINT_URL,
    "endpoint_url": ENDPOINT_URL,
    "aws_endpoint": ENDPOINT_URL,
    "allow_http": ALLOW_HTTP,
    "profile": PROFILE,
    "skip_signature": SKIP_SIGNATURE,
}
"""Alternative names of options that delta-rs accepts, with the names that Chronik uses."""

ENVIRONMENT_VARIABLES: Final = {
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
    "AWS_ENDPOINT_URL_S3": ENDPOINT_URL,
    "AWS_ENDPOINT_URL": ENDPOINT_URL,
    "AWS_ALLOW_HTTP": ALLOW_HTTP,
    "AWS_SKIP_SIGNATURE": SKIP_SIGNATURE,
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": VIRTUAL_HOSTED_STYLE,
    "AWS_CA_BUNDLE": CERTIFICATE_PATH,
}
"""Environment variables that set storage options. If several set the same option, the first one applies."""

SDK_VARIABLES: Final = (
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
)
"""Environment variables of the AWS SDK that a task needs to load the same credentials as the driver."""

GOOGLE_VARIABLES: Final = {
    "GOOGLE_APPLICATION_CREDENTIALS": "google_application_credentials",
    "GOOGLE_SERVICE_ACCOUNT": "google_service_account",
    "GOOGLE_SERVICE_ACCOUNT_PATH": "google_service_account_path",
    "GOOGLE_SERVICE_ACCOUNT_KEY": "google_service_account_key",
}
"""Environment variables that set the storage options of `gs://` locations."""

AZURE_VARIABLES: Final = {
    "AZURE_STORAGE_ACCOUNT_NAME": "azure_storage_account_name",
    "AZURE_STORAGE_ACCOUNT_KEY": "azure_storage_account_key",
    "AZURE_STORAGE_SAS_KEY": "azure_storage_sas_key",
    "AZURE_STORAGE_TOKEN": "azure_storage_token",
    "AZURE_STORAGE_CLIENT_ID": "azure_storage_client_id",
    "AZURE_STORAGE_CLIENT_SECRET": "azure_storage_client_secret",
    "AZURE_STORAGE_TENANT_ID": "azure_storage_tenant_id",
    "AZURE_CLIENT_ID": "azure_client_id",
    "AZURE_CLIENT_SECRET": "azure_client_secret",
    "AZURE_TENANT_ID": "azure_tenant_id",
    "AZURE_AUTHORITY_HOST": "azure_authority_host",
    "AZURE_FEDERATED_TOKEN_FILE": "azure_federated_token_file",
    "AZURE_STORAGE_USE_EMULATOR": "azure_storage_use_emulator",
}
"""Environment variables that set the storage options of `abfss://` locations."""

OTHER_STORES: Final = {
    "gs": GOOGLE_VARIABLES,
    "abfs": AZURE_VARIABLES,
    "abfss": AZURE_VARIABLES,
    "az": AZURE_VARIABLES,
}
"""Environment variables by the scheme of the locations for which they set storage options."""

KNOWN_OPTIONS: Final = frozenset(
    {
        ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN, REGION, ENDPOINT_URL, ALLOW_HTTP, PROFILE, SKIP_SIGNATURE,
        LOAD_WITH_SDK, CERTIFICATE_PATH, ICEBERG_CATALOG, *ALIASES, *(name.lower() for name in SDK_VARIABLES),
        *ENVIRONMENT_VARIABLES.values(), "virtual_hosted_style_request", "aws_conditional_put", "conditional_put",
        "aws_copy_if_not_exists", "copy_if_not_exists", "aws_imdsv1_fallback", "aws_metadata_endpoint",
        "aws_unsigned_payload", "aws_checksum_algorithm", "aws_disable_tagging", "aws_request_payer", "aws_s3_express",
        "aws_container_credentials_relative_uri", "aws_container_credentials_full_uri",
        "aws_container_authorization_token_file", "aws_iam_role_arn", "aws_iam_role_session_name",
        "aws_server_side_encryption", "aws_sse_kms_key_id", "aws_sse_bucket_key_enabled",
        "aws_sse_customer_key_base64", "timeout", "connect_timeout", "pool_idle_timeout", "pool_max_idle_per_host",
        "proxy_url", "proxy_ca_certificate", "proxy_excludes", "user_agent", "max_retries", "retry_timeout",
        "max_buffer_size",
    }
)  # fmt: skip
"""Options of S3 locations, for spelling suggestions; delta-rs ignores unknown ones without a message."""

SIMILARITY_OF_TYPOS_MIN: Final = 0.85

_replaced_variables: dict[str, str | None] = {}
"""Environment variables that this process has set for the AWS SDK, with their previous values."""


class ResolvedOptions(dict[str, str]):
    """Complete storage options, which tasks use as they are."""


def is_s3(uri: str) -> bool:
    return urlsplit(uri).scheme in S3_SCHEMES


def is_object_store(uri: str) -> bool:
    """Return whether the URI has the scheme of a supported object store."""
    return urlsplit(uri).scheme in (*S3_SCHEMES, *OTHER_STORES)


def resolve_storage_options(
    uri: str, given: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> ResolvedOptions:
    """Return the complete storage options of a location; for S3, with those of the environment and the profile.

    Given options take precedence over environment variables, and those over the profile.

    Raises:
        ConfigError: An option is misspelled or missing, or the profile is not defined, invalid or not supported.
    """
    if isinstance(given, ResolvedOptions):
        return given
    environment = _read_environment() if environment is None else environment
    if not is_s3(uri):
        variables = OTHER_STORES.get(urlsplit(uri).scheme, {})
        found = {option: environment[name] for name, option in variables.items() if environment.get(name)}
        return ResolvedOptions(found | {name.lower(): value for name, value in (given or {}).items()})
    options = normalize_option_names(given or {})
    _check_spelling(uri, options)
    if (ACCESS_KEY_ID in options) != (SECRET_ACCESS_KEY in options):
        raise ConfigError(f"{uri}: give both storage options, {ACCESS_KEY_ID} and {SECRET_ACCESS_KEY}, or none of them")
    for variable, option in ENVIRONMENT_VARIABLES.items():
        if value := environment.get(variable):
            options.setdefault(option, value)
    if PROFILE not in options and ACCESS_KEY_ID not in options:
        _add_credentials(options, {name.lower(): value for name, value in environment.items()})
    profile = _read_profile(options.get(PROFILE), environment)
    if region := profile.get("region"):
        options.setdefault(REGION, region)
    if endpoint := profile.get("endpoint_url"):
        options.setdefault(ENDPOINT_URL, endpoint)
    _check_values(uri, options)
    if ACCESS_KEY_ID not in options and "role_arn" not in profile:
        _add_credentials(options, profile)
    if ACCESS_KEY_ID in options:
        options.pop(PROFILE, None)
    elif not is_true(options.get(SKIP_SIGNATURE)):
        _check_profile_kind(uri, profile)
        options[LOAD_WITH_SDK] = "true"
        for variable in SDK_VARIABLES:
            if value := environment.get(variable):
                options.setdefault(variable.lower(), value)
    return options


def normalize_option_names(given: Mapping[str, str]) -> ResolvedOptions:
    """Return options with lower-case names, and one name for each option that has several."""
    return ResolvedOptions({ALIASES.get(name.lower(), name.lower()): value for name, value in given.items()})


def to_delta_options(options: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return resolved options as delta-rs expects them, and prepare this process to load expiring credentials."""
    own = dict(options or {})
    own.pop(ICEBERG_CATALOG, None)
    _export_sdk_variables(own)
    if not os.path.exists(own.get(CERTIFICATE_PATH, os.devnull)):
        del own[CERTIFICATE_PATH]  # of the driver's machine; this one may trust the store anyway
    return own or None


def _export_sdk_variables(options: Mapping[str, str]) -> None:
    """Set the environment variables from which the AWS SDK in this process loads the driver's credentials."""
    if LOAD_WITH_SDK in options:
        for variable in SDK_VARIABLES:
            value = options.get(variable.lower())
            if value and os.environ.get(variable) != value:
                _replaced_variables.setdefault(variable, os.environ.get(variable))
                os.environ[variable] = value


def _read_environment() -> dict[str, str]:
    """Return the environment variables without those that `_export_sdk_variables` has set for another location."""
    return {name: value for name, value in (dict(os.environ) | _replaced_variables).items() if value is not None}


def _add_credentials(options: dict[str, str], source: Mapping[str, str]) -> None:
    """Add the credentials of one source, since an access key and a session token of different sources do not match."""
    if source.get(ACCESS_KEY_ID) and source.get(SECRET_ACCESS_KEY):
        for name in (ACCESS_KEY_ID, SECRET_ACCESS_KEY, SESSION_TOKEN):
            if value := source.get(name):
                options[name] = value


def _check_spelling(uri: str, options: Iterable[str]) -> None:
    for name in options:
        if name not in KNOWN_OPTIONS:
            known = find_closest_name(name, KNOWN_OPTIONS, SIMILARITY_OF_TYPOS_MIN)
            if known is not None:
                raise ConfigError(f"{uri}: unknown storage option {name}; did you mean {known}?")


def _check_values(uri: str, options: Mapping[str, str]) -> None:
    """Raise ConfigError for values with which delta-rs would crash or report no cause."""
    endpoint = options.get(ENDPOINT_URL, "https://")
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"{uri}: invalid {ENDPOINT_URL}={endpoint}: expected http://HOST:PORT or https://HOST:PORT")
    certificate = options.get(CERTIFICATE_PATH, os.devnull)
    if not os.path.exists(certificate):
        raise ConfigError(f"{uri}: {CERTIFICATE_PATH}={certificate} does not exist: correct it or AWS_CA_BUNDLE")


def is_true(text: str | None) -> bool:
    return (text or "").strip().lower() in ("1", "true", "yes", "on", "y")


# Profile files


def _check_profile_kind(uri: str, profile: Mapping[str, str]) -> None:
    """Raise ConfigError for a profile whose credentials the AWS SDK of delta-rs cannot load."""
    if profile.keys() & {"sso_session", "sso_start_url"} and "role_arn" not in profile:
        raise ConfigError(
            f"{uri}: AWS profiles of IAM Identity Center are not supported: set the variables that"
            " `aws configure export-credentials --format env` prints"
        )


def _read_profile(named: str | None, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a profile in the AWS config and credentials files.

    Raises:
        ConfigError: The profile is named but not defined, or a file is invalid.
    """
    name = named or environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE")
    home = Path(environment.get("HOME") or Path.home())
    config = Path(environment.get("AWS_CONFIG_FILE") or home / ".aws" / "config").expanduser()
    credentials = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / ".aws" / "credentials").expanduser()
    section = name or "default"
    in_config = _read_sections(config)
    sections = [
        in_config.get(f"profile {section}"),
        in_config.get("default") if section == "default" else None,
        _read_sections(credentials).get(section),
    ]
    found = [each for each in sections if each is not None]
    if not found and name is not None:
        raise ConfigError(f"AWS profile {name} is not defined in {config} or {credentials}: correct AWS_PROFILE")
    return {key: value for each in found for key, value in each.items()}


def _read_sections(path: Path) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser(default_section="", strict=False, inline_comment_prefixes=("#", ";"))
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except OSError:
        return {}
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: invalid AWS profile file: {str(error).splitlines()[0]}") from None
    return {name: dict(parser.items(name)) for name in parser.sections()}
