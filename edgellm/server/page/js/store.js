// Chats in this browser's IndexedDB. A chat is a tree of messages: an edit or another answer is a branch beside the first one.

const NAME = "edgellm", VERSION = 1;
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("chats", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: "id" }).createIndex("chat", "chat");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function transaction(stores, mode, work) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const running = db.transaction(stores, mode);
    const request = work(...stores.map((name) => running.objectStore(name)));
    running.oncomplete = () => resolve(request?.result);
    running.onerror = running.onabort = () => reject(running.error);
  });
}

export const newId = () => `${Date.now().toString(36)}-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;

/** All chats without their messages, newest first. */
export async function chats() {
  const all = await transaction(["chats"], "readonly", (store) => store.getAll());
  return all.sort((a, b) => b.updated - a.updated);
}

export const readChat = (id) => transaction(["chats"], "readonly", (store) => store.get(id));
export const readMessages = (id) => transaction(["messages"], "readonly", (store) => store.index("chat").getAll(id));
export const saveChat = (chat) => transaction(["chats"], "readwrite", (store) => store.put(chat)).then(() => tell(chat.id));
export const saveMessage = (message) => transaction(["messages"], "readwrite", (store) => store.put(message));

export async function removeChat(id) {
  const ids = await transaction(["messages"], "readonly", (store) => store.index("chat").getAllKeys(id));
  await transaction(["chats", "messages"], "readwrite", (list, messages) => {
    for (const each of ids) messages.delete(each);
    return list.delete(id);
  });
  tell(id);
}

/** Everything, as one object that `importAll` takes. */
export async function exportAll() {
  const [list, messages] = await Promise.all(["chats", "messages"].map((name) => transaction([name], "readonly", (store) => store.getAll())));
  return { format: "edgellm-chats", version: 1, chats: list, messages };
}

/** Add exported chats; one that exists already is kept as it is. The number added. Raises Error for another format. */
export async function importAll(data) {
  if (data?.format !== "edgellm-chats" || data.version !== 1 || !Array.isArray(data.chats) || !Array.isArray(data.messages))
    throw new Error("not an export of chats from this page");
  const text = (value) => typeof value === "string";
  const known = new Set((await chats()).map((chat) => chat.id));
  const added = data.chats.filter((chat) => text(chat?.id) && text(chat.title) && Number.isFinite(chat.updated) && !known.has(chat.id));
  const ids = new Set(added.map((chat) => chat.id));
  const messages = data.messages.filter((message) => text(message?.id) && ids.has(message.chat) && ["user", "assistant", "tool"].includes(message.role) && text(message.content));
  await transaction(["chats", "messages"], "readwrite", (list, store) => {
    for (const chat of added) list.put({ ...chat, selected: chat.selected ?? {}, settings: chat.settings ?? {} });
    for (const message of messages) store.put({ ...message, images: (message.images ?? []).filter((url) => text(url) && url.startsWith("data:image/")) });
  });
  tell(null);
  return added.length;
}

// --- tabs: each is told of what another one saved ----------------------------------------------------------------------------
const channel = "BroadcastChannel" in window ? new BroadcastChannel("edgellm-chats") : null;
const tell = (id) => channel?.postMessage(id);
export const onChange = (listener) => channel?.addEventListener("message", (event) => listener(event.data));
