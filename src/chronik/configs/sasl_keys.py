"""Kafka's configuration keys of SASL that mean something here."""

from __future__ import annotations

from typing import Final

from chronik.configs.kinds import Scope, int_, list_, long, text

SASL_KEYS: Final = (
    list_(
        "sasl.enabled.mechanisms",
        "GSSAPI",
        "How clients of SASL listeners may say who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.",
        scope=Scope.PER_BROKER,
    ),
    long("connections.max.reauth.ms", 0, "How long a client may stay without saying again who it is; 0: for ever."),
    int_("connection.failed.authentication.delay.ms", 100, "How long a client waits to be told that it is refused."),
    text("sasl.oauthbearer.jwks.endpoint.url", None, "The keys of tokens, JWKS: file://, http:// or https://."),
    long("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "How often they are read again.", 1),
    long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "How long not, after they could not be read.", 1),
    list_("sasl.oauthbearer.expected.audience", "", "For whom tokens must be meant; empty: for anybody."),
    text("sasl.oauthbearer.expected.issuer", None, "Who must have issued tokens; unless it is set, anybody."),
    int_("sasl.oauthbearer.clock.skew.seconds", 30, "How far the issuer's clock may be off."),
    text("sasl.oauthbearer.sub.claim.name", "sub", "What in a token names the user."),
    text("sasl.oauthbearer.scope.claim.name", "scope", "What in a token names its scopes."),
)
