// Forms that create ACLs: a single one, those of a producer or a consumer, and those of a CSV file.

import { get, post } from "../api.js";
import { formDialog } from "../ui/dialog.js";
import { h } from "../ui/dom.js";
import { check, choice, field, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { badge, notice } from "../ui/parts.js";
import { table } from "../ui/table.js";

const SUGGESTIONS = 100;
const RESOURCES = ["topic", "group", "cluster", "transactional-id", "user", "delegation-token", "subject"];
const OPERATIONS = [
  "all",
  "read",
  "write",
  "create",
  "delete",
  "alter",
  "describe",
  "cluster-action",
  "describe-configs",
  "alter-configs",
  "idempotent-write",
  "create-tokens",
  "describe-tokens",
  "two-phase-commit",
];

/** The columns of tables of ACLs. */
export const aclCells = [
  { label: "Principal", grow: true, cell: (row) => h("span", { class: "name" }, row.principal) },
  { label: "Permission", cell: (row) => badge(row.permission, row.permission === "deny" ? "error" : "ok") },
  { label: "Operation", cell: (row) => row.operation },
  { label: "Resource type", cell: (row) => row.resource },
  { label: "Resource name", grow: true, cell: (row) => h("span", { class: "mono wrap" }, row.name) },
  { label: "Pattern type", cell: (row) => row.pattern },
  { label: "Host", cell: (row) => h("span", { class: "mono" }, row.host) },
];

/** Suggests the names of a list, as far as the principal may see them. */
async function suggest(input, path, nameOf) {
  try {
    input.suggest((await get(path, { limit: SUGGESTIONS })).items.map(nameOf));
  } catch {
    // The field has no suggestions then.
  }
}

const lines = (text) =>
  text
    .split("\n")
    .map((each) => each.trim())
    .filter(Boolean);

/** Shows fields; hidden ones are not validated. */
function showFields(fields, shown) {
  for (const each of fields) {
    each.node.hidden = !shown;
    for (const part of each.parts ?? [each]) part.input.disabled = !shown;
  }
}

/** `preset` are values of fields, such as the resource of a page. */
export function addAcl(rows, preset = {}, onclose = () => {}) {
  const principal = field("principal", "Principal", {
    required: true,
    autofocus: true,
    mono: true,
    suggestions: [],
    hint: "A user name, User:name, or User:* for all users.",
  });
  const resourceType = choice("resource", "Resource type", RESOURCES, { value: preset.resource, onchange: () => suggestNames() });
  const name = field("name", "Resource name", {
    value: preset.name,
    required: true,
    mono: true,
    suggestions: [],
    hint: "* for all resources; kafka-cluster for the cluster.",
  });
  const role = choice(
    "role",
    "ACLs for",
    [
      ["", "a single operation"],
      ["producer", "a producer: writes to topics"],
      ["consumer", "a consumer: reads topics in groups"],
    ],
    { onchange: () => showRole() },
  );
  const names = (key, label, options) => field(key, label, { rows: 2, mono: true, ...options });
  const topics = names("topics", "Topics", { required: true, value: preset.resource === "topic" ? preset.name : "", hint: "One name or prefix on each line." });
  const groups = names("groups", "Groups", { required: true, hint: "One name or prefix on each line." });
  const ids = names("transactional_ids", "Transactional ids", { hint: "Only for producers with transactions. One name or prefix on each line." });
  const idempotent = check("idempotent", "Add IdempotentWrite on the cluster", { hint: "Needed only by brokers of Kafka before 2.8." });
  const single = [
    side(
      choice("permission", "Permission", [
        ["allow", "allow"],
        ["deny", "deny"],
      ]),
      choice("operation", "Operation", OPERATIONS, { value: "read" }),
    ),
    side(resourceType, name),
  ];
  const completed = (form) => (form.principal.includes(":") ? form.principal : `User:${form.principal}`);
  const common = (form) => ({ principal: completed(form), pattern: form.pattern, host: form.host });
  suggest(principal, "/users", (each) => `User:${each.name}`);
  suggestNames();
  showRole();

  function suggestNames() {
    const lists = { topic: ["/topics", (each) => each.name], group: ["/groups", (each) => each.group] };
    name.suggest([]);
    const found = lists[resourceType.read()];
    if (found) suggest(name, ...found);
  }

  function showRole() {
    const kind = role.read();
    showFields(single, !kind);
    showFields([topics], kind);
    showFields([groups], kind === "consumer");
    showFields([ids, idempotent], kind === "producer");
  }

  function create(form, dryRun) {
    if (!form.role) {
      const { permission, operation, resource, name: named } = form;
      return post("/acls", { acls: [{ ...common(form), permission, operation, resource, name: named }] });
    }
    const more = form.role === "producer" ? { transactional_ids: lines(form.transactional_ids), idempotent: form.idempotent } : { groups: lines(form.groups) };
    return post(`/acls/${form.role}`, { ...common(form), topics: lines(form.topics), ...more, dry_run: dryRun });
  }

  formDialog({
    action: "create-acl",
    title: "Create ACL",
    wide: true,
    fields: [
      role,
      principal,
      ...single,
      topics,
      groups,
      ids,
      side(
        choice("pattern", "Pattern type", [
          ["literal", "literal"],
          ["prefixed", "prefixed"],
        ]),
        field("host", "Host", { value: "*", required: true, mono: true }),
      ),
      idempotent,
    ],
    label: "Create ACL",
    previews: (form) => form.role !== "",
    preview: async (form) => ({ plan: additions(await create(form, true)) }),
    submit: (form) => create(form, false),
    success: (form, answer) =>
      form.role ? created(answer) : `ACL created: ${form.permission} ${completed(form)} to ${form.operation} ${form.resource} ${form.name}.`,
    done: rows.refresh,
    onclose,
  });
}

const created = ({ added }) => `${format.plural(added.length, "ACL")} created.`;

function additions({ added, existing }) {
  const states = new Map([...added.map((acl) => [acl, "new"]), ...existing.map((acl) => [acl, "exists"])]);
  const state = { label: "Status", cell: (acl) => badge(states.get(acl), states.get(acl) === "new" ? "ok" : "plain") };
  const some = existing.length ? ` ${format.plural(existing.length, "ACL")} already ${existing.length === 1 ? "exists" : "exist"}.` : "";
  return h(
    "div",
    {},
    notice(`${format.plural(added.length, "ACL")} will be created.${some}`, "info"),
    table("ACLs of the plan", [...aclCells, state], [...states.keys()], { empty: "There are no ACLs." }).node,
  );
}

export function importAcls(rows, onclose) {
  const chosen = field("file", "CSV file", {
    type: "file",
    required: true,
    autofocus: true,
    hint: "Columns: Principal, ResourceType, PatternType, ResourceName, Operation, PermissionType, Host.",
  });
  chosen.input.accept = ".csv,text/csv";
  const file = { ...chosen, read: () => chosen.input.files[0] };
  const load = async (form, dryRun) => post("/acls/import", { csv: await form.file.text(), dry_run: dryRun });
  const invalidLines = (invalid) =>
    table(
      "Invalid lines",
      [
        { label: "Line", align: "end", cell: (row) => format.count(row.line) },
        { label: "Error", grow: true, cell: (row) => row.error },
      ],
      invalid,
      { showCaption: true },
    ).node;
  formDialog({
    action: "import-acls",
    title: "Import ACLs",
    intro: "Creates the ACLs of a CSV file that do not exist. Other ACLs stay as they are.",
    wide: true,
    fields: [file],
    label: "Import ACLs",
    preview: async (form) => {
      const answer = await load(form, true);
      if (!answer.invalid.length) return { plan: additions(answer) };
      return {
        refused: `${format.plural(answer.invalid.length, "line")} of the file cannot be imported. Nothing was created.`,
        plan: invalidLines(answer.invalid),
      };
    },
    submit: async (form) => {
      const answer = await load(form, false);
      return answer.done ? answer : { refused: "The file was changed after the preview: go back and show the plan again." };
    },
    success: (_form, answer) => created(answer),
    done: rows.refresh,
    onclose,
  });
}
