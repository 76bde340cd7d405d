// The paginated list of topics.

import { get, post } from "../api.js";
import { mayCreateTopics, mayOnAll, mayOnCluster, mayOn } from "../permissions.js";
import { go, link, parse, setParams } from "../router.js";
import { formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { check, field, pairs, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, hiddenNotice, hiddenValue, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";

const PAGE = 50;
const CONFIGS = ["cleanup.policy", "retention.ms", "retention.bytes", "segment.bytes", "min.insync.replicas", "max.message.bytes", "compression.type", "message.timestamp.type", "delete.retention.ms"];

export function topicsPage(params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource(load, draw, { everyMs: 10_000 });
  const internal = check("internal", "Include internal topics", { value: state.internal === "1", onchange: () => setParams({ internal: internal.read() ? "1" : "", trail: "" }) });
  const bar = h("div", { class: "filter-bar" }, searchField("Search topics", state.search, (search) => setParams({ search, trail: "" })), internal.node);
  const node = h("div", {}, pageHead("Topics", { actions: [mayCreateTopics() && button("create-topic?", "Create topic", () => setParams({ do: "create" }, { replace: false }), { tone: "primary", glyph: "plus" })] }), card(null, { extra: "card-table" }, bar, rows.node));
  act(state);

  function load(signal) {
    return get("/topics", { search: state.search, internal: state.internal === "1" ? "true" : undefined, limit: PAGE, after: trail().at(-1) }, signal);
  }

  function draw({ items, next, total }) {
    const all = mayOnAll("describe", "topic");
    const empty = state.search ? `No ${all ? "" : "visible "}topic name contains “${state.search}”.` : all ? "There are no topics yet." : "No topics are visible to you.";
    return [
      !all && hiddenNotice("Describe on a topic to see it in this list"),
      table("Topics", COLUMNS, items, { empty, key: (row) => row.name }).node,
      pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) }),
    ];
  }

  return {
    title: "Topics",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      const before = state;
      state = next;
      if (["search", "internal", "trail"].some((name) => before[name] !== next[name])) rows.refresh();
      act(next, before);
    },
  };
}

const COLUMNS = [
  { label: "Topic", grow: true, cell: (row) => h("a", { class: "name", href: link("topics", row.name), "data-focus": `topic-${row.name}` }, row.name, row.internal && badge("internal")) },
  { label: "Partitions", align: "end", cell: (row) => format.count(row.partitions) },
  { label: "Replication factor", align: "end", cell: (row) => format.count(row.replication_factor) },
  { label: "Status", cell: health },
  { label: "Records", align: "end", cell: (row) => format.count(row.messages) },
  { label: "Size", align: "end", cell: (row) => (mayOnCluster("describe") ? format.bytes(row.bytes) : hiddenValue("Describe on the cluster")) },
  { label: "Cleanup policy", cell: (row) => (mayOn(row, "describe-configs") ? format.known(row.cleanup_policy) : hiddenValue("DescribeConfigs on the topic")) },
];

function health(row) {
  if (row.offline) return badge(`${format.count(row.offline)} offline`, "error");
  if (row.under_replicated) return badge(`${format.count(row.under_replicated)} under-replicated`, "warning");
  return badge("in sync", "ok");
}

function act(params, before = {}) {
  if (params.do !== "create" || before.do === "create" || !mayCreateTopics()) return;
  const values = (form) => ({
    name: form.name,
    partitions: form.partitions,
    replication_factor: form.replication_factor,
    configs: Object.fromEntries(form.configs),
  });
  formDialog({
    action: "create-topic",
    title: "Create topic",
    fields: [
      field("name", "Name", { required: true, autofocus: true, mono: true, hint: "Letters, digits, dots, hyphens and underscores." }),
      side(
        field("partitions", "Partitions", { type: "number", min: 1, placeholder: "default", hint: "Can be increased later, but not decreased." }),
        field("replication_factor", "Replication factor", { type: "number", min: 1, placeholder: "default", hint: "At most the number of nodes." }),
      ),
      pairs("configs", "Configs", { suggestions: CONFIGS, add: "Add config" }),
    ],
    label: "Create",
    preview: (form) => post("/topics", { ...values(form), dry_run: true }),
    submit: (form) => post("/topics", values(form)),
    success: (form) => `Topic ${form.name} was created.`,
    done: (_, form) => go("topics", form.name),
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}
