// Formatting of numbers, sizes and times. `—` stands for an unknown value.

const NONE = "—";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const absent = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (value) => (absent(value) ? NONE : whole.format(value).replace("-", "−"));

function scaled(value, base, units, digits = 3) {
  let step = 0;
  let size = Math.abs(value);
  while (size >= base && step < units.length - 1) {
    size /= base;
    step += 1;
  }
  const decimals = step === 0 && Number.isInteger(value) ? 0 : Math.max(0, digits - String(Math.trunc(size)).length);
  const text = size.toFixed(Math.min(decimals, 2)).replace(/\.0+$|(\.\d*?)0+$/, "$1");
  return `${value < 0 ? "−" : ""}${text}${units[step]}`;
}

export const short = (value) => (absent(value) ? NONE : scaled(value, 1000, ["", " k", " M", " G", " T"]));
export const bytes = (value) => (absent(value) ? NONE : scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]));
export const rate = (value) => (absent(value) ? NONE : `${bytes(value)}/s`);
export const perSecond = (value) => (absent(value) ? NONE : `${short(value)}/s`);

export function milliseconds(value) {
  if (absent(value)) return NONE;
  if (value >= 1000) return `${scaled(value / 1000, 1000, [" s"])}`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

export function duration(seconds) {
  if (absent(seconds)) return NONE;
  if (seconds < 1) return seconds <= 0 ? "0 s" : "under 1 s";
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return parts(Math.floor(seconds / 60), "min", Math.floor(seconds % 60), "s");
  if (seconds < 86400) return parts(Math.floor(seconds / 3600), "h", Math.floor((seconds % 3600) / 60), "min");
  return parts(Math.floor(seconds / 86400), "d", Math.floor((seconds % 86400) / 3600), "h");
}

const parts = (large, one, small, other) => `${large} ${one}${small ? ` ${small} ${other}` : ""}`;

export const time = (ms) => (absent(ms) || ms < 0 ? NONE : clock.format(ms));

export function moment(ms) {
  if (absent(ms) || ms < 0) return NONE;
  const date = new Date(ms);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${clock.format(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

const two = (value) => String(value).padStart(2, "0");

/** Formats a time for a datetime-local field, in the browser's time zone. */
export function localInput(ms) {
  const date = new Date(ms);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day}T${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const list = (values) => (values?.length ? values.join(", ") : NONE);

export const known = (value) => (absent(value) || value === "" ? NONE : value);
