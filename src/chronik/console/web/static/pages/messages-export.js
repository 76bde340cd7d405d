// Download of the messages that match the query.

import { address, at, getBytes } from "../api.js";
import { formDialog } from "../ui/dialog.js";
import { choice } from "../ui/forms.js";
import { button, download } from "../ui/parts.js";
import { filtersOf, sortOf } from "./messages-query.js";

const FORMATS = [
  ["jsonl", "JSON lines"],
  ["csv", "CSV"],
  ["parquet", "Parquet"],
];
const LIMITS = [
  ["1000", "1,000"],
  ["10000", "10,000"],
  ["100000", "100,000"],
  ["1000000", "1,000,000"],
];

export function exportButton(topic, state) {
  const order = sortOf(state);
  const range = state.from?.startsWith("~") ? {} : { from: state.from, until: state.until };
  const location = (format, more) => address(at("topics", topic, "export"), { ...filtersOf(state), ...range, order, format, ...more });
  const open = () =>
    formDialog({
      action: "export",
      title: `Export messages of ${topic}`,
      intro: `The file contains the messages that match the query, the ${order} first.`,
      fields: [choice("format", "Format", FORMATS), choice("limit", "Number of messages, at most", LIMITS)],
      label: "Download",
      submit: async ({ format, limit }) => {
        await getBytes(location(format, { order: "oldest", from: "end", until: "", limit: 1 })); // shows why a request is rejected
        download(location(format, { limit }));
      },
      success: "The download has started.",
    });
  return button("export?", "Export", open, { small: true, glyph: "download" });
}
