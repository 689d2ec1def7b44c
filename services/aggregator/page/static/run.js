// One run: headline numbers per data set, its pace, and its samples to browse.
import * as api from "./api.js";
import { pace, passRatios, percent, shares, STATUSES } from "./charts.js";
import { el, name } from "./dom.js";
import { moment, progress } from "./runs.js";

const number = (value, digits = 1) => (value === null || value === undefined ? "–" : value.toFixed(digits));

function dataset(key, found) {
  const [low, high] = found.accepted_at_1_ci95 ?? [null, null];
  const interval = low === null ? "" : `95 % interval ${percent(low)} to ${percent(high)}`;
  const spread = (values, digits) => `${number(values.p50, digits)} / ${number(values.p95, digits)}`;
  return el("article", { class: "card" },
    el("h3", {}, name(key)),
    el("div", { class: "big number" }, percent(found.accepted_at_1)),
    el("div", { class: "soft number" }, `accepted@1, ${interval}`),
    el("div", { class: "soft number" }, `${found.judged} of ${found.planned_samples} samples judged`),
    shares(found.statuses),
    el("h3", {}, "Pass ratios"),
    passRatios(found.pass_ratios),
    el("dl", { class: "number" },
      el("dt", {}, "tokens, p50 / p95"), el("dd", {}, spread(found.output_tokens, 0)),
      el("dt", {}, "generation, s"), el("dd", {}, spread(found.gen_time, 2)),
      el("dt", {}, "judging, s"), el("dd", {}, spread(found.total_judge_time, 3))));
}

export const address = (run, row) =>
  `#/run/${[run, row.dataset, row.problem_id, row.sample_index].map(encodeURIComponent).join("/")}`;

function select(label, key, values, query, change) {
  const options = ["", ...values].map((value) => el("option", { value, selected: query.get(key) === value }, value || "all"));
  return el("label", {}, label, el("select", { name: key, onchange: change }, options));
}

function browser(run, datasets, query) {
  const body = el("tbody");
  const more = el("button", { type: "button", hidden: true }, "More");
  const status = el("p", { class: "soft", role: "status" });
  let cursor = null;
  let asked = 0;

  async function load(fresh) {
    const turn = ++asked;
    const wanted = Object.fromEntries([...query].filter(([, value]) => value));
    if (!fresh && cursor) wanted.cursor = cursor;
    const page = await api.samples(run, { ...wanted, limit: 50 });
    if (turn !== asked) return; // another filter has been chosen meanwhile
    cursor = page.next_cursor;
    const rows = page.samples.map((row) => line(run, row));
    if (fresh) body.replaceChildren(...rows);
    else body.append(...rows);
    more.hidden = cursor === null;
    status.textContent = body.rows.length ? `${body.rows.length} samples shown${cursor ? ", there are more" : ""}` : "No such sample.";
  }

  const filter = () => {
    for (const field of form.elements) if (field.name) query.set(field.name, field.value);
    const kept = new URLSearchParams([...query].filter(([, value]) => value));
    history.replaceState(null, "", `#/run/${encodeURIComponent(run)}${kept.size ? `?${kept}` : ""}`);
    load(true).catch((error) => (status.textContent = error.message));
  };
  const search = el("input", { name: "q", type: "search", value: query.get("q") ?? "", placeholder: "problem or detail", oninput: filter });
  const sorts = ["problem", "judged_at", "pass_ratio", "output_tokens", "gen_time", "total_judge_time"];
  const form = el("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
    select("Status", "status", STATUSES, query, filter),
    select("Data set", "dataset", datasets, query, filter),
    select("Sort", "sort", sorts, query, filter),
    select("Order", "order", ["asc", "desc"], query, filter),
    el("label", {}, "Search ( / )", search));
  more.addEventListener("click", () => load(false).catch((error) => (status.textContent = error.message)));
  const headings = ["problem", "status", "pass ratio", "tokens", "judging, s"];
  const right = (heading) => (["problem", "status"].includes(heading) ? null : "number");
  const table = el("table", {},
    el("thead", {}, el("tr", {}, headings.map((heading) => el("th", { class: right(heading) }, heading)))), body);
  const keys = (event) => move(event, body, search);
  addEventListener("keydown", keys);
  filter();
  return [[el("h2", {}, "Samples"), form, el("div", { class: "wide" }, table), status, more], () => removeEventListener("keydown", keys)];
}

function line(run, row) {
  const link = el("a", { href: address(run, row) }, name(row.problem_id), row.sample_index ? ` #${row.sample_index}` : "");
  return el("tr", { class: "row", onclick: (event) => event.target.closest("a") || (location.hash = address(run, row)) },
    el("td", {}, link, el("div", { class: "soft" }, name(row.dataset))),
    el("td", {}, el("span", { class: `status ${row.final_status}` }, row.final_status), row.detail ? el("div", { class: "soft" }, name(row.detail)) : null),
    el("td", { class: "number" }, `${row.cases_passed}/${row.cases_total}`),
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

export async function showRun(main, [run], query) {
  const [found, line] = await Promise.all([api.run(run), api.timeline(run)]);
  const bar = el("div", {}, progress(found.summary));
  const cards = el("div", { class: "cards" });
  const chart = el("div", { class: "card" }, pace(line));
  const fill = (detail) => cards.replaceChildren(...Object.entries(detail.datasets).map(([key, one]) => dataset(key, one)));
  fill(found);
  const [parts, stop] = browser(run, Object.keys(found.datasets), query);
  main.replaceChildren(
    el("h1", {}, name(found.summary.name ?? run)),
    el("p", { class: "soft" }, name([found.summary.model, found.summary.state].filter(Boolean).join(", ")), `, begun ${moment(found.summary.started_at)}`),
    bar, el("h2", {}, "Data sets"), cards, el("h2", {}, "Pace"), chart, ...parts);
  if (found.summary.state !== "running") return stop;
  const unfollow = api.follow(run, async (summary) => {
    bar.replaceChildren(...progress(summary));
    fill(await api.run(run));
    chart.replaceChildren(...[pace(await api.timeline(run))].flat());
  });
  return () => (stop(), unfollow());
}
