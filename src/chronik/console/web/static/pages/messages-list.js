// The list of messages. A row expands to its formatted value, its headers, and code that reads it (Python, CLI, SQL).

import { link, parse, setParams } from "../router.js";
import { fill, h, hidden } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { prettyNodes, prettyText } from "../ui/json.js";
import { badge, copyButton, icon, notice, press } from "../ui/parts.js";
import { say } from "../ui/toast.js";
import { asCommand, asPython, asSql } from "./copy-as.js";

const PREVIEW = 160;
const VIEWS = [["value", "Value"], ["python", "Python"], ["cli", "CLI"], ["sql", "SQL"]];
const FORMATS = { avro: "Avro", "json-schema": "JSON Schema", protobuf: "Protobuf" };
const HEAD = ["Time", "Partition", "Offset", "Key", "Value", "Size"];

const place = (message) => `${message.partition}:${message.offset}`;

export function messageList(topic) {
  const body = h("tbody", { role: "rowgroup" });
  const frame = h(
    "div",
    { class: "table-frame messages", role: "region", tabindex: "0", "aria-label": `Messages of ${topic}` },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "visually-hidden" }, `Messages of ${topic}`),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, HEAD.map((label) => h("th", { role: "columnheader", scope: "col", class: ["Partition", "Offset", "Size"].includes(label) ? "end" : undefined }, label)))),
      body,
    ),
  );
  let opened = parse().params.open ?? "";

  function show(messages) {
    fill(body, messages.map(row));
    frame.hidden = !messages.length;
    open(opened);
  }

  function add(messages, { below = false, keep = Infinity }) {
    frame.hidden = false;
    if (below) body.append(...messages.map(row));
    else body.prepend(...[...messages].reverse().map(row));
    while (body.children.length > keep && !body.lastChild.dataset.detail) body.lastChild.remove();
    if (opened && !body.querySelector("[data-detail]")) open(opened);
  }

  function row(message) {
    const id = place(message);
    const toggle = () => setParams({ open: parse().params.open === id ? "" : id });
    const line = h(
      "tr",
      { role: "row", class: "message", "data-place": id, onclick: (event) => !event.target.closest("button") && !getSelection().toString() && toggle() },
      h("td", { role: "cell", "data-label": "Time" }, press("open-message", { class: "opener", "aria-expanded": "false", "data-focus": `message-${id}`, onclick: toggle }, icon("next"), h("span", { class: "number" }, format.moment(message.timestamp_ms)), hidden(`, message ${message.offset} of partition ${message.partition}`))),
      h("td", { role: "cell", class: "end number", "data-label": "Partition" }, String(message.partition)),
      h("td", { role: "cell", class: "end number", "data-label": "Offset" }, String(message.offset)),
      h("td", { role: "cell", class: "clip mono", "data-label": "Key" }, preview(message.key, 40)),
      h("td", { role: "cell", class: "clip grow mono", "data-label": "Value" }, message.control ? badge("transaction marker") : preview(message.value, PREVIEW)),
      h("td", { role: "cell", class: "end", "data-label": "Size" }, format.bytes(message.size)),
    );
    line.message = message;
    return line;
  }

  function open(id = "") {
    opened = id;
    body.querySelectorAll("[data-detail]").forEach((each) => each.remove());
    for (const line of [...body.children]) {
      const is = line.dataset.place === id;
      line.classList.toggle("opened", is);
      line.querySelector(".opener").setAttribute("aria-expanded", String(is));
      if (is) line.after(h("tr", { role: "row", class: "detail-row", "data-detail": id }, h("td", { role: "cell", colspan: HEAD.length }, detail(topic, line.message))));
    }
  }

  frame.hidden = true;
  return { node: frame, show, add, open };
}

function preview(shown, length) {
  if (shown.kind === "null") return h("span", { class: "muted" }, "null");
  const text = shown.text.replace(/\s+/g, " ");
  return [shown.schema?.problem ? [badge("not decoded", "warning"), " "] : shown.kind === "bytes" && badge("bytes"), text.length > length ? `${text.slice(0, length)}…` : text];
}

function detail(topic, message) {
  const { as = "value" } = parse().params;
  const shown = h("div", {});
  const buttons = VIEWS.map(([id, label]) => press("show-as", { class: "segment", "aria-pressed": String(id === as), onclick: () => choose(id), "data-view": id }, label));
  choose(as, false);

  function choose(id, keep = true) {
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.view === id)));
    if (keep) setParams({ as: id === "value" ? "" : id });
    const text = { python: asPython, cli: asCommand, sql: asSql }[id]?.(topic, message);
    fill(shown, text === undefined ? [schemaOf(message.value, "value"), copyButton("copy-value", "Copy value", () => plain(message.value), say), pretty(message.value)] : [copyButton("copy-as", `Copy as ${VIEWS.find(([each]) => each === id)[1]}`, text, say), h("pre", { class: "code", tabindex: "0" }, text)]);
  }

  return h(
    "div",
    { class: "detail" },
    h("p", { class: "muted small" }, `${message.timestamp_type === "append" ? "Timestamp type: log append time." : "Timestamp type: create time."} ${message.transactional ? "Part of a transaction." : ""}`),
    h("h2", {}, "Key"),
    schemaOf(message.key, "key"),
    pretty(message.key),
    message.headers.length ? [h("h2", {}, "Headers"), h("dl", { class: "headers" }, message.headers.map((header) => h("div", {}, h("dt", { class: "mono" }, header.name), h("dd", { class: "mono" }, header.value.kind === "null" ? "null" : header.value.text))))] : null,
    h("div", { class: "segments", role: "group", "aria-label": "Show the value, or code that reads it" }, buttons),
    shown,
  );
}

/** The schema of a typed key or value, with a link to a version that has it, or why it was not decoded. */
function schemaOf({ schema }, field) {
  if (!schema) return null;
  const version = schema.subject && h("a", { href: link("schemas", schema.subject, { version: schema.version }), "data-focus": `schema-${field}` }, `${schema.subject}, version ${schema.version}`);
  return [
    h("p", { class: "schema-line" }, schema.format && badge(FORMATS[schema.format], "accent"), h("span", { class: "muted" }, schema.id === null ? `schema ${schema.guid}` : `schema id ${schema.id}`), version),
    schema.problem && notice(`The ${field} was not decoded: ${schema.problem}`, "warning"),
  ];
}

const plain = (shown) => (shown.kind === "null" ? "" : shown.kind === "json" ? prettyText(shown.text) : shown.text);

function pretty(shown) {
  if (shown.kind === "null") return h("p", { class: "muted" }, "null");
  const body = shown.kind === "json" ? prettyNodes(shown.text) : shown.text;
  return h("pre", { class: "code", tabindex: "0" }, body, shown.truncated && h("span", { class: "muted" }, "\n… truncated"));
}
