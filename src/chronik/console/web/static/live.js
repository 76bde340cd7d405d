// The live state of the console: the latest event of the overview stream, and the connection state.

import { get, onSilence } from "./api.js";
import { Stream } from "./stream.js";

const ANSWER_WITHIN_MS = 3_000;

export const live = {
  /** "waiting" before the first event, then "up", "gone" (node unreachable) or "refused" (not authorized). */
  state: "waiting",
  last: null,
  heardMs: null,
  session: null,
};

const events = new EventTarget();
/** @type {(word: "hello" | "bye" | "retry" | "forget") => void} */
let send = () => {};

export const onSample = (listener) => on("sample", listener);
export const onState = (listener) => on("state", listener);

function on(name, listener) {
  const heard = () => listener(live);
  events.addEventListener(name, heard);
  return () => events.removeEventListener(name, heard);
}

function become(state) {
  if (live.state === state) return;
  live.state = state;
  events.dispatchEvent(new Event("state"));
}

function hear(message) {
  if (message.kind === "all") {
    live.last = message.last;
    live.heardMs = message.heardMs;
    if (message.up) become("up");
    else if (message.up === false) lost();
    if (live.last) events.dispatchEvent(new Event("sample"));
  } else if (message.kind === "sample") {
    live.last = message.sample;
    live.heardMs = message.sample.heardMs;
    become("up");
    events.dispatchEvent(new Event("sample"));
  } else if (message.kind === "lost") lost();
}

let asking = false;

/** Handles the end of the stream: finds out whether the node is unreachable or the user is no longer authorized. */
async function lost() {
  if (asking) return;
  asking = true;
  try {
    await get("/cluster", {}, AbortSignal.timeout(ANSWER_WITHIN_MS));
  } catch (error) {
    if (error.status === 403) become("refused");
    else if (!error.status) become("gone");
  } finally {
    asking = false;
  }
}

function open() {
  if ("SharedWorker" in globalThis) {
    const worker = new SharedWorker("/ui/stream-worker.js", { type: "module", name: "chronik-stream" });
    worker.port.addEventListener("message", ({ data }) => hear(data));
    worker.port.start();
    return (word) => worker.port.postMessage(word);
  }
  const stream = new Stream(hear);
  const words = { hello: () => stream.start(), bye: () => stream.stop(), retry: () => stream.retry(), forget: () => stream.forget() };
  return (word) => words[word]();
}

export function listen() {
  send = open();
  send("hello");
  addEventListener("pagehide", () => send("bye"));
  addEventListener("pageshow", (event) => event.persisted && send("hello"));
}

export function retry() {
  send("retry");
}

export function forget() {
  send("forget");
  live.last = null;
  live.heardMs = null;
  live.state = "waiting";
}

onSilence(() => {
  if (live.state !== "up") become("gone");
});
