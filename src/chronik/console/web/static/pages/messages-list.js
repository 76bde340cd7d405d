// The list of messages. A row expands to the message; see message-detail.js.

import { parse, setParams } from "../router.js";
import { fill, h, hidden } from "../ui/dom.js";
import * as format from "../ui/format.js";
import { badge, icon, press } from "../ui/parts.js";
import { messageDetail } from "./message-detail.js";
import { preview } from "./message-value.js";

const PREVIEW = 160;
const HEAD = ["Time", "Partition", "Offset", "Key", "Value", "Size"];

const place = (message) => `${message.partition}:${message.offset}`;

export function messageList(topic) {
  const body = h("tbody", { role: "rowgroup" });
  const zone = h("span", { class: "zone-label" });
  const frame = h(
    "div",
    { class: "table-frame messages", role: "region", tabindex: "0", "aria-label": `Messages of ${topic}` },
    h(
      "table",
      { role: "table" },
      h("caption", { class: "visually-hidden" }, `Messages of ${topic}`),
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          HEAD.map((label) =>
            h(
              "th",
              { role: "columnheader", scope: "col", class: ["Partition", "Offset", "Size"].includes(label) ? "end" : undefined },
              label,
              label === "Time" && [" ", zone],
            ),
          ),
        ),
      ),
      body,
    ),
  );
  let opened = parse().params.open ?? "";

  function show(messages) {
    zone.textContent = `(${format.zone.label()})`;
    fill(body, messages.map(row));
    frame.hidden = !messages.length;
    open(opened);
  }

  /** Adds messages below, or above the others: the last one becomes the first row. */
  function add(messages, { below = false, keep = Infinity } = {}) {
    zone.textContent = `(${format.zone.label()})`;
    frame.hidden = !messages.length && !body.firstChild;
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
      h(
        "td",
        { role: "cell", "data-label": "Time" },
        press(
          "open-message",
          { class: "opener", "aria-expanded": "false", "data-focus": `message-${id}`, onclick: toggle },
          icon("next"),
          h("span", { class: "number" }, format.stamp(message.timestamp_ms)),
          hidden(`, message ${message.offset} of partition ${message.partition}`),
        ),
      ),
      h("td", { role: "cell", class: "end number", "data-label": "Partition" }, String(message.partition)),
      h("td", { role: "cell", class: "end number", "data-label": "Offset" }, String(message.offset)),
      h("td", { role: "cell", class: "clip mono", "data-label": "Key" }, preview(message.key, 40)),
      h(
        "td",
        { role: "cell", class: "clip grow mono", "data-label": "Value" },
        message.control ? badge("transaction marker") : preview(message.value, PREVIEW),
      ),
      h("td", { role: "cell", class: "end size", "data-label": "Size" }, format.bytes(message.size)),
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
      if (is)
        line.after(
          h("tr", { role: "row", class: "detail-row", "data-detail": id }, h("td", { role: "cell", colspan: HEAD.length }, messageDetail(topic, line.message))),
        );
    }
  }

  frame.hidden = true;
  return { node: frame, show, add, open };
}
