// Schemas: the subjects of the schema registry, their versions, and the differences and references of versions.
// Deleting a subject or version hides it, but consumers can still read it by id, until it is deleted permanently.

import { at, get, registry } from "../api.js";
import { mayOnAll, mayOnAny, mayOnCluster } from "../permissions.js";
import { link, parse, setParams } from "../router.js";
import { confirm, formDialog } from "../ui/dialog.js";
import { diffLines, diffNode } from "../ui/diff.js";
import { h, redraw } from "../ui/dom.js";
import { check, choice, field, pairs, searchField, side } from "../ui/forms.js";
import * as format from "../ui/format.js";
import { prettyNodes, prettyText } from "../ui/json.js";
import { badge, button, card, copyButton, empty, facts, hiddenNotice, number, pageHead } from "../ui/parts.js";
import { resource } from "../ui/resource.js";
import { pager, table } from "../ui/table.js";
import { say } from "../ui/toast.js";

const PAGE = 50;
const ALL_CONTEXTS = ":*:";
const TYPES = [
  ["AVRO", "Avro"],
  ["JSON", "JSON Schema"],
  ["PROTOBUF", "Protobuf"],
];
const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
const PERMANENT = "Values with this schema can no longer be decoded if no other subject has it. This cannot be undone.";

const typeOf = (schema) => schema.schemaType ?? "AVRO";
const typeLabel = (schema) => TYPES.find(([id]) => id === typeOf(schema))?.[1] ?? typeOf(schema);
const textOf = (schema) => (typeOf(schema) === "PROTOBUF" ? schema.schema : prettyText(schema.schema));
const trailOf = (state) => (state.trail ? state.trail.split(",").map(Number) : []);
const closed = () => parse().params.do && setParams({ do: "" });

/** Waits for data that the user may not be allowed to see, or that does not exist; null in these cases. */
async function optional(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error.status === 403 || error.status === 404) return null;
    throw error;
  }
}

// Subjects

export function schemasPage(params) {
  let state = params;
  let last = {};
  const rows = resource(load, draw, { everyMs: 10_000 });
  const deleted = check("deleted", "Include deleted subjects", {
    value: Boolean(state.deleted),
    onchange: () => setParams({ deleted: deleted.read() ? "yes" : "", trail: "" }),
  });
  const bar = h(
    "div",
    { class: "filter-bar" },
    searchField("Search subjects by prefix", state.search, (search) => setParams({ search, trail: "" })),
    deleted.node,
  );
  const node = h(
    "div",
    {},
    pageHead("Schemas", {
      lead: "Subjects of the schema registry, each with its latest version.",
      actions: [
        mayOnCluster("alter-configs") &&
          button("set-compatibility?", "Set compatibility", () => setCompatibility(null, rows.data?.config?.compatibilityLevel, rows.refresh)),
        mayOnAny("write", "subject") &&
          button("register-schema?", "Register schema", () => setParams({ do: "register-schema" }, { replace: false }), { tone: "primary", glyph: "plus" }),
      ],
    }),
    card(null, { extra: "card-table" }, bar, rows.node),
  );
  open(params);

  async function load(signal) {
    const offset = trailOf(state).at(-1) ?? 0;
    const [items, config] = await Promise.all([
      registry.get(
        "/schemas",
        { subjectPrefix: state.search || ALL_CONTEXTS, latestOnly: true, deleted: state.deleted ? true : "", offset, limit: PAGE + 1 },
        signal,
      ),
      optional(registry.get("/config", {}, signal)),
    ]);
    return { items, config, offset };
  }

  function draw({ items, config, offset }) {
    if (!items.length && !offset && !state.search)
      return empty([
        mayOnAll("read", "subject") ? "There are no schemas yet." : "No schemas are visible to you: you need the permission Read on a subject.",
        " Serializers register schemas, or run ",
        h("code", { class: "mono" }, "chronik schemas register"),
        ".",
      ]);
    const shown = items.slice(0, PAGE);
    const next = items.length > PAGE ? offset + PAGE : null;
    return [
      !mayOnAll("read", "subject") && hiddenNotice("Read on a subject to see it in this list"),
      config && h("p", { class: "hint table-note" }, "Default compatibility: ", badge(config.compatibilityLevel, "accent")),
      table(
        "Subjects",
        [
          {
            label: "Subject",
            grow: true,
            cell: (row) =>
              h(
                "a",
                { class: "name", href: link("schemas", row.subject), "data-focus": `subject-${row.subject}` },
                row.subject,
                row.deleted && badge("deleted", "warning"),
              ),
          },
          { label: "Type", cell: (row) => badge(typeLabel(row)) },
          { label: "Version", align: "end", cell: (row) => number(row.version) },
          { label: "Schema id", align: "end", cell: (row) => String(row.id) },
          { label: "References", align: "end", cell: (row) => number((row.references ?? []).length) },
        ],
        shown,
        { key: (row) => row.subject, empty: `No subject starts with “${state.search}”.` },
      ).node,
      (next || offset > 0) &&
        pager({
          shown: shown.length,
          total: offset + items.length,
          next,
          trail: trailOf(state),
          set: (trail) => setParams({ trail: trail.join(",") }, { replace: false }),
        }),
    ];
  }

  function open(next) {
    if (next.do === "register-schema" && last.do !== next.do) registerSchema(null, rows.refresh);
    last = next;
  }

  return {
    title: "Schemas",
    node,
    refresh: rows.refresh,
    close: rows.close,
    update: (next) => {
      const changed = ["search", "trail", "deleted"].some((key) => (state[key] ?? "") !== (next[key] ?? ""));
      state = next;
      if (changed) rows.refresh();
      open(next);
    },
  };
}

