// Small components that all pages share.

import { h, hidden, svg } from "./dom.js";
import { icon } from "./icons.js";
import * as format from "./format.js";

export const badge = (text, tone = "plain") => h("span", { class: `badge badge-${tone}` }, text);

export const mono = (text) => h("span", { class: "mono" }, text);

export const number = (value) => h("span", { class: "number" }, format.count(value));

/**
 * A button. `action` names its action; a name with a question mark opens a confirmation dialog. The browser tests press every
 * button, and fail if one has no action or was not pressed.
 */
export const press = (action, props, ...children) => h("button", { type: "button", "data-action": action, ...props }, ...children);

/**
 * @param {string} action
 * @param {string} label
 * @param {((event: Event) => unknown) | null} onclick
 * @param {ButtonOptions} options
 */
export function button(action, label, onclick, { tone = "", glyph, disabled, focus, title, type = "button", small, form } = {}) {
  const props = { type, class: `button ${tone && `button-${tone}`} ${small ? "button-small" : ""}`, onclick, disabled, title, form, "data-focus": focus };
  return press(action, props, glyph && icon(glyph), label);
}

/**
 * @param {string} action
 * @param {string} label
 * @param {string} glyph
 * @param {(event: Event) => unknown} onclick
 * @param {{ focus?: string, extra?: string }} options
 */
export function iconButton(action, label, glyph, onclick, { focus, extra = "" } = {}) {
  return press(action, { class: `icon-button ${extra}`, onclick, "aria-label": label, title: label, "data-focus": focus }, icon(glyph));
}

/** Downloads a file that the server offers as an attachment. */
export function download(location) {
  const link = h("a", { href: location, download: "" });
  document.body.append(link);
  link.click();
  link.remove();
}

export function card(title, props, ...children) {
  const { actions, extra = "", level = 2, id } = props ?? {};
  return h(
    "section",
    { class: `card ${extra}`, id },
    (title || actions) && h("div", { class: "card-head" }, title && h(`h${level}`, {}, title), actions && h("div", { class: "actions" }, actions)),
    children,
  );
}

/** A list of labels and values. */
export function facts(pairs, extra = "") {
  return h(
    "dl",
    { class: `facts ${extra}` },
    pairs.filter(Boolean).map(([name, value, extent]) => h("div", { class: extent }, h("dt", {}, name), h("dd", {}, value ?? "—"))),
  );
}

/**
 * @param {string} title
 * @param {{ lead?: Child, actions?: Child[], back?: { href: string, label: string } }} options
 */
export function pageHead(title, { lead, actions, back } = {}) {
  return h(
    "header",
    { class: "page-head" },
    h(
      "div",
      { class: "page-title" },
      back && h("a", { class: "crumb", href: back.href }, icon("back"), back.label),
      h("h1", {}, title),
      lead && h("p", { class: "lead" }, lead),
    ),
    actions?.length && h("div", { class: "actions" }, actions),
  );
}

const TONES = { error: "error", warning: "warning", info: "info", ok: "check" };

export function notice(text, tone = "info", more) {
  return h("p", { class: `notice notice-${tone}`, role: tone === "error" ? "alert" : undefined }, icon(TONES[tone] ?? "info"), h("span", {}, text, more));
}

/** The label of something that the principal may not see. `permission` is what is missing, such as "Read on this topic". */
export const hiddenNotice = (permission) =>
  h("p", { class: "notice notice-hidden" }, icon("lock"), h("span", {}, `Hidden: you need the permission ${permission}.`));

export const hiddenValue = (permission) => h("span", { class: "muted", title: `You need the permission ${permission}.` }, "hidden");

export const problem = (error) => notice(error?.message ?? String(error), "error");

export const empty = (text, action) => h("div", { class: "empty" }, h("p", {}, text), action);

export const waiting = (text = "Loading…") => h("p", { class: "waiting", role: "status" }, h("span", { class: "spinner", "aria-hidden": "true" }), text);

/** A bar that shows a fraction. It is decorative: the number next to it has the same information. */
export function meter(share, tone = "") {
  const bar = h("span", { class: `meter ${tone && `meter-${tone}`}`, "aria-hidden": "true" }, h("span", {}));
  bar.firstChild.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return bar;
}

/** A picture of a state hash, so that equal states can be recognized at a glance. */
export function fingerprint(hash, differs = false) {
  const digits = (hash ?? "").slice(0, 16).padEnd(16, "0");
  const bars = [...digits].map((digit, index) => {
    const height = 3 + parseInt(digit, 16) * 1.2;
    return svg("rect", { x: index * 6, y: 22 - height, width: 4, height, rx: 1 });
  });
  return svg("svg", { class: `fingerprint ${differs ? "differs" : ""}`, viewBox: "0 0 94 22", "aria-hidden": "true" }, bars);
}

export function tabs(items, current, label = "Sections of this page") {
  return h(
    "nav",
    { class: "tabs", "aria-label": label },
    items.map(({ id, label: text, href, count }) =>
      h(
        "a",
        { href, "aria-current": id === current ? "page" : undefined, "data-focus": `tab-${id}` },
        text,
        count !== undefined && h("span", { class: "tab-count" }, count),
      ),
    ),
  );
}

export function copyButton(action, label, text, say) {
  return button(
    action,
    label,
    async () => say((await copied(typeof text === "function" ? text() : text)) ? `${label}: copied.` : "The browser denied access to the clipboard."),
    { glyph: "copy", small: true },
  );
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // The clipboard API is not available without TLS.
    const area = h("textarea", { class: "visually-hidden", value: text, "aria-hidden": "true" });
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export const ago = (ms, now = Date.now()) => h("span", { class: "ago", title: format.moment(ms) }, ms ? `${format.duration((now - ms) / 1000)} ago` : "—");

export { hidden, icon };
