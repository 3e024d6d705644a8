// Markdown to elements: blocks are split by line, and a block that did not change keeps its elements while an answer streams.
// Raw HTML stays text, images become links, and links lead to http, https and mailto only.

import { copyFrom, el, icon } from "./dom.js";
import { highlighted } from "./highlight.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 12;                                  // nested lists and quotes; deeper ones stay text

/** Show `text` in `target`. Call it again with a longer text: only what changed is built anew. */
export function showMarkdown(target, text) {
  const blocks = split(text.replace(/\r\n?/g, "\n").split("\n"));
  const shown = target.shownBlocks ?? [];
  let same = 0;
  while (same < blocks.length && same < shown.length && shown[same] === blocks[same].raw) same++;
  while (target.childNodes.length > same) target.lastChild.remove();
  for (const block of blocks.slice(same)) target.append(built(block, 0));
  target.shownBlocks = blocks.map((block) => block.raw);
}

function split(lines) {
  const blocks = [];
  let at = 0;
  const take = (kind, end, more = {}) => {
    const part = lines.slice(at, end);
    blocks.push({ kind, lines: part, raw: kind + "\n" + part.join("\n"), ...more });
    at = end;
  };
  while (at < lines.length) {
    const line = lines[at];
    let fence, heading;
    if (!line.trim()) at++;
    else if ((fence = FENCE.exec(line))) {
      const closes = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},}\\s*$`);
      let end = at + 1;
      while (end < lines.length && !closes.test(lines[end])) end++;
      take("code", Math.min(end + 1, lines.length), { closed: end < lines.length, language: fence[3], indent: fence[1].length });
    } else if ((heading = HEADING.exec(line))) take("heading", at + 1, { level: heading[1].length, text: heading[2] ?? "" });
    else if (RULE.test(line)) take("rule", at + 1);
    else if (/^ {0,3}>/.test(line)) {
      let end = at + 1;
      while (end < lines.length && (/^ {0,3}>/.test(lines[end]) || (lines[end].trim() && !begins(lines[end])))) end++;
      take("quote", end);
    } else if (ITEM.test(line)) take("list", listEnd(lines, at));
    else if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1])) {
      let end = at + 2;
      while (end < lines.length && lines[end].trim() && lines[end].includes("|")) end++;
      take("table", end);
    } else {
      let end = at + 1;
      while (end < lines.length && lines[end].trim() && !begins(lines[end])) end++;
      take("paragraph", end);
    }
  }
  return blocks;
}

function begins(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || /^ {0,3}>/.test(line) || ITEM.test(line);
}

function listEnd(lines, first) {
  const indent = ITEM.exec(lines[first])[1].length;
  let end = first + 1, blank = false, fence = null;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (fence) { if (line.trim().startsWith(fence)) fence = null; continue; }
    if (!line.trim()) { blank = true; continue; }
    const deep = /^\s*/.exec(line)[0].length;
    const item = ITEM.exec(line);
    if (!(item && item[1].length >= indent) && deep <= indent && (blank || begins(line))) break;
    if (/^\s*(```|~~~)/.test(line)) fence = line.trim().slice(0, 3);
    blank = false;
  }
  while (end > first + 1 && !lines[end - 1].trim()) end--;
  return end;
}

function built(block, depth) {
  const { kind, lines } = block;
  if (kind === "code") return codeBlock(block);
  if (kind === "heading") return el(`h${block.level}`, {}, ...inline(block.text));
  if (kind === "rule") return el("hr");
  if (kind === "table") return table(lines);
  if (depth < DEEPEST && kind === "quote") return el("blockquote", {}, ...children(lines.map((line) => line.replace(/^ {0,3}> ?/, "")), depth));
  if (depth < DEEPEST && kind === "list") return list(lines, depth);
  return el("p", {}, ...inline(lines.join("\n")));
}

const children = (lines, depth) => split(lines).map((block) => built(block, depth + 1));

