// Colours for code: comments, strings, numbers and keywords, alike for all languages.

import { el } from "./dom.js";

const KEYWORDS = new Set(("abstract and as assert async await begin bool boolean break byte case catch char class const continue def default " +
  "defer del delete do done double elif else elseif end enum esac except export extends extern false fi final finally float fn for from func " +
  "function global go goto if impl implements import in include instanceof int interface is lambda let long loop local match mod module mut " +
  "namespace new nil none None not null of or override package pass private protected pub public raise readonly ref return self short signed " +
  "sizeof static struct super switch template then this throw throws trait true True False try type typedef typeof union unsafe unsigned " +
  "unless until use using var virtual void volatile when where while with yield select insert update where join group order by create table " +
  "SELECT INSERT UPDATE WHERE JOIN GROUP ORDER BY CREATE TABLE FROM INTO VALUES SET AND OR NOT NULL AS ON LIMIT").split(" "));
const HASH = new Set("python py sh bash zsh shell yaml yml toml ruby rb perl r makefile dockerfile nix elixir julia ini".split(" "));
const DASHES = new Set("sql lua haskell hs ada elm".split(" "));
const PLAIN = new Set("text txt plain output console markdown md".split(" "));
const LARGEST = 60000;                               // characters; longer code stays plain

/** Nodes and strings for code in a language, as its fence names it. */
export function highlighted(code, language) {
  const name = language.toLowerCase();
  if (code.length > LARGEST || PLAIN.has(name)) return [code];
  const comment = HASH.has(name) ? "#[^\\n]*" : DASHES.has(name) ? "--[^\\n]*" : name === "html" || name === "xml" ? "<!--[\\s\\S]*?(?:-->|$)"
    : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)" + (name ? "" : "|#[^\\n]*");
  const pattern = new RegExp(`(${comment})|("""[\\s\\S]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\.)*\`?)|(\\b(?:0x[\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b)|([A-Za-z_]\\w*)`, "g");
  const out = [];
  let at = 0;
  for (const found of code.matchAll(pattern)) {
    const [text, remark, string, number, word] = found;
    const kind = remark ? "comment" : string ? "string" : number ? "number" : KEYWORDS.has(word) ? "keyword" : null;
    if (!kind) continue;
    if (found.index > at) out.push(code.slice(at, found.index));
    out.push(el("span", { class: `t-${kind}` }, text));
    at = found.index + text.length;
  }
  out.push(code.slice(at));
  return out;
}
