// Entry point: checks the login, then shows the shell, starts the stream and opens the page of the URL.

import { get, onLoginNeeded } from "./api.js";
import { fill, h } from "./ui/dom.js";
import { forget, listen, live, onState, retry } from "./live.js";
import { closeDialogs } from "./ui/dialog.js";
import { notify, onRoute, parse } from "./router.js";
import { forgetPermissions, loadPermissions } from "./permissions.js";
import { shell } from "./ui/shell.js";
import { loginPage } from "./pages/login.js";
import { waiting } from "./ui/parts.js";

const RETRY_MS = 2_000;
const app = document.getElementById("app");
let frame = null;
let isListening = false;

async function begin() {
  try {
    live.session = await get("/session");
  } catch (error) {
    if (error.status === 401) live.session = { logged_in: false, login_required: true };
    else {
      fill(app, h("main", { class: "alone" }, waiting("The node does not respond. Retrying…")));
      setTimeout(begin, RETRY_MS);
      return;
    }
  }
  if (live.session.login_required && !live.session.logged_in) askWho();
  else {
    await loadPermissions();
    enter();
  }
}

function askWho() {
  if (frame === "login") return;
  frame?.close();
  frame = "login";
  document.title = "Log in · Chronik";
  closeDialogs();
  fill(
    app,
    loginPage(live.session ?? {}, async () => {
      live.session = await get("/session");
      await loadPermissions();
      enter();
      retry();
    }),
  );
}

function enter() {
  frame = shell(leave);
  fill(app, frame.node);
  if (!isListening) {
    isListening = true;
    listen();
    onRoute((route) => frame?.show?.(route));
    onState(() => live.state === "up" && frame?.refresh?.());
  } else retry();
  notify();
}

/** Discards all data in memory after a logout. */
function leave() {
  forget();
  forgetPermissions();
  live.session = { ...live.session, logged_in: false, principal: null };
  if (live.session.login_required) askWho();
  else begin();
}

onLoginNeeded(() => {
  if (frame && frame !== "login") {
    forget();
    forgetPermissions();
    askWho();
  }
});

if (!location.hash) history.replaceState(null, "", "#/overview");
parse();
begin();
