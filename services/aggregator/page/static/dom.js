// DOM construction from text only: data is never parsed as HTML.

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

// Invisible characters, bidirectional controls and stacked combining marks are shown as code points.
const HIDDEN = /((?:(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}])+|\p{M}{9,})/u;

const numbers = (letters) => Array.from(letters, (letter) => letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")).join(" ");
const control = (letters) => el("span", { class: "control", title: "invisible characters, by code point" }, numbers(letters));

export function visible(text) {
  const parts = text.split(HIDDEN).map((part, i) => (i % 2 ? control(part) : part));
  return parts.filter((part) => part !== "");
}

// Like `visible`, but as a string, for titles and other places without elements.
export const plain = (text) => visible(String(text)).map((part) => part.textContent ?? part).join("");

export const name = (text) => el("bdi", {}, visible(String(text)));

// Notice at the foot of every view; an empty one is removed.
export function warn(error) {
  document.getElementById("notice").replaceChildren(error ? name(error.message ?? error) : "");
}
