// The login page.

import { post } from "../api.js";
import { fill, h } from "../ui/dom.js";
import { field } from "../ui/forms.js";
import { button, problem } from "../ui/parts.js";
import { themeButton } from "../ui/themes.js";

export function loginPage(session, entered) {
  const byToken = session.login_with === "token";
  const user = field("username", "User", { required: !byToken, autocomplete: "username", autofocus: true });
  const password = field("password", byToken ? "Token" : "Password", { type: "password", required: true, autocomplete: "current-password" });
  const status = h("div", { "aria-live": "polite" });
  const go = button("log-in", "Log in", null, { tone: session.single_sign_on ? "" : "primary", type: "submit" });
  const form = h("form", { class: "form login-form", onsubmit: submit, "aria-label": "Log in" }, byToken ? null : user.node, password.node, status, go);
  const provider =
    session.single_sign_on &&
    h(
      "a",
      { class: "button button-primary login-provider", href: `${session.single_sign_on}?${new URLSearchParams({ return: location.hash })}` },
      "Log in with single sign-on",
    );
  const about = session.node_id === null || session.node_id === undefined ? "" : `Node ${session.node_id}`;
  setTimeout(() => (byToken ? password : user).input.focus());

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    fill(status);
    try {
      await post("/login", { username: user.read(), password: password.read() });
      await entered();
    } catch (error) {
      fill(status, problem(error));
      password.input.value = "";
      password.input.focus();
      go.disabled = false;
    }
  }

  return h(
    "main",
    { class: "login" },
    h(
      "div",
      { class: "card login-card" },
      h(
        "div",
        { class: "login-head" },
        h("img", { src: "/ui/icon.svg", alt: "", width: 44, height: 44 }),
        h("div", {}, h("h1", {}, "Chronik"), h("p", { class: "muted" }, about)),
        themeButton(),
      ),
      provider,
      form,
      h(
        "p",
        { class: "muted small" },
        byToken ? "Log in with the node’s http_token." : "Log in with a Kafka (SCRAM) user. Your ACLs determine what you can see and do.",
      ),
    ),
  );
}
