// The settings of a chat: system prompt, sampling, a JSON schema; and those that new chats begin with.

import { byId, el } from "./dom.js";

const DEFAULTS = "edgellm-settings";
const SAMPLING = [
  { name: "temperature", label: "Temperature", min: 0, max: 5, step: 0.05 },
  { name: "top_p", label: "Top P", min: 0, max: 1, step: 0.01 },
  { name: "top_k", label: "Top K", min: 0, max: 1000, step: 1 },
  { name: "min_p", label: "Min P", min: 0, max: 1, step: 0.01 },
  { name: "repeat_penalty", label: "Repeat penalty", min: 0.1, max: 5, step: 0.05 },
  { name: "max_tokens", label: "Most new tokens", min: 1, max: 1000000, step: 1 },
  { name: "seed", label: "Seed", min: 0, max: 4294967295, step: 1 },
];

export function defaultSettings() {
  try { return JSON.parse(localStorage.getItem(DEFAULTS)) ?? {}; } catch { return {}; }
}

export class SettingsDialog {
  /** `changed(settings)` is called when the dialog closes. */
  constructor(changed) {
    this.dialog = byId("settings");
    this.inputs = Object.fromEntries(SAMPLING.map(({ name, label, ...bounds }) => {
      const input = el("input", { type: "number", inputmode: "decimal", ...bounds });
      byId("sampling").append(el("label", {}, label, input));
      return [name, input];
    }));
    byId("settings-default").addEventListener("click", () => {
      const settings = this.read();
      if (settings) { localStorage.setItem(DEFAULTS, JSON.stringify(settings)); this.dialog.close("close"); }
    });
    this.dialog.querySelector("form").addEventListener("submit", (event) => { if (!this.read()) event.preventDefault(); });
    this.dialog.addEventListener("close", () => { const settings = this.read(); if (settings) changed(settings); });
  }

  open(settings, tools) {
    this.tools = tools.map((tool) => {
      const box = el("input", { type: "checkbox", name: tool.function.name });
      box.checked = !settings.withoutTools?.includes(tool.function.name);
      return [box, el("li", {}, el("label", {}, box, ` ${tool.function.name} `, el("small", {}, tool.server)))];
    });
    byId("mcp").hidden = !tools.length;
    byId("mcp-tools").replaceChildren(...this.tools.map(([, item]) => item));
    byId("set-system").value = settings.system ?? "";
    byId("set-schema").value = settings.schema ?? "";
    byId("schema-error").hidden = true;
    for (const [name, input] of Object.entries(this.inputs)) input.value = settings[name] ?? "";
    this.dialog.showModal();
  }

  /** The settings in the dialog; null, with a sentence shown, where they can't be used. */
  read() {
    const settings = {};
    const without = (this.tools ?? []).filter(([box]) => !box.checked).map(([box]) => box.name);
    if (without.length) settings.withoutTools = without;
    if (byId("set-system").value.trim()) settings.system = byId("set-system").value;
    for (const [name, input] of Object.entries(this.inputs)) {
      if (!input.validity.valid) { input.reportValidity(); return null; }
      if (input.value !== "") settings[name] = input.valueAsNumber;
    }
    const schema = byId("set-schema").value.trim();
    const error = byId("schema-error");
    error.hidden = true;
    if (schema) {
      try {
        const parsed = JSON.parse(schema);
        if (typeof parsed !== "object" || !parsed) throw new SyntaxError("a schema is an object");
        settings.schema = schema;
      } catch (problem) {
        error.textContent = `Not a JSON schema: ${problem.message}`;
        error.hidden = false;
        return null;
      }
    }
    return settings;
  }
}

/** What of a chat's settings goes into a request. */
export function requestFields(settings) {
  const fields = {};
  for (const { name } of SAMPLING) if (settings[name] !== undefined) fields[name] = settings[name];
  if (settings.schema) fields.response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema: JSON.parse(settings.schema) } };
  return fields;
}
