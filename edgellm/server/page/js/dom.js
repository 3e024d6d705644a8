// Small helpers to build elements. Text only ever becomes text nodes: nothing on this page parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (on...) and children. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `icons.svg#${name}`);
  svg.append(use);
  return svg;
}

export function iconButton(name, label, onclick) {
  return el("button", { class: "icon", type: "button", "aria-label": label, title: label, onclick }, icon(name));
}

export const byId = (id) => document.getElementById(id);

/** Copy text, and show a tick on the button for a moment. */
export async function copyFrom(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "visually-hidden" });      // no clipboard API without https
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const shown = [...button.childNodes];
  button.replaceChildren(icon("check"));
  setTimeout(() => button.replaceChildren(...shown), 1200);
}

/** Ask in a dialog; true for yes. */
export function confirmed(question, yes = "OK") {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = question;
  byId("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}
