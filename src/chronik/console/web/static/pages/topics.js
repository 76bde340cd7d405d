// The paginated list of topics.

import { at, get, patch, post, remove } from "../api.js";
import { mayCreateTopics, mayOnAll, mayOnCluster, mayOn } from "../permissions.js";
import { go, link, parse, setParams } from "../router.js";
import { formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { check, field, note, pairs, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, hiddenNotice, hiddenValue, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { forEachName, selection } from "../ui/selection.js";
import { pager, table } from "../ui/table.js";

const PAGE = 50;
const CONFIGS = [
  "cleanup.policy",
  "retention.ms",
  "retention.bytes",
  "segment.bytes",
  "min.insync.replicas",
  "max.message.bytes",
  "compression.type",
  "message.timestamp.type",
  "delete.retention.ms",
];

export function topicsPage(params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource(load, draw, { everyMs: 10_000 });
  const chosen = selection("topic", { key: (row) => row.name, changed: () => rows.show() });
  const internal = check("internal", "Include internal topics", {
    value: state.internal === "1",
    onchange: () => setParams({ internal: internal.read() ? "1" : "", trail: "" }),
  });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search topics", state.search, (search) => setParams({ search, trail: "" })),
    internal.node,
  );
  const node = h(
    "div",
    {},
    pageHead("Topics", {
      actions: [
        mayCreateTopics() && button("create-topic?", "Create topic", () => setParams({ do: "create" }, { replace: false }), { tone: "primary", glyph: "plus" }),
      ],
    }),
    card(null, { extra: "card-table" }, bar, rows.node),
  );
  act(state);

  function load(signal) {
    return get(
      "/topics",
      { search: state.search, internal: state.internal === "1" ? "true" : undefined, limit: PAGE, after: trail().at(-1), ...sortQuery(state.sort) },
      signal,
    );
  }

  function draw({ items, next, total }) {
    const all = mayOnAll("describe", "topic");
    const empty = state.search
      ? `No ${all ? "" : "visible "}topic name contains “${state.search}”.`
      : all
        ? "There are no topics yet."
        : "No topics are visible to you.";
    return [
      !all && hiddenNotice("Describe on a topic to see it in this list"),
      chosen.bar(items, actions),
      table("Topics", [chosen.column, ...COLUMNS], items, { empty, sort, key: (row) => row.name }).node,
      pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) }),
    ];
  }

  const sort = { remote: true, value: () => state.sort, set: (value) => setParams({ sort: value, trail: "" }) };

  function actions(selected) {
    return [
      selected.every((row) => mayOn(row, "alter-configs")) &&
        button("set-config-of-topics?", "Set config", () => setConfig(chosen.names(), rows.refresh), { small: true, focus: "bulk-config" }),
      selected.every((row) => mayOn(row, "delete")) && button("delete-topics?", "Delete", erase, { small: true, tone: "danger", focus: "bulk-delete" }),
    ];
  }

  function erase() {
    chosen.confirmDeletion({
      action: "delete-topics",
      intro: "The topics and all their records are deleted permanently on all nodes.",
      erase: (name) => remove(at("topics", name)),
      done: rows.refresh,
    });
  }

  return {
    title: "Topics",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      const before = state;
      state = next;
      if (["search", "internal", "trail", "sort"].some((name) => before[name] !== next[name])) rows.refresh();
      act(next, before);
    },
  };
}

const COLUMNS = [
  {
    label: "Topic",
    sort: "name",
    grow: true,
    cell: (row) => h("a", { class: "name", href: link("topics", row.name), "data-focus": `topic-${row.name}` }, row.name, row.internal && badge("internal")),
  },
  { label: "Partitions", sort: "partitions", align: "end", cell: (row) => format.count(row.partitions) },
  { label: "Replication factor", sort: "replication_factor", align: "end", cell: (row) => format.count(row.replication_factor) },
  { label: "Status", sort: "status", cell: health },
  { label: "Records", sort: "messages", align: "end", cell: (row) => format.count(row.messages) },
  { label: "Size", sort: "bytes", align: "end", cell: (row) => (mayOnCluster("describe") ? format.bytes(row.bytes) : hiddenValue("Describe on the cluster")) },
  { label: "Cleanup policy", cell: (row) => (mayOn(row, "describe-configs") ? format.known(row.cleanup_policy) : hiddenValue("DescribeConfigs on the topic")) },
];

/** The query parameters for a sort order in the URL, such as -Size. */
function sortQuery(order = "") {
  const column = COLUMNS.find((each) => each.sort && each.label === order.replace(/^-/, ""));
  return column ? { sort: column.sort, descending: order.startsWith("-") } : {};
}

function health(row) {
  if (row.offline) return badge(`${format.count(row.offline)} offline`, "error");
  if (row.under_replicated) return badge(`${format.count(row.under_replicated)} under-replicated`, "warning");
  return badge("in sync", "ok");
}

function act(params, before = {}) {
  if (params.do === "create" && before.do !== "create" && mayCreateTopics()) createTopic();
}

/** `source` is a topic to clone: {name, partitions, replication_factor, configs}. */
export function createTopic(source) {
  const values = (form) => ({
    name: form.name,
    partitions: form.partitions,
    replication_factor: form.replication_factor,
    configs: Object.fromEntries(form.configs),
  });
  formDialog({
    action: "create-topic",
    title: source ? `Clone topic ${source.name}` : "Create topic",
    intro: source && "The new topic gets the same partitions and configs, but no records.",
    fields: [
      field("name", "Name", { required: true, autofocus: true, mono: true, hint: "Letters, digits, dots, hyphens and underscores." }),
      side(
        field("partitions", "Partitions", {
          type: "number",
          min: 1,
          value: source?.partitions,
          placeholder: "default",
          hint: "Can be increased later, but not decreased.",
        }),
        field("replication_factor", "Replication factor", {
          type: "number",
          min: 1,
          value: source?.replication_factor,
          placeholder: "default",
          hint: "At most the number of nodes.",
        }),
      ),
      pairs("configs", "Configs", { suggestions: CONFIGS, add: "Add config", initial: source?.configs ?? [] }),
    ],
    label: "Create",
    preview: (form) => post("/topics", { ...values(form), dry_run: true }),
    submit: (form) => post("/topics", values(form)),
    success: (form) => `Topic ${form.name} was created.`,
    done: (_, form) => go("topics", form.name),
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}

/** Sets a config of several topics. */
function setConfig(names, done) {
  const body = (form) => ({ set: { [form.name]: form.value } });
  const config = field("name", "Config", { required: true, autofocus: true, mono: true });
  config.input.setAttribute("list", "topic-configs");
  formDialog({
    action: "set-config-of-topics",
    title: `Set config of ${format.plural(names.length, "topic")}`,
    fields: [
      config,
      note(
        h(
          "datalist",
          { id: "topic-configs" },
          CONFIGS.map((each) => h("option", { value: each })),
        ),
      ),
      field("value", "Value", { mono: true }),
    ],
    label: "Save",
    preview: async (form) => {
      const plans = await Promise.all(names.map(async (name) => ({ name, ...(await patch(at("topics", name, "configs"), { ...body(form), dry_run: true })) })));
      const refused = plans.find((each) => each.refused);
      return { plan: plans.flatMap(({ name, plan }) => plan.map((step) => `${name}: ${step}`)), refused: refused && `${refused.name}: ${refused.refused}` };
    },
    submit: (form) => forEachName(names, (name) => patch(at("topics", name, "configs"), body(form)), "changed"),
    success: (form) => `${form.name} was set to ${form.value} for ${format.plural(names.length, "topic")}.`,
    done,
  });
}
