// View of all runs, the latest first.
import * as api from "./api.js";
import { percent, shares } from "./charts.js";
import { el, name, plain, renew, repeat, warn } from "./dom.js";
import { keys, move } from "./help.js";
import { compareAddress, runAddress } from "./listing.js";

const FINAL = ["complete", "incomplete", "untrusted", "failed"];

// Whether nothing more is to come.
export const isFinal = ({ state, reading }) => FINAL.includes(state) && !reading;

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

export const moment = (seconds) => (seconds ? new Date(1000 * seconds).toLocaleString() : "–");

export const noAnswer = (since) => `The aggregator does not answer since ${since.toLocaleTimeString()}; what is shown is older. This page tries again by itself.`;

export function progress(run) {
  const { planned, judged, api_errors: errors, ratio } = run.progress;
  const left = run.state === "running" && run.seconds_left !== null ? `, ${clock(run.seconds_left)} left` : "";
  if (run.reading) return [el("progress", { class: "soft", max: 1, value: ratio ?? 0, "aria-label": "read so far" }), el("div", { class: "soft number" }, `being read: ${judged} of ${planned} samples`)];
  const lost = isFinal(run) ? Math.max(0, planned - judged - errors) : 0;
  const rest = [errors && `${errors} could not be judged (api_error)`, lost && `${lost} without a verdict`].filter(Boolean).join(", ");
  const text = `${judged} of ${planned} judged${rest && `, ${rest}: incomplete`}${left}`;
  const kind = rest ? "incomplete" : "soft";
  return [el("progress", { class: kind, max: 1, value: ratio ?? 0, "aria-label": text }), el("div", { class: `${kind} number` }, text)];
}

// The share of accepted samples, and what those that nothing more is to come of could change.
function accepted(run, successes) {
  const { planned, judged, api_errors: errors } = run.progress;
  const open = isFinal(run) ? Math.max(0, planned - judged) : errors;
  const [low, high] = [successes, successes + open].map((count) => percent(count / (judged + open)));
  const text = `accepted: ${percent(judged ? successes / judged : null)}`;
  return el("div", { class: "number" }, text, open ? el("div", { class: "incomplete" }, `${low} to ${high}, depending on the others`) : null);
}

function card(run, chosen, choose) {
  const counts = {};
  for (const statuses of Object.values(run.datasets))
    for (const [status, count] of Object.entries(statuses)) counts[status] = (counts[status] ?? 0) + count;
  const box = el("input", { type: "checkbox", value: run.run, checked: chosen.has(run.run), onchange: choose, "aria-label": plain(`Compare ${run.name ?? run.run}`) });
  return el("article", { class: "card", id: `run-${run.run}` },
    api.only() ? null : el("label", { class: "pick" }, box, " compare"),
    el("h2", {}, el("a", { href: runAddress(run.run) }, name(run.name ?? run.run))),
    el("div", { class: "soft" }, name([run.model, run.state].filter(Boolean).join(", ")), `, ${moment(run.started_at)}`),
    run.name ? el("div", { class: "soft" }, name(run.run)) : null,
    run.folder ? el("div", { class: "soft" }, name(run.folder)) : null,
    progress(run),
    accepted(run, counts.success ?? 0),
    shares(counts));
}

// Folders of finished runs: what is searched, how much is still to be read.
function searching({ folders, waiting }) {
  const line = ({ folder, searched, runs, error }) => {
    const state = error ? `: ${error}` : searched ? `: ${runs} ${runs === 1 ? "run" : "runs"}` : ": being searched";
    return el("p", { class: error ? "incomplete" : "soft" }, name(folder), name(state));
  };
  const left = `${waiting} ${waiting === 1 ? "run is" : "runs are"} still being read.`;
  return [...folders.map(line), ...(waiting ? [el("p", { class: "soft" }, left)] : [])];
}

// What could not be read, with reasons.
function unreadable({ unreadable: found, unreadable_total: total }) {
  if (!total) return [];
  const lines = found.map(({ folder, reason }) => el("li", {}, name(reason.startsWith(folder) ? reason : `${folder}: ${reason}`)));
  const more = total > found.length ? [el("p", { class: "soft" }, `and ${total - found.length} more`)] : [];
  const heading = `${total} ${total === 1 ? "thing" : "things"} could not be read`;
  return [el("details", { class: "incomplete" }, el("summary", {}, heading), el("ul", {}, lines), more)];
}

// Whether a run's name, model, state, id or folder contains the text.
const contains = (text) => (run) => [run.name, run.model, run.state, run.run, run.folder].some((one) => one?.toLowerCase().includes(text.toLowerCase()));

export async function showRuns(main, _parts, query) {
  const [cards, state, problems] = [el("div", { class: "cards" }), el("div"), el("div")];
  // In the order of choice: the first is the baseline.
  const chosen = new Set();
  const go = el("a", { class: "button", href: "#/compare" });
  const choose = (event) => {
    if (event?.target.checked) chosen.add(event.target.value);
    else if (event) chosen.delete(event.target.value);
    go.href = compareAddress([...chosen]);
    go.textContent = chosen.size > 1 ? `Compare ${chosen.size} runs; the first chosen is the baseline` : "Compare runs";
  };
  choose();
  const search = el("input", { name: "q", type: "search", maxlength: 200, value: query.get("q") ?? "", placeholder: "name, model, folder", oninput: () => look() });
  const count = el("p", { class: "soft number", role: "status" });
  const form = el("form", { class: "filters", role: "search", "aria-label": "Find runs", onsubmit: (event) => event.preventDefault() }, el("label", {}, "Search ( / )", search));
  main.replaceChildren(el("h1", {}, "Runs"), api.only() ? "" : el("p", {}, go), form, state, problems, count, cards);
  const links = () => [...cards.querySelectorAll("h2 a")];
  const release = keys("The list of runs", [
    ["/", "search in names, models, states and folders", () => search.focus()],
    ["j", "go to the next run", () => move(links(), 1)],
    ["k", "go to the previous run", () => move(links(), -1)],
    ["Enter", "open the run"],
    ["c", "choose the run for a comparison, or no longer", () => document.activeElement.closest(".card")?.querySelector("input").click()],
  ]);
  let [found, folders] = [[], { folders: [], waiting: 0, unreadable: [], unreadable_total: 0 }];
  let lost = null;
  const fill = () => {
    const none = el("p", { class: "soft" }, "No run yet: plumb run begins one.");
    const shown = (run) => card(lost ? { ...run, seconds_left: null } : run, chosen, choose);
    renew(state, searching(folders));
    renew(problems, unreadable(folders));
    const wanted = found.filter(contains(search.value));
    form.hidden = found.length < 2 && !search.value;
    count.textContent = search.value ? `${wanted.length} of ${found.length} runs` : "";
    renew(cards, found.length ? wanted.map(shown) : none);
    warn(lost ? noAnswer(lost) : "");
  };
  const look = () => {
    history.replaceState(history.state, "", search.value ? `#/?${new URLSearchParams({ q: search.value })}` : "#/");
    fill();
  };
  const draw = async () => {
    const [runs, searched] = await Promise.all([api.runs(), api.folders()]);
    [found, folders] = [Object.values(runs).sort((a, b) => (b.started_at ?? 0) - (a.started_at ?? 0)), searched];
    lost = null;
    fill();
  };
  const silent = () => {
    lost ??= new Date();
    fill();
  };
  await draw();
  const stop = repeat(() => draw().catch(silent));
  return () => (stop(), release());
}
