// The selection of rows in a list, and actions on all selected rows.

import { confirm } from "./dialog.js";
import { h } from "./dom.js";
import * as format from "./format.js";
import { button } from "./parts.js";

/** `noun` is what is selected, such as "topic"; `key(row)` is its name; `changed()` redraws the list. */
export function selection(noun, { key, changed }) {
  const chosen = new Map();
  const column = {
    label: "Select",
    plain: true,
    cell: (row) =>
      h("input", {
        type: "checkbox",
        checked: chosen.has(key(row)),
        "aria-label": `Select ${key(row)}`,
        "data-focus": `select-${key(row)}`,
        onchange: ({ target }) => {
          if (target.checked) chosen.set(key(row), row);
          else chosen.delete(key(row));
          changed();
        },
      }),
  };

  function clear() {
    chosen.clear();
    changed();
  }

  function selectAll(rows) {
    for (const row of rows) chosen.set(key(row), row);
    changed();
  }

  /** The number of selected rows, and the buttons of `actions(rows)`; null if nothing is selected. */
  function bar(rows, actions) {
    if (!chosen.size) return null;
    for (const row of rows) if (chosen.has(key(row))) chosen.set(key(row), row); // permissions may have changed
    return h(
      "div",
      { class: "filter-bar", role: "group", "aria-label": `Selected ${noun}s` },
      h("span", { role: "status" }, `${format.plural(chosen.size, noun)} selected`),
      actions([...chosen.values()]),
      button("select-all", "Select page", () => selectAll(rows), { small: true, tone: "quiet", focus: "select-all" }),
      button("clear-selection", "Clear selection", clear, { small: true, tone: "quiet", focus: "clear-selection" }),
    );
  }

  /** Confirms and performs the deletion of all selected rows. Rows that could not be deleted stay selected. */
  function confirmDeletion({ action, intro, erase, done }) {
    const names = [...chosen.keys()];
    const what = format.plural(names.length, noun);
    confirm({
      action,
      title: `Delete ${what}`,
      intro: [
        intro,
        h(
          "ul",
          { class: "mono wrap" },
          names.map((name) => h("li", {}, name)),
        ),
      ],
      typed: `delete ${what}`,
      label: "Delete",
      tone: "danger",
      run: async () => {
        try {
          await forEachName(
            names,
            async (name) => {
              await erase(name);
              chosen.delete(name);
            },
            "deleted",
          );
        } finally {
          done();
        }
      },
      success: `${what} ${names.length === 1 ? "was" : "were"} deleted.`,
    });
  }

  return { column, bar, confirmDeletion, names: () => [...chosen.keys()] };
}

/** Performs an action on each name, one after the other. Throws an error that names the failures. */
export async function forEachName(names, work, verb) {
  const failures = [];
  for (const name of names) {
    try {
      await work(name);
    } catch (error) {
      failures.push(`${name}: ${error.message}`);
    }
  }
  if (failures.length) throw new Error(`${format.count(names.length - failures.length)} of ${format.count(names.length)} ${verb}. ${failures.join(" ")}`);
}
