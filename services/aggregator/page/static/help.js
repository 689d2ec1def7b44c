// Keys of the page: handlers, and the dialog that ? opens with all that are in force.
import { el } from "./dom.js";

const groups = new Set();
const shown = { " ": "Space", Escape: "Esc" };

// Handle keys until the returned function is called. Each is `[key, what it does, handler]`; a key is
// an `event.key`, one without a handler is the browser's. Keys typed into a field or pressed with Ctrl, Alt or Meta are
// the browser's, too, but Esc leaves a field.
export function keys(heading, bindings) {
  const group = { heading, bindings };
  groups.add(group);
  return () => groups.delete(group);
}

// Move the focus among the links of a list, from the one that has it.
export function move(links, step) {
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
}

function pressed(event) {
  if (
    event.defaultPrevented ||
    event.target.closest("dialog") ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey
  )
    return;
  if (event.target.closest("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const all = [...groups].flatMap(({ bindings }) => bindings).reverse(); // the latest view's first
  const [, , handler] = all.find(([key, , handler]) => handler && key === event.key) ?? [];
  if (!handler) return;
  if (event.key.length === 1) event.preventDefault(); // Firefox searches the page at / and '
  handler(event);
}

const rows = (bindings) =>
  bindings.flatMap(([key, text]) => [
    el("dt", {}, el("kbd", {}, shown[key] ?? key)),
    el("dd", {}, text),
  ]);

function open() {
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const parts = [...groups].flatMap(({ heading, bindings }) => [
    el("h3", {}, heading),
    el("dl", {}, rows(bindings)),
  ]);
  const dialog = el(
    "dialog",
    { class: "help", "aria-labelledby": "help-heading", onclose: () => dialog.remove() },
    el("h2", { id: "help-heading" }, "Keys"),
    parts,
    close,
  );
  document.body.append(dialog);
  dialog.showModal(); // moves the focus into the dialog, and back when it closes
}

keys("Everywhere", [
  ["?", "show this list", open],
  ["Escape", "close it, or leave a field"],
]);
addEventListener("keydown", pressed);
document.getElementById("help").addEventListener("click", open);
