// Tables: the pipelines that land topics in tables, as reported by their drivers.

import { at, get } from "../api.js";
import { link, setParams } from "../router.js";
import { h } from "../ui/dom.js";
import { searchField } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { ago, badge, button, card, copyButton, empty, facts, meter, mono, notice, number, pageHead, problem, waiting } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";
import { say } from "../ui/toast.js";

const TONES = { running: "ok", landing: "ok", waiting: "ok", idle: "ok", paused: "warning", failed: "error", failing: "error", stopped: "plain" };

const stateBadge = (state) => badge(state, TONES[state] ?? "plain");
const question = (topic) => `chronik pipeline sql "SELECT * FROM ${/^[a-z_]\w*$/i.test(topic) ? topic : `\\\`${topic}\\\``} LIMIT 20"`;
const total = (offsets) => Object.values(offsets ?? {}).reduce((sum, each) => sum + each, 0);
const share = (topic) => (total(topic.end_offsets) ? Math.min(1, total(topic.next_offsets) / total(topic.end_offsets)) : 1);

const STOPPED =
  "The pipeline has stopped: rows can be read here while it runs. Start it with chronik pipeline run, or query the table with the SQL command below.";

const tablesOf = (pipeline) => [
  pipeline.first_topics.map((topic) =>
    h("div", {}, h("a", { href: link("tables", pipeline.name, { topic }), "data-focus": `table-${pipeline.name}-${topic}` }, topic)),
  ),
  pipeline.topics > pipeline.first_topics.length && h("div", { class: "muted" }, `and ${format.count(pipeline.topics - pipeline.first_topics.length)} more`),
];

