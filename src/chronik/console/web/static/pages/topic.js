// One topic: its partitions, its configs, and in messages.js what is in it.

import { at, get, post, remove } from "../api.js";
import { link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { field } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, button, card, facts, number, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";
import { say } from "../ui/toast.js";
import { configsCard } from "./configs.js";
import { messagesCard } from "./messages.js";
import { produceForm } from "./produce.js";

const TABS = [["partitions", "Partitions"], ["messages", "Messages"], ["configs", "Configs"]];

export function topicPage(name, params) {
  let tab = params.tab ?? "partitions";
  const head = resource((signal) => get(at("topics", name), {}, signal), drawHead, { everyMs: 5_000 });
  const part = h("div", {});
  const bar = h("div", {});
  const node = h("div", {}, pageHead(name, { back: { label: "Topics", href: link("topics") }, actions: actions() }), head.node, bar, part);
  let inner = null;
  open(params);
  act(params);

  function actions() {
    return [
      button("write-message?", "Write a message", () => setParams({ do: "produce" }, { replace: false }), { glyph: "plus", tone: "primary" }),
      button("add-partitions?", "More partitions", () => grow(name, head), {}),
      button("delete-topic?", "Delete", () => erase(name), { tone: "danger", glyph: "trash" }),
    ];
  }

  function drawHead(topic) {
    inner?.update?.(topic);
    return topicFacts(topic, tab === "partitions");
  }

  function open(next) {
    tab = next.tab ?? "partitions";
    if (head.data) head.show();
    bar.replaceChildren(tabs(TABS.map(([id, label]) => ({ id, label, href: link("topics", name, { tab: id === "partitions" ? "" : id }) })), tab));
    inner?.close?.();
    const partitions = () => head.data?.partitions ?? [];
    if (tab === "messages") inner = messagesCard(name, next, head);
    else if (tab === "configs") inner = configsCard({ path: at("topics", name, "configs"), what: `Configs of ${name}`, params: next });
    else inner = partitionsCard(name, partitions(), head);
    part.replaceChildren(inner.node);
  }

  function act(next, before = {}) {
    if (next.do === "produce" && before.do !== "produce") {
      produceForm(name, head.data?.partitions?.length, {
        value: next.value,
        done: () => {
          head.refresh();
          inner?.refresh?.();
        },
      });
    }
  }

  let last = params;
  return {
    title: name,
    node,
    refresh: () => (head.refresh(), inner?.refresh?.()),
    close: () => (head.close(), inner?.close?.()),
    update: (next) => {
      if ((next.tab ?? "partitions") !== tab) open(next);
      else inner?.params?.(next);
      act(next, last);
      last = next;
    },
  };
}

function topicFacts(topic, all) {
  const behind = topic.partitions.filter((each) => each.isr.length < each.replicas.length).length;
  const offline = topic.partitions.filter((each) => each.leader === null || each.leader < 0).length;
  const records = topic.partitions.reduce((sum, each) => sum + Math.max(0, (each.end_offset ?? 0) - (each.start_offset ?? 0)), 0);
  const health = offline ? badge(`${offline} offline`, "error") : behind ? badge(`${behind} not fully in sync`, "warning") : badge("all in sync", "ok");
  return card(null, { extra: "topic-facts" }, facts([
    ["Health", health],
    ["Partitions", number(topic.partitions.length)],
    ["Copies", number(topic.replication_factor ?? topic.partitions[0]?.replicas.length)],
    ["Offsets kept", number(records)],
    ["Size, one copy", format.bytes(topic.partitions.reduce((sum, each) => sum + (each.bytes ?? 0), 0))],
    all && ["Cleanup", format.known(topic.cleanup_policy)],
    all && topic.last_changed ? ["Last changed", format.moment(topic.last_changed).slice(0, 19)] : null,
    all && topic.id ? ["Id", h("span", { class: "mono small" }, topic.id), "wide"] : null,
  ], "facts-row"));
}

function partitionsCard(name, rows, head) {
  const sort = { value: () => parse().params.sort, set: (value) => (setParams({ sort: value }), drawn.update(head.data.partitions)) };
  const columns = [
    { label: "Partition", sort: (row) => row.partition, cell: (row) => h("a", { href: link("topics", name, { tab: "messages", partition: row.partition }), "data-focus": `p-${row.partition}` }, String(row.partition)) },
    { label: "Leader", sort: (row) => row.leader, cell: (row) => (row.leader === null || row.leader < 0 ? badge("nobody", "error") : h("a", { href: link("nodes", row.leader), "data-focus": `l-${row.partition}` }, `node ${row.leader}`)) },
    { label: "Copies on", cell: (row) => format.list(row.replicas) },
    { label: "In sync", cell: (row) => badge(`${row.isr.length} of ${row.replicas.length}`, row.isr.length < row.replicas.length ? "warning" : "ok") },
    { label: "First offset", align: "end", cell: (row) => number(row.start_offset) },
    { label: "Next offset", align: "end", sort: (row) => row.end_offset, cell: (row) => number(row.end_offset) },
    { label: "Size", align: "end", sort: (row) => row.bytes, cell: (row) => format.bytes(row.bytes) },
    { label: "", cell: (row) => [button("move-partition?", "Move", () => move(name, row, head), { small: true, tone: "quiet", focus: `move-${row.partition}`, title: `Move copies of partition ${row.partition}` }), button("delete-records?", "Trim", () => trim(name, row, head), { small: true, tone: "quiet", focus: `trim-${row.partition}`, title: `Delete old records of partition ${row.partition}` })] },
  ];
  const drawn = table(`Partitions of ${name}`, columns, rows, { key: (row) => row.partition, sort, empty: "Asking…" });
  return { node: card(null, { extra: "card-table" }, drawn.node), update: (topic) => drawn.update(topic.partitions), refresh: () => {} };
}

function grow(name, head) {
  const now = head.data?.partitions.length ?? 1;
  formDialog({
    action: "add-partitions",
    title: `More partitions for ${name}`,
    intro: "Records with a key go to other partitions from then on; partitions can never be taken away.",
    fields: [field("count", "Partitions in all", { type: "number", min: now + 1, value: now + 1, required: true })],
    label: "Add partitions",
    submit: ({ count }) => post(at("topics", name, "partitions"), { count }),
    success: ({ count }) => `${name} has ${count} partitions.`,
    done: head.refresh,
  });
}

function trim(name, row, head) {
  formDialog({
    action: "delete-records",
    title: `Delete old records of ${name}, partition ${row.partition}`,
    intro: `Everything before the offset is deleted for good. It has ${row.start_offset} to ${row.end_offset} at the moment.`,
    fields: [
      field("offset", "Delete what is before offset", { type: "number", min: row.start_offset, max: row.end_offset, value: row.end_offset, required: true }),
      field("typed", `To confirm, type ${name}`, { required: true, pattern: name.replaceAll(".", "\\."), mono: true }),
    ],
    label: "Delete records",
    tone: "danger",
    submit: ({ offset }) => post(at("topics", name, "records", "delete"), { offsets: { [row.partition]: offset } }),
    success: ({ offset }) => `Partition ${row.partition} begins at ${offset}.`,
    done: head.refresh,
  });
}

function move(name, row, head) {
  const body = ({ replicas }) => ({ partitions: [{ topic: name, partition: row.partition, replicas: replicas.trim() ? replicas.split(",").map(Number) : null }] });
  formDialog({
    action: "move-partition",
    title: `Move partition ${row.partition} of ${name}`,
    intro: "The first node of the list is preferred as the leader. Records are copied before the old copies go.",
    fields: [field("replicas", "Copies on nodes", { value: row.replicas.join(", "), mono: true, hint: "Numbers of nodes with commas between them; empty ends a move that is under way.", pattern: "\\s*\\d+(\\s*,\\s*\\d+)*\\s*|" })],
    label: "Move",
    preview: (form) => post("/reassignments", { ...body(form), dry_run: true }),
    submit: (form) => post("/reassignments", body(form)),
    success: ({ replicas }) => (replicas.trim() ? `Partition ${row.partition} is on its way.` : `The move of partition ${row.partition} is called off.`),
    done: head.refresh,
  });
}

function erase(name) {
  confirm({
    action: "delete-topic",
    title: `Delete ${name}`,
    intro: "The topic and all its records are deleted on all nodes. Nothing brings them back.",
    typed: name,
    label: "Delete the topic",
    tone: "danger",
    run: () => remove(at("topics", name)),
    done: () => {
      say(`Topic ${name} is deleted.`);
      location.hash = link("topics");
    },
  });
}
