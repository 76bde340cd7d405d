"""Validation of JSON Web Tokens: signature and claims.

The library joserfc verifies the signature; this module checks the claims as Kafka does. The library is imported with
the first token, because most nodes never receive one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from chronik.security.sasl.jwks import JwksCache
from chronik.security.sasl.outcomes import InvalidToken, ValidToken

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
)  # fmt: skip
"""Accepted signature algorithms, all asymmetric. With a symmetric algorithm the public key would be the signing key;
with "none" there is no signature."""

CLAIM_SECONDS_MAX: Final = 2**40
"""Maximum value of a time claim, in seconds since the epoch."""


class TokenValidator(Protocol):
    """The interface of a function that validates OAuth bearer tokens."""

    def __call__(self, token: str) -> ValidToken:
        """Validate the token; called in a thread.

        Raises:
            InvalidToken: The token is invalid.
            KeysLoading: The keys are being loaded.
            KeysUnavailable: The keys could not be loaded.
        """


class TokenSettings(msgspec.Struct, frozen=True):
    """Settings of token validation, from Kafka's `sasl.oauthbearer.*` configs."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    """Accepted audiences, one of which the token must name; empty to accept any audience."""
    skew_seconds: int = 30
    sub_claim: str = "sub"
    scope_claim: str = "scope"


class JwtValidator:
    """A validator of signed JSON Web Tokens."""

    def __init__(self, settings: TokenSettings, keys: JwksCache, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._keys = keys
        self._now_ms = now_ms

    def __call__(self, token: str) -> ValidToken:
        """Validate the token. The message of InvalidToken contains no part of the token."""
        claims = self.read_claims(token)
        settings = self._settings
        user = claims.get(settings.sub_claim)
        if not isinstance(user, str) or not user.strip() or not _is_encodable(user):
            raise InvalidToken(f"missing or invalid claim {settings.sub_claim}")
        scopes = claims.get(settings.scope_claim)
        scope_names = frozenset(scopes.split()) if isinstance(scopes, str) else _to_string_set(scopes)
        return ValidToken(user.strip(), int(claims["exp"] * 1000), scope_names)

    def read_claims(self, token: str) -> dict[str, Any]:
        """Return the claims of a token with a valid signature, issuer, audience and time.

        Raises:
            InvalidToken: The token is invalid. The message contains no part of the token.
            KeysLoading: The keys are being loaded.
            KeysUnavailable: The keys could not be loaded.
        """
        claims = self._decode_claims(token)
        self._check_times(claims)
        settings = self._settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise InvalidToken("wrong issuer")
        if settings.audiences and not settings.audiences & _to_string_set(claims.get("aud")):
            raise InvalidToken("wrong audience")
        return claims

    def _decode_claims(self, token: str) -> dict[str, Any]:
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid")
            if kid is not None and not isinstance(kid, str):
                raise InvalidToken("invalid header")
            key = self._keys.find_key(kid)
            if key is None:
                raise InvalidToken("signed with an unknown key")
            return dict(jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims)
        except InvalidToken:
            raise
        except JoseError as error:
            raise InvalidToken(type(error).__name__) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidToken(f"malformed token: {type(error).__name__}") from None

    def _check_times(self, claims: dict[str, Any]) -> None:
        now, skew = self._now_ms() / 1000, self._settings.skew_seconds
        if _read_seconds_claim(claims, "exp") + skew <= now:
            raise InvalidToken("expired")
        if _read_seconds_claim(claims, "iat") - skew > now:
            raise InvalidToken("issued in the future")
        if "nbf" in claims and _read_seconds_claim(claims, "nbf") - skew > now:
            raise InvalidToken("not valid yet")


def _read_seconds_claim(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= CLAIM_SECONDS_MAX:
        raise InvalidToken(f"missing or invalid claim {name}")
    return value


def _is_encodable(text: str) -> bool:
    """Return whether the text can be encoded as UTF-8. JSON strings may contain lone surrogates, which cannot."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _to_string_set(value: object) -> frozenset[str]:
    found = value if isinstance(value, list) else [value]
    return frozenset(each for each in found if isinstance(each, str))