export function tablesPage(params) {
  let state = params;
  const rows = resource((signal) => get("/pipelines", { search: state.search, limit: 200 }, signal), draw, {
    everyMs: 5_000,
    permission: "Read on topic __chronik_pipelines",
  });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search pipelines and topics", state.search, (search) => setParams({ search })),
  );
  const node = h("div", {}, pageHead("Tables", { lead: "Topics that pipelines land in tables." }), card(null, { extra: "card-table" }, bar, rows.node));

  function draw({ items }) {
    if (!items.length && !state.search)
      return empty([
        "There are no pipelines yet. Run ",
        h("code", { class: "mono" }, "chronik pipeline run --table-root tables"),
        " to land topics in tables.",
      ]);
    return table(
      "Pipelines",
      [
        {
          label: "Pipeline",
          grow: true,
          cell: (row) => h("a", { class: "name", href: link("tables", row.name), "data-focus": `pipeline-${row.name}` }, row.name),
        },
        { label: "State", cell: (row) => h("span", { class: "badges" }, row.states.map(stateBadge)) },
        { label: "Tables", cell: tablesOf },
        { label: "Lag", align: "end", cell: (row) => number(row.lag) },
        { label: "Last update", cell: (row) => ago(row.updated_ms) },
        { label: "Last error", cell: (row) => (row.last_error ? h("span", { class: "clip", title: row.last_error }, row.last_error) : "none") },
      ],
      items,
      { key: (row) => row.name, empty: `No pipeline or topic name contains “${state.search}”.` },
    ).node;
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

export function tablePage(name, params) {
  let state = params;
  const samples = {}; // sample rows by topic, kept while the page is redrawn
  const going = new AbortController();
  const page = resource((signal) => get(at("pipelines", name), {}, signal), draw, { everyMs: 5_000, permission: "Read on topic __chronik_pipelines" });
  const node = h("div", {}, pageHead(name, { back: { label: "Tables", href: link("tables") } }), page.node);

  function draw({ topics }) {
    const one = topics.length === 1 ? topics[0] : topics.find((each) => each.topic === state.topic);
    return [
      topics
        .filter((each) => each.last_error)
        .map((each) => notice(`${each.topic}: ${each.last_error}${each.last_error_ms ? ` (${format.second(each.last_error_ms)})` : ""}`, "warning")),
      card(null, { extra: "card-table" }, table(`Topics of ${name}`, columns(name), topics, { key: (row) => row.topic }).node),
      one && details(one),
    ];
  }

  function details(topic) {
    return [
      card(
        topic.topic,
        {},
        facts(
          [
            ["Topic", h("a", { href: link("topics", topic.topic) }, topic.topic)],
            ["Table", h("span", { class: "mono wrap" }, format.known(topic.table))],
            ["Driver", topic.host ? `${topic.host}:${topic.pid}` : "—"],
            ["Started", ago(topic.started_ms)],
            ["Last update", ago(topic.updated_ms)],
            ["Rows since start", number(topic.total_rows)],
          ],
          "facts-row",
        ),
      ),
      rowsCard(topic),
      card("Progress by partition", { extra: "card-table" }, progress(topic)),
      card("Columns", { extra: topic.columns ? "card-table" : "" }, schema(topic)),
      card(
        "SQL",
        {},
        h("p", { class: "hint" }, "Query the table and the records that have not landed yet:"),
        h("pre", { class: "code", tabindex: "0" }, question(topic.topic)),
        copyButton("copy-command", "Copy command", question(topic.topic), say),
      ),
    ];
  }

  function rowsCard({ topic, state: driver }) {
    const { asking, error, data } = samples[topic] ?? {};
    if (driver === "stopped" && !data) return card("Rows", {}, h("p", { class: "hint" }, STOPPED));
    const actions = button("show-rows", data ? "Reload rows" : "Show rows", () => show(topic), { disabled: asking, focus: "show-rows", small: true });
    if (data && !asking) return card("Rows", { actions, extra: "card-table" }, rowsOf(topic, data));
    const hint = h("p", { class: "hint" }, "The driver reads rows from the newest files. Requires the Read permission on the topic.");
    return card("Rows", { actions }, asking ? waiting("Waiting for the driver…") : error ? problem(error) : hint);
  }

  async function show(topic) {
    samples[topic] = { asking: true };
    page.show();
    try {
      samples[topic] = { data: await get(at("pipelines", name, "sample"), { topic }, going.signal) };
    } catch (error) {
      samples[topic] = { error };
    }
    if (page.data && !going.signal.aborted) page.show();
  }

  return {
    title: name,
    node,
    refresh: page.refresh,
    close: () => {
      going.abort();
      page.close();
    },
    update: (next) => {
      state = next;
      if (page.data) page.show();
    },
  };
}

const columns = (name) => [
  {
    label: "Topic",
    grow: true,
    cell: (row) => h("a", { class: "name", href: link("tables", name, { topic: row.topic }), "data-focus": `topic-${row.topic}` }, row.topic),
  },
  { label: "State", cell: (row) => (row.paused ? badge("paused", "warning") : stateBadge(row.state)) },
  { label: "Progress", cell: (row) => h("span", { class: "with-meter" }, `${Math.floor(share(row) * 100)} %`, meter(share(row))) },
  { label: "Lag", align: "end", cell: (row) => number(row.lag) },
  { label: "Rows/s", align: "end", cell: (row) => format.short(Math.round(row.rows_per_second)) },
  { label: "Rows", align: "end", cell: (row) => number(row.total_rows) },
  { label: "Dead-letter records", align: "end", cell: (row) => (row.total_dead_letters ? badge(format.count(row.total_dead_letters), "warning") : "0") },
  { label: "Last error", cell: (row) => (row.last_error ? h("span", { class: "clip", title: row.last_error }, row.last_error) : "none") },
];

/** Values of the last round that did not fit the column and are in _rescued, if they are more than 1 %. */
function misfits(topic, column) {
  const count = (topic.misfits ?? {})[column] ?? 0;
  return count ? badge(`${format.count(count)} of ${format.count(topic.round_rows)}`, "warning") : "";
}

function schema(topic) {
  if (!topic.columns) return h("p", { class: "hint" }, "Not reported yet. Drivers report the columns with their next round; drivers before 0.6 do not.");
  return [
    table(
      `Columns of ${topic.topic}`,
      [
        { label: "Column", cell: (each) => mono(each.name) },
        { label: "Type", cell: (each) => h("span", { class: "mono wrap" }, each.type) },
        { label: "Did not fit", align: "end", cell: (each) => misfits(topic, each.name) },
      ],
      topic.columns,
      { key: (each) => each.name, empty: "The table has no columns." },
    ).node,
    topic.columns_left_out ? h("p", { class: "hint" }, `${format.count(topic.columns_left_out)} more.`) : null,
  ];
}

function rowsOf(topic, { columns: names, rows, columns_left_out: more }) {
  const cell = (text) => (text === null ? h("span", { class: "muted" }, "null") : h("span", { class: "mono clip", title: text }, text));
  return [
    table(
      `Rows of ${topic}`,
      names.map((label, index) => ({ label, plain: true, cell: (row) => cell(row[index]) })),
      rows,
      { empty: "The table has no rows." },
    ).node,
    more ? h("p", { class: "hint" }, `${format.count(more)} more columns.`) : null,
  ];
}

function progress(topic) {
  const partitions = Object.keys({ ...topic.end_offsets, ...topic.next_offsets })
    .map(Number)
    .sort((a, b) => a - b);
  const landed = (each) => topic.next_offsets[each] ?? 0;
  const end = (each) => topic.end_offsets[each];
  return table(
    `Progress of ${topic.topic} by partition`,
    [
      { label: "Partition", cell: (each) => String(each) },
      { label: "Landed up to", align: "end", cell: (each) => number(topic.next_offsets[each]) },
      { label: "End offset", align: "end", cell: (each) => number(end(each)) },
      { label: "Lag", align: "end", cell: (each) => number(end(each) === undefined ? null : Math.max(0, end(each) - landed(each))) },
      { label: "Progress", grow: true, cell: (each) => meter(end(each) ? Math.min(1, landed(each) / end(each)) : 1) },
    ],
    partitions,
    { empty: "The driver has not reported any partitions." },
  ).node;
}
