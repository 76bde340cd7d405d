"""Single sign-on through OpenID Connect: the authorization code flow with PKCE, as its client (relying party)."""
