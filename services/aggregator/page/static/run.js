// View of one run: headline numbers per data set, timeline, and a table of its samples.
import * as api from "./api.js";
import { pace, passRatios, percent, shares, spread, STATUSES } from "./charts.js";
import { el, name, plain, warn } from "./dom.js";
import { headline, metrics, slices } from "./figures.js";
import { address, listing, lookedAt, PAGE, runAddress } from "./listing.js";
import { moment, progress } from "./runs.js";
import { setup } from "./setup.js";

const FINAL = ["complete", "incomplete", "untrusted", "failed"];
const LOST = "The connection to the aggregator is lost; trying again.";
const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));

function dataset(key, found, metrics) {
  const [low, high] = found.accepted_at_1_ci95 ?? [null, null];
  const interval = low === null ? "" : `, 95\u00a0% interval ${percent(low)} to ${percent(high)}`;
  return el("article", { class: "card" },
    el("h3", {}, name(key)),
    el("div", { class: "big number" }, percent(found.accepted_at_1)),
    el("div", { class: "soft number" }, `accepted@1${interval}`),
    el("div", { class: "soft number" }, `${found.judged} of ${found.planned_samples} samples judged`),
    unjudged(found),
    el("dl", { class: "number" }, headline(metrics)),
    shares(found.statuses),
    el("h3", {}, "Pass ratios"),
    found.samples_cut ? el("div", { class: "soft number" }, `lower bounds for ${found.samples_cut} samples: cases not run after too many time-outs`) : null,
    passRatios(found.pass_ratios),
    spread("Tokens", found.output_tokens, 0),
    spread("Generation, seconds", found.gen_time, 2),
    spread("Judging, seconds", found.total_judge_time, 3));
}

// What accepted@1 would be with the samples that could not be judged.
function unjudged({ accepted, planned_samples: planned, statuses: { api_error: errors } }) {
  if (!errors) return null;
  const [low, high] = [accepted / planned, (accepted + errors) / planned];
  return el("div", { class: "incomplete number" }, `${errors} not judged: ${percent(low)} if they failed, ${percent(high)} if they passed`);
}

// Filter with `usual` as the label of its empty, default option.
function select(label, key, usual, values, query, change) {
  const option = (value) => el("option", { value, selected: query.get(key) === value }, plain(value || usual));
  const options = ["", ...values].map(option);
  return el("label", {}, label, el("select", { name: key, onchange: change }, options));
}

function browser(run, datasets, query) {
  const body = el("tbody");
  const back = el("button", { type: "button", disabled: true, onclick: () => turn(at - 1) }, "Previous");
  const on = el("button", { type: "button", disabled: true, onclick: () => turn(at + 1) }, "Next");
  const status = el("p", { class: "soft number", role: "status" });
  let list = listing(run, query);
  let at = 0;
  let asked = 0;

  // The document holds one page at a time, so the number of samples does not matter.
  async function load(page) {
    const mine = ++asked;
    const found = await list.at(page);
    if (mine !== asked) return; // superseded by a newer request
    at = page;
    lookedAt(list, found);
    body.replaceChildren(...found.rows.map((row) => line(run, row)));
    back.disabled = page === 0;
    on.disabled = !found.more;
    const last = page * PAGE + body.rows.length;
    const range = `Samples ${page * PAGE + 1} to ${last}${found.more ? "; there are more" : ""}`;
    status.textContent = body.rows.length ? range : "No such sample.";
  }

  const show = (page) => load(page).catch((error) => (status.textContent = error.message));
  const turn = (page) => show(page).then(() => form.scrollIntoView());
  const filter = (event) => {
    for (const field of form.elements) if (field.name) query.set(field.name, field.value);
    list = listing(run, query);
    if (event) history.replaceState(history.state, "", runAddress(run, list.query));
    return show(0);
  };
  const search = el("input", { name: "q", type: "search", value: query.get("q") ?? "", placeholder: "problem or detail", oninput: filter });
  const sorts = ["judged_at", "pass_ratio", "output_tokens", "gen_time", "total_judge_time"];
  const form = el("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
    select("Status", "status", "all", STATUSES, query, filter),
    select("Data set", "dataset", "all", datasets, query, filter),
    select("Sort", "sort", "problem", sorts, query, filter),
    select("Order", "order", "asc", ["desc"], query, filter),
    el("label", {}, "Search ( / )", search));
  const headings = ["problem", "status", "pass ratio", "tokens", "judging, s"];
  const right = (heading) => (["problem", "status"].includes(heading) ? null : "number");
  const table = el("table", {},
    el("thead", {}, el("tr", {}, headings.map((heading) => el("th", { class: right(heading) }, heading)))), body);
  const keys = (event) => move(event, body, search);
  addEventListener("keydown", keys);
  const filled = filter();
  const notes = api.notes().map((note) => el("p", { class: "soft" }, name(note)));
  const help = el("p", { class: "soft" }, "Keys: / searches, j and k go to the next and the previous sample, Enter opens it.");
  return [[el("h2", {}, "Samples"), ...notes, form, el("div", { class: "wide" }, table), status, el("div", { class: "pager" }, back, on), help], () => removeEventListener("keydown", keys), filled];
}

