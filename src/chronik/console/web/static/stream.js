// Receives the overview stream, keeps its latest event, and reconnects. Used by the shared worker, or by a tab if the
// browser does not support shared workers.

const ADDRESS = "/api/v1/stream";
const SILENT_MS = 6_000;
const RETRY_MS = 1_500;

export class Stream {
  constructor(tell) {
    this.tell = tell;
    this.source = null;
    this.last = null;
    this.up = null;
    this.heardMs = null;
    this.timer = null;
  }

  all() {
    return { kind: "all", last: this.last, up: this.up, heardMs: this.heardMs };
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
    this.last = sample;
    this.tell({ kind: "sample", sample });
  }

  lost() {
    this.source?.close();
    this.source = null;
    this.up = false;
    // Sent with each retry: a restarted node may require a new login, which only a page can show.
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
    this.last = null;
    this.up = null;
    this.heardMs = null;
  }
}
