// Short notifications about completed actions, also announced by screen readers.

import { h } from "./dom.js";
import { icon } from "./icons.js";

const SHOWN_MS = 6_000;
const SHOWN_MAX = 3;
const region = h("div", { class: "toasts", role: "status", "aria-live": "polite" });

export function say(text, tone = "ok") {
  // An open modal dialog covers everything except its own content.
  (document.querySelector("dialog[open]") ?? document.body).append(region);
  const toast = h("p", { class: `toast toast-${tone}` }, icon(tone === "error" ? "error" : "check"), text);
  region.append(toast);
  while (region.children.length > SHOWN_MAX) region.firstChild.remove();
  setTimeout(() => toast.remove(), SHOWN_MS);
}

document.body.append(region);
