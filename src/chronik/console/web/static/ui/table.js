// A table with a caption and headers. On a phone, each row is shown as a card; the explicit roles keep it a table for screen
// readers, since `display: block` would remove them.

import { h, redraw } from "./dom.js";
import { icon } from "./icons.js";
import { press } from "./parts.js";

/**
 * @param {string} caption
 * @param {(Column | false | null | undefined)[]} columns
 * @param {any[]} rows
 * @param {TableOptions} options
 */
export function table(caption, columns, rows, options = {}) {
  const body = h("tbody", { role: "rowgroup" });
  const head = h("thead", { role: "rowgroup" });
  const node = h(
    "div",
    { class: "table-frame", role: "region", "aria-label": caption, tabindex: "0" },
    h("table", { role: "table" }, h("caption", { class: options.showCaption ? "" : "visually-hidden" }, caption), head, body),
  );
  const draw = (next) => {
    redraw(
      head,
      h(
        "tr",
        { role: "row" },
        columns.map((column) => header(column, options.sort)),
      ),
    );
    const shown = options.sort?.remote ? next : sorted(next, columns, options.sort?.value());
    redraw(body, shown.length ? shown.map((row) => line(row, columns, options)) : nothing(columns, options.empty));
  };
  draw(rows);
  return { node, update: draw };
}

function header(column, sort) {
  const props = { role: "columnheader", scope: "col", class: column.align === "end" ? "end" : undefined };
  if (!column.sort || !sort) return h("th", props, column.label || h("span", { class: "visually-hidden" }, "Actions"));
  const now = sort.value();
  const direction = now === column.label ? "ascending" : now === `-${column.label}` ? "descending" : null;
  const click = () => sort.set(direction === "descending" ? column.label : `-${column.label}`);
  return h(
    "th",
    { ...props, "aria-sort": direction ?? "none" },
    press("sort", { class: `sorter ${direction ?? ""}`, onclick: click, "data-focus": `sort-${column.label}` }, column.label, icon("down")),
  );
}

function sorted(rows, columns, value) {
  const column = value && columns.find((each) => each.sort && each.label === value.replace(/^-/, ""));
  if (!column) return rows;
  const sign = value.startsWith("-") ? -1 : 1;
  return [...rows].sort((a, b) => sign * compared(column.sort(a), column.sort(b)));
}

function compared(a, b) {
  if (typeof a === "string" || typeof b === "string") return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
  return (a ?? -1) - (b ?? -1);
}

function line(row, columns, /** @type {TableOptions} */ { key, tone }) {
  const header = columns.findIndex((column) => !column.plain);
  return h(
    "tr",
    { role: "row", "data-key": key?.(row), class: tone?.(row) },
    columns.map((column, index) => {
      const props = {
        class: `${column.align === "end" ? "end" : ""} ${column.grow ? "grow" : ""} ${column.label ? "" : "row-actions"}`.trim(),
        "data-label": column.label || undefined,
      };
      if (index === header) return h("th", { ...props, role: "rowheader", scope: "row" }, column.cell(row));
      return h("td", { ...props, role: "cell" }, column.cell(row));
    }),
  );
}

function nothing(columns, /** @type {Child} */ text = "No data.") {
  return h("tr", { role: "row", class: "nothing" }, h("td", { role: "cell", colspan: columns.length }, text));
}

/** The pagination of a list. The tokens of previous pages are in the URL. */
export function pager({ shown, total, next, trail, set }) {
  const back = trail.length
    ? press("page-back", { class: "button button-small", "data-focus": "pager-back", onclick: () => set(trail.slice(0, -1)) }, icon("back"), "Back")
    : null;
  const on = next
    ? press("page-next", { class: "button button-small", "data-focus": "pager-next", onclick: () => set([...trail, next]) }, "Next", icon("next"))
    : null;
  return h(
    "div",
    { class: "pager" },
    h("span", { class: "muted" }, `${shown.toLocaleString("en-US")} of ${(total ?? shown).toLocaleString("en-US")}`),
    back,
    on,
  );
}
