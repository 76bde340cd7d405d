"""Detection and settings of S3A, Hadoop's S3 client, with which Spark's Parquet reader reads tables on S3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from chronik.pipeline.tables.storage_options import (
    ACCESS_KEY_ID,
    ENDPOINT_URL,
    REGION,
    SECRET_ACCESS_KEY,
    SESSION_TOKEN,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3A_CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
CREDENTIALS_PROVIDERS: Final = {
    False: "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    True: "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
}
"""S3A's providers of static credentials, by whether there is a session token."""

_sessions_with_s3a: Final[WeakKeyDictionary[SparkSession, bool]] = WeakKeyDictionary()


def has_s3a(spark: SparkSession) -> bool:
    """Return whether the session's JVM can load S3A; works over Spark Connect too."""
    found = _sessions_with_s3a.get(spark)
    if found is None:
        statement = f"SELECT try_reflect('org.apache.spark.util.Utils', 'classIsLoadable', '{S3A_CLASS}') AS found"
        found = _sessions_with_s3a[spark] = spark.sql(statement).collect()[0]["found"] == "true"
    return found


def to_s3a_uri(uri: str) -> str:
    """Return the URI with the scheme that Hadoop uses for S3."""
    return uri.replace("s3://", "s3a://", 1) if uri.startswith("s3://") else uri


def build_s3a_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return S3A's settings for storage options. Without static credentials, S3A uses its own chain."""
    settings: dict[str, str] = {}
    if ACCESS_KEY_ID in options and SECRET_ACCESS_KEY in options:
        settings["fs.s3a.access.key"] = options[ACCESS_KEY_ID]
        settings["fs.s3a.secret.key"] = options[SECRET_ACCESS_KEY]
        if SESSION_TOKEN in options:
            settings["fs.s3a.session.token"] = options[SESSION_TOKEN]
        settings["fs.s3a.aws.credentials.provider"] = CREDENTIALS_PROVIDERS[SESSION_TOKEN in options]
    if REGION in options:
        settings["fs.s3a.endpoint.region"] = options[REGION]
    if endpoint := options.get(ENDPOINT_URL):
        settings["fs.s3a.endpoint"] = endpoint
        settings["fs.s3a.path.style.access"] = "true"
        settings["fs.s3a.connection.ssl.enabled"] = str(urlsplit(endpoint).scheme != "http").lower()
    return settings
