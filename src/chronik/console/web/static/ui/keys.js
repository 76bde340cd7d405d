// Keyboard shortcuts: Ctrl-K opens the palette, / searches, ? shows the shortcuts, g and a letter opens a page.

import { go } from "../router.js";
import { dialog } from "./dialog.js";
import { fill, h } from "./dom.js";
import { openPalette } from "./palette.js";

const PLACES = { o: "overview", t: "topics", g: "groups", c: "schemas", x: "transactions", n: "nodes", s: "security", d: "tables" };
const TYPING = "input:not([type=checkbox]), textarea, select, dialog";
const KEYS = [
  ["Ctrl K", "go to a page, topic, group, node or action"],
  ["/", "search on this page"],
  ["Escape", "close a dialog or leave a field"],
  ["g then o, t, g, c, x, n, s, d", "go to overview, topics, groups, schemas, transactions, nodes, security, tables"],
  ["?", "show these shortcuts"],
];

export function openHelp() {
  const { body } = dialog("Keyboard shortcuts");
  fill(
    body,
    h(
      "dl",
      { class: "keys" },
      KEYS.map(([key, text]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text))),
    ),
  );
}

export function installKeys() {
  let waiting = 0;
  const heard = (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.key === "Escape" && event.target.matches?.("input, textarea") && !event.target.closest("dialog")) event.target.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.(TYPING)) return;
    if (event.key === "/") {
      event.preventDefault();
      const search = /** @type {HTMLElement} */ (document.querySelector("main [data-search]"));
      if (search) search.focus();
      else openPalette();
    } else if (event.key === "?") openHelp();
    else if (event.key === "g" && Date.now() - waiting > 1000) waiting = Date.now();
    else if (PLACES[event.key] && Date.now() - waiting < 1000) {
      waiting = 0;
      go(PLACES[event.key]);
    }
  };
  document.addEventListener("keydown", heard);
  return () => document.removeEventListener("keydown", heard);
}