// One subject

export function schemaPage(subject, params) {
  let state = params;
  const actions = h("div", { class: "actions" });
  const title = pageHead(subject, { back: { label: "Schemas", href: link("schemas") } });
  title.append(actions);
  const page = resource(load, draw, { everyMs: 10_000, dependents: [actions], permission: `Read on subject ${subject}` });
  const node = h("div", {}, title, page.node);

  function buttons({ may, latest, own, ...data }) {
    return [
      may("write") &&
        button("register-version?", "Register version", () => registerSchema(latest, page.refresh), {
          tone: "primary",
          glyph: "plus",
          focus: "register-version",
        }),
      may("alter-configs") &&
        button("set-compatibility?", "Set compatibility", () => setCompatibility(subject, own?.compatibilityLevel, page.refresh), {
          focus: "set-compatibility",
        }),
      may("delete") && button("delete-subject?", "Delete", () => deleteSubject(subject, data), { tone: "danger", glyph: "trash", focus: "delete-subject" }),
    ];
  }

  const version = (each, signal) => registry.get(at("subjects", subject, "versions", each), { deleted: true }, signal);

  async function load(signal) {
    const [permissions, all, live] = await Promise.all([
      get("/permissions", { subject }, signal),
      registry.get(at("subjects", subject, "versions"), { deleted: true }, signal),
      optional(registry.get(at("subjects", subject, "versions"), {}, signal)),
    ]);
    const known = (each) => all.includes(Number(each));
    const newest = live?.at(-1) ?? all.at(-1);
    const shown = known(state.version) ? Number(state.version) : newest;
    const [schema, latest, other, referencing, config, own] = await Promise.all([
      version(shown, signal),
      version(newest, signal),
      known(state.compare) ? version(Number(state.compare), signal) : null,
      optional(registry.get(at("subjects", subject, "versions", shown, "referencedby"), { deleted: true }, signal)),
      optional(registry.get(at("config", subject), { defaultToGlobal: true }, signal)),
      optional(registry.get(at("config", subject), {}, signal)),
    ]);
    const users = await Promise.all((referencing ?? []).map((id) => registry.get(at("schemas", "ids", id, "versions"), { subject, deleted: true }, signal)));
    return { may: (operation) => permissions.subject.includes(operation), all, live: live ?? [], schema, latest, other, users: users.flat(), config, own };
  }

  function draw(data) {
    const { may, all, live, schema, other, users, config, own } = data;
    redraw(actions, buttons(data));
    return [
      card(
        null,
        {},
        facts(
          [
            ["Type", typeLabel(schema)],
            ["Versions", number(live.length)],
            [
              "Compatibility",
              config ? [badge(config.compatibilityLevel ?? "BACKWARD", "accent"), own?.compatibilityLevel ? "" : " (default)"] : "not authorized",
            ],
          ],
          "facts-row",
        ),
      ),
      card(
        `Version ${schema.version}`,
        {
          actions: [
            may("delete") &&
              button(
                "delete-version?",
                live.includes(schema.version) ? "Delete version" : "Delete version permanently",
                () => deleteVersion(schema, live, all, page.refresh),
                { tone: "danger", small: true, focus: "delete-version" },
              ),
          ],
        },
        choices(all, live, schema, other),
        facts(
          [
            ["Schema id", String(schema.id)],
            schema.ts && ["Registered", format.second(schema.ts)],
            schema.guid && ["GUID", h("span", { class: "mono small" }, schema.guid), "wide"],
          ],
          "facts-row",
        ),
        other ? differences(other, schema) : source(schema),
      ),
      card("References", { extra: "card-table" }, references(schema)),
      card(
        "Referenced by",
        { extra: "card-table" },
        table("Versions that refer to this one", VERSION_COLUMNS, users, {
          key: (row) => `${row.subject}-${row.version}`,
          empty: "No version refers to this one.",
        }).node,
      ),
    ];
  }

  /** The choice of the version to show, and of one to compare it with. */
  function choices(all, live, schema, other) {
    const versions = [...all].reverse().map((each) => [each, `version ${each}${live.includes(each) ? "" : " (deleted)"}`]);
    const others = versions.filter(([each]) => each !== schema.version);
    const shown = choice("version", "Show", versions, { value: schema.version, onchange: () => setParams({ version: shown.read(), compare: "" }) });
    const compared = choice("compare", "Compare with", [["", "nothing"], ...others], {
      value: other?.version ?? "",
      onchange: () => setParams({ compare: compared.read() }),
    });
    shown.input.dataset.focus = "version";
    compared.input.dataset.focus = "compare";
    return h("div", { class: "versions" }, shown.node, others.length ? compared.node : null);
  }

  return {
    title: subject,
    node,
    refresh: page.refresh,
    close: page.close,
    update: (next) => {
      state = next;
      page.refresh();
    },
  };
}

