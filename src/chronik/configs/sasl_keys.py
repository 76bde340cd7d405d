"""Kafka's SASL configs that Chronik supports."""

from __future__ import annotations

from typing import Final

from chronik.configs.key_types import UpdateMode, int_key, list_key, long_key, string_key

SASL_KEYS: Final = (
    list_key(
        "sasl.enabled.mechanisms",
        "GSSAPI",
        "The mechanisms that SASL listeners accept: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        scope=UpdateMode.PER_BROKER,
    ),
    long_key("connections.max.reauth.ms", 0, "The time after which a client must reauthenticate; 0 for never."),
    int_key(
        "connection.failed.authentication.delay.ms",
        100,
        "The delay before a failed authentication is reported to the client.",
    ),
    string_key(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The URL of the JWKS that verifies tokens: file://, http:// or https://.",
    ),
    long_key("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "The interval at which the JWKS is reloaded.", 1),
    long_key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "The delay before a failed JWKS reload is retried.", 1
    ),
    list_key("sasl.oauthbearer.expected.audience", "", "The audiences that tokens must name; empty for any audience."),
    string_key(
        "sasl.oauthbearer.expected.issuer", None, "The issuer that tokens must name; any issuer if it is not set."
    ),
    int_key(
        "sasl.oauthbearer.clock.skew.seconds", 30, "The tolerated difference between the clocks of issuer and broker."
    ),
    string_key("sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that contains the user name."),
    string_key("sasl.oauthbearer.scope.claim.name", "scope", "The claim of a token that contains its scopes."),
)
