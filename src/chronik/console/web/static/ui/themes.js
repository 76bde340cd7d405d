// The theme: light, dark, or the system's.

import { fill } from "./dom.js";
import { icon } from "./icons.js";
import { press } from "./parts.js";

const ORDER = ["system", "light", "dark"];
const GLYPHS = { system: "system", light: "sun", dark: "moon" };
const KEY = "chronik-theme";

export const theme = () => document.documentElement.dataset.theme ?? "system";

export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // Without local storage, the choice applies to this visit only.
  }
  return next;
}

export function themeButton() {
  const element = press("colours", { class: "icon-button" });
  const show = () => {
    const name = `Theme: ${theme()}`;
    element.setAttribute("aria-label", name);
    element.setAttribute("title", name);
    fill(element, icon(GLYPHS[theme()]));
  };
  element.addEventListener("click", () => (nextTheme(), show()));
  show();
  return element;
}
