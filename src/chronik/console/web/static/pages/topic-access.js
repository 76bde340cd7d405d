// Who uses a topic: its consumer groups, and the ACLs that apply to it.

import { at, get } from "../api.js";
import { mayOnAll, mayOnCluster } from "../permissions.js";
import { link, parse, setParams } from "../router.js";
import { h } from "../ui/dom.js";
import { searchField } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { button, card, hiddenNotice, meter, notice, number } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";
import { stateBadge } from "./groups.js";
import { addAcl } from "./acl-forms.js";
import { aclColumns } from "./security.js";

const PAGE = 50;

export function consumersCard(name, params) {
  let state = params;
  const trail = () => (state.trail ? state.trail.split("\n") : []);
  const rows = resource((signal) => get(at("topics", name, "consumers"), { search: state.search, limit: PAGE, after: trail().at(-1) }, signal), draw, {
    everyMs: 5_000,
  });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search groups", state.search, (search) => setParams({ search, trail: "" })),
  );
  const sort = { value: () => parse().params.sort, set: (sorted) => (setParams({ sort: sorted }), rows.show()) };

  function draw({ items, next, total, complete }) {
    const all = mayOnAll("describe", "group") || mayOnCluster("describe");
    const most = Math.max(1, ...items.map((each) => each.lag ?? 0));
    const columns = [
      {
        label: "Group",
        grow: true,
        sort: (row) => row.group,
        cell: (row) => h("a", { class: "name", href: link("groups", row.group), "data-focus": `group-${row.group}` }, row.group),
      },
      { label: "State", sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
      { label: "Members", align: "end", sort: (row) => row.members, cell: (row) => number(row.members) },
      {
        label: "Lag",
        align: "end",
        sort: (row) => row.lag,
        cell: (row) => h("span", { class: "with-meter" }, number(row.lag), meter((row.lag ?? 0) / most, row.lag ? "warning" : "")),
      },
      {
        label: "Largest lag",
        cell: (row) =>
          row.slowest
            ? [
                `partition ${row.slowest.partition}: ${format.count(row.slowest.lag)}`,
                h(
                  "div",
                  { class: "muted small" },
                  row.slowest.client_id === null ? "no member" : `${row.slowest.client_id || "no client id"} on ${row.slowest.host}`,
                ),
              ]
            : "—",
      },
    ];
    const empty = state.search
      ? `No ${all ? "" : "visible "}consumer group contains “${state.search}”.`
      : all
        ? "The topic has no consumer groups."
        : "No consumer groups are visible to you.";
    return [
      !all && hiddenNotice("Describe on a group to see it in this list"),
      !complete && notice("There are too many active groups to examine: groups without committed offsets on this topic may be missing.", "warning"),
      table(`Consumer groups of ${name}`, columns, items, { key: (row) => row.group, sort, empty }).node,
      pager({ shown: items.length, total, next, trail: trail(), set: (tokens) => setParams({ trail: tokens.join("\n") }, { replace: false }) }),
    ];
  }

  return {
    node: card(null, { extra: "card-table" }, bar, rows.node),
    refresh: rows.refresh,
    close: rows.close,
    params: (next) => {
      const changed = ["search", "trail"].some((key) => state[key] !== next[key]);
      state = next;
      if (changed) rows.refresh();
    },
  };
}

export function topicAclsCard(name) {
  const load = (signal) => get("/acls", { resource: "topic", name, pattern: "match", limit: 500 }, signal);
  const rows = resource(
    load,
    ({ items, total }) => [
      table(`ACLs of ${name}`, aclColumns(rows), items, { key: (row) => JSON.stringify(row), empty: "No ACL applies to this topic." }).node,
      h(
        "p",
        { class: "hint table-note" },
        total > items.length ? `${format.count(items.length)} of ${format.plural(total, "ACL")}.` : "ACLs on this name, on its prefixes and on all topics.",
      ),
    ],
    { everyMs: 10_000, permission: "Describe on the cluster" },
  );
  const bar =
    mayOnCluster("alter") &&
    h(
      "div",
      { class: "filter-bar" },
      button("create-acl?", "Create ACL", () => addAcl(rows, { resource: "topic", name }), { glyph: "plus", small: true }),
    );
  return { node: card(null, { extra: "card-table" }, bar, rows.node), refresh: rows.refresh, close: rows.close };
}
