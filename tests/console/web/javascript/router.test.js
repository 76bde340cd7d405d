import { address, at } from "/ui/api.js";
import { linkWithoutOpenMessage } from "/ui/pages/messages-query.js";
import { link, parse, setParams } from "/ui/router.js";
import { equal, test } from "./harness.js";

const NAME = "a/b?c#d%e ü";

test("links are parsed to the parts and parameters they were built from", () =>
  equal(parse(link("topics", NAME, { where: "$.a = 1 & $.b?", tab: "messages" })), {
    parts: ["topics", NAME],
    params: { where: "$.a = 1 & $.b?", tab: "messages" },
  }));

test("links omit empty parameters and keep zero", () => equal(link("topics", { a: "", b: null, c: undefined, d: false, e: 0 }), "#/topics?e=0"));

test("an empty URL is the overview", () => equal(parse("").parts, ["overview"]));

test("an invalid escape sequence is kept", () => equal(parse("#/topics/100%").parts, ["topics", "100%"]));

test("a question mark in a parameter is part of its value", () => equal(parse("#/topics/t?text=why?&limit=20").params, { text: "why?", limit: "20" }));

test("changed parameters replace the history entry", () => {
  location.hash = "#/topics/t?tab=messages&limit=20";
  const entries = history.length;
  setParams({ limit: "", text: "x" });
  equal([location.hash, history.length], ["#/topics/t?tab=messages&text=x", entries]);
});

test("the shared link of a query opens no message, wherever the parameter is", () => {
  location.hash = "#/topics/t?open=0:7&tab=messages";
  equal(linkWithoutOpenMessage(), `${location.origin}${location.pathname}#/topics/t?tab=messages`);
});

test("addresses of the API escape names and omit empty parameters", () =>
  equal(address(at("topics", NAME), { search: "ü&", limit: 0, after: "" }), `/api/v1/topics/a%2Fb%3Fc%23d%25e%20%C3%BC?search=%C3%BC%26&limit=0`));
