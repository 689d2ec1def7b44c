// Syntax highlighting of Python by tokens; the text is unchanged.
import { el, visible } from "./dom.js";

const WORDS = "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield";
const TOKEN = new RegExp(
  [
    "(?<comment>#[^\\n]*)",
    "(?<string>[rbfuRBFU]{0,2}(?:'''[^]*?(?:'''|$)|\"\"\"[^]*?(?:\"\"\"|$)|'(?:\\\\.|[^'\\\\\\n])*'?|\"(?:\\\\.|[^\"\\\\\\n])*\"?))",
    "(?<literal>\\b\\d[\\w.]*)",
    `(?<keyword>\\b(?:${WORDS.replaceAll(" ", "|")})\\b)`,
    "(?<name>\\w+)",
  ].join("|"),
  "gu",
);

export function coloured(code) {
  const parts = [];
  let end = 0;
  for (const found of code.matchAll(TOKEN)) {
    const kind = ["comment", "string", "literal", "keyword"].find((group) => found.groups[group] !== undefined);
    if (!kind) continue;
    parts.push(...visible(code.slice(end, found.index)), el("span", { class: kind }, visible(found[0])));
    end = found.index + found[0].length;
  }
  return [...parts, ...visible(code.slice(end))];
}
