// The server's HTTP API as this page uses it: OpenAI's chat completions as a stream, the models, and their state.

import { byId } from "./dom.js";

const KEY = "edgellm-api-key";

export class ApiError extends Error {
  constructor(message, status, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function call(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    let response;
    try {
      response = await fetch(path, { ...options, headers, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("Can't reach the server. Is edgellm serve still running?", 0);
    }
    if (response.ok) return response;
    if (response.status === 401 && (await askForKey())) continue;
    throw await errorOf(response);
  }
}

async function errorOf(response) {
  let message = `The server answered ${response.status}.`, code = null;
  try {
    const body = await response.json();
    const error = body.error ?? body;
    message = (typeof error === "string" ? error : error.message) || message;
    code = error.code ?? null;
  } catch { /* no JSON: the status says enough */ }
  return new ApiError(message, response.status, code);
}

function askForKey() {
  const dialog = byId("key-dialog");
  dialog.returnValue = "cancel";
  if (!dialog.open) dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    const given = byId("key").value.trim();
    if (dialog.returnValue === "ok" && given) sessionStorage.setItem(KEY, given);
    resolve(dialog.returnValue === "ok" && Boolean(given));
  }, { once: true }));
}

/** Models that the server offers: {id, loaded, context, vision, thinking, tools}; all but the first two are known once it is loaded. */
export async function models() {
  const { data } = await (await call("v1/models")).json();
  return data.map(({ id, meta = {} }) => ({ id, loaded: meta.loaded, context: meta.n_ctx, vision: meta.vision, thinking: meta.thinking, tools: meta.tools }));
}

/** What MCP servers offer: {tools: [{type, function, server, allowed}], items: [{kind, key, description, arguments}]}. */
export const offers = async () => (await call("page/tools")).json();

/** The text of a resource or a prompt. */
export async function textOf(item, args) {
  const body = JSON.stringify({ name: item.key, arguments: args });
  return (await (await call(`page/${item.kind}`, { method: "POST", body })).json()).content;
}

/** The result of a call that the user allowed: {content, images, failed}. */
export async function runTool(name, args, confirmed, signal) {
  const body = JSON.stringify({ name, arguments: args, confirmed });
  return (await call("page/tools/call", { method: "POST", signal, body })).json();
}

/** Stream a chat completion. `on` gets {text}, {thinking}, {calls}, {progress: [done, of]}, {usage}, {finish}. Raises ApiError. */
export async function complete(body, signal, on) {
  const response = await call("v1/chat/completions", {
    method: "POST", signal, body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiError("The connection ended before the answer did.", 0);
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const progress = /^: prompt (\d+)\/(\d+)/.exec(line);
      if (progress) on({ progress: [Number(progress[1]), Number(progress[2])] });
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(chunk.error.message, chunk.error.status ?? 500, chunk.error.code);
      if (chunk.usage) on({ usage: chunk.usage, timings: chunk.timings });
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      const { content, reasoning_content: thinking, tool_calls: calls } = choice.delta ?? {};
      if (thinking) on({ thinking });
      if (content) on({ text: content });
      if (calls) on({ calls });
      if (choice.finish_reason) on({ finish: choice.finish_reason });
    }
  }
}
