// Transactions, and the partitions whose last stable offset is held back by an open one (read_committed consumers wait there).

import { at, get, post } from "../api.js";
import { mayOn, mayOnAll } from "../permissions.js";
import { link, setParams } from "../router.js";
import { confirm } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { searchField } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { ago, badge, button, card, hiddenNotice, icon, number, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";

const PAGE = 100;
const TONES = { ongoing: "warning", complete_commit: "ok", complete_abort: "plain", prepare_commit: "accent", prepare_abort: "accent", empty: "plain" };
const stateName = (state) =>
  String(state)
    .replace(/([a-z])([A-Z])/g, "$1_$2")
    .toLowerCase();

export function transactionsPage(params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource((signal) => get("/transactions", { search: state.search, limit: PAGE, after: trail().at(-1) }, signal), draw, { everyMs: 3_000 });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search transactional ids", state.search, (search) => setParams({ search, trail: "" })),
  );
  const node = h(
    "div",
    {},
    pageHead("Transactions", { lead: "Transactional producers, and the open transactions that block read_committed consumers." }),
    bar,
    rows.node,
  );

  function draw({ items, holding, next, total }) {
    const byProducer = Object.fromEntries(items.map((each) => [each.producer_id, each.transactional_id]));
    const all = mayOnAll("describe", "transactional-id") && mayOnAll("describe", "topic");
    return [
      !all && hiddenNotice("Describe on a transactional id, and on the topics of its transaction, to see it here"),
      card(
        "Blocked partitions",
        { extra: "card-table" },
        holding.length
          ? table("Partitions whose last stable offset is held back", held(byProducer), holding, { key: (row) => `${row.topic}-${row.partition}` }).node
          : h(
              "p",
              { class: "all-well" },
              icon("check"),
              all ? "None: all committed records can be read." : "None by the transactions that are visible to you.",
            ),
      ),
      card(
        "Transactional ids",
        { extra: "card-table" },
        table("Transactional ids", columns(rows), items, {
          key: (row) => row.transactional_id,
          empty: state.search
            ? `No ${all ? "" : "visible "}transactional id contains “${state.search}”.`
            : all
              ? "There are no transactional ids yet."
              : "No transactional ids are visible to you.",
        }).node,
        pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) }),
      ),
    ];
  }

  return {
    title: "Transactions",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      state = next;
      rows.refresh();
    },
  };
}

const held = (byProducer) => [
  {
    label: "Topic",
    grow: true,
    cell: (row) =>
      h(
        "a",
        {
          href: link("topics", row.topic, { tab: "messages", partition: row.partition, from: row.last_stable_offset, isolation: "uncommitted" }),
          "data-focus": `held-${row.topic}-${row.partition}`,
        },
        row.topic,
      ),
  },
  { label: "Partition", align: "end", cell: (row) => number(row.partition) },
  { label: "Last stable offset", align: "end", cell: (row) => number(row.last_stable_offset) },
  { label: "End offset", align: "end", cell: (row) => number(row.end_offset) },
  { label: "Blocked records", align: "end", cell: (row) => number(row.end_offset - row.last_stable_offset) },
  { label: "Transactional id", cell: (row) => (row.producer_id === null ? "—" : (byProducer[row.producer_id] ?? `producer ${row.producer_id}`)) },
  { label: "Since", cell: (row) => ago(row.since_ms) },
];

const writtenPartition = ({ topic, partition }) =>
  h("div", {}, h("a", { class: "nowrap", href: link("topics", topic, { tab: "messages", partition, isolation: "uncommitted" }) }, `${topic}-${partition}`));

const columns = (rows) => [
  { label: "Transactional id", grow: true, cell: (row) => h("span", { class: "name" }, row.transactional_id) },
  { label: "State", cell: (row) => badge(stateName(row.state).replaceAll("_", " "), TONES[stateName(row.state)] ?? "plain") },
  { label: "Producer", align: "end", cell: (row) => `${row.producer_id} · epoch ${row.epoch}` },
  { label: "Started", cell: (row) => (row.began_ms && stateName(row.state) === "ongoing" ? ago(row.began_ms) : "—") },
  { label: "Timeout", align: "end", cell: (row) => (row.timeout_ms === null ? "—" : format.duration(row.timeout_ms / 1000)) },
  {
    label: "Partitions",
    cell: (row) =>
      row.partitions.length
        ? [row.partitions.slice(0, 3).map(writtenPartition), row.partitions.length > 3 && h("div", {}, `and ${row.partitions.length - 3} more`)]
        : "—",
  },
  { label: "Coordinator", cell: (row) => h("a", { class: "nowrap", href: link("nodes", row.coordinator) }, `node ${row.coordinator}`) },
  {
    label: "",
    cell: (row) =>
      stateName(row.state) === "ongoing" &&
      mayOn(row, "write") &&
      mayOn(row, "describe") &&
      button("abort-transaction?", "Abort", () => abort(row, rows), { small: true, tone: "danger", focus: `abort-${row.transactional_id}` }),
  },
];

function abort(row, rows) {
  const path = at("transactions", row.transactional_id, "abort");
  confirm({
    action: "abort-transaction",
    title: `Abort transaction of ${row.transactional_id}`,
    intro: "The transaction is aborted and its producer is fenced. Consumers with read_committed never see its records.",
    preview: () => post(path, { dry_run: true }),
    label: "Abort",
    tone: "danger",
    run: () => post(path, {}),
    success: `The transaction of ${row.transactional_id} was aborted.`,
    done: rows.refresh,
  });
}
