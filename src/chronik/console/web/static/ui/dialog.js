// Native dialogs: the browser traps the focus, closes them on Escape and restores the focus.

import { fill, h, uid } from "./dom.js";
import { iconButton, button, notice, problem, waiting } from "./parts.js";
import { say } from "./toast.js";

const AGAIN_MS = 1_000;

/**
 * @param {string} title
 * @param {DialogOptions} options
 */
export function dialog(title, { wide, onclose, extra = "" } = {}) {
  const id = uid("dialog");
  const body = h("div", { class: "dialog-body" });
  const foot = h("div", { class: "dialog-foot" });
  const close = () => element.close();
  const element = h(
    "dialog",
    { class: `dialog ${wide ? "dialog-wide" : ""} ${extra}`, "aria-labelledby": id },
    h("div", { class: "dialog-head" }, h("h2", { id }, title), iconButton("close", "Close", "close", close)),
    body,
    foot,
  );
  element.addEventListener("close", () => {
    element.remove();
    if (!element.dataset.left) onclose?.();
  });
  element.addEventListener("click", (event) => event.target === element && close());
  document.body.append(element);
  element.showModal();
  return { element, body, foot, close };
}

/** Closes all dialogs after the URL has changed, without changing the URL again. */
export function closeDialogs() {
  for (const element of /** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog[open]"))) {
    element.dataset.left = "yes";
    element.close();
  }
}

export function planList(plan) {
  return plan?.length
    ? h(
        "ol",
        { class: "plan" },
        plan.map((step) => h("li", {}, step)),
      )
    : notice("No changes are needed.", "info");
}

/**
 * A confirmation dialog.
 *
 * @param {Confirmation} confirmation
 */
export function confirm({ action, title, intro, preview, typed, label = "Confirm", tone = "primary", run, done, success, meanwhile, left, onclose }) {
  const { element, body, foot, close } = dialog(title, { onclose });
  const go = button(action, label, act, { tone });
  const status = h("div", { "aria-live": "polite" });
  const name = typed === undefined ? null : typedField(typed, (matches) => (go.disabled = !matches));
  fill(body, intro && h("p", {}, intro), status, name);
  fill(foot, button("cancel", "Cancel", close), go);
  go.disabled = Boolean(preview) || name !== null;
  name?.querySelector("input").focus();
  if (preview) show();

  async function show() {
    fill(status, waiting("Loading the plan…"));
    try {
      const { plan, refused } = await preview();
      fill(status, refused ? notice(refused, "error") : planList(plan));
      if (refused) name?.remove();
      if (!refused && name === null) {
        go.disabled = false;
        go.focus();
      }
    } catch (error) {
      fill(status, problem(error));
    }
  }

  async function act() {
    go.disabled = true;
    fill(status, waiting("Working…"));
    try {
      let answer = await run();
      if (meanwhile && answer?.done === false) {
        fill(status, waiting(meanwhile));
        answer = await untilDone(answer);
      }
      if (answer?.refused) {
        fill(status, notice(answer.refused, "error"));
        return;
      }
      close();
      if (meanwhile && answer?.done === false) {
        say(left);
        return;
      }
      if (success) say(success);
      done?.(answer);
    } catch (error) {
      fill(status, problem(error));
      go.disabled = false;
    }
  }

  async function untilDone(first) {
    let answer = first;
    while (answer?.done === false && element.open) {
      await new Promise((goOn) => setTimeout(goOn, AGAIN_MS));
      if (element.open) answer = await run();
    }
    return answer;
  }
}

function typedField(expected, changed) {
  const id = uid("typed");
  const input = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false", oninput: () => changed(input.value === expected) });
  return h("div", { class: "field" }, h("label", { for: id }, "To confirm, type ", h("strong", { class: "mono" }, expected)), input);
}

/**
 * A form in a dialog. With `preview(values)`, the plan is shown before the form is submitted, and the user can go back.
 * `previews(values)` returns whether these values have a preview.
 *
 * @param {Form} options
 */
export function formDialog({
  action,
  title,
  intro,
  fields,
  label = "Save",
  preview,
  previews = () => Boolean(preview),
  submit,
  done,
  success,
  wide,
  tone = "primary",
  onclose,
}) {
  const { body, foot, close } = dialog(title, { wide, onclose });
  const status = h("div", { "aria-live": "polite" });
  const inputs = h(
    "div",
    { class: "fields" },
    fields.map((each) => each.node),
  );
  const id = uid("form");
  const form = h("form", { id, class: "form", onsubmit: (event) => (event.preventDefault(), next()) }, intro && h("p", {}, intro), inputs, status);
  const go = button(previews(values()) ? "show-plan" : action, label, null, { tone, type: "submit", form: id });
  const back = button("back-to-form", "Back", () => edit(), {});
  let planned = false;
  fill(body, form);
  form.addEventListener("change", () => !planned && nameButton());
  edit();
  (inputs.querySelector("[autofocus]") ?? inputs.querySelector("input, select, textarea"))?.focus();

  function values() {
    return Object.fromEntries(
      fields
        .flatMap((each) => each.parts ?? each)
        .filter((each) => each.name)
        .map((each) => [each.name, each.read()]),
    );
  }

  function edit() {
    planned = false;
    inputs.hidden = false;
    go.disabled = false;
    fill(status);
    fill(foot, button("cancel", "Cancel", close), go);
    nameButton();
  }

  function nameButton() {
    if (previews(values())) become("show-plan", "Show plan");
    else become(action, label);
  }

  async function next() {
    if (!form.reportValidity()) return;
    go.disabled = true;
    try {
      if (previews(values()) && !planned) await plan();
      else await act();
    } catch (error) {
      fill(status, problem(error));
      go.disabled = false;
    }
  }

  async function plan() {
    fill(status, waiting("Loading the plan…"));
    const { plan: steps, refused } = await preview(values());
    if (refused) {
      fill(status, notice(refused, "error"), steps instanceof Node && steps);
      go.disabled = false;
      return;
    }
    planned = true;
    inputs.hidden = true;
    fill(status, steps instanceof Node ? steps : planList(steps));
    become(action, label);
    go.disabled = false;
    fill(foot, back, button("cancel", "Cancel", close), go);
    go.focus();
  }

  function become(name, text) {
    go.dataset.action = name;
    go.lastChild.textContent = text;
  }

  async function act() {
    fill(status, waiting("Working…"));
    const given = values();
    const answer = await submit(given);
    if (answer?.refused) {
      fill(status, notice(answer.refused, "error"));
      go.disabled = false;
      return;
    }
    close();
    if (success) say(typeof success === "function" ? success(given, answer) : success);
    done?.(answer, given);
  }
}
