// Statistics of the records of a topic, computed on request by a scan with limits.

import { address, at } from "../api.js";
import { setParams } from "../router.js";
import { fill, h } from "../ui/dom.js";
import { choice, field } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { button, card, number, problem } from "../ui/parts.js";
import { table } from "../ui/table.js";

const STARTS = [
  ["-1000", "newest 1,000 of each partition"],
  ["-100000", "newest 100,000 of each partition"],
  ["start", "all records"],
];
const LIMITS = [
  ["100000", "100,000 records"],
  ["1000000", "1,000,000 records"],
  ["10000000", "10,000,000 records"],
];
const SECONDS = [
  ["10", "10 s"],
  ["30", "30 s"],
  ["120", "2 min"],
  ["300", "5 min"],
];
const ENDS = {
  end: "All selected records were read.",
  messages: "The record limit was reached: increase it to read more.",
  seconds: "The timeout was reached: increase it to read more.",
  cancelled: "Cancelled.",
};

export function statisticsCard(name, params) {
  let source = null;
  const from = choice("from", "Records", STARTS, { value: params.from ?? "-100000" });
  const max = choice("max", "Read at most", LIMITS, { value: params.max ?? "1000000" });
  const seconds = choice("seconds", "Timeout", SECONDS, { value: params.seconds ?? "30" });
  const partition = field("partition", "Partition", { type: "number", min: 0, value: params.partition ?? "", placeholder: "all" });
  const status = h("div", { class: "messages-status", role: "status" }, "Statistics are computed from the records: select how many are read.");
  const result = h("div", {});
  const compute = button("compute-statistics", "Compute", null, { type: "submit", tone: "primary" });
  const submit = (event) => {
    event.preventDefault();
    setParams({ partition: partition.input.value, from: from.read(), max: max.read(), seconds: seconds.read() });
    start();
  };
  const form = h(
    "form",
    { class: "controls", onsubmit: submit, "aria-label": "Records to read" },
    partition.node,
    from.node,
    max.node,
    seconds.node,
    h("div", { class: "controls-go" }, compute),
  );

  function start() {
    stop();
    const line = h("span", {}, "Reading…");
    fill(
      status,
      h("span", { class: "spinner", "aria-hidden": "true" }),
      line,
      button("cancel-statistics", "Cancel", () => end("cancelled"), { small: true, tone: "danger" }),
    );
    fill(result);
    const query = { partition: partition.input.value, from: from.read(), max_messages: max.read(), max_seconds: seconds.read() };
    source = new EventSource(address(at("topics", name, "statistics"), query));
    source.addEventListener("progress", (event) => {
      const { scanned, total, bytes } = JSON.parse(event.data);
      line.textContent = `Read ${format.count(scanned)} of ${format.plural(total, "record")}, ${format.bytes(bytes)}.`;
    });
    source.addEventListener("statistics", (event) => {
      const answer = JSON.parse(event.data);
      end(answer.why, answer.error);
      fill(result, statisticsTable(name, answer));
    });
    source.addEventListener("error", () =>
      end("error", "The computation was interrupted: the node is unreachable, the partition does not exist, or you lack the Read permission on this topic."),
    );
  }

  function end(why, error) {
    stop();
    fill(status, why === "error" ? problem(error) : ENDS[why]);
  }

  function stop() {
    source?.close();
    source = null;
  }

  return { node: card(null, { extra: "card-table" }, form, status, result), close: stop };
}

function statisticsTable(name, { topic, partitions }) {
  const share = (part, whole) =>
    whole ? `${format.count(part)} (${((100 * part) / whole).toFixed(part && part / whole < 0.01 ? 2 : 0)} %)` : format.count(part);
  const sizes = ({ minimum, mean, maximum }) =>
    minimum === null ? "—" : `${format.bytes(minimum)} · ${format.bytes(Math.round(mean))} · ${format.bytes(maximum)}`;
  const moment = (ms) => format.moment(ms).slice(0, 19);
  const columns = [
    { label: "Partition", cell: (row) => (row.partition === null ? "all" : String(row.partition)) },
    { label: "Records", align: "end", cell: (row) => number(row.records) },
    { label: "Distinct keys", align: "end", cell: (row) => `${row.distinct_keys > 100 ? "≈ " : ""}${format.count(row.distinct_keys)}` },
    { label: "Without key", align: "end", cell: (row) => share(row.null_keys, row.records) },
    { label: "Null values", align: "end", cell: (row) => share(row.null_values, row.records) },
    { label: "Key size (min · mean · max)", align: "end", cell: (row) => sizes(row.keys) },
    { label: "Value size (min · mean · max)", align: "end", cell: (row) => sizes(row.values) },
    { label: "Headers", align: "end", cell: (row) => number(row.headers) },
    { label: "First timestamp", cell: (row) => moment(row.first_timestamp_ms) },
    { label: "Last timestamp", cell: (row) => moment(row.last_timestamp_ms) },
  ];
  return table(`Statistics of ${name}`, columns, [topic, ...partitions], { key: (row) => row.partition ?? "all" }).node;
}
