// The chat page: reads what the user does, talks to the server, keeps chats in this browser.

import { complete, models, offers, runTool, textOf } from "./api.js";
import { byId, confirmed, el, icon, iconButton } from "./dom.js";
import { imageUri } from "./images.js";
import { argumentsOf, Mentions } from "./mentions.js";
import { defaultSettings, requestFields, SettingsDialog } from "./settings.js";
import * as store from "./store.js";
import { Thread } from "./thread.js";
import { Tree } from "./tree.js";

const SAVE_EVERY = 700;                              // ms between two saves of an answer that grows
const REFRESH_MODELS = 20000;                        // ms

let offered = [];                                    // models, as /v1/models lists them
let chat = null;                                     // the open chat; saved with its first message
let tree = new Tree([], {});
let running = null;                                  // {controller, message} while an answer is written
let attached = [];                                   // data URIs
let texts = [];                                      // {name, text} of resources that come with the next message
let tools = [];                                      // of MCP servers, as the server lists them

const message = byId("message"), mentions = new Mentions(message, mentioned), send = byId("send"), select = byId("model"), live = byId("live");
const thread = new Thread({ regenerate, edit, branch });
const dialog = new SettingsDialog((settings) => { chat.settings = settings; if (tree.byId.size) store.saveChat(chat); });

// --- models ---------------------------------------------------------------------------------------------------------------
async function refreshModels() {
  try {
    offered = await models();
  } catch (error) {
    byId("load-state").textContent = error.message;
    return;
  }
  byId("load-state").textContent = "";
  const wanted = chat?.model ?? localStorage.getItem("edgellm-model") ?? select.value;
  select.replaceChildren(...offered.map(({ id }) => el("option", { value: id }, id)));
  const chosen = offered.find((model) => model.id === wanted) ?? offered.find((model) => model.loaded) ?? offered[0];
  if (chosen) select.value = chosen.id;
  modelChanged();
}

const model = () => offered.find((each) => each.id === select.value);

function modelChanged() {
  const chosen = model();
  byId("attach").hidden = !chosen?.vision;
  byId("think").hidden = chosen?.thinking !== "optional";
  showContext(tree.path().findLast((each) => each.usage)?.usage);
}

function showContext(usage) {
  const limit = model()?.context, bar = byId("context");
  bar.hidden = !limit || !usage;
  if (bar.hidden) return;
  const used = usage.prompt_tokens + usage.completion_tokens, share = Math.min(100, (100 * used) / limit);
  bar.style.setProperty("--used", `${share}%`);
  bar.classList.toggle("full", share > 90);
  bar.setAttribute("aria-valuenow", used);
  bar.setAttribute("aria-valuemax", limit);
  const text = `${used.toLocaleString()} of ${limit.toLocaleString()} tokens`;
  bar.setAttribute("aria-valuetext", text);
  bar.title = text;
  bar.lastElementChild.textContent = `${Math.round(share)} %`;
}

// --- chats ----------------------------------------------------------------------------------------------------------------
async function listChats() {
  const wanted = byId("search").value.trim().toLowerCase();
  const all = (await store.chats()).filter((each) => each.title.toLowerCase().includes(wanted));
  let day = "";
  byId("chats").replaceChildren(...all.flatMap((each) => {
    const heading = dayOf(each.updated), nodes = [];
    if (heading !== day) nodes.push(el("li", { role: "presentation" }, el("h2", {}, (day = heading))));
    nodes.push(el("li", { "aria-current": each.id === chat?.id ? "true" : null },
      el("button", { class: "open", type: "button", title: each.title, onclick: () => openChat(each.id) }, each.title),
      iconButton("trash", `Delete ${each.title}`, () => remove(each))));
    return nodes;
  }));
}

function dayOf(time) {
  const days = Math.floor((new Date().setHours(24, 0, 0, 0) - time) / 86400000);
  return days < 1 ? "Today" : days < 2 ? "Yesterday" : days < 7 ? "This week" : new Date(time).toLocaleDateString(undefined, { month: "long", year: "numeric" });
}

