// The frame around every page: navigation, the logged-in user, and the connection state.

import { post } from "../api.js";
import { live, onSample, onState, retry } from "../live.js";
import { loadPermissions } from "../permissions.js";
import { link, parse } from "../router.js";
import { append, fill, h, redraw } from "./dom.js";
import * as format from "./format.js";
import { icon } from "./icons.js";
import { closeDialogs } from "./dialog.js";
import { installKeys, openHelp } from "./keys.js";
import { openPalette } from "./palette.js";
import { button, iconButton, notice, press } from "./parts.js";
import { themeButton } from "./themes.js";
import { pageFor, PAGES } from "../pages/index.js";

export function shell(leave) {
  const navigation = h("nav", { class: "nav", "aria-label": "Pages", id: "nav" });
  const bar = h("div", { class: "gone-bar", role: "alert", hidden: true });
  const main = h("main", { id: "main", tabindex: "-1", class: "main" });
  const pulse = h("span", { class: "pulse", role: "status" });
  const menu = iconButton("menu", "Menu", "menu", () => side.classList.toggle("open"), { extra: "menu-button" });
  const side = h("aside", { class: "side-bar", "aria-label": "Chronik" }, brand(), navigation, h("div", { class: "side-foot" }, who(leave)));
  const top = h(
    "header",
    { class: "top-bar" },
    menu,
    h("a", { class: "top-brand", href: "#/overview", "aria-label": "Chronik, overview" }, h("img", { src: "/ui/icon.svg", alt: "", width: 24, height: 24 })),
    press("jump?", { class: "jump", onclick: openPalette }, icon("search"), h("span", {}, "Search or go to…"), h("kbd", {}, "Ctrl K")),
    pulse,
    press(
      "keys?",
      { class: "icon-button help-button", onclick: openHelp, "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)" },
      h("span", { "aria-hidden": "true" }, "?"),
    ),
    themeButton(),
  );
  const skip = h("a", { class: "skip", href: "#main", onclick: (event) => (event.preventDefault(), main.focus()) }, "Skip to content");
  const node = h(
    "div",
    { class: "shell" },
    skip,
    side,
    h("div", { class: "scrim", onclick: () => side.classList.remove("open") }),
    h("div", { class: "stage" }, top, bar, main),
  );
  const drop = [onSample(heard), onState(heard)];
  const timer = setInterval(gone, 1000);
  const keys = installKeys();
  let page = null;
  let current = null;
  let doing = null;
  heard();

  function heard() {
    gone();
    fill(
      pulse,
      h("span", { class: `dot dot-${live.state}`, "aria-hidden": "true" }),
      h("span", { class: "pulse-word" }, { up: "Live", gone: "Offline", waiting: "Connecting", refused: "Not authorized" }[live.state]),
    );
    page?.live?.(live);
  }

  function gone() {
    const away = live.state === "gone";
    bar.hidden = !away;
    document.body.classList.toggle("stale", away);
    if (!away) {
      fill(bar);
      return;
    }
    const age = live.heardMs ? `The data is ${format.duration((Date.now() - live.heardMs) / 1000)} old.` : "";
    if (!bar.firstChild)
      append(
        bar,
        icon("error"),
        h(
          "span",
          {},
          h("strong", {}, `Node ${live.session?.node_id ?? ""} does not respond.`),
          " ",
          h("span", { class: "age", "aria-live": "off" }),
          " Reconnecting automatically.",
        ),
        button("try-now", "Retry now", retry, { small: true }),
      );
    bar.querySelector(".age").textContent = age;
  }

  function show(route) {
    side.classList.remove("open");
    const name = route.parts[0];
    redraw(
      navigation,
      h(
        "ul",
        {},
        PAGES.map(({ id, label }) =>
          h("li", {}, h("a", { href: link(id), "aria-current": id === name ? "page" : undefined, "data-focus": `nav-${id}` }, icon(id), label)),
        ),
      ),
    );
    const path = route.parts.join("\u0000");
    if (current !== null && (current !== path || (doing && doing !== route.params.do))) closeDialogs();
    doing = route.params.do;
    if (current !== path) reloadWhenPermissionsChange(route);
    if (page?.update && current === path) {
      page.update(route.params);
      return;
    }
    page?.close?.();
    page = null;
    const moved = current !== null;
    current = path;
    try {
      page = pageFor(route);
    } catch (error) {
      page = { title: "Not found", node: notice(error.message, "error") };
    }
    document.title = `${page.title} · Chronik`;
    fill(main, page.node);
    page.live?.(live);
    if (!moved) return;
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }

  async function reloadWhenPermissionsChange(route) {
    if (!(await loadPermissions()) || current !== route.parts.join("\u0000")) return;
    current = null;
    show(parse());
  }

  function close() {
    page?.close?.();
    drop.forEach((each) => each());
    clearInterval(timer);
    keys();
    document.body.classList.remove("stale");
  }

  return { node, show, close, refresh: () => page?.refresh?.() };
}

function brand() {
  const { cluster_id: cluster, node_id: id, version } = live.session ?? {};
  return h(
    "div",
    { class: "brand" },
    h("img", { src: "/ui/icon.svg", alt: "", width: 30, height: 30 }),
    h(
      "div",
      {},
      h("a", { href: "#/overview", class: "brand-name" }, "Chronik"),
      h(
        "p",
        { class: "brand-node", title: cluster ? `Cluster ${cluster}` : undefined },
        id === undefined || id === null ? "" : `node ${id}`,
        version ? ` · ${version}` : "",
      ),
    ),
  );
}

function who(leave) {
  const { principal, logged_in: inside } = live.session ?? {};
  const name = (principal ?? "").replace(/^User:/, "");
  const out = async () => {
    let provider = null;
    try {
      provider = (await post("/logout")).provider_url;
    } finally {
      if (provider) location.assign(provider);
      else leave();
    }
  };
  return h(
    "div",
    { class: "who" },
    h("span", { class: "who-name", title: principal ?? "" }, name || "anonymous"),
    inside && button("log-out", "Log out", out, { glyph: "out", small: true, tone: "quiet" }),
  );
}