function line(run, row) {
  const link = el("a", { href: address(run, row) }, name(row.problem_id), row.sample_index ? ` #${row.sample_index}` : "");
  return el("tr", { class: "row", onclick: (event) => event.target.closest("a") || (location.hash = address(run, row)) },
    el("td", {}, link, el("div", { class: "soft" }, name(row.dataset), row.texts === null ? ", figures alone" : null)),
    el("td", {}, el("span", { class: `status ${row.final_status}` }, row.final_status), row.detail ? el("div", { class: "soft" }, name(row.detail)) : null),
    el("td", { class: "number" }, `${row.cases_passed}/${row.cases_total}`, row.cases_not_run ? el("div", { class: "soft" }, `${row.cases_not_run} not run`) : null),
    el("td", { class: "number" }, number(row.output_tokens, 0)),
    el("td", { class: "number" }, number(row.total_judge_time, 3)));
}

function move(event, body, search) {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    search.focus();
    return;
  }
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  const links = [...body.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
}

// Findings of canaries: programs with known verdicts that a sandbox judged wrongly.
function distrust(canaries) {
  const found = (canaries?.sandboxes ?? []).flatMap((one) => one.findings.map((finding) => [one.sandbox, finding.text]));
  return found.map(([sandbox, text]) => el("p", { class: "untrusted", role: "alert" }, `untrusted: sandbox `, name(sandbox), ": ", name(text)));
}

export async function showRun(main, [run], query) {
  const [found, line] = await Promise.all([api.run(run), api.timeline(run)]);
  const [state, bar, cards, chart] = [el("p", { class: "soft" }), el("div"), el("div", { class: "cards" }), el("div", { class: "card" })];
  const [published, warnings] = [el("div"), el("div")];
  const fill = (detail, times) => {
    const { summary, datasets } = detail;
    state.replaceChildren(name([summary.model, summary.state].filter(Boolean).join(", ")), `, begun ${moment(summary.started_at)}`);
    bar.replaceChildren(...progress(summary));
    warnings.replaceChildren(...distrust(detail.facts.canaries));
    cards.replaceChildren(...Object.entries(datasets).map(([key, one]) => dataset(key, one, detail.metrics?.[key])));
    chart.replaceChildren(...[pace(times)].flat());
    published.replaceChildren(...metrics(detail.metrics), ...slices(detail.slices));
  };
  fill(found, line);
  const [parts, stop, filled] = browser(run, Object.keys(found.datasets), query);
  main.replaceChildren(
    el("h1", {}, name(found.summary.name ?? run)), state, warnings, bar, setup(found),
    el("h2", {}, "Data sets"), cards, published, el("h2", {}, "Pace"), chart, ...parts);
  await filled; // who comes back finds the place where the page was left
  if (FINAL.includes(found.summary.state)) return stop;
  const update = async () => fill(await api.run(run), await api.timeline(run));
  const unfollow = api.follow(run, () => update().then(() => warn(""), warn), () => warn(LOST));
  return () => (stop(), unfollow());
}