function newChat() {
  stop();
  chat = { id: store.newId(), title: "", created: Date.now(), updated: Date.now(), selected: {}, settings: defaultSettings() };
  tree = new Tree([], chat.selected);
  history.replaceState(null, "", location.pathname);
  draw();
  showContext(null);
  listChats();
  message.focus();
}

async function openChat(id) {
  const found = await store.readChat(id);
  if (!found) return newChat();
  stop();
  chat = found;
  tree = new Tree(await store.readMessages(id), chat.selected);
  for (const each of tree.byId.values()) if (each.running) { each.running = false; each.note = "Interrupted."; }
  history.replaceState(null, "", `#${id}`);
  if (offered.some((each) => each.id === chat.model)) select.value = chat.model;
  modelChanged();
  draw();
  thread.toEnd(false);
  listChats();
  closeSidebar();
}

async function remove(each) {
  if (!(await confirmed(`Delete “${each.title}”? This can't be undone.`, "Delete"))) return;
  await store.removeChat(each.id);
  if (each.id === chat?.id) newChat();
  else listChats();
}

function draw() {
  thread.show(tree.path(), tree);
  document.title = chat.title ? `${chat.title} · edgellm` : "edgellm";
}

// --- sending --------------------------------------------------------------------------------------------------------------
function add(fields) {
  const parent = fields.parent ?? null;
  const added = { id: store.newId(), chat: chat.id, created: Date.now(), content: "", ...fields, parent };
  tree.add(added);
  chat.selected[parent ?? ""] = added.id;
  return added;
}

async function submit() {
  const text = message.value.trim();
  if (running || (!text && !attached.length && !texts.length)) return;
  const parent = tree.path().at(-1)?.id ?? null;
  const question = add({ role: "user", content: text, images: attached, texts, parent });
  if (!chat.title) chat.title = (text || texts[0]?.name || "Image").replace(/\s+/g, " ").slice(0, 60);
  message.value = "";
  attached = [];
  texts = [];
  drawAttached();
  await store.saveMessage(question);
  await answer(question);
}

async function edit(original, text) {
  if (running) return;
  const question = add({ role: "user", content: text, images: original.images, texts: original.texts, parent: original.parent });
  await store.saveMessage(question);
  await answer(question);
}

async function regenerate(old) {
  if (!running) await answer(tree.byId.get(old.parent));
}

async function branch(at, step) {
  if (running) return;
  tree.select(at, step);
  draw();
  await store.saveChat(chat);
}

/** The messages of a request: the path down to `last`. Thinking isn't sent again. */
function history_(last) {
  const path = tree.path();
  const upTo = path.slice(0, path.findIndex((each) => each.id === last.id) + 1);
  const out = chat.settings.system ? [{ role: "system", content: chat.settings.system }] : [];
  for (const each of upTo) {
    if (each.role === "user" && each.images?.length) {
      out.push({ role: "user", content: [...pictures(each), { type: "text", text: written(each) }] });
    } else if (each.role === "tool") {
      const content = each.images?.length && model()?.vision ? [{ type: "text", text: each.content }, ...pictures(each)] : each.content;
      out.push({ role: "tool", tool_call_id: each.call, name: each.name, content });
    } else if (each.role === "assistant" && each.calls?.length && each.calls.every((call) => upTo.some((other) => other.call === call.id))) {
      const calls = each.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
      out.push({ role: "assistant", content: each.content, tool_calls: calls });
    } else if (each.role === "user" || (each.role === "assistant" && each.content)) out.push({ role: each.role, content: written(each) });
  }
  return out;
}

/** A message as the model gets it: behind the texts that came with it. */
const written = (each) => [...(each.texts ?? []).map(({ name, text }) => `${name}:\n\n${text}`), each.content].join("\n\n");

const pictures = (each) => each.images.map((url) => ({ type: "image_url", image_url: { url } }));

