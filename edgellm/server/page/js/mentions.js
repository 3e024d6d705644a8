// Resources and prompts of MCP servers: "@" in the message box lists them, and a prompt's arguments are asked for.

import { byId, el } from "./dom.js";

const MOST = 8;                                      // that are listed at a time
const BEGUN = /(?:^|\s)@([^\s@]*)$/;                 // a mention that is being typed

export class Mentions {
  /** `chosen(item, name)` gets the server's item and the typed "@..." is gone. */
  constructor(box, chosen) {
    this.box = box;
    this.list = byId("mentions");
    this.chosen = chosen;
    this.items = [];
    this.found = [];
    this.at = 0;
    box.addEventListener("input", () => this.show());
    box.addEventListener("blur", () => this.hide());
  }

  get open() { return !this.list.hidden; }

  begun() {
    const { selectionStart: end, value } = this.box;
    return BEGUN.exec(value.slice(0, end))?.[1];
  }

  show() {
    const begun = this.begun()?.toLowerCase();
    this.found = begun === undefined ? [] : this.items.filter(({ key }) => key.toLowerCase().includes(begun)).slice(0, MOST);
    this.at = 0;
    this.draw();
  }

  draw() {
    this.list.hidden = !this.found.length;
    this.box.setAttribute("aria-expanded", String(this.open));
    this.list.replaceChildren(...this.found.map((item, index) =>
      el("li", { id: `mention-${index}`, role: "option", "aria-selected": String(index === this.at), onmousedown: (event) => { event.preventDefault(); this.choose(index); } },
        el("b", {}, item.key), el("small", {}, `${item.kind}${item.description ? `: ${item.description}` : ""}`))));
    if (this.open) this.box.setAttribute("aria-activedescendant", `mention-${this.at}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  hide() { this.found = []; this.draw(); }

  /** Take a key that is meant for the list; true if it was. */
  key(event) {
    if (!this.open || event.isComposing) return false;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { this.at = (this.at + step + this.found.length) % this.found.length; this.draw(); }
    else if (event.key === "Enter" || event.key === "Tab") this.choose(this.at);
    else if (event.key === "Escape") this.hide();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  choose(index) {
    const item = this.found[index], begun = this.begun() ?? "", { selectionStart: end } = this.box;
    this.box.setRangeText("", end - begun.length - 1, end, "end");
    this.hide();
    this.chosen(item);
  }
}

/** The arguments of a prompt, as the user gives them in a dialog; null where it was closed. */
export function argumentsOf(item) {
  if (!item.arguments.length) return Promise.resolve({});
  const dialog = byId("prompt-dialog");
  byId("prompt-name").textContent = item.key;
  byId("prompt-about").textContent = item.description;
  const inputs = item.arguments.map(({ name, required }) => el("input", { name, required, autocomplete: "off" }));
  byId("prompt-arguments").replaceChildren(...inputs.map((input) => el("label", {}, input.name, input.required ? "" : el("small", {}, " optional"), input)));
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () =>
    resolve(dialog.returnValue === "yes" ? Object.fromEntries(inputs.filter((input) => input.value).map((input) => [input.name, input.value])) : null), { once: true }));
}
