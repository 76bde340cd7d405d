// A topic: its partitions, configs and messages (see messages.js).

import { at, get, post, remove } from "../api.js";
import { mayCreateTopics, mayOn, mayOnCluster } from "../permissions.js";
import { link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { fill, h } from "../ui/dom.js";
import { field } from "../ui/forms.js";
import { historyCharts } from "../ui/history.js";
import * as format from "../ui/format.js";
import { badge, button, card, facts, hiddenNotice, hiddenValue, number, pageHead, tabs } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { table } from "../ui/table.js";
import { say } from "../ui/toast.js";
import { configsCard } from "./configs.js";
import { messagesCard } from "./messages.js";
import { produceForm } from "./produce.js";
import { createTopic } from "./topics.js";
import { consumersCard, topicAclsCard } from "./topic-access.js";
import { reassignTopic } from "./topic-reassignment.js";
import { statisticsCard } from "./topic-statistics.js";

const TABS = [
  ["partitions", "Partitions"],
  ["messages", "Messages"],
  ["consumers", "Consumers"],
  ["history", "History"],
  ["acls", "ACLs"],
  ["statistics", "Statistics"],
  ["configs", "Configs"],
];

export function topicPage(name, params) {
  let state = params;
  let last = {};
  let tab = null;
  let inner = null;
  let operations = null;
  const bar = h("div", {});
  const part = h("div", {});
  const actions = h("div", { class: "actions" });
  const title = pageHead(name, { back: { label: "Topics", href: link("topics") } });
  title.append(actions);
  const head = resource((signal) => get(at("topics", name), {}, signal), drawHead, {
    everyMs: 5_000,
    dependents: [actions, bar, part],
    permission: `Describe on topic ${name}`,
  });
  const node = h("div", {}, title, head.node, bar, part);

  function drawHead(topic) {
    const now = topic.authorized_operations.join();
    if (operations !== now) {
      operations = now;
      fill(actions, buttons(topic));
      open(topic);
    } else inner.update?.(topic);
    act(topic);
    return topicFacts(topic, tab === "partitions");
  }

  function buttons(topic) {
    return [
      mayOn(topic, "write") &&
        button("write-message?", "Produce message", () => setParams({ do: "produce" }, { replace: false }), { glyph: "plus", tone: "primary" }),
      mayOn(topic, "alter") && button("add-partitions?", "Add partitions", () => grow(name, head), {}),
      mayOnCluster("alter") && mayOnCluster("describe") && button("reassign-topic?", "Reassign", () => reassignTopic(topic, head.refresh), {}),
      mayCreateTopics() && mayOn(topic, "describe-configs") && button("clone-topic?", "Clone", () => clone(topic), {}),
      mayOn(topic, "delete") && button("delete-topic?", "Delete", () => erase(name), { tone: "danger", glyph: "trash" }),
    ];
  }

  function open(topic) {
    tab = state.tab ?? "partitions";
    fill(
      bar,
      tabs(
        TABS.map(([id, label]) => ({ id, label, href: link("topics", name, { tab: id === "partitions" ? "" : id }) })),
        tab,
      ),
    );
    inner?.close?.();
    if (tab === "messages") inner = mayOn(topic, "read") ? messagesCard(name, state, head) : { node: hiddenNotice(`Read on topic ${name}`) };
    else if (tab === "consumers") inner = consumersCard(name, state);
    else if (tab === "history") inner = historyCharts(topicCharts(name));
    else if (tab === "statistics") inner = mayOn(topic, "read") ? statisticsCard(name, state) : { node: hiddenNotice(`Read on topic ${name}`) };
    else if (tab === "acls") inner = topicAclsCard(name);
    else if (tab === "configs")
      inner = configsCard({
        path: at("topics", name, "configs"),
        what: `Configs of ${name}`,
        params: state,
        mayAlter: () => mayOn(head.data, "alter-configs"),
        permission: `DescribeConfigs on topic ${name}`,
      });
    else inner = partitionsCard(name, topic, head);
    fill(part, inner.node);
  }

  function act(topic) {
    if (state.do === "produce" && last.do !== "produce" && mayOn(topic, "write")) {
      produceForm(name, topic.partitions.length, {
        done: () => {
          head.refresh();
          inner.refresh?.();
        },
      });
    }
    last = state;
  }

  return {
    title: name,
    node,
    refresh: () => (head.refresh(), inner?.refresh?.()),
    close: () => (head.close(), inner?.close?.()),
    update: (next) => {
      state = next;
      if (!head.data) return;
      if ((next.tab ?? "partitions") !== tab) {
        open(head.data);
        head.show();
      } else {
        inner.params?.(next);
        act(head.data);
      }
    },
  };
}

function topicCharts(topic) {
  const query = { topic };
  return [
    { title: "Throughput", note: "Bytes that producers append", unit: "bytes/s", metrics: ["topic_in_bytes"], query },
    { title: "Records", note: "Records that producers append", unit: "1/s", metrics: ["topic_in_records"], query },
    { title: "Size", note: "All replicas", unit: "bytes", metrics: ["topic_bytes"], query },
    { title: "Lag", note: "Groups with the largest lag on this topic", unit: "records", metrics: ["group_topic_lag"], query, name: (series) => series.group },
  ];
}

/** Opens the form for a new topic with the partitions, replication factor and configs of a topic. */
async function clone(topic) {
  try {
    const { items } = await get(at("topics", topic.name, "configs"));
    const configs = items.filter((each) => each.source === "topic" && !each.sensitive).map((each) => [each.name, each.value]);
    createTopic({ name: topic.name, partitions: topic.partitions.length, replication_factor: topic.replication_factor, configs });
  } catch (error) {
    say(error.message);
  }
}

function topicFacts(topic, all) {
  const behind = topic.partitions.filter((each) => each.isr.length < each.replicas.length).length;
  const offline = topic.partitions.filter((each) => each.leader === null || each.leader < 0).length;
  const records = topic.partitions.reduce((sum, each) => sum + Math.max(0, (each.end_offset ?? 0) - (each.start_offset ?? 0)), 0);
  const health = offline ? badge(`${offline} offline`, "error") : behind ? badge(`${behind} under-replicated`, "warning") : badge("in sync", "ok");
  return card(
    null,
    { extra: "topic-facts" },
    facts(
      [
        ["Status", health],
        ["Partitions", number(topic.partitions.length)],
        ["Replication factor", number(topic.replication_factor ?? topic.partitions[0]?.replicas.length)],
        ["Records", number(records)],
        ["Size (leaders)", mayOnCluster("describe") ? format.bytes(topic.bytes) : hiddenValue("Describe on the cluster")],
        all && [
          "Cleanup policy",
          mayOn(topic, "describe-configs") ? format.known(topic.cleanup_policy) : hiddenValue(`DescribeConfigs on topic ${topic.name}`),
        ],
        all && topic.last_changed ? ["Last update", format.second(topic.last_changed)] : null,
        all && topic.id ? ["Topic id", h("span", { class: "mono small" }, topic.id), "wide"] : null,
      ],
      "facts-row",
    ),
  );
}

function partitionsCard(name, topic, head) {
  const sort = { value: () => parse().params.sort, set: (value) => (setParams({ sort: value }), drawn.update(head.data.partitions)) };
  const columns = [
    {
      label: "Partition",
      sort: (row) => row.partition,
      cell: (row) =>
        h("a", { href: link("topics", name, { tab: "messages", partition: row.partition }), "data-focus": `p-${row.partition}` }, String(row.partition)),
    },
    {
      label: "Leader",
      sort: (row) => row.leader,
      cell: (row) =>
        row.leader === null || row.leader < 0
          ? badge("none", "error")
          : h("a", { href: link("nodes", row.leader), "data-focus": `l-${row.partition}` }, `node ${row.leader}`),
    },
    { label: "Replicas", cell: (row) => format.list(row.replicas) },
    { label: "In-sync replicas", cell: (row) => badge(`${row.isr.length} of ${row.replicas.length}`, row.isr.length < row.replicas.length ? "warning" : "ok") },
    { label: "Start offset", align: "end", cell: (row) => number(row.start_offset) },
    { label: "End offset", align: "end", sort: (row) => row.end_offset, cell: (row) => number(row.end_offset) },
    {
      label: "Size",
      align: "end",
      sort: (row) => row.bytes,
      cell: (row) => (mayOnCluster("describe") ? format.bytes(row.bytes) : hiddenValue("Describe on the cluster")),
    },
    {
      label: "",
      cell: (row) => [
        mayOnCluster("alter") &&
          button("move-partition?", "Reassign", () => move(name, row, head), {
            small: true,
            tone: "quiet",
            focus: `move-${row.partition}`,
            title: `Reassign partition ${row.partition}`,
          }),
        mayOn(topic, "delete") &&
          button("delete-records?", "Delete records", () => trim(name, row, head), {
            small: true,
            tone: "quiet",
            focus: `trim-${row.partition}`,
            title: `Delete records of partition ${row.partition}`,
          }),
      ],
    },
  ];
  const drawn = table(`Partitions of ${name}`, columns, topic.partitions, { key: (row) => row.partition, sort });
  return { node: card(null, { extra: "card-table" }, drawn.node), update: (next) => drawn.update(next.partitions), refresh: () => {} };
}

function grow(name, head) {
  const now = head.data?.partitions.length ?? 1;
  formDialog({
    action: "add-partitions",
    title: `Add partitions to ${name}`,
    intro: "Keys may be assigned to other partitions afterwards. The number of partitions cannot be decreased.",
    fields: [field("count", "Total number of partitions", { type: "number", min: now + 1, value: now + 1, required: true })],
    label: "Add partitions",
    submit: ({ count }) => post(at("topics", name, "partitions"), { count }),
    success: ({ count }) => `${name} has ${format.plural(count, "partition")}.`,
    done: head.refresh,
  });
}

function trim(name, row, head) {
  formDialog({
    action: "delete-records",
    title: `Delete records of ${name}, partition ${row.partition}`,
    intro: `All records before the offset are deleted permanently. The partition has offsets ${row.start_offset} to ${row.end_offset}.`,
    fields: [
      field("offset", "Delete records before offset", { type: "number", min: row.start_offset, max: row.end_offset, value: row.end_offset, required: true }),
      field("typed", `To confirm, type ${name}`, { required: true, pattern: name.replaceAll(".", "\\."), mono: true }),
    ],
    label: "Delete records",
    tone: "danger",
    submit: ({ offset }) => post(at("topics", name, "records", "delete"), { offsets: { [row.partition]: offset } }),
    success: ({ offset }) => `Partition ${row.partition} now starts at offset ${offset}.`,
    done: head.refresh,
  });
}

function move(name, row, head) {
  const body = ({ replicas }) => ({
    partitions: [{ topic: name, partition: row.partition, replicas: replicas.trim() ? replicas.split(",").map(Number) : null }],
  });
  formDialog({
    action: "move-partition",
    title: `Reassign partition ${row.partition} of ${name}`,
    intro: "The first node is the preferred leader. Old replicas are removed after the new ones are in sync.",
    fields: [
      field("replicas", "Replicas", {
        value: row.replicas.join(", "),
        mono: true,
        hint: "Node ids, separated by commas. Leave empty to cancel a reassignment in progress.",
        pattern: "\\s*\\d+(\\s*,\\s*\\d+)*\\s*|",
      }),
    ],
    label: "Reassign",
    preview: (form) => post("/reassignments", { ...body(form), dry_run: true }),
    submit: (form) => post("/reassignments", body(form)),
    success: ({ replicas }) =>
      replicas.trim() ? `The reassignment of partition ${row.partition} has started.` : `The reassignment of partition ${row.partition} was cancelled.`,
    done: head.refresh,
  });
}

function erase(name) {
  confirm({
    action: "delete-topic",
    title: `Delete topic ${name}`,
    intro: "The topic and all its records are deleted permanently on all nodes.",
    typed: name,
    label: "Delete topic",
    tone: "danger",
    run: () => remove(at("topics", name)),
    done: () => {
      say(`Topic ${name} was deleted.`);
      location.hash = link("topics");
    },
  });
}