async function answer(question) {
  chat.model = select.value;
  chat.updated = Date.now();
  localStorage.setItem("edgellm-model", select.value);
  history.replaceState(null, "", `#${chat.id}`);
  const reply = add({ role: "assistant", parent: question.id, running: true, model: select.value });
  const controller = new AbortController();
  running = { controller, message: reply };
  draw();
  thread.toEnd(false);
  showSending();
  await store.saveChat(chat);
  listChats();

  const body = { model: select.value, messages: history_(question), ...requestFields(chat.settings) };
  if (!byId("think").hidden) body.chat_template_kwargs = { enable_thinking: byId("think").getAttribute("aria-pressed") === "true" };
  const offeredTools = model()?.tools === false ? [] : tools.filter((tool) => !chat.settings.withoutTools?.includes(tool.function.name));
  if (offeredTools.length) body.tools = offeredTools.map((tool) => ({ type: tool.type, function: tool.function }));
  const sent = performance.now();
  let first = null, pieces = 0, saved = sent, scheduled = false;
  const redraw = () => { scheduled = false; thread.update(reply); };
  const on = (event) => {
    if (event.text || event.thinking || event.calls) { first ??= performance.now(); pieces++; }
    if (event.thinking) reply.thinking = (reply.thinking ?? "") + event.thinking;
    if (event.text) {
      if (reply.thinking && !reply.content) reply.thinkingSeconds = (performance.now() - (first ?? sent)) / 1000;
      reply.content += event.text;
    }
    if (event.calls) mergeCalls(reply, event.calls);
    if (event.progress) byId("speed").textContent = `reading the prompt, ${Math.round((100 * event.progress[0]) / event.progress[1])} %`;
    else if (pieces > 1) byId("speed").textContent = `${((pieces - 1) / ((performance.now() - first) / 1000)).toFixed(1)} tokens/s`;
    if (event.usage) reply.usage = event.usage;
    if (event.finish) reply.finish = event.finish;
    if (!scheduled) { scheduled = true; requestAnimationFrame(redraw); }
    if (performance.now() - saved > SAVE_EVERY) { saved = performance.now(); store.saveMessage(reply); }
  };
  try {
    await complete(body, controller.signal, on);
    if (reply.finish === "length") reply.note = "Stopped at the limit of new tokens or of the context.";
    live.textContent = `Answer: ${reply.content.slice(0, 400)}`;
  } catch (error) {
    if (error.name === "AbortError") reply.note = "Stopped.";
    else reply.error = error.message;
  }
  reply.running = false;
  const seconds = first ? (performance.now() - first) / 1000 : 0, tokens = reply.usage?.completion_tokens ?? pieces;
  if (tokens > 1 && seconds > 0) reply.stats = `${tokens} tokens, ${((tokens - 1) / seconds).toFixed(1)} tokens/s`;
  byId("speed").textContent = "";
  if (running?.message === reply) running = null;
  thread.update(reply);
  if (reply.usage) showContext(reply.usage);
  showSending();
  await store.saveMessage(reply);
  await store.saveChat({ ...chat, updated: Date.now() });
  listChats();
  if (reply.finish === "tool_calls" && tools.length) await runCalls(reply);
}

/** Run the calls of an answer that the user allows, and let the model go on with their results. */
async function runCalls(reply) {
  const open = chat.id, controller = new AbortController();
  let last = reply;
  running = { controller, message: reply };
  showSending();
  for (const call of reply.calls) {
    let result;
    try {
      result = await allowedResult(call, controller.signal);
    } catch (error) {
      result = { content: error.message, failed: true };
    }
    if (chat.id !== open) return;
    const stopped = controller.signal.aborted;
    const content = stopped ? "Stopped." : result.content, images = stopped ? [] : result.images ?? [];
    last = add({ role: "tool", parent: last.id, call: call.id, name: call.name, content, images, failed: result.failed });
    await store.saveMessage(last);
    draw();
  }
  running = null;
  showSending();
  if (!controller.signal.aborted) await answer(last);
}

