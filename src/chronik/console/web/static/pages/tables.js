// Tables: what pipelines tell of themselves, and rows of a table that its driver shows on demand.

import { at, get } from "../api.js";
import { link, setParams } from "../router.js";
import { fill, h } from "../ui/dom.js";
import { searchField } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { ago, badge, button, card, empty, facts, meter, notice, number, pageHead, problem, waiting } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";

const TONES = { running: "ok", landing: "ok", waiting: "ok", idle: "ok", paused: "warning", failed: "error", failing: "error", stopped: "plain" };

const total = (offsets) => Object.values(offsets ?? {}).reduce((sum, each) => sum + Number(each), 0);

function lagOf(told) {
  if (typeof told.lag === "number") return told.lag;
  const ends = told.high_watermarks ?? {};
  return Object.entries(ends).reduce((sum, [partition, end]) => sum + Math.max(0, end - (told.next_offsets?.[partition] ?? 0)), 0);
}

const shareOf = (told) => (total(told.high_watermarks) ? total(told.next_offsets) / total(told.high_watermarks) : 1);
const speed = (told) => (told.round_seconds > 0 ? told.round_rows / told.round_seconds : null);
const topicOf = (row) => row.told.topic ?? row.name.split("/").slice(1).join("/");

export function tablesPage(params) {
  let state = params;
  const rows = resource((signal) => get("/pipelines", { search: state.search, limit: 200 }, signal), draw, { everyMs: 5_000 });
  const bar = h("div", { class: "filter-bar" }, searchField("Search pipelines", state.search, (search) => setParams({ search })));
  const node = h("div", {}, pageHead("Tables", { lead: "Topics that land in tables, as their drivers tell of them." }), card(null, { extra: "card-table" }, bar, rows.node));

  function draw({ items }) {
    if (!items.length && !state.search) return empty("No pipeline has told of itself yet. chronik pipeline run --table-root tables lands topics in tables.");
    return table("Pipelines", [
      { label: "Pipeline", grow: true, cell: (row) => h("a", { class: "name", href: link("tables", row.name), "data-focus": `pipeline-${row.name}` }, row.name) },
      { label: "State", cell: (row) => badge(row.told.state ?? "—", TONES[row.told.state] ?? "plain") },
      { label: "Progress", cell: (row) => h("span", { class: "with-meter" }, `${Math.floor(shareOf(row.told) * 100)} %`, meter(shareOf(row.told))) },
      { label: "Lag", align: "end", cell: (row) => number(lagOf(row.told)) },
      { label: "Rows/s", align: "end", cell: (row) => format.short(speed(row.told) === null ? null : Math.round(speed(row.told))) },
      { label: "Rows", align: "end", cell: (row) => number(row.told.total_rows ?? 0) },
      { label: "Dead letters", align: "end", cell: (row) => (row.told.total_dead_letters ? badge(format.count(row.told.total_dead_letters), "warning") : "0") },
      { label: "News", cell: (row) => ago(row.updated_ms) },
      { label: "Last error", cell: (row) => (row.told.last_error ? h("span", { class: "clip", title: row.told.last_error }, row.told.last_error) : "none") },
    ], items, { key: (row) => row.name, empty: `No pipeline has “${state.search}” in its name.` }).node;
  }

  return {
    title: "Tables",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      state = next;
      rows.refresh();
    },
  };
}

export function tablePage(name) {
  const sample = h("div", {});
  const page = resource((signal) => get(at("pipelines", name), {}, signal), draw, { everyMs: 5_000 });
  const node = h("div", {}, pageHead(name, { back: { label: "Tables", href: link("tables") } }), page.node, card("Sample", { actions: [button("Show rows", ask)] }, h("p", { class: "hint" }, "The driver is asked for some rows; this needs Read on the topic."), sample));

  function draw(row) {
    const told = row.told;
    const offsets = Object.keys({ ...told.high_watermarks, ...told.next_offsets }).map(Number).sort((a, b) => a - b);
    return [
      told.last_error ? notice(`${told.last_error}${told.last_error_ms ? ` (${format.moment(told.last_error_ms)})` : ""}`, "warning") : null,
      card(null, {}, facts([
        ["State", badge(told.state ?? "—", TONES[told.state] ?? "plain")],
        ["Topic", h("a", { href: link("topics", topicOf(row)) }, topicOf(row))],
        ["Lag", number(lagOf(told))],
        ["Rows", number(told.total_rows ?? 0)],
        ["Dead letters", number(told.total_dead_letters ?? 0)],
        ["Last round", told.round_seconds ? `${format.plural(told.round_rows ?? 0, "row")} in ${format.duration(told.round_seconds)}` : "—"],
        ["Driver", told.host ? `${told.host}:${told.pid}` : "—"],
        ["News", ago(row.updated_ms)],
        ["Table", h("span", { class: "mono wrap" }, format.known(told.table))],
      ], "facts-row")),
      card("Progress by partition", { extra: "card-table" }, table("Progress by partition", [
        { label: "Partition", cell: (each) => String(each) },
        { label: "Landed to", align: "end", cell: (each) => number(told.next_offsets?.[each]) },
        { label: "End", align: "end", cell: (each) => number(told.high_watermarks?.[each]) },
        { label: "Lag", align: "end", cell: (each) => number(Math.max(0, (told.high_watermarks?.[each] ?? 0) - (told.next_offsets?.[each] ?? 0))) },
        { label: "Progress", grow: true, cell: (each) => meter(told.high_watermarks?.[each] ? (told.next_offsets?.[each] ?? 0) / told.high_watermarks[each] : 1) },
      ], offsets, { empty: "Nothing is told of partitions." }).node),
      schemaCard(told.schema),
    ];
  }

  async function ask() {
    fill(sample, waiting("Asking the driver…"));
    try {
      const { columns, rows } = await get(at("pipelines", name, "sample"), { rows: 20 });
      fill(sample, table(`Sample of ${name}`, columns.map((label, index) => ({ label, plain: true, cell: (row) => h("span", { class: "mono clip" }, cellText(row[index])) })), rows, { empty: "The table has no rows." }).node);
    } catch (error) {
      fill(sample, problem(error));
    }
  }

  return { title: name, node, refresh: page.refresh, close: page.close, update: () => {} };
}

const cellText = (value) => (value === null ? "null" : typeof value === "object" ? JSON.stringify(value) : String(value));

function schemaCard(schema) {
  if (!schema) return card("Schema", {}, h("p", { class: "hint" }, "Its driver has not told it yet."));
  const fields = Array.isArray(schema) ? schema : Array.isArray(schema.fields) ? schema.fields : Object.entries(schema).map(([name, type]) => ({ name, type }));
  return card("Schema", { extra: "card-table" }, table("Columns of the table", [
    { label: "Column", grow: true, cell: (row) => h("span", { class: "mono name" }, row.name ?? String(row)) },
    { label: "Type", cell: (row) => h("span", { class: "mono" }, cellText(row.type ?? "—")) },
    { label: "Null", cell: (row) => (row.nullable === false ? "never" : "allowed") },
  ], fields, {}).node);
}
