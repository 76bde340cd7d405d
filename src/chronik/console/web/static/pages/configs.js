// The configs of a topic, a node or the cluster, with their sources, and dialogs to alter them.

import { get, patch } from "../api.js";
import { setParams } from "../router.js";
import { acceptedText, configField, readable } from "../ui/config-field.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { check, field, note, searchField } from "../ui/forms.js";
import { badge, button, card } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";

/**
 * `isBrief` shows only changed configs unless all are selected.
 * `mayAlter()` returns whether the principal may alter the configs; `permission` is what it needs to see them.
 */
export function configsCard({ path, what, params, mayAlter, permission, isBrief = false }) {
  let state = params;
  const onlyChanged = () => (state.changed ? state.changed === "1" : isBrief);
  const rows = resource((signal) => get(path, {}, signal), draw, { everyMs: 15_000, permission });
  const only = check("changed", "Only changed configs", {
    value: onlyChanged(),
    onchange: () => setParams({ changed: only.read() === isBrief ? "" : only.read() ? "1" : "0" }),
  });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search configs", state.search, (search) => setParams({ search })),
    only.node,
    mayAlter() && button("set-config?", "Set config", () => change({ name: "", value: "" }, true), { glyph: "plus", small: true }),
  );
  const node = card(null, { extra: "card-table" }, bar, rows.node);

  function draw({ items }) {
    const words = (state.search ?? "").toLowerCase();
    const matching = items.filter((each) => each.name.toLowerCase().includes(words) && (!onlyChanged() || !isDefault(each)));
    const starts = (each) => each.name.toLowerCase().startsWith(words);
    const shown = [...matching.filter(starts), ...matching.filter((each) => !starts(each))];
    const columns = [
      {
        label: "Config",
        grow: true,
        cell: (row) => [h("span", { class: "mono name" }, row.name), row.documentation && h("p", { class: "hint" }, row.documentation)],
      },
      { label: "Value", cell: (row) => valueOf(row) },
      { label: "Source", cell: (row) => (isDefault(row) ? h("span", { class: "muted" }, sourceWord(row)) : badge(sourceWord(row), "accent")) },
      {
        label: "",
        cell: (row) =>
          !row.read_only &&
          mayAlter() && [
            button("change-config?", "Change", () => change(row), { small: true, tone: "quiet", focus: `change-${row.name}` }),
            !isDefault(row) && button("reset-config?", "Reset", () => reset(row), { small: true, tone: "quiet", focus: `reset-${row.name}` }),
          ],
      },
    ];
    return table(what, columns, shown, {
      key: (row) => row.name,
      empty: onlyChanged() ? "No changed configs found. Clear “Only changed configs” to see all." : "No configs found.",
    }).node;
  }

  function change(row, fresh = false) {
    const name = fresh ? field("name", "Config", { required: true, mono: true, autofocus: true }) : null;
    const named = (form) => (fresh || row.sensitive ? null : readable(row, form.value));
    const withUnits = (answer, text) => (text && answer.plan ? { ...answer, plan: answer.plan.map((step) => `${step} (${text})`) } : answer);
    const body = (form) => ({ set: { [form.name ?? row.name]: form.value } });
    formDialog({
      action: fresh ? "set-config" : "change-config",
      title: fresh ? "Set config" : `Change ${row.name}`,
      fields: fresh
        ? [name, field("value", "Value", { mono: true })]
        : [note(h("p", { class: "hint" }, [row.documentation, acceptedText(row)].filter(Boolean).join(" "))), configField(row)],
      label: "Save",
      preview: async (form) => withUnits(await patch(path, { ...body(form), dry_run: true }), named(form)),
      submit: (form) => patch(path, body(form)),
      success: (form) => `${form.name ?? row.name} was set${row.sensitive ? "" : ` to ${named(form) ?? form.value}`}.`,
      done: rows.refresh,
    });
  }

  function reset(row) {
    confirm({
      action: "reset-config",
      title: `Reset ${row.name}`,
      intro: "The config is reset to the value of the node’s configuration file, or to its default.",
      label: "Reset",
      preview: () => patch(path, { delete: [row.name], dry_run: true }),
      run: () => patch(path, { delete: [row.name] }),
      success: `${row.name} was reset.`,
      done: rows.refresh,
    });
  }

  return {
    node,
    refresh: rows.refresh,
    close: rows.close,
    params: (next) => {
      state = next;
      if (rows.data) rows.show();
    },
  };
}

function valueOf(row) {
  if (row.sensitive) return h("span", { class: "muted" }, "not shown");
  const named = readable(row);
  return [h("span", { class: "mono wrap" }, row.value === null || row.value === "" ? "—" : row.value), named && h("div", { class: "muted small" }, named)];
}

const isDefault = (row) => row.source === "default" || row.source === "file";

function sourceWord(row) {
  return { default: "default", file: "configuration file", broker: "node", cluster: "cluster", topic: "topic" }[row.source] ?? row.source ?? "—";
}
