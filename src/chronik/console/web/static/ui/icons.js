// Inline SVG icons on a grid of 24.

import { svg } from "./dom.js";

const PATHS = {
  overview: ["M4 13h6V4H4z", "M14 20h6v-9h-6z", "M4 20h6v-3H4z", "M14 7h6V4h-6z"],
  topics: ["M4 6h16", "M4 12h12", "M4 18h8"],
  groups: ["M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6z", "M2.5 19c.6-3.2 2.7-5 5.5-5s4.9 1.8 5.5 5", "M16 11a2.5 2.5 0 1 0-1.2-4.7", "M16 14c2.7 0 4.7 1.7 5.3 4.5"],
  schemas: ["M9 4H7a2 2 0 0 0-2 2v4l-2 2 2 2v4a2 2 0 0 0 2 2h2", "M15 4h2a2 2 0 0 1 2 2v4l2 2-2 2v4a2 2 0 0 1-2 2h-2"],
  transactions: ["M4 8h14", "M14 4l4 4-4 4", "M20 16H6", "M10 12l-4 4 4 4"],
  nodes: ["M4 4h16v6H4z", "M4 14h16v6H4z", "M8 7h.01", "M8 17h.01"],
  security: ["M12 3l7 3v5c0 4.5-2.9 8-7 10-4.1-2-7-5.5-7-10V6z", "M9 12l2 2 4-4"],
  tables: ["M4 5h16v14H4z", "M4 10h16", "M10 10v9"],
  search: ["M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14z", "M20 20l-4-4"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  plus: ["M12 5v14", "M5 12h14"],
  check: ["M5 12.5l4.5 4.5L19 7.5"],
  warning: ["M12 4l9 16H3z", "M12 10v4", "M12 17h.01"],
  error: ["M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z", "M12 8v5", "M12 16h.01"],
  info: ["M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z", "M12 11v5", "M12 8h.01"],
  sun: [
    "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8z",
    "M12 2v2",
    "M12 20v2",
    "M2 12h2",
    "M20 12h2",
    "M5 5l1.5 1.5",
    "M17.5 17.5L19 19",
    "M19 5l-1.5 1.5",
    "M6.5 17.5L5 19",
  ],
  moon: ["M20 14.5A8 8 0 1 1 9.5 4a6.5 6.5 0 0 0 10.5 10.5z"],
  system: ["M3 5h18v11H3z", "M9 20h6", "M12 16v4"],
  out: ["M14 4h5v16h-5", "M4 12h11", "M11 8l4 4-4 4"],
  pause: ["M8 5v14", "M16 5v14"],
  play: ["M7 5l12 7-12 7z"],
  download: ["M12 4v11", "M7 11l5 5 5-5", "M5 20h14"],
  copy: ["M9 9h11v11H9z", "M15 9V4H4v11h5"],
  next: ["M9 6l6 6-6 6"],
  back: ["M15 6l-6 6 6 6"],
  down: ["M6 9l6 6 6-6"],
  chart: ["M4 19V5", "M4 19h16", "M7 15l4-5 3 3 5-7"],
  lock: ["M6 11h12v9H6z", "M9 11V8a3 3 0 0 1 6 0v3"],
  trash: ["M5 7h14", "M9 7V4h6v3", "M7 7l1 13h8l1-13"],
  refresh: ["M20 11a8 8 0 1 0-2.3 6.3", "M20 5v6h-6"],
};

export function icon(name, extra = "") {
  return svg(
    "svg",
    { class: `icon ${extra}`.trim(), viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    (PATHS[name] ?? []).map((d) => svg("path", { d })),
  );
}
