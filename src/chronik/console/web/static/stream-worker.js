// A shared worker with one event stream for all tabs, since browsers limit the connections to a host to six.
// It keeps the latest event for new tabs.

import { Stream } from "./stream.js";

const ports = new Set();
const stream = new Stream((message) => {
  for (const port of ports) port.postMessage(message);
});

self.addEventListener("connect", (event) => {
  const port = /** @type {MessageEvent} */ (event).ports[0];
  port.addEventListener("message", ({ data }) => heard(port, data));
  port.start();
});

function heard(port, data) {
  if (data === "hello") {
    ports.add(port);
    port.postMessage(stream.all());
    stream.start();
  } else if (data === "bye") {
    ports.delete(port);
    if (!ports.size) stream.stop();
  } else if (data === "retry") stream.retry();
  else if (data === "forget") stream.forget();
}
