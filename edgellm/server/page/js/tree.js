// The messages of the open chat: a tree, and the path through it that is shown.

export const ROOT = "";

export class Tree {
  constructor(messages, selected) {
    this.byId = new Map();
    this.children = new Map();
    this.selected = selected;                        // parent's id -> the child that is shown; saved with the chat
    for (const message of [...messages].sort((a, b) => a.created - b.created)) this.add(message);
  }

  add(message) {
    this.byId.set(message.id, message);
    const parent = message.parent ?? ROOT;
    if (!this.children.has(parent)) this.children.set(parent, []);
    this.children.get(parent).push(message.id);
  }

  /** Messages on the path that is shown, first to last. */
  path() {
    const out = [];
    let at = ROOT;
    for (;;) {
      const ids = this.children.get(at);
      if (!ids?.length) return out;
      const id = ids.includes(this.selected[at]) ? this.selected[at] : ids.at(-1);
      out.push(this.byId.get(id));
      at = id;
    }
  }

  /** (index, of) among the branches at this message. */
  branch(message) {
    const ids = this.children.get(message.parent ?? ROOT);
    return [ids.indexOf(message.id), ids.length];
  }

  select(message, step) {
    const ids = this.children.get(message.parent ?? ROOT);
    const index = ids.indexOf(message.id) + step;
    if (index >= 0 && index < ids.length) this.selected[message.parent ?? ROOT] = ids[index];
  }
}
