// Texts with the marks that the service made: syntax, and what differs between two outputs.
import { el, visible } from "./dom.js";

const KINDS = [null, "comment", "string", "literal", "keyword"];

// Parts of a text by its syntax: pairs of a length and a kind, from the begin of the text on.
export function coloured(text, syntax = []) {
  const parts = [];
  let at = 0;
  for (let i = 0; i < syntax.length && at < text.length; i += 2) {
    const [part, kind] = [visible(text.slice(at, at + syntax[i])), KINDS[syntax[i + 1]]];
    parts.push(...(kind ? [el("span", { class: kind }, part)] : part));
    at += syntax[i];
  }
  return [...parts, ...visible(text.slice(at))];
}

// Parts of a text of which some are marked: [line, begin, end] each, in order.
export function marked(text, marks, kind) {
  const lines = text.split("\n");
  let next = 0;
  return lines.flatMap((line, i) => {
    const parts = [];
    let at = 0;
    for (; marks[next]?.[0] === i; next++) {
      const [, begin, end] = marks[next];
      parts.push(
        ...visible(line.slice(at, begin)),
        el("span", { class: kind }, visible(line.slice(begin, end))),
      );
      at = end;
    }
    return [...parts, ...visible(line.slice(at)), i < lines.length - 1 ? "\n" : ""];
  });
}
