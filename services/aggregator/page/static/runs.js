// View of all runs, the latest first.
import * as api from "./api.js";
import { percent, shares } from "./charts.js";
import { el, name, plain, renew, warn } from "./dom.js";
import { compareAddress, runAddress } from "./listing.js";

const EVERY = 3000;

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
  const text = `${judged} of ${planned} judged${errors ? `, ${errors} could not be judged (api_error): incomplete` : ""}${left}`;
  const kind = errors ? "incomplete" : "soft";
  return [el("progress", { class: kind, max: 1, value: ratio ?? 0, "aria-label": text }), el("div", { class: `${kind} number` }, text)];
}

function card(run, chosen, choose) {
  const counts = {};
  for (const statuses of Object.values(run.datasets))
    for (const [status, count] of Object.entries(statuses)) counts[status] = (counts[status] ?? 0) + count;
  const judged = run.progress.judged;
  const box = el("input", { type: "checkbox", value: run.run, checked: chosen.has(run.run), onchange: choose, "aria-label": plain(`Compare ${run.name ?? run.run}`) });
  return el("article", { class: "card", id: `run-${run.run}` },
    api.only() ? null : el("label", { class: "pick" }, box, " compare"),
    el("h2", {}, el("a", { href: runAddress(run.run) }, name(run.name ?? run.run))),
    el("div", { class: "soft" }, name([run.model, run.state].filter(Boolean).join(", ")), `, ${moment(run.started_at)}`),
    run.name ? el("div", { class: "soft" }, name(run.run)) : null,
    run.folder ? el("div", { class: "soft" }, name(run.folder)) : null,
    progress(run),
    el("div", { class: "number" }, `accepted: ${percent(judged ? (counts.success ?? 0) / judged : null)}`),
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

export async function showRuns(main) {
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
  main.replaceChildren(el("h1", {}, "Runs"), api.only() ? "" : el("p", {}, go), state, problems, cards);
  let timer = null;
  let [found, folders] = [[], { folders: [], waiting: 0, unreadable: [], unreadable_total: 0 }];
  let lost = null;
  const fill = () => {
    const none = el("p", { class: "soft" }, "No run yet: plumb run begins one.");
    const shown = (run) => card(lost ? { ...run, seconds_left: null } : run, chosen, choose);
    renew(state, searching(folders));
    renew(problems, unreadable(folders));
    renew(cards, found.length ? found.map(shown) : none);
    warn(lost ? noAnswer(lost) : "");
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
  const again = () => {
    timer = setTimeout(() => draw().catch(silent).then(() => timer !== null && again()), EVERY);
  };
  await draw();
  again();
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}
