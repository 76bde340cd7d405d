import { acceptedText, readable } from "/ui/ui/config-field.js";
import { scale } from "/ui/ui/chart.js";
import { diffLines, diffNode } from "/ui/ui/diff.js";
import { append, h } from "/ui/ui/dom.js";
import { isJson, looksLikeJson, prettyNodes, prettyText } from "/ui/ui/json.js";
import { visible } from "/ui/ui/text.js";
import { hexView, preview } from "/ui/pages/message-value.js";
import { filtersOf, isFiltered, sortOf } from "/ui/pages/messages-query.js";
import { equal, test } from "./harness.js";

const textOf = (...children) => append(h("div"), ...children).textContent;

test("JSON is indented and keeps all digits", () =>
  equal(prettyText('{"a":[1,{}],"b":12345678901234567890.10}'), '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": 12345678901234567890.10\n}'));

test("truncated JSON is indented", () => equal(prettyText('{"a":"x\\"y'), '{\n  "a": "x\\"y'));

test("the start of long JSON strings is shown", () => equal(textOf(...prettyNodes(`"${"x".repeat(30_000)}"`)).slice(20_000), "… 10,002 more characters"));

test("JSON is recognized", () => equal([isJson("[1]"), isJson("[1"), looksLikeJson(' {"a'), looksLikeJson("a")], [true, false, true, false]));

test("control and direction characters are visible", () => equal(textOf(visible("a\u0000b\u202ec\u007f\n")), "a␀bU+202Ec␡\n"));

test("markup in values is text", () => equal(h("p", {}, "<img src=x onerror=alert(1)>").childElementCount, 0));

test("empty, blank and null values are distinct in previews", () => {
  const shown = [{ kind: "null" }, { kind: "text", text: "" }, { kind: "text", text: "  " }, { kind: "text", text: "null" }];
  equal(
    shown.map((each) => textOf(preview(each, 20))),
    ["null", "empty", "blank: 2 characters", "null"],
  );
  equal(preview(shown[0], 20).className, "value-null");
});

test("previews are one line of limited length", () => equal(textOf(preview({ kind: "text", text: "one\ntwo three" }, 7)), "one two…"));

test("hexadecimal dumps show positions, bytes and ASCII characters", () => {
  const bytes = new Uint8Array([...Array(16).keys(), 0x41, 0xff]);
  const rows = hexView(bytes).querySelector("pre").textContent.split("\n");
  equal(rows[1], `00000010  41 ff${" ".repeat(18)}  ${" ".repeat(23)}  A·`);
});

test("diffs list added and removed lines", () =>
  equal(diffLines("a\nb\nc", "a\nx\nc"), [
    ["same", "a"],
    ["removed", "b"],
    ["added", "x"],
    ["same", "c"],
  ]));

test("diffs shorten runs of unchanged lines", () => {
  const lines = Array.from({ length: 20 }, (_, index) => `line ${index}`);
  equal(diffNode(diffLines(lines.join("\n"), [...lines, "end"].join("\n"))).textContent.includes("17 unchanged lines"), true);
});

test("ticks of charts are round in the displayed unit", () => {
  equal(scale(90, 1), { top: 100, ticks: [0, 50, 100] });
  equal(
    scale(3 * 1024, 1024).ticks.map((each) => each / 1024),
    [0, 1, 2, 3, 4],
  );
});

test("charts of zeros have a positive top", () => equal(scale(0, 1).top > 0, true));

test("messages are sorted by their start", () =>
  equal([{}, { from: "start" }, { from: "@1000" }, { from: "7" }, { from: "-50" }, { from: "7", sort: "newest" }].map(sortOf), [
    "newest",
    "oldest",
    "oldest",
    "oldest",
    "newest",
    "newest",
  ]));

test("the partition is no filter of messages", () => {
  equal([isFiltered({ partition: "1" }), Boolean(isFiltered({ where: "$.a = 1" }))], [false, true]);
  equal(filtersOf({ partition: "1", tab: "messages" }), { partition: "1" });
});

test("configs are readable in larger units", () => {
  equal(readable({ unit: "ms", value: "604800000" }), "7 d");
  equal(readable({ unit: "bytes", value: "1073741824" }), "1 GiB");
  equal([readable({ unit: "ms", value: "-1", unlimited: true }), readable({ value: "9223372036854775807" })], ["no limit", "no limit"]);
});

test("the accepted values of a config are one text", () =>
  equal(
    acceptedText({ type: "long", unit: "ms", minimum: -1, maximum: null, unlimited: true, default: "604800000", sensitive: false }),
    "Type: long, in milliseconds. Allowed: at least -1; -1 for no limit. Default: 604800000 (7 d).",
  ));
