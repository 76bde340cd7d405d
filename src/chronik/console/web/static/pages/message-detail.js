// An opened message: its key, headers and value, the value in hexadecimal, and code that reads the message.

import { link, parse, setParams } from "../router.js";
import { fill, h } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { badge, copyButton, icon, notice, press } from "../ui/parts.js";
import { say } from "../ui/toast.js";
import { visible } from "../ui/text.js";
import { asCommand, asPython, asSql } from "./copy-as.js";
import { bytesView, plainText, preview, valueAddress, valueView } from "./message-value.js";

const VIEWS = [
  ["value", "Value"],
  ["hex", "Hex"],
  ["python", "Python"],
  ["cli", "CLI"],
  ["sql", "SQL"],
];
const CODE = { python: asPython, cli: asCommand, sql: asSql };
const FORMATS = { avro: "Avro", "json-schema": "JSON Schema", protobuf: "Protobuf" };
const HEADER_SHOWN = 300;

export function messageDetail(topic, message) {
  const { as = "value" } = parse().params;
  const shown = h("div", {});
  const buttons = VIEWS.map(([id, label]) =>
    press("show-as", { class: "segment", "aria-pressed": String(id === as), onclick: () => choose(id), "data-view": id }, label),
  );
  let whole = null;
  choose(as, false);

  function choose(id, keep = true) {
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each.dataset.view === id)));
    if (keep) setParams({ as: id === "value" ? "" : id });
    if (id === "hex") fill(shown, bytesView(topic, message));
    else if (CODE[id]) {
      const text = CODE[id](topic, message);
      fill(shown, copyButton("copy-as", `Copy as ${VIEWS.find(([each]) => each === id)[1]}`, text, say), h("pre", { class: "code", tabindex: "0" }, text));
    } else
      fill(
        shown,
        schemaOf(message.value, "value"),
        valueActions(),
        valueView(topic, message, "value", (text) => (whole = text)),
      );
  }

  function valueActions() {
    const { kind, text, schema } = message.value;
    if (kind === "null") return null;
    const copied = () => plainText(whole ?? text, kind === "json" || (whole !== null && /^\s*[{[]/.test(whole)));
    const isDecoded = schema && !schema.problem;
    return h(
      "div",
      { class: "value-actions" },
      copyButton("copy-value", "Copy value", copied, say),
      download("Download value", valueAddress(topic, message, "value")),
      isDecoded && download("Download as JSON", valueAddress(topic, message, "value", { decoded: true })),
    );
  }

  const transactional = message.transactional ? "Part of a transaction." : "";
  const type = message.timestamp_type === "append" ? "log append time" : "create time";
  return h(
    "div",
    { class: "detail" },
    h("p", { class: "muted small" }, `${format.moment(message.timestamp_ms)} (${type}). ${format.bytes(message.size)}. ${transactional}`),
    h("h2", {}, "Key"),
    schemaOf(message.key, "key"),
    valueView(topic, message, "key"),
    message.headers.length
      ? [
          h("h2", {}, "Headers"),
          h(
            "dl",
            { class: "headers" },
            message.headers.map((header) =>
              h("div", {}, h("dt", { class: "mono" }, visible(header.name)), h("dd", { class: "mono" }, preview(header.value, HEADER_SHOWN))),
            ),
          ),
        ]
      : null,
    h("div", { class: "segments", role: "group", "aria-label": "Show the value, or code that reads it" }, buttons),
    shown,
  );
}

const download = (label, href) => h("a", { class: "button button-small", href, download: "", "data-focus": label }, icon("download"), label);

/** The schema of a typed key or value, with a link to a version that has it, or why it was not decoded. */
function schemaOf({ schema }, field) {
  if (!schema) return null;
  const version =
    schema.subject &&
    h(
      "a",
      { href: link("schemas", schema.subject, { version: schema.version }), "data-focus": `schema-${field}` },
      `${schema.subject}, version ${schema.version}`,
    );
  return [
    h(
      "p",
      { class: "schema-line" },
      schema.format && badge(FORMATS[schema.format], "accent"),
      h("span", { class: "muted" }, schema.id === null ? `schema ${schema.guid}` : `schema id ${schema.id}`),
      version,
    ),
    schema.problem && notice(`The ${field} was not decoded: ${schema.problem}`, "warning"),
  ];
}
