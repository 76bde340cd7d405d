// Formatting of numbers, sizes and times. `—` stands for an unknown value.

const NONE = "—";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const absent = (value) => value === null || value === undefined || Number.isNaN(value);

export const count = (value) => (absent(value) ? NONE : whole.format(value).replace("-", "−"));

function scaled(value, base, units, digits = 3) {
  let step = 0;
  let size = Math.abs(value);
  while (size >= base && step < units.length - 1) {
    size /= base;
    step += 1;
  }
  let text = rounded(size, step === 0 && Number.isInteger(value), digits);
  if (Number(text) >= base && step < units.length - 1) {
    step += 1;
    text = rounded(size / base, false, digits);
  }
  return `${value < 0 ? "−" : ""}${text}${units[step]}`;
}

function rounded(size, isWhole, digits) {
  const decimals = isWhole ? 0 : Math.max(0, digits - String(Math.trunc(size)).length);
  return size.toFixed(Math.min(decimals, 2)).replace(/\.0+$|(\.\d*?)0+$/, "$1");
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
  if (seconds < 60) return `${Math.min(59, Math.round(seconds))} s`;
  if (seconds < 3600) return parts(Math.floor(seconds / 60), "min", Math.floor(seconds % 60), "s");
  if (seconds < 86400) return parts(Math.floor(seconds / 3600), "h", Math.floor((seconds % 3600) / 60), "min");
  return parts(Math.floor(seconds / 86400), "d", Math.floor((seconds % 86400) / 3600), "h");
}

const parts = (large, one, small, other) => `${large} ${one}${small ? ` ${small} ${other}` : ""}`;

// The time zone is that of the browser or UTC, as chosen by the user. Browsers keep the choice.

const ZONE = "chronik.zone";
const DATE_MAX = 8.64e15;
let inUtc = storedZone() === "utc";

function storedZone() {
  try {
    return localStorage.getItem(ZONE);
  } catch {
    return null;
  }
}

const offsetOf = (ms) => (inUtc ? 0 : new Date(ms).getTimezoneOffset());

function offsetLabel(minutes) {
  if (!minutes) return "UTC";
  const ahead = Math.abs(minutes);
  return `UTC${minutes > 0 ? "−" : "+"}${two(Math.floor(ahead / 60))}:${two(ahead % 60)}`;
}

export const zone = {
  isUtc: () => inUtc,
  /** The minutes that the chosen zone is behind UTC at a time. */
  offset: offsetOf,
  label: (ms = Date.now()) => offsetLabel(offsetOf(ms)),
  localLabel: (ms = Date.now()) => offsetLabel(new Date(ms).getTimezoneOffset()),
  set: (utc) => {
    inUtc = utc;
    try {
      localStorage.setItem(ZONE, utc ? "utc" : "local");
    } catch {
      // The choice lasts until the page is reloaded.
    }
  },
};

/** Formats a time without its zone: 2026-05-31 12:00:00.000. */
export function stamp(ms) {
  if (absent(ms) || ms < 0) return NONE;
  const shifted = ms - offsetOf(ms) * 60_000;
  return ms > DATE_MAX || Number.isNaN(shifted) || shifted > DATE_MAX ? `${ms} ms` : new Date(shifted).toISOString().replace("T", " ").replace("Z", "");
}

/** Formats the time of day without its zone: 12:00:00. */
export const time = (ms) => stamp(ms).slice(-12, -4) || NONE;

const withZone = (text, ms) => (text === NONE ? NONE : `${text} ${zone.label(ms)}`);

/** Formats a time with milliseconds and its zone. */
export const moment = (ms) => withZone(stamp(ms), ms);

/** Formats a time with its zone. */
export const second = (ms) => withZone(stamp(ms).replace(/\.\d+$/, ""), ms);

/** Formats a time for a datetime-local field, in the chosen zone. */
export const zonedInput = (ms) => stamp(ms).slice(0, 19).replace(" ", "T");

/** Returns the time of a datetime-local field, in the chosen zone. */
export const parseZoned = (text) => (inUtc ? Date.parse(`${text}Z`) : new Date(text).getTime());

const two = (value) => String(value).padStart(2, "0");

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const list = (values) => (values?.length ? values.join(", ") : NONE);

export const known = (value) => (absent(value) || value === "" ? NONE : value);
