// DOM construction from text only: data is never parsed as HTML.

export function el(name, attributes = {}, ...children) {
  const svg = ["svg", "rect", "circle", "path", "line", "text", "title", "g"].includes(name);
  const node = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "width%") node.style.width = `${value}%`;
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

// Make the children of `place` like `nodes`. Elements of the same kind stay, with their handlers, so an update loses
// no focus, no open details and no place in a scrolled box; handlers of `nodes` count only where they are new.
export function renew(place, ...nodes) {
  const wanted = document.createDocumentFragment();
  wanted.append(...nodes.flat(Infinity).filter((node) => node !== null && node !== undefined));
  const old = [...place.childNodes];
  const made = [...wanted.childNodes];
  made.forEach((node, i) => {
    if (!old[i]) place.append(node);
    else if (old[i].nodeName !== node.nodeName || old[i].id !== node.id) old[i].replaceWith(node);
    else if (node.nodeType !== Node.ELEMENT_NODE)
      old[i].data === node.data || (old[i].data = node.data);
    else {
      likewise(old[i], node);
      renew(old[i], ...node.childNodes);
    }
  });
  for (const left of old.slice(made.length)) left.remove();
}

function likewise(old, node) {
  for (const { name } of [...old.attributes])
    if (!node.hasAttribute(name) && !["open", "style"].includes(name)) old.removeAttribute(name);
  for (const { name, value } of node.attributes)
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (old.style.cssText !== node.style.cssText) old.style.cssText = node.style.cssText; // the policy forbids the attribute
}

// Parts of tables. A text of a row's head or a cell may be a node or a list of them, a heading without text is an empty cell.
export const row = (...cells) => el("tr", {}, cells);
export const cell = (...content) => el("td", {}, content);
export const figure = (...content) => el("td", { class: "number" }, content);
export const rowHead = (...content) => el("th", { scope: "row" }, content);
export const column = (text, kind = null) =>
  text ? el("th", { scope: "col", class: kind }, text) : el("td");
export const columns = (texts, kind = null) => texts.map((text) => column(text, kind));
export const table = (head, rows, attributes = {}) =>
  el("table", attributes, el("thead", {}, row(head)), rows.nodeType ? rows : el("tbody", {}, rows));

export const soft = (...content) => el("p", { class: "soft" }, content);

export const button = (content, onclick, attributes = {}) =>
  el("button", { type: "button", onclick, ...attributes }, content);

// A list of names and values without those that are not known.
export const definitions = (values, kind = null) =>
  el(
    "dl",
    { class: kind },
    Object.entries(values)
      .filter(([, value]) => value !== undefined && value !== null && value !== "")
      .map(([key, value]) => [el("dt", {}, key), el("dd", {}, name(value))]),
  );

// A form whose fields act at once.
export const controls = (attributes, ...fields) =>
  el(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault(), ...attributes },
    fields,
  );

// A labelled choice; `values` are pairs of a value and its text.
export function select(label, key, values, chosen, onchange) {
  const option = ([value, text]) =>
    el("option", { value, selected: value === (chosen ?? "") }, plain(text));
  return el("label", {}, label, el("select", { name: key, onchange }, values.map(option)));
}

// A status as a word in its colour.
export const statusOf = (found) => el("span", { class: `status ${found}` }, found);

// Folded part of a view; `key` is its name, by which the router finds it open in the next view.
export const fold = (key, summary, ...children) =>
  el("details", { "data-fold": key }, el("summary", {}, summary), ...children);

// Table in a box that scrolls sideways, reachable by keyboard.
export const scrolled = (label, table, kind = "") =>
  el(
    "div",
    { class: `wide ${kind}`.trim(), tabindex: 0, role: "region", "aria-label": label },
    table,
  );

// Invisible characters, bidirectional controls and stacked combining marks are shown as code points.
const HIDDEN = /((?:(?![\t\n])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}])+|\p{M}{9,})/u;

const numbers = (letters) =>
  Array.from(letters, (letter) =>
    letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0"),
  ).join(" ");
const control = (letters) =>
  el("span", { class: "control", title: "invisible characters, by code point" }, numbers(letters));

export function visible(text) {
  const parts = text.split(HIDDEN).map((part, i) => (i % 2 ? control(part) : part));
  return parts.filter((part) => part !== "");
}

// Like `visible`, but as a string, for titles and other places without elements.
export const plain = (text) =>
  visible(String(text))
    .map((part) => part.textContent ?? part)
    .join("");

export const name = (text) => el("bdi", {}, visible(String(text)));

export function download(file, text) {
  const type = file.endsWith(".json") ? "application/json" : "text/plain;charset=utf-8";
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// Do `work` two seconds after it was done, again and again, until the returned function is called.
export function repeat(work) {
  let timer = null;
  const wait = () =>
    (timer = setTimeout(() => work().finally(() => timer !== null && wait()), 2000));
  wait();
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

// Notice above every view; an empty one is removed.
export function warn(error) {
  renew(document.getElementById("notice"), error ? name(error.message ?? error) : "");
}

// Percent-decoded part of an address; a malformed one is returned unchanged.
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
