// Router: shows the view for the current location hash, with breadcrumbs and notices.
import * as api from "./api.js";
import { showCompare } from "./compare.js";
import { decoded, el, name, plain, warn } from "./dom.js";
import { showHistory } from "./history.js";
import { runAddress } from "./listing.js";
import { showProblem, showProblems } from "./problem.js";
import { showRun } from "./run.js";
import { showRuns } from "./runs.js";
import { showSample } from "./sample.js";

// View by the first part of the address; all runs without one, or with one that is unknown.
const VIEWS = {
  compare: () => showCompare,
  history: () => showHistory,
  problem: () => showProblem,
  problems: () => showProblems,
  run: (parts) => (parts.length < 4 ? showRun : showSample), // of a run there are tabs
};

// Views that a report, which holds one run, does not have.
const LINKS = [
  ["#/", "Runs"],
  ["#/compare", "Compare"],
  ["#/history", "History"],
];

const SLOW = 1000; // milliseconds after which a view that is not there yet says so

const main = document.getElementById("main");
const crumbs = document.getElementById("crumbs");
let leave = () => {};
let turns = 0;
let saving = null;

function where() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (!parts.length && api.only()) parts.push("run", api.only());
  return { parts, query: new URLSearchParams(query) };
}

function trail(parts) {
  const links = [];
  if (parts[0] === "run") links.push(["run", runAddress(parts[1]), parts[1]]);
  if (parts[0] === "problem") links.push(["problem", location.hash, `${parts[1]} / ${parts[2]}`]);
  if (parts[0] === "run" && parts.length > 4)
    links.push(["sample", location.hash, `${parts[2]} / ${parts[3]} / ${parts[4]}`]);
  return links
    .map(([, href, text]) => el("a", { href }, name(text)))
    .flatMap((link) => [" › ", link]);
}

function refuse() {
  throw new Error(`This file is the report of one run and has no ${where().parts[0]}.`);
}

async function show() {
  const turn = ++turns;
  leave();
  leave = () => {};
  warn("");
  const { parts, query } = where();
  crumbs.replaceChildren(...trail(parts));
  document.title =
    parts[0] === "compare"
      ? "Compare – Plumbline"
      : parts[1]
        ? `${plain(parts.slice(1).join(" / "))} – Plumbline`
        : "Plumbline";
  const others = api.only() ? refuse : showRuns;
  const shown = api.only() ? parts[0] === "run" : Object.hasOwn(VIEWS, parts[0] ?? "");
  const view = shown ? VIEWS[parts[0]](parts.slice(1)) : others;
  const stage = document.createDocumentFragment();
  const slow = setTimeout(
    () =>
      turn === turns &&
      main.replaceChildren(el("p", { class: "soft", role: "status" }, "Loading …")),
    SLOW,
  );
  let done = () => {};
  try {
    done = (await view(stage, parts.slice(1), query)) ?? done;
  } catch (error) {
    stage.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", {}, name(error.message)));
  }
  clearTimeout(slow);
  if (turn !== turns) return done(); // the user has navigated away
  leave = done;
  for (const part of stage.querySelectorAll("details[data-fold]"))
    part.open = opened.has(part.dataset.fold);
  main.replaceChildren(stage);
  if (turn > 1) main.focus({ preventScroll: true });
  // An entry of the history that was left begins at that place, a new one at its target or the top.
  const y = history.state?.y;
  history.replaceState({ y: y ?? 0, turn }, "");
  scrollTo(0, y ?? 0);
  if (y === undefined) main.querySelector("[data-target]")?.scrollIntoView();
}

// Folded parts that the reader has opened, which are open again in the next view that has them.
const opened = new Set();
document.addEventListener(
  "toggle",
  ({ target }) => {
    if (target.isConnected && target.dataset.fold)
      opened[target.open ? "add" : "delete"](target.dataset.fold);
  },
  { capture: true },
);

// Print shows what is folded.
let printed = [];
addEventListener("beforeprint", () => {
  printed = [...main.querySelectorAll("details:not([open])")];
  for (const part of printed) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of printed) part.open = false;
});

// Views come after the browser would scroll, so the place is kept here: in the entry whose view stands, which is not
// the current one while the view of that one loads.
function keepPlace() {
  clearTimeout(saving);
  if (history.state?.turn === turns) history.replaceState({ y: scrollY, turn: turns }, "");
}

history.scrollRestoration = "manual";
addEventListener(
  "scroll",
  () => {
    clearTimeout(saving);
    saving = setTimeout(keepPlace, 100);
  },
  { passive: true },
);
addEventListener("click", keepPlace, { capture: true });
addEventListener("hashchange", show);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the router would take its hash for a view
  main.focus();
});
if (!api.only())
  crumbs.before(
    el(
      "nav",
      { class: "views", "aria-label": "Views" },
      LINKS.map(([href, text]) => el("a", { href }, text)),
    ),
  );
show();
