"""Whether a JSON Web Token is to be believed: its signature, and what it says of itself.

The signature is joserfc's work, which is kept up; here is what Kafka asks of the claims. It is loaded with the first
token, since most nodes never see one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from chronik.security.sasl.jwks import KeySource
from chronik.security.sasl.outcomes import TokenRefused, ValidToken

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"
)  # fmt: skip
"""Those with which only the issuer can sign. With others the key that everybody can read would sign, or none."""

SECONDS_MAX: Final = 2**40
"""A time beyond it is none."""


class TokenValidator(Protocol):
    def __call__(self, token: str) -> ValidToken:
        """Is called in a thread. Raises TokenRefused, and KeysAwaited or KeysUnavailable."""


class TokenSettings(msgspec.Struct, frozen=True):
    """Kafka's `sasl.oauthbearer.*`."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    """One of these must be meant; none: whoever."""
    skew_seconds: int = 30
    sub_claim: str = "sub"
    scope_claim: str = "scope"


class JwtValidator:
    def __init__(self, settings: TokenSettings, keys: KeySource, now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._keys = keys
        self._now_ms = now_ms

    def __call__(self, token: str) -> ValidToken:
        """Raises TokenRefused, with a reason that holds nothing of the token, and KeysAwaited or KeysUnavailable."""
        claims = self._claims(token)
        self._check_times(claims)
        settings = self._settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused("it is of another issuer")
        if settings.audiences and not settings.audiences & _texts(claims.get("aud")):
            raise TokenRefused("it is meant for others")
        user = claims.get(settings.sub_claim)
        if not isinstance(user, str) or not user.strip() or not _is_unicode(user):
            raise TokenRefused(f"it has no {settings.sub_claim}")
        scopes = claims.get(settings.scope_claim)
        named = frozenset(scopes.split()) if isinstance(scopes, str) else _texts(scopes)
        return ValidToken(user.strip(), int(claims["exp"] * 1000), named)

    def _claims(self, token: str) -> dict[str, Any]:
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid")
            if kid is not None and not isinstance(kid, str):
                raise TokenRefused("its header is none")
            key = self._keys.key(kid)
            if key is None:
                raise TokenRefused("it is signed with a key that nobody knows")
            return dict(jwt.decode(token, key, algorithms=list(ALGORITHMS)).claims)
        except TokenRefused:
            raise
        except JoseError as error:
            raise TokenRefused(type(error).__name__) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise TokenRefused(f"it cannot be read: {type(error).__name__}") from None

    def _check_times(self, claims: dict[str, Any]) -> None:
        now, skew = self._now_ms() / 1000, self._settings.skew_seconds
        if _seconds(claims, "exp") + skew <= now:
            raise TokenRefused("it has expired")
        if _seconds(claims, "iat") - skew > now:
            raise TokenRefused("it was issued in the future")
        if "nbf" in claims and _seconds(claims, "nbf") - skew > now:
            raise TokenRefused("it is not valid yet")


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
        raise TokenRefused(f"it has no {name}")
    return value


def _is_unicode(text: str) -> bool:
    """JSON can name half a character, which nothing that is sent or kept could hold."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _texts(value: object) -> frozenset[str]:
    found = value if isinstance(value, list) else [value]
    return frozenset(each for each in found if isinstance(each, str))
