// An OpenID Connect provider for the tests of the console, with its development login pages: any name and password is accepted.
// Usage: node provider.mjs PORT CONSOLE_URL. Prints "ready" when it accepts connections.

import { Provider } from "oidc-provider";

const [port, consoleUrl] = process.argv.slice(2);
const provider = new Provider(`http://localhost:${port}`, {
  clients: [
    {
      client_id: "chronik-console",
      client_secret: "a secret/with+special=characters",
      redirect_uris: [`${consoleUrl}/login/oidc/callback`],
      post_logout_redirect_uris: [`${consoleUrl}/`],
      token_endpoint_auth_method: "client_secret_basic",
    },
  ],
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  conformIdTokenClaims: false,
  cookies: { keys: ["a key for tests"] },
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: `${id}@example.com`, email_verified: true }),
  }),
  pkce: { required: () => true },
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