const VERSION_COLUMNS = [
  { label: "Subject", grow: true, cell: (row) => h("a", { class: "name", href: link("schemas", row.subject, { version: row.version }) }, row.subject) },
  { label: "Version", align: "end", cell: (row) => number(row.version) },
];

function references(schema) {
  const columns = [{ label: "Name", cell: (row) => h("span", { class: "mono" }, row.name) }, ...VERSION_COLUMNS];
  return table(`References of version ${schema.version}`, columns, schema.references ?? [], {
    key: (row) => row.name,
    empty: "The schema refers to no other schemas.",
  }).node;
}

function source(schema) {
  return [
    h("pre", { class: "code", tabindex: "0" }, typeOf(schema) === "PROTOBUF" ? schema.schema : [...prettyNodes(schema.schema)]),
    copyButton("copy-schema", "Copy schema", textOf(schema), say),
  ];
}

function differences(before, after) {
  const lines = diffLines(textOf(before), textOf(after));
  const counted = (kind) => lines.filter(([each]) => each === kind).length;
  return [
    h(
      "p",
      { class: "hint" },
      `From version ${before.version} to version ${after.version}: ${format.plural(counted("added"), "line")} added, ${format.plural(counted("removed"), "line")} removed.`,
    ),
    diffNode(lines),
  ];
}

// Changes

/** A form that checks a schema against the versions of a subject, shows the result, and registers the schema. */
function registerSchema(latest, done) {
  const subjectField = field("subject", "Subject", {
    required: true,
    autofocus: true,
    mono: true,
    hint: "For the values of a topic: its name with -value; for its keys: -key.",
  });
  const refs = (latest?.references ?? []).map(({ name, subject, version }) => [name, `${subject} ${version}`]);
  const subjectOf = (form) => latest?.subject ?? form.subject;
  formDialog({
    action: latest ? "register-version" : "register-schema",
    title: latest ? `Register a version of ${latest.subject}` : "Register schema",
    wide: true,
    fields: [
      ...(latest ? [] : [side(subjectField, choice("type", "Type", TYPES))]),
      field("schema", "Schema", { rows: 14, mono: true, required: true, autofocus: Boolean(latest), value: latest ? textOf(latest) : "" }),
      pairs("references", "References", { names: "Name in the schema", values: "Subject and version", add: "Add reference", initial: refs }),
    ],
    label: "Register",
    preview: async (form) => checked(subjectOf(form), bodyOf(form, latest)),
    submit: (form) => registry.post(at("subjects", subjectOf(form), "versions"), bodyOf(form, latest)),
    success: (form, { id }) => `Registered under ${subjectOf(form)} with schema id ${id}.`,
    done,
    onclose: closed,
  });
}

