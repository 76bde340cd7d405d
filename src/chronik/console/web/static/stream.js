// Listens to the node's stream, keeps the last minutes, and comes back by itself. Used by the worker, or by a tab where
// browsers have no shared workers.

const ADDRESS = "/api/v1/stream";
const KEPT_MS = 5 * 60_000;
const SILENT_MS = 6_000;
const RETRY_MS = 1_500;

export class Stream {
  constructor(tell) {
    this.tell = tell;
    this.source = null;
    this.history = [];
    this.cluster = null;
    this.up = null;
    this.heardMs = null;
    this.timer = null;
  }

  all() {
    return { kind: "all", history: this.history, up: this.up, heardMs: this.heardMs };
  }

  start() {
    if (this.source || this.timer) return;
    this.source = new EventSource(ADDRESS);
    this.source.addEventListener("overview", (event) => this.heard(JSON.parse(event.data)));
    this.source.addEventListener("error", () => this.lost());
    this.watch();
  }

  watch() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lost(), SILENT_MS);
  }

  heard(sample) {
    this.watch();
    this.up = true;
    this.heardMs = Date.now();
    sample.heardMs = this.heardMs;
    this.history.push(sample);
    const oldest = this.heardMs - KEPT_MS;
    while (this.history.length && this.history[0].heardMs < oldest) this.history.shift();
    this.tell({ kind: "sample", sample });
  }

  lost() {
    this.source?.close();
    this.source = null;
    this.up = false;
    // Said again with each try: a node that is back may ask who we are, and only a page can answer that.
    this.tell({ kind: "lost", heardMs: this.heardMs });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.retry(), RETRY_MS);
  }

  retry() {
    this.stop();
    this.start();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.source?.close();
    this.source = null;
  }

  forget() {
    this.stop();
    this.history = [];
    this.up = null;
    this.heardMs = null;
  }
}
