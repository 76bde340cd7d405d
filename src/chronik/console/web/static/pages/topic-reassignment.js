// The form that reassigns all partitions of a topic to chosen nodes, by a plan of the server with few moves.

import { at, get, post } from "../api.js";
import { formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { check, field, note } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { notice } from "../ui/parts.js";
import { table } from "../ui/table.js";
import { say } from "../ui/toast.js";

const SHOWN_MAX = 100;

export async function reassignTopic(topic, done) {
  let nodes;
  try {
    nodes = (await get("/nodes", { limit: 500 })).items.filter((each) => each.status !== "absent");
  } catch (error) {
    say(error.message);
    return;
  }
  const used = new Set(topic.partitions.flatMap((each) => each.replicas));
  const boxes = nodes.map((each) => ({
    id: each.id,
    box: check(`node-${each.id}`, [`node ${each.id}`, each.rack, each.draining && "draining"].filter(Boolean).join(", "), { value: used.has(each.id) }),
  }));
  let moves = [];
  formDialog({
    action: "reassign-topic",
    title: `Reassign topic ${topic.name}`,
    intro: "All replicas are placed on the selected nodes, with as few moves as possible. Old replicas are removed after the new ones are in sync.",
    wide: true,
    fields: [
      note(
        h(
          "fieldset",
          { class: "field" },
          h("legend", {}, "Nodes"),
          boxes.map(({ box }) => box.node),
        ),
      ),
      field("replication_factor", "Replication factor", { type: "number", min: 1, value: topic.replication_factor, required: true }),
    ],
    label: "Reassign",
    preview: async (form) => {
      const chosen = boxes.filter(({ box }) => box.read()).map(({ id }) => id);
      if (!chosen.length) return { refused: "Select at least one node." };
      const { items, refused } = await get(at("topics", topic.name, "placement"), { nodes: chosen.join(","), replication_factor: form.replication_factor });
      moves = items;
      return { plan: movesTable(items), refused: refused ?? (items.length ? null : "No partition has to move.") };
    },
    submit: () => post("/reassignments", { partitions: moves.map(({ partition, replicas }) => ({ topic: topic.name, partition, replicas })) }),
    success: () => `The reassignment of ${format.plural(moves.length, "partition")} has started.`,
    done,
  });
}

function movesTable(items) {
  const copies = items.reduce((sum, each) => sum + each.replicas.filter((node) => !each.current.includes(node)).length, 0);
  return h(
    "div",
    {},
    notice(
      `${format.plural(items.length, "partition")} ${items.length === 1 ? "changes" : "change"}, ${format.plural(copies, "replica")} ${copies === 1 ? "is" : "are"} copied.${items.length > SHOWN_MAX ? ` The first ${SHOWN_MAX} are shown.` : ""}`,
    ),
    table(
      "Planned replicas",
      [
        { label: "Partition", cell: (row) => String(row.partition) },
        { label: "Current replicas", cell: (row) => format.list(row.current) },
        { label: "New replicas", cell: (row) => h("strong", {}, format.list(row.replicas)) },
      ],
      items.slice(0, SHOWN_MAX),
      { key: (row) => row.partition, showCaption: true },
    ).node,
  );
}