async function allowedResult(call, signal) {
  const tool = tools.find((each) => each.function.name === call.name);
  if (!tool) return { content: `There is no tool ${call.name}.`, failed: true };
  const always = (chat.allowed ??= []);
  const said = tool.allowed || always.includes(call.name) ? "once" : await askForCall(tool, call);
  if (said === "always") { always.push(call.name); await store.saveChat(chat); }
  if (said !== "once" && said !== "always") return { content: "The user did not allow this call.", failed: true };
  return runTool(call.name, JSON.parse(call.arguments || "{}"), true, signal);
}

/** "once", "always" in this chat, or "no". */
function askForCall(tool, call) {
  const dialog = byId("tool-dialog");
  byId("tool-question").textContent = `Let ${tool.server} run ${call.name}?`;
  byId("tool-arguments").textContent = call.arguments;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true }));
}

function mergeCalls(reply, deltas) {
  reply.calls ??= [];
  for (const delta of deltas) {
    const call = (reply.calls[delta.index ?? 0] ??= { id: "", name: "", arguments: "" });
    call.id ||= delta.id ?? "";
    call.name ||= delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }
}

function stop() {
  running?.controller.abort();
}

function showSending() {
  send.setAttribute("aria-label", running ? "Stop" : "Send");
  send.replaceChildren(icon(running ? "stop" : "up"));
  send.disabled = !running && !message.value.trim() && !attached.length && !texts.length;
}

// --- the message box --------------------------------------------------------------------------------------------------------
function fit() {
  if (CSS.supports("field-sizing", "content")) return;
  message.style.height = "auto";
  message.style.height = `${message.scrollHeight}px`;
}

async function attach(files) {
  for (const file of files) {
    try { attached.push(await imageUri(file)); } catch (error) { live.textContent = byId("speed").textContent = error.message; }
  }
  drawAttached();
}

/** A resource that was chosen comes with the next message, a prompt is filled in. */
async function mentioned(item) {
  try {
    const given = item.kind === "prompt" ? await argumentsOf(item) : {};
    if (given === null) return;
    const text = await textOf(item, given);
    if (item.kind === "prompt") message.setRangeText(text, message.selectionStart, message.selectionEnd, "end");
    else texts.push({ name: item.key, text });
  } catch (error) {
    live.textContent = byId("speed").textContent = error.message;
  }
  drawAttached();
  message.focus();
}

function drawAttached() {
  const remove = (list, index, label) => iconButton("close", `Remove ${label}`, () => { list.splice(index, 1); drawAttached(); });
  byId("attachments").replaceChildren(
    ...texts.map(({ name }, index) => el("li", {}, el("span", { class: "text-file" }, name), remove(texts, index, name))),
    ...attached.map((url, index) => el("li", {}, el("img", { src: url, alt: `Image ${index + 1}` }), remove(attached, index, `image ${index + 1}`))));
  showSending();
  fit();
}

byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) stop();
  else submit();
});
message.addEventListener("input", () => { showSending(); fit(); });
message.addEventListener("keydown", (event) => {
  if (mentions.key(event)) return;
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) submit(); }
  if (event.key === "ArrowUp" && !message.value && !running) {
    const last = tree.path().findLast((each) => each.role === "user");
    if (last) { event.preventDefault(); thread.fill(last.id); thread.edit(last); }
  }
});
message.addEventListener("paste", (event) => {
  const files = [...event.clipboardData.files].filter((file) => file.type.startsWith("image/"));
  if (files.length && model()?.vision) { event.preventDefault(); attach(files); }
});
const composer = byId("composer");
for (const kind of ["dragover", "dragleave", "drop"]) composer.addEventListener(kind, (event) => {
  if (!model()?.vision) return;
  event.preventDefault();
  composer.classList.toggle("drop", kind === "dragover");
  if (kind === "drop") attach([...event.dataTransfer.files].filter((file) => file.type.startsWith("image/")));
});
byId("attach").addEventListener("click", () => byId("attach-file").click());
byId("attach-file").addEventListener("change", (event) => { attach(event.target.files); event.target.value = ""; });
byId("think").addEventListener("click", (event) => {
  const on = event.currentTarget.getAttribute("aria-pressed") !== "true";
  event.currentTarget.setAttribute("aria-pressed", on);
});

