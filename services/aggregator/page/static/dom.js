// Elements made of text alone: nothing that data say is ever parsed as markup.

export function el(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "path", "line", "text", "title", "g"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "width%") node.style.width = `${value}%`;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// Characters that a reader cannot see, or that turn the order of others around, are shown by name.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/u;

export function visible(text) {
  const parts = [];
  let plain = "";
  for (const letter of text) {
    if (!HIDDEN.test(letter)) {
      plain += letter;
      continue;
    }
    if (plain) parts.push(plain);
    plain = "";
    const code = letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    parts.push(el("span", { class: "control", title: `character U+${code}` }, code));
  }
  if (plain) parts.push(plain);
  return parts;
}

export const name = (text) => el("bdi", {}, visible(String(text)));
