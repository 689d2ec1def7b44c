// View of all runs, the latest first.
import * as api from "./api.js";
import { percent, shares } from "./charts.js";
import { el, name, warn } from "./dom.js";
import { runAddress } from "./listing.js";

const EVERY = 3000;

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}

export const moment = (seconds) => (seconds ? new Date(1000 * seconds).toLocaleString() : "–");

export function progress(run) {
  const { planned, judged, api_errors: errors, ratio } = run.progress;
  const left = run.state === "running" && run.seconds_left !== null ? `, ${clock(run.seconds_left)} left` : "";
  const text = `${judged} of ${planned} judged${errors ? `, ${errors} could not be judged (api_error): incomplete` : ""}${left}`;
  const kind = errors ? "incomplete" : "soft";
  return [el("progress", { class: kind, max: 1, value: ratio ?? 0, "aria-label": text }), el("div", { class: `${kind} number` }, text)];
}

function card(run) {
  const counts = {};
  for (const statuses of Object.values(run.datasets))
    for (const [status, count] of Object.entries(statuses)) counts[status] = (counts[status] ?? 0) + count;
  const judged = run.progress.judged;
  return el("article", { class: "card" },
    el("h2", {}, el("a", { href: runAddress(run.run) }, name(run.name ?? run.run))),
    el("div", { class: "soft" }, name([run.model, run.state].filter(Boolean).join(", ")), `, ${moment(run.started_at)}`),
    run.name ? el("div", { class: "soft" }, name(run.run)) : null,
    progress(run),
    el("div", { class: "number" }, `accepted: ${percent(judged ? (counts.success ?? 0) / judged : null)}`),
    shares(counts));
}

export async function showRuns(main) {
  const cards = el("div", { class: "cards" });
  main.replaceChildren(el("h1", {}, "Runs"), cards);
  let timer = null;
  const draw = async () => {
    const found = Object.values(await api.runs()).sort((a, b) => (b.started_at ?? 0) - (a.started_at ?? 0));
    const none = el("p", { class: "soft" }, "No run yet: plumb run begins one.");
    cards.replaceChildren(...(found.length ? found.map(card) : [none]));
  };
  const again = () => {
    timer = setTimeout(() => draw().then(() => warn(""), warn).then(() => timer !== null && again()), EVERY);
  };
  await draw();
  again();
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}