// --- the frame -------------------------------------------------------------------------------------------------------------
function closeSidebar() {
  byId("sidebar").classList.remove("open");
  byId("scrim").hidden = true;
  byId("menu").setAttribute("aria-expanded", "false");
}

byId("menu").addEventListener("click", () => {
  const open = byId("sidebar").classList.toggle("open");
  byId("scrim").hidden = !open;
  byId("menu").setAttribute("aria-expanded", open);
  if (open) byId("new-chat").focus();
});
byId("scrim").addEventListener("click", closeSidebar);
byId("new-chat").addEventListener("click", () => { closeSidebar(); newChat(); });
byId("search").addEventListener("input", listChats);
byId("open-settings").addEventListener("click", () => dialog.open(chat.settings, tools));
select.addEventListener("change", modelChanged);

const THEMES = ["system", "light", "dark"];
function showTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-label", `Theme: ${theme}`);
  byId("theme").title = `Theme: ${theme}`;
}
byId("theme").addEventListener("click", () => {
  const theme = THEMES[(THEMES.indexOf(localStorage.getItem("edgellm-theme") ?? "system") + 1) % THEMES.length];
  localStorage.setItem("edgellm-theme", theme);
  showTheme(theme);
});

byId("export").addEventListener("click", async () => {
  const blob = new Blob([JSON.stringify(await store.exportAll())], { type: "application/json" });
  const link = el("a", { href: URL.createObjectURL(blob), download: `edgellm-chats-${new Date().toISOString().slice(0, 10)}.json` });
  link.click();
  URL.revokeObjectURL(link.href);
});
byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (!file) return;
  try {
    live.textContent = byId("load-state").textContent = `${await store.importAll(JSON.parse(await file.text()))} chats imported.`;
  } catch (error) {
    live.textContent = byId("load-state").textContent = `Can't import ${file.name}: ${error.message}.`;
  }
  listChats();
});

// Focus that a dialog gives back takes no keys in Chromium.
for (const each of document.querySelectorAll("dialog")) each.addEventListener("close", () => {
  if (document.activeElement !== message) return;
  message.blur();
  message.focus();
});
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.altKey && event.code === "KeyN") { event.preventDefault(); newChat(); }
  else if (event.altKey && event.code === "KeyK") { event.preventDefault(); byId("search").focus(); }
  else if (event.altKey && event.code === "Comma") { event.preventDefault(); dialog.open(chat.settings, tools); }
  else if (event.key === "Escape" && byId("sidebar").classList.contains("open")) { closeSidebar(); byId("menu").focus(); }
  else if (event.key === "Escape" && running) stop();
  else if (event.key === "/" && !event.target.closest?.("input, textarea, select")) { event.preventDefault(); message.focus(); }
});

let following = Promise.resolve();                   // one change of other tabs after the other
store.onChange((id) => { following = following.catch(() => {}).then(() => follow(id)); });
async function follow(id) {
  if (id === chat?.id && !running) {
    if (await store.readChat(id)) await openChat(id);
    else newChat();
  } else listChats();
}
window.addEventListener("hashchange", () => { const id = location.hash.slice(1); if (id && id !== chat.id) openChat(id); });

showTheme(localStorage.getItem("edgellm-theme") ?? "system");
const wanted = location.hash.slice(1);
if (wanted) await openChat(wanted);
else newChat();
showSending();
async function refreshOffers() {
  try {
    const found = await offers();
    tools = found.tools;
    mentions.items = found.items;
  } catch { /* the models' list says what is wrong */ }
}
await refreshOffers();
await refreshModels();
setInterval(() => { if (!document.hidden && !running) { refreshModels(); refreshOffers(); } }, REFRESH_MODELS);
