// Values of configs: readable texts, and form fields by type, unit and allowed values.

import { h } from "./dom.js";
import * as format from "./format.js";
import { check, choice, field, side } from "./forms.js";

const TIMES = [
  ["ms", "milliseconds", 1],
  ["s", "seconds", 1_000],
  ["min", "minutes", 60_000],
  ["h", "hours", 3_600_000],
  ["d", "days", 86_400_000],
];
const SIZES = [
  ["B", "bytes", 1],
  ["KiB", "KiB", 1024],
  ["MiB", "MiB", 1024 ** 2],
  ["GiB", "GiB", 1024 ** 3],
  ["TiB", "TiB", 1024 ** 4],
];
const SCALES = { ms: TIMES, bytes: SIZES };
const LONG_MAX = "9223372036854775807";

/** A value in a larger unit, such as 7 d for 604800000 ms; null if there is none. */
export function readable(row, value = row.value) {
  if (value === null || value === "") return null;
  if (value === "-1" && row.unlimited) return "no limit";
  if (value === LONG_MAX) return "no limit";
  const number = Number(value);
  if (row.unit === "ms" && number >= 1000) return format.duration(number / 1000);
  if (row.unit === "bytes" && number >= 1024) return format.bytes(number);
  return ["s", "min", "h"].includes(row.unit) ? `${value} ${row.unit}` : null;
}

/** What the config accepts, in one sentence. */
export function acceptedText(row) {
  const range = row.minimum === null ? null : row.maximum === null ? `at least ${row.minimum}` : `${row.minimum} to ${row.maximum}`;
  const unit = { ms: "milliseconds", s: "seconds", min: "minutes", h: "hours", bytes: "bytes" }[row.unit];
  const parts = [
    row.type !== "unknown" && `Type: ${row.type}${unit ? `, in ${unit}` : ""}.`,
    range && `Allowed: ${range}${row.unlimited && row.minimum !== -1 ? ", or -1 for no limit" : row.unlimited ? "; -1 for no limit" : ""}.`,
  ];
  const named = readable(row, row.default);
  if (row.default !== null && !row.sensitive) parts.push(`Default: ${row.default === "" ? "empty" : row.default}${named ? ` (${named})` : ""}.`);
  return parts.filter(Boolean).join(" ");
}

/** The field `value` of a form that changes the config; it reads the text to be stored. */
export function configField(row) {
  if (row.sensitive) return field("value", "Value", { type: "password", autofocus: true });
  if (row.choices.length && row.type === "list") return listField(row);
  if (row.choices.length)
    return choice(
      "value",
      "Value",
      row.choices.map((each) => [each, each === "" ? "(empty)" : each]),
      { value: row.value ?? "" },
    );
  const scale = SCALES[row.unit];
  if (scale && /^-?\d{1,15}$/.test(row.value ?? "") && row.value !== "-1") return scaledField(row, scale);
  return field("value", "Value", { value: row.value ?? "", mono: true, autofocus: true });
}

function listField(row) {
  const given = (row.value ?? "").split(",").map((each) => each.trim());
  const boxes = row.choices.map((each) => check(`value-${each}`, each, { value: given.includes(each) }));
  const node = h(
    "fieldset",
    { class: "field" },
    h("legend", {}, "Value"),
    boxes.map((each) => each.node),
  );
  return { name: "value", node, read: () => row.choices.filter((_, index) => boxes[index].read()).join(",") };
}

/** A number with a unit. The largest unit in which the value is a whole number is selected. */
function scaledField(row, scale) {
  const start = [...scale].reverse().find(([, , factor]) => Number(row.value) % factor === 0 && Number(row.value) >= factor) ?? scale[0];
  const amount = field("value", "Value", { type: "number", value: String(Number(row.value) / start[2]), required: true, autofocus: true });
  amount.input.step = "any";
  const unit = choice(
    "unit",
    "Unit",
    scale.map(([id, label]) => [id, label]),
    { value: start[0] },
  );
  const unlimited = row.unlimited && check("unlimited", "No limit", { onchange: () => (amount.input.disabled = unit.input.disabled = unlimited.read()) });
  const { node } = side(amount, unit);
  const factor = () => scale.find(([id]) => id === unit.read())[2];
  const read = () => (unlimited && unlimited.read() ? "-1" : String(Math.round(amount.read() * factor())));
  return { name: "value", node: h("div", { class: "field" }, node, unlimited && unlimited.node), read };
}