function bodyOf(form, latest) {
  const references = form.references.map(([name, target]) => {
    const [, subject, version] = /^(.+?)\s+(\d+)$/.exec(target.trim()) ?? [];
    if (!subject) throw new Error(`Reference ${name}: enter a subject and a version, such as “customer-value 1”.`);
    return { name, subject, version: Number(version) };
  });
  return { schema: form.schema, schemaType: latest ? typeOf(latest) : form.type, references };
}

/** Returns the descriptions of incompatibilities as sentences; the registry has them in the format of Confluent's. */
function reasons(messages) {
  const found = messages.flatMap((message) => /description:\s?'(.*)', additionalInfo:/s.exec(message)?.[1] ?? []);
  const version = messages.map((message) => /^\{oldSchemaVersion: (\d+)\}$/.exec(message)?.[1]).find(Boolean);
  return found.length ? [...new Set(found)].map((text) => `${version ? `Version ${version}: ` : ""}${text}.`) : messages;
}

async function checked(subject, body) {
  const [{ is_compatible: compatible, messages = [] }, versions] = await Promise.all([
    registry.post(at("compatibility", "subjects", subject, "versions"), body, { verbose: true }),
    optional(registry.get(at("subjects", subject, "versions"))),
  ]);
  if (!versions)
    return compatible ? { plan: [`Create the subject ${subject}.`, "Register the schema as its first version."] } : { refused: messages.join(" ") };
  if (!compatible) return { refused: `The schema is not compatible with the versions of ${subject}. ${reasons(messages).join(" ")}` };
  return { plan: [`The schema is compatible with the versions of ${subject}.`, "Register it as the next version, unless it is registered already."] };
}

function setCompatibility(subject, level, done) {
  const path = subject === null ? "/config" : at("config", subject);
  const inherit = subject === null ? [] : [["", "default"]];
  formDialog({
    action: "set-compatibility",
    title: subject === null ? "Set the default compatibility" : `Set the compatibility of ${subject}`,
    intro: "The registry rejects new versions that are not compatible with earlier ones.",
    fields: [
      choice("compatibility", "Compatibility", [...inherit, ...LEVELS.map((each) => [each, each])], {
        value: level ?? "",
        hint: "BACKWARD: consumers with the new version read data of the previous one. FORWARD: the reverse. FULL: both. TRANSITIVE: with all previous versions.",
      }),
    ],
    label: "Set compatibility",
    submit: (form) => (form.compatibility ? registry.put(path, { compatibility: form.compatibility }) : optional(registry.remove(path))),
    success: "The compatibility was set.",
    done,
  });
}

/**
 * @param {string} subject
 * @param {any} versions `all` includes those that were deleted, `live` does not.
 */
function deleteSubject(subject, { all, live }) {
  const permanent = !live.length;
  const path = at("subjects", subject);
  confirm({
    action: "delete-subject",
    title: permanent ? `Delete ${subject} permanently` : `Delete ${subject}`,
    intro: permanent
      ? PERMANENT
      : `Delete ${format.plural(live.length, "version")}. Consumers can still decode existing values. To delete the subject permanently, include deleted subjects in the list and delete it again.`,
    typed: subject,
    label: "Delete",
    tone: "danger",
    run: () => registry.remove(path, { permanent: permanent || "" }),
    success: `${subject} was deleted: ${format.plural((permanent ? all : live).length, "version")}.`,
    done: () => (location.hash = link("schemas")),
  });
}

function deleteVersion({ subject, version }, live, all, done) {
  const permanent = !live.includes(version);
  const last = (permanent ? all : live).length === 1;
  confirm({
    action: "delete-version",
    title: permanent ? `Delete version ${version} permanently` : `Delete version ${version}`,
    intro: permanent ? PERMANENT : `Delete version ${version} of ${subject}. Consumers can still decode existing values.`,
    typed: subject,
    label: "Delete",
    tone: "danger",
    run: () => registry.remove(at("subjects", subject, "versions", version), { permanent: permanent || "" }),
    success: `Version ${version} of ${subject} was deleted.`,
    done: () => (permanent && last ? (location.hash = link("schemas")) : (setParams({ version: "", compare: "" }), done())),
  });
}