function list(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= first[1].length + 1) items.push({ width: item[0].length, lines: [line.slice(item[0].length)] });
    else {
      const last = items.at(-1);
      const spaces = /^\s*/.exec(line)[0].length;
      last.lines.push(line.slice(Math.min(spaces, Math.max(last.width, 2))));
    }
  }
  const start = ordered ? parseInt(first[2], 10) : 1;
  return el(ordered ? "ol" : "ul", start === 1 ? {} : { start }, ...items.map((item) => {
    const task = /^\[([ xX])\]\s+/.exec(item.lines[0]);
    if (task) item.lines[0] = item.lines[0].slice(task[0].length);
    let nodes = children(item.lines, depth);
    if (nodes[0]?.tagName === "P" && !item.lines.some((line, index) => index && !line.trim())) nodes.splice(0, 1, ...nodes[0].childNodes);
    if (task) nodes = [el("input", { type: "checkbox", disabled: true, checked: task[1] !== " " }), " ", ...nodes];
    return el("li", {}, ...nodes);
  }));
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const sides = cells(lines[1]).map((cell) => (/^:.*:$/.test(cell) ? "center" : cell.endsWith(":") ? "right" : null));
  const row = (line, tag) => el("tr", {}, ...cells(line).map((cell, index) => {
    const node = el(tag, {}, ...inline(cell));
    if (sides[index]) node.style.textAlign = sides[index];
    return node;
  }));
  return el("div", { class: "wide" }, el("table", {}, el("thead", {}, row(lines[0], "th")), el("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

function codeBlock({ lines, language, closed, indent }) {
  const body = lines.slice(1, closed ? -1 : undefined).map((line) => line.replace(new RegExp(`^ {0,${indent}}`), "")).join("\n");
  const copy = el("button", { class: "icon", type: "button", "aria-label": "Copy code", title: "Copy code" }, icon("copy"));
  copy.addEventListener("click", () => copyFrom(copy, body));
  return el("div", { class: "code-block" }, el("div", { class: "code-head" }, el("span", {}, language || "text"), copy),
    el("pre", { tabindex: "0" }, el("code", {}, ...highlighted(body, language))));
}

// --- inline ---------------------------------------------------------------------------------------------------------------
const MARK = /\\[\\`*_{}[\]()#+\-.!|~>$]|`+|\*{1,3}|_{1,3}|~~|!?\[|\]|<(?:https?:\/\/|mailto:)[^\s<>]+>|https?:\/\/[^\s<>"'`]+|\n/g;
const TAGS = { "*": ["em"], "_": ["em"], "**": ["strong"], __: ["strong"], "***": ["strong", "em"], ___: ["strong", "em"], "~~": ["del"] };

function inline(text) {
  const out = [];                                    // strings and nodes
  const open = [];                                   // {mark, at}: delimiters and brackets that may still close
  const count = {};
  const push = (piece) => { if (piece) out.push(piece); };
  const close = (index) => { for (const { mark } of open.splice(index)) count[mark]--; };
  let at = 0, found;
  MARK.lastIndex = 0;
  while ((found = MARK.exec(text))) {
    const mark = found[0], start = found.index;
    push(text.slice(at, start));
    at = start + mark.length;
    if (mark[0] === "\\") push(mark[1]);
    else if (mark[0] === "`") {
      const end = runEnd(text, at, mark.length);
      if (end < 0) push(mark);
      else {
        out.push(el("code", {}, text.slice(at, end).replace(/\n/g, " ").replace(/^ (.+) $/, "$1")));
        at = MARK.lastIndex = end + mark.length;
      }
    } else if (mark === "\n") {
      const last = out.at(-1);
      if (typeof last === "string") out[out.length - 1] = last.replace(/ +$/, "");
      out.push(/ {2}\n$/.test(text.slice(start - 2, at)) || text[start - 1] === "\\" ? el("br") : "\n");
    } else if (mark[0] === "<" || mark[0] === "h") {
      const url = mark[0] === "<" ? mark.slice(1, -1) : mark.replace(/[.,;:!?)\]*_~]+$/, (tail) => (tail[0] === ")" && mark.includes("(") ? tail[0] : ""));
      out.push(link(url, [url]));
      if (mark[0] !== "<") at = MARK.lastIndex = start + url.length;
    } else if (mark === "[" || mark === "![") {
      open.push({ mark: "[", at: out.length, image: mark === "![" });
      count["["] = (count["["] ?? 0) + 1;
      out.push(mark);
    } else if (mark === "]") {
      const target = count["["] ? destination(text, at) : null;
      const index = target ? open.findLastIndex((entry) => entry.mark === "[") : -1;
      if (index < 0) { push(mark); continue; }
      const { at: from, image } = open[index];
      close(index);
      const inner = out.splice(from).slice(1);
      out.push(link(target.url, image ? [`image: ${inner.map(textOf).join("") || target.url}`] : inner));
      at = MARK.lastIndex = target.end;
    } else {
      const before = text[start - 1] ?? " ", after = text[at] ?? " ";
      const word = mark[0] === "_";
      const closes = !/\s/.test(before) && !(word && /[\p{L}\p{N}]/u.test(after)) && count[mark];
      const opens = !/\s/.test(after) && !(word && /[\p{L}\p{N}]/u.test(before));
      if (closes) {
        const index = open.findLastIndex((entry) => entry.mark === mark);
        const { at: from } = open[index];
        close(index);
        let nodes = out.splice(from).slice(1);
        for (const tag of [...TAGS[mark]].reverse()) nodes = [el(tag, {}, ...nodes)];
        out.push(...nodes);
      } else if (opens) {
        open.push({ mark, at: out.length });
        count[mark] = (count[mark] ?? 0) + 1;
        out.push(mark);
      } else push(mark);
    }
  }
  push(text.slice(at));
  return out;
}

const textOf = (piece) => (typeof piece === "string" ? piece : piece.textContent);

/** Where a run of exactly `length` backticks begins, from `at` on; -1 where none does. */
function runEnd(text, at, length) {
  const runs = /`+/g;
  runs.lastIndex = at;
  for (let found; (found = runs.exec(text)); ) if (found[0].length === length) return found.index;
  return -1;
}

/** The (url "title") that begins at `at`, or null. */
function destination(text, at) {
  if (text[at] !== "(") return null;
  const found = /^\(\s*<?([^\s<>]*?)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)$/.exec(balanced(text, at));
  return found ? { url: found[1], end: at + found[0].length } : null;
}

function balanced(text, at) {
  let depth = 0;
  const end = Math.min(text.length, at + 2000);
  for (let i = at; i < end; i++) {
    if (text[i] === "\n") break;
    if (text[i] === "(") depth++;
    else if (text[i] === ")" && --depth === 0) return text.slice(at, i + 1);
  }
  return "";
}

function link(url, nodes) {
  let parsed;
  try { parsed = new URL(url); } catch { parsed = null; }
  if (!parsed || !["http:", "https:", "mailto:"].includes(parsed.protocol)) return el("span", { title: url }, ...nodes);
  return el("a", { href: parsed.href, target: "_blank", rel: "noopener noreferrer nofollow", referrerpolicy: "no-referrer" }, ...nodes);
}
