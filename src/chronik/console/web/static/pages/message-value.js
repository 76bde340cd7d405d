// Display of keys and values: previews, indented JSON, text and hexadecimal. Large values are loaded and drawn on demand.

import { address, at, getBytes } from "../api.js";
import { fill, h } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { isJson, looksLikeJson, prettyNodes, prettyText } from "../ui/json.js";
import { badge, button, notice, problem, waiting } from "../ui/parts.js";
import { visible } from "../ui/text.js";

const NODES_PER_STEP = 10_000;
const CHARACTERS_PER_STEP = 100_000;
const HEX_BYTES_PER_NODE = 4_096;
const ROW_BYTES = 16;

/** The start of a key or value in one line. Null, empty and blank ones are distinct from each other and from text. */
export function preview(shown, length) {
  if (shown.kind === "null") return h("span", { class: "value-null" }, "null");
  if (shown.text === "") return badge("empty");
  if (shown.kind === "text" && !shown.text.trim()) return badge(`blank: ${format.plural(shown.text.length, "character")}`);
  const text = shown.text.replace(/\s+/g, " ");
  return [
    shown.schema?.problem ? [badge("not decoded", "warning"), " "] : shown.kind === "bytes" && [badge("bytes"), " "],
    visible(text.length > length ? `${text.slice(0, length)}…` : text),
  ];
}

/** The address of a key or value; with `decoded`, that of its JSON if it is typed. */
export const valueAddress = (topic, message, field, /** @type {{ header?: number, decoded?: boolean }} */ { header, decoded } = {}) =>
  address(at("topics", topic, "messages", message.partition, message.offset, "value"), { field, header, decoded: decoded ? "true" : "" });

/** A key or value. `loaded` is called with the text when the whole value was loaded. */
export function valueView(topic, message, field, loaded) {
  const shown = message[field];
  if (shown.kind === "null") return h("p", { class: "value-null" }, "null");
  if (shown.text === "") return h("p", {}, badge("empty"), " ", h("span", { class: "muted" }, "The text is empty: 0 bytes."));
  const blank = shown.kind === "text" && !shown.text.trim() && h("p", {}, badge(`blank: ${format.plural(shown.text.length, "character")}`));
  const view = h("div", {});
  const isDecoded = Boolean(shown.schema) && !shown.schema.problem;
  fill(view, blank, textView(shown.text, shown.kind === "json" || (shown.truncated && looksLikeJson(shown.text))));
  if (shown.truncated)
    view.append(
      h(
        "div",
        { class: "value-more" },
        h("span", { class: "muted" }, `This is the start of the ${field}.`),
        button("load-value", "Load all", load, { small: true, focus: `load-${field}` }),
      ),
    );
  return view;

  async function load() {
    fill(view, waiting("Loading…"));
    try {
      const data = await getBytes(valueAddress(topic, message, field, { decoded: isDecoded }));
      const text = new TextDecoder().decode(data);
      if (shown.kind === "bytes") fill(view, hexView(data));
      else fill(view, textView(text, isJson(text)));
      loaded?.(text);
    } catch (error) {
      fill(view, problem(error));
    }
  }
}

export const plainText = (text, json) => (json ? prettyText(text) : text);

/** A text, drawn in steps: a step is quick, even if the text has megabytes. */
function textView(text, json) {
  return json ? stepped(prettyNodes(text)) : stepped(chunks(text));
}

function* chunks(text) {
  for (let start = 0; start < text.length; start += CHARACTERS_PER_STEP) yield visible(text.slice(start, start + CHARACTERS_PER_STEP));
}

function stepped(nodes) {
  const code = h("pre", { class: "code", tabindex: "0" });
  const more = button("show-more", "Show more", draw, { small: true, focus: "show-more" });
  const view = h("div", {}, code, more);
  let next = nodes.next();
  draw();
  return view;

  function draw() {
    let characters = 0;
    for (let count = 0; !next.done && count < NODES_PER_STEP && characters < CHARACTERS_PER_STEP; count += 1) {
      const parts = [next.value].flat();
      characters += parts.reduce((sum, part) => sum + (part.length ?? part.textContent.length), 0);
      code.append(...parts);
      next = nodes.next();
    }
    more.hidden = Boolean(next.done);
  }
}

/** A hexadecimal dump: position, 16 bytes, and their ASCII characters. */
export function hexView(data) {
  if (!data.length) return h("p", {}, badge("empty"));
  return h("div", { class: "hex" }, h("p", { class: "muted small" }, format.plural(data.length, "byte")), stepped(hexRows(data)));
}

function* hexRows(data) {
  let rows = [];
  for (let start = 0; start < data.length; start += ROW_BYTES) {
    const row = [...data.subarray(start, start + ROW_BYTES)];
    const bytes = row.map((each) => each.toString(16).padStart(2, "0"));
    const ascii = row.map((each) => (each >= 0x20 && each < 0x7f ? String.fromCharCode(each) : "·")).join("");
    rows.push(`${start.toString(16).padStart(8, "0")}  ${bytes.slice(0, 8).join(" ").padEnd(23)}  ${bytes.slice(8).join(" ").padEnd(23)}  ${ascii}\n`);
    if (rows.length * ROW_BYTES >= HEX_BYTES_PER_NODE) {
      yield rows.join("");
      rows = [];
    }
  }
  if (rows.length) yield rows.join("");
}

/** The bytes of the value, and of the key unless it is null, loaded from the node. */
export function bytesView(topic, message) {
  const view = h("div", {});
  const fields = ["value", "key"].filter((field) => message[field].kind !== "null");
  fill(view, fields.length ? waiting("Loading…") : notice("The key and the value are null.", "info"));
  Promise.all(fields.map((field) => getBytes(valueAddress(topic, message, field))))
    .then((loaded) =>
      fill(
        view,
        loaded.map((data, index) => [h("h3", {}, { value: "Value", key: "Key" }[fields[index]]), hexView(data)]),
      ),
    )
    .catch((error) => fill(view, problem(error)));
  return view;
}
