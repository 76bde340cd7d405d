// The command palette (Ctrl-K): finds pages, topics, groups, nodes and actions by name.

import { at, get } from "../api.js";
import { live } from "../live.js";
import { mayCreateTopics, mayOnAny, mayOnCluster } from "../permissions.js";
import { link } from "../router.js";
import { fill, h, uid } from "./dom.js";
import { slowly } from "./forms.js";
import { icon } from "./icons.js";

const FOUND_MAX = 6;

const PLACES = [
  ["overview", "Overview", link("overview")],
  ["topics", "Topics", link("topics")],
  ["groups", "Groups", link("groups")],
  ["schemas", "Schemas", link("schemas")],
  ["transactions", "Transactions", link("transactions")],
  ["nodes", "Nodes", link("nodes")],
  ["nodes", "Cluster-wide configs", link("nodes", { tab: "configs" })],
  ["nodes", "Reassignments", link("nodes", { tab: "reassignments" })],
  ["security", "Users", link("security")],
  ["security", "ACLs", link("security", { tab: "acls" })],
  ["security", "Quotas", link("security", { tab: "quotas" })],
  ["tables", "Tables", link("tables")],
];
/** @type {[glyph: string, label: string, href: string, isAllowed: () => boolean][]} */
const ACTIONS = [
  ["plus", "Create topic", link("topics", { do: "create" }), mayCreateTopics],
  ["plus", "Register schema", link("schemas", { do: "register-schema" }), () => mayOnAny("write", "subject")],
  ["plus", "Add node", link("nodes", { do: "add" }), () => mayOnCluster("alter")],
  ["plus", "Create user", link("security", { do: "add-user" }), () => mayOnCluster("alter")],
  ["plus", "Create ACL", link("security", { tab: "acls", do: "create-acl" }), () => mayOnCluster("alter")],
  ["plus", "Set quota", link("security", { tab: "quotas", do: "set-quota" }), () => mayOnCluster("alter-configs")],
];

let open = null;

export function openPalette() {
  if (open) return;
  if (document.querySelector("dialog[open]")) return;
  const id = uid("palette");
  const list = h("ul", { role: "listbox", id, "aria-label": "Results", class: "palette-list" });
  const input = h("input", {
    type: "text",
    class: "palette-input",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": id,
    "aria-label": "Go to",
    placeholder: "Page, topic, group, node or action…",
    autocomplete: "off",
    spellcheck: "false",
  });
  const element = h(
    "dialog",
    { class: "dialog palette", "aria-label": "Go to" },
    h("div", { class: "palette-field" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "Esc")),
    list,
  );
  let found = [];
  let chosen = 0;
  let asked = 0;
  document.body.append(element);
  element.addEventListener("close", () => {
    element.remove();
    open = null;
  });
  element.addEventListener("click", (event) => event.target === element && element.close());
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      choose((chosen + step + found.length) % (found.length || 1));
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (found[chosen]) follow(found[chosen]);
    }
  });
  const remote = slowly(async (text) => {
    const number = ++asked;
    const results = await Promise.all([names("topics", "name", text), names("groups", "group", text)]);
    if (number === asked && element.open) show([...local(text), ...results.flat()]);
  }, 120);
  input.addEventListener("input", () => {
    show(local(input.value));
    remote(input.value.trim());
  });
  open = element;
  element.showModal();
  input.focus();
  show(local(""));

  function follow(item) {
    element.close();
    location.hash = item.href;
  }

  function choose(index) {
    chosen = index;
    [...list.children].forEach((child, place) => child.setAttribute("aria-selected", String(place === chosen)));
    const child = list.children[chosen];
    if (!child) return;
    input.setAttribute("aria-activedescendant", child.id);
    child.scrollIntoView({ block: "nearest" });
  }

  function show(items) {
    found = items;
    fill(
      list,
      items.map((item, index) =>
        h(
          "li",
          {
            role: "option",
            id: `${id}-${index}`,
            "aria-selected": "false",
            onclick: () => follow(item),
            onpointermove: () => chosen !== index && choose(index),
          },
          icon(item.glyph),
          h("span", { class: "palette-name" }, item.text),
          h("span", { class: "muted" }, item.kind),
        ),
      ),
    );
    if (!items.length) fill(list, h("li", { class: "nothing", role: "option", "aria-selected": "false", "aria-disabled": "true" }, "No results."));
    choose(0);
  }
}

function local(text) {
  const words = text.toLowerCase().trim().split(/\s+/).filter(Boolean);
  const nodes = (live.last?.cluster?.nodes ?? []).map((node) => ({
    glyph: "nodes",
    text: `Node ${node.id}`,
    kind: `${node.host}:${node.port}`,
    href: link("nodes", node.id),
  }));
  const places = PLACES.map(([glyph, label, href]) => ({ glyph, text: label, kind: "page", href }));
  const actions = ACTIONS.filter(([, , , isAllowed]) => isAllowed()).map(([glyph, label, href]) => ({ glyph, text: label, kind: "action", href }));
  return [...places, ...nodes, ...actions].filter((item) => words.every((word) => `${item.text} ${item.kind}`.toLowerCase().includes(word)));
}

async function names(kind, field, search) {
  if (!search) return [];
  try {
    const { items } = await get(at(kind), { search, limit: FOUND_MAX });
    return items.map((item) => ({ glyph: kind, text: item[field], kind: kind.slice(0, -1), href: link(kind, item[field]) }));
  } catch {
    // The user is not authorized: no results.
    return [];
  }
}
