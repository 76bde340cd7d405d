// Form fields with labels. A field is {name, node, read(), input}; forms use only `read`.

import { fill, h, uid } from "./dom.js";
import { iconButton, button } from "./parts.js";

/**
 * @param {string} name
 * @param {string} label
 * @param {FieldOptions} options
 */
export function field(
  name,
  label,
  { type = "text", value = "", hint, required, min, max, placeholder, autofocus, pattern, autocomplete = "off", rows, mono, inputmode, suggestions } = {},
) {
  const id = uid("field");
  const props = {
    id,
    name,
    required,
    min,
    max,
    placeholder,
    autofocus,
    pattern,
    inputmode,
    class: mono ? "mono" : undefined,
    "aria-describedby": hint ? `${id}-hint` : undefined,
    spellcheck: "false",
  };
  const input = rows ? h("textarea", { ...props, rows }) : h("input", { ...props, type, autocomplete });
  input.value = value ?? "";
  const listed = suggestions && h("datalist", { id: `${id}-list` });
  if (listed) input.setAttribute("list", listed.id);
  const suggest = (values) =>
    fill(
      listed,
      values.map((each) => h("option", { value: each })),
    );
  const node = h("div", { class: "field" }, h("label", { for: id }, label), input, listed, hint && h("p", { class: "hint", id: `${id}-hint` }, hint));
  const read = () => (type === "number" ? (input.value === "" ? null : Number(input.value)) : input.value);
  return { name, node, input, read, suggest };
}

/**
 * @param {string} name
 * @param {string} label
 * @param {(string | number | (string | number)[])[]} options Values, or pairs of a value and its text.
 * @param {{ value?: string | number | null, hint?: string, onchange?: (event: any) => unknown }} settings
 */
export function choice(name, label, options, { value, hint, onchange } = {}) {
  const id = uid("field");
  const input = h(
    "select",
    { id, name, onchange, "aria-describedby": hint ? `${id}-hint` : undefined },
    options.map((option) => {
      const [key, text] = Array.isArray(option) ? option : [option, option];
      return h("option", { value: key, selected: String(key) === String(value) }, text);
    }),
  );
  return {
    name,
    input,
    read: () => input.value,
    node: h("div", { class: "field" }, h("label", { for: id }, label), input, hint && h("p", { class: "hint", id: `${id}-hint` }, hint)),
  };
}

/**
 * @param {string} name
 * @param {string} label
 * @param {{ value?: boolean, hint?: string, onchange?: (event: any) => unknown }} options
 */
export function check(name, label, { value = false, hint, onchange } = {}) {
  const id = uid("field");
  const input = h("input", { id, name, type: "checkbox", checked: value, onchange });
  return {
    name,
    input,
    read: () => input.checked,
    node: h("div", { class: "field field-check" }, input, h("label", { for: id }, label), hint && h("p", { class: "hint" }, hint)),
  };
}

/** A list of name and value pairs, such as configs or headers. */
export function pairs(name, label, { names = "Name", values = "Value", suggestions = [], add = "Add", initial = [] } = {}) {
  const listId = uid("names");
  const rows = h("div", { class: "pairs" });
  const row = (key = "", value = "") => {
    const line = h(
      "div",
      { class: "pair" },
      h("input", {
        type: "text",
        value: key,
        placeholder: names,
        "aria-label": `${label}: ${names}`,
        list: suggestions.length ? listId : undefined,
        autocomplete: "off",
        spellcheck: "false",
      }),
      h("input", { type: "text", value, placeholder: values, "aria-label": `${label}: ${values}`, autocomplete: "off", spellcheck: "false" }),
      iconButton("remove-pair", "Remove", "close", () => line.remove()),
    );
    return line;
  };
  fill(
    rows,
    initial.map(([key, value]) => row(key, value)),
  );
  const more = button(
    "add-pair",
    add,
    () => {
      rows.append(row());
      rows.lastChild.querySelector("input").focus();
    },
    { glyph: "plus", small: true },
  );
  const node = h(
    "fieldset",
    { class: "field" },
    h("legend", {}, label),
    rows,
    more,
    suggestions.length
      ? h(
          "datalist",
          { id: listId },
          suggestions.map((each) => h("option", { value: each })),
        )
      : null,
  );
  const read = () => [...rows.children].map((line) => [...line.querySelectorAll("input")].map((input) => input.value)).filter(([key]) => key !== "");
  return { name, node, read };
}

export const note = (node) => ({ node });

/** Fields in one row. */
export const side = (...fields) => ({
  parts: fields,
  node: h(
    "div",
    { class: "side" },
    fields.map((each) => each.node),
  ),
});

/** Debounces a function until the user stops typing. */
export function slowly(work, ms = 250) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), ms);
  };
}

export function searchField(label, value, oninput) {
  const id = uid("search");
  const input = h("input", {
    id,
    type: "search",
    class: "search",
    placeholder: label,
    value: value ?? "",
    autocomplete: "off",
    spellcheck: "false",
    "data-search": true,
    "data-focus": "search",
    oninput: slowly(() => oninput(input.value)),
  });
  return h("div", { class: "search-frame" }, h("label", { for: id, class: "visually-hidden" }, label), input, h("kbd", { "aria-hidden": "true" }, "/"));
}
