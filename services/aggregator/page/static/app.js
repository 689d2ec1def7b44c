// Router: shows the view for the current location hash, with breadcrumbs and notices.
import * as api from "./api.js";
import { el, name, plain, warn } from "./dom.js";
import { runAddress } from "./listing.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showSample } from "./sample.js";

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
let leave = () => {};
let turns = 0;
let saving = null;

// Percent-decoded path segment; a malformed one is returned unchanged.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function where() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (!parts.length && api.only()) parts.push("run", api.only());
  return { parts, query: new URLSearchParams(query) };
}

function trail(parts) {
  const links = [];
  if (parts[0] === "run") links.push(["run", runAddress(parts[1]), parts[1]]);
  if (parts.length > 2) links.push(["sample", location.hash, `${parts[2]} / ${parts[3]} / ${parts[4]}`]);
  return links.map(([, href, text]) => el("a", { href }, name(text))).flatMap((link) => [" › ", link]);
}

async function show() {
  const turn = ++turns;
  leave();
  leave = () => {};
  warn("");
  const { parts, query } = where();
  crumbs.replaceChildren(...trail(parts));
  document.title = parts[1] ? `${plain(parts.slice(1).join(" / "))} – Plumbline` : "Plumbline";
  const view = parts[0] !== "run" ? showRuns : parts.length < 5 ? showRun : showSample;
  const stage = document.createDocumentFragment();
  let done = () => {};
  try {
    done = (await view(stage, parts.slice(1), query)) ?? done;
  } catch (error) {
    stage.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", {}, name(error.message)));
  }
  if (turn !== turns) return done(); // the user has navigated away
  leave = done;
  main.replaceChildren(stage);
  if (turn > 1) main.focus({ preventScroll: true });
  // A new entry of the history begins at the top, one that was left at the place where it was left.
  scrollTo(0, history.state?.y ?? 0);
}

// Views come after the browser would scroll, so the place is kept here.
function keepPlace() {
  clearTimeout(saving);
  history.replaceState({ y: scrollY }, "");
}

history.scrollRestoration = "manual";
addEventListener("scroll", () => {
  clearTimeout(saving);
  saving = setTimeout(keepPlace, 100);
}, { passive: true });
addEventListener("click", keepPlace, { capture: true });
addEventListener("hashchange", () => {
  clearTimeout(saving);
  show();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the router would take its hash for a view
  main.focus();
});
show();
