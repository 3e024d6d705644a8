// The conversation on screen: a light element per message, filled when it comes near the view.

import { byId, copyFrom, el, iconButton } from "./dom.js";
import { showMarkdown } from "./markdown.js";

const AHEAD = "1500px";                              // of the view, within which messages are filled
const AT_ONCE = 30;                                  // newest messages, filled without waiting for that

export class Thread {
  /** `actions`: regenerate, edit, branch, remove; each gets the message. */
  constructor(actions) {
    this.actions = actions;
    this.list = byId("thread");
    this.view = byId("messages");
    this.shown = new Map();                          // id -> {message, node, filled}
    this.near = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.fill(entry.target.dataset.id);
    }, { root: this.view, rootMargin: AHEAD });
    this.follows = true;                             // stays at the end while an answer grows
    this.view.addEventListener("scroll", () => {
      this.follows = this.view.scrollHeight - this.view.scrollTop - this.view.clientHeight < 60;
      byId("to-end").hidden = this.follows;
    }, { passive: true });
    byId("to-end").addEventListener("click", () => this.toEnd(true));
  }

  /** Show a path of messages. Those that are on screen already keep their elements. */
  show(path, tree) {
    this.tree = tree;
    const ids = new Set(path.map((message) => message.id));
    for (const [id, { node }] of this.shown) if (!ids.has(id)) { this.near.unobserve(node); node.remove(); this.shown.delete(id); }
    path.forEach((message, index) => {
      let entry = this.shown.get(message.id);
      if (!entry) {
        const node = el("li", { class: `message ${message.role}`, dataset: { id: message.id }, "aria-label": message.role === "user" ? "You" : message.role === "tool" ? "Tool" : "Assistant" });
        node.textContent = message.content;          // found by the browser's search before it is filled
        entry = { message, node, filled: false };
        this.shown.set(message.id, entry);
      } else if (entry.message !== message) {        // read again, for another tab has changed it
        entry.message = message;
        if (entry.filled) this.draw(entry);
      }
      if (this.list.children[index] !== entry.node) this.list.insertBefore(entry.node, this.list.children[index] ?? null);
      if (!entry.filled) this.near.observe(entry.node);
      else this.drawActions(entry);
    });
    for (const message of path.slice(-AT_ONCE)) this.fill(message.id);
    byId("empty").hidden = path.length > 0;
  }

  fill(id) {
    const entry = this.shown.get(id);
    if (!entry || entry.filled) return;
    entry.filled = true;
    this.near.unobserve(entry.node);
    this.draw(entry);
  }

  /** Draw a message again after it changed. */
  update(message) {
    const entry = this.shown.get(message.id);
    if (entry) { entry.message = message; entry.filled = true; this.draw(entry); }
  }

  draw(entry) {
    const { message, node } = entry;
    if (!entry.parts) {
      node.textContent = "";
      entry.parts = { images: el("div", { class: "images" }), thinking: null, body: el("div", { class: "body" }), calls: el("div"), note: el("p", { class: "note" }), actions: el("div", { class: "actions" }) };
      if (message.role === "assistant") entry.parts.body.classList.add("markdown");
      node.append(entry.parts.images, entry.parts.body, entry.parts.calls, entry.parts.note, entry.parts.actions);
      for (const url of message.images ?? []) entry.parts.images.append(el("img", { src: url, alt: "Attached image" }));
      for (const { name } of message.texts ?? []) entry.parts.images.append(el("span", { class: "text-file" }, name));
    }
    const { parts } = entry;
    parts.images.hidden = !message.images?.length && !message.texts?.length;
    this.drawThinking(entry);
    if (message.role === "assistant") showMarkdown(parts.body, message.content);
    else if (message.role === "tool") parts.body.replaceChildren(el("details", { class: "call" }, el("summary", {}, `Result of ${message.name ?? "a tool"}`), el("pre", {}, el("code", {}, message.content))));
    else parts.body.textContent = message.content;
    parts.body.classList.toggle("busy", Boolean(message.running && !message.content && !message.thinking));
    this.drawCalls(entry);
    const note = message.error ?? message.note ?? "";
    parts.note.textContent = note;
    parts.note.hidden = !note;
    parts.note.classList.toggle("error", Boolean(message.error));
    if (message.error) parts.note.setAttribute("role", "alert");
    this.drawActions(entry);
    if (this.follows) this.toEnd(false);
  }

  drawThinking(entry) {
    const { message, parts } = entry;
    if (!message.thinking) return;
    if (!parts.thinking) {
      const body = el("div", { class: "markdown" });
      parts.thinking = el("details", { class: "thinking" }, el("summary"), body);
      parts.body.before(parts.thinking);
    }
    const busy = message.running && !message.content;
    const [summary, body] = parts.thinking.children;
    summary.textContent = busy ? "Thinking" : message.thinkingSeconds ? `Thought for ${Math.max(1, Math.round(message.thinkingSeconds))} s` : "Thoughts";
    summary.classList.toggle("busy", busy);
    showMarkdown(body, message.thinking);
  }

  drawCalls({ message, parts }) {
    parts.calls.replaceChildren(...(message.calls ?? []).map((call) =>
      el("details", { class: "call", open: true }, el("summary", {}, `Calls ${call.name}`), el("pre", {}, el("code", {}, pretty(call.arguments))))));
  }

  drawActions({ message, parts }) {
    if (!parts) return;
    const { actions } = parts;
    actions.replaceChildren();
    if (message.running) return;
    const copy = iconButton("copy", "Copy", () => copyFrom(copy, message.content));
    actions.append(copy);
    if (message.role === "user") actions.append(iconButton("edit", "Edit", () => this.edit(message)));
    if (message.role === "assistant") actions.append(iconButton("again", "Another answer", () => this.actions.regenerate(message)));
    const [index, of] = this.tree.branch(message);
    if (of > 1) {
      const step = (by, name, label) => {
        const button = iconButton(name, label, () => this.actions.branch(message, by));
        button.disabled = index + by < 0 || index + by >= of;
        return button;
      };
      actions.append(el("span", { class: "branches", role: "group", "aria-label": `Version ${index + 1} of ${of}` },
        step(-1, "left", "Earlier version"), `${index + 1}/${of}`, step(1, "right", "Later version")));
    }
    if (message.stats) actions.append(el("span", { class: "stats" }, message.stats));
  }

  /** Let the user change one of their messages in place. */
  edit(message) {
    const { parts } = this.shown.get(message.id);
    const area = el("textarea", { class: "editor", "aria-label": "Edit message" });
    area.value = message.content;
    const done = () => { row.remove(); area.replaceWith(parts.body); parts.actions.hidden = false; };
    const send = () => { const text = area.value.trim(); done(); if (text) this.actions.edit(message, text); };
    const row = el("div", { class: "edit-row" }, el("button", { type: "button", onclick: done }, "Cancel"), el("button", { type: "button", class: "primary", onclick: send }, "Send"));
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); done(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    parts.body.replaceWith(area);
    parts.actions.hidden = true;
    area.after(row);
    area.focus();
  }

  toEnd(smooth) {
    this.follows = true;
    byId("to-end").hidden = true;
    this.view.scrollTo({ top: this.view.scrollHeight, behavior: smooth ? "smooth" : "instant" });
  }
}

function pretty(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}
