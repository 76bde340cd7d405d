// The browser's time zone is America/St_Johns: UTC−03:30, in summer UTC−02:30.

import * as format from "/ui/ui/format.js";
import { equal, test } from "./harness.js";

const SUMMER = Date.UTC(2026, 4, 31, 12, 0, 0, 250);
const WINTER = Date.UTC(2026, 0, 31, 12);

function inUtc(body) {
  format.zone.set(true);
  try {
    body();
  } finally {
    format.zone.set(false);
  }
}

test("unknown values are a dash", () => {
  for (const show of [format.count, format.short, format.bytes, format.rate, format.milliseconds, format.duration, format.stamp, format.time]) {
    equal([show(null), show(undefined), show(NaN)], ["—", "—", "—"]);
  }
});

test("counts are grouped and have a minus sign", () => equal([format.count(1234567), format.count(-5)], ["1,234,567", "−5"]));

test("nouns are singular for one", () =>
  equal([format.plural(1, "topic"), format.plural(0, "topic"), format.plural(2, "entry", "entries")], ["1 topic", "0 topics", "2 entries"]));

test("sizes have three digits and binary units", () =>
  equal([0, 1023, 1024, 1536, 123456789, -2048].map(format.bytes), ["0 B", "1023 B", "1 KiB", "1.5 KiB", "118 MiB", "−2 KiB"]));

test("sizes that round up to the next unit use it", () => {
  equal(format.bytes(1024 ** 2 - 1), "1 MiB");
  equal(format.short(999_999), "1 M");
});

test("latencies have three digits", () => equal([0.1234, 12.34, 123.4, 1500].map(format.milliseconds), ["0.12 ms", "12.3 ms", "123 ms", "1.5 s"]));

test("durations have two units", () =>
  equal([0, 0.5, 59, 60, 90, 3661, 90_000].map(format.duration), ["0 s", "under 1 s", "59 s", "1 min", "1 min 30 s", "1 h 1 min", "1 d 1 h"]));

test("a duration of almost a minute is not 60 seconds", () => equal(format.duration(59.7), "59 s"));

test("times name the offset of the local zone at that time", () => {
  equal(format.moment(SUMMER), "2026-05-31 09:30:00.250 UTC−02:30");
  equal(format.second(WINTER), "2026-01-31 08:30:00 UTC−03:30");
});

test("times are in UTC if chosen", () =>
  inUtc(() => equal([format.moment(SUMMER), format.time(SUMMER), format.zone.label()], ["2026-05-31 12:00:00.250 UTC", "12:00:00", "UTC"])));

test("times of day are in the local zone", () => equal(format.time(SUMMER), "09:30:00"));

test("times out of range are numbers", () => equal(format.stamp(9e15), "9000000000000000 ms"));

test("times of form fields are read as they were shown", () => {
  const whole = SUMMER - 250;
  equal([format.zonedInput(whole), format.parseZoned(format.zonedInput(whole))], ["2026-05-31T09:30:00", whole]);
  inUtc(() => equal([format.zonedInput(whole), format.parseZoned(format.zonedInput(whole))], ["2026-05-31T12:00:00", whole]));
});

test("the chosen zone is stored", () => {
  inUtc(() => equal(localStorage.getItem("chronik.zone"), "utc"));
  equal(localStorage.getItem("chronik.zone"), "local");
});
