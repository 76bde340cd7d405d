// The form that produces one message.

import { at, post } from "../api.js";
import { parse, setParams } from "../router.js";
import { formDialog } from "../ui/dialog.js";
import { check, choice, field, pairs, side } from "../ui/forms.js";
import * as format from "../ui/format.js";

const FORMATS = [
  ["text", "text"],
  ["json", "JSON (validated)"],
  ["base64", "bytes (base64)"],
];

export function produceForm(name, partitions = 1, { done }) {
  const where = [["", "by key (default partitioner)"], ...Array.from({ length: partitions }, (_, index) => [index, `partition ${index}`])];
  const tombstone = check("tombstone", "Tombstone (null value): deletes the key in a compacted topic");
  formDialog({
    action: "write-message",
    title: `Produce a message to ${name}`,
    wide: true,
    fields: [
      side(field("key", "Key", { mono: true, hint: "Leave empty for no key." }), choice("key_format", "Key format", FORMATS)),
      field("value", "Value", { rows: 7, mono: true, autofocus: true }),
      side(choice("value_format", "Value format", FORMATS), choice("partition", "Partition", where)),
      tombstone,
      pairs("headers", "Headers", { add: "Add header" }),
      field("timestamp", `Timestamp (${format.zone.label()})`, { type: "datetime-local", hint: "Leave empty for the current time." }),
    ],
    label: "Produce",
    submit: (form) => post(at("topics", name, "messages"), body(form)),
    success: (_, answer) => `Produced to partition ${answer.partition} at offset ${format.count(answer.offset)}.`,
    done,
    onclose: () => parse().params.do && setParams({ do: "" }),
  });
}

function body(form) {
  return {
    partition: form.partition === "" ? null : Number(form.partition),
    key: form.key === "" ? null : form.key,
    value: form.tombstone ? null : form.value,
    headers: form.headers.map(([header, value]) => ({ name: header, value })),
    key_format: form.key_format,
    value_format: form.value_format,
    timestamp_ms: form.timestamp ? format.parseZoned(form.timestamp) : null,
  };
}
