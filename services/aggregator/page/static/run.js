// View of one run: what was measured, intervals over all data sets, and tabs: samples, metrics and others.
import * as api from "./api.js";
import { intervals, passRatios, shares, spread } from "./charts.js";
import { el, name, plain, renew, repeat, warn } from "./dom.js";
import { certified, headline, metrics, slices } from "./figures.js";
import { joined } from "./filters.js";
import { compareAddress, runAddress } from "./listing.js";
import { percent } from "./numbers.js";
import { performance } from "./performance.js";
import { isFinal, moment, noAnswer, progress } from "./runs.js";
import { samplesTable } from "./samples.js";
import { measured, setup } from "./setup.js";

// Address of the run with the samples of a choice; `ranges` are written as parameters already.
const filtered =
  (run) =>
  (choices, ranges = {}) => {
    const lists = Object.entries(choices).map(([key, value]) => [key, joined([value])]);
    return runAddress(run, new URLSearchParams([...lists, ...Object.entries(ranges)]));
  };

// Samples without a judgement, and in the end those without any verdict.
const unjudged = ({ judged, planned_samples: planned, statuses }, final) =>
  Math.max(statuses.api_error ?? 0, final ? planned - judged : 0);

// accepted@1 with the samples that were not judged; the published bounds where these are the same.
function bounds({ accepted, judged, statuses: { api_error: errors = 0 } }, open, published) {
  if (!open) return null;
  return (
    (open === errors ? published?.accepted_at_1_bounds : null) ?? [
      accepted / (judged + open),
      (accepted + open) / (judged + open),
    ]
  );
}

// accepted@1 of the answers that did not end at the limit of tokens.
const untruncated = (found) =>
  found?.truncated
    ? el(
        "div",
        {},
        `${percent(found.accepted_at_1_untruncated)} without ${found.truncated} truncated answers`,
      )
    : null;

function row([key, found], published, address, final) {
  const open = unjudged(found, final);
  return {
    heading: el("a", { href: address({ dataset: key }) }, name(key)),
    label: plain(key),
    value: found.accepted_at_1,
    ci95: found.accepted_at_1_ci95,
    bounds: bounds(found, open, published?.[key]),
    note: [
      `${found.judged} of ${found.planned_samples} judged`,
      untruncated(published?.[key]),
      open ? el("div", { class: "incomplete" }, `${open} not judged`) : null,
    ],
  };
}

const CAPTION =
  "accepted@1: the share of judged samples that passed every test, with its 95 % interval over problems.";
const BAND =
  " The band is where it would lie with the samples that were not judged: all failed, or all passed.";

function overview({ summary, datasets, metrics }, address) {
  const rows = Object.entries(datasets).map((one) => row(one, metrics, address, isFinal(summary)));
  const caption = `${CAPTION}${rows.some((one) => one.bounds) ? BAND : ""}`;
  return intervals(caption, "data set", "accepted@1", rows);
}

function statuses(datasets, address) {
  const counts = {};
  for (const one of Object.values(datasets))
    for (const [status, count] of Object.entries(one.statuses))
      counts[status] = (counts[status] ?? 0) + count;
  return shares(counts, (status) => address({ status }));
}

// Statuses, pass ratios, tokens and timings of a data set.
function dataset(run, key, address) {
  const found = run.datasets[key];
  const within = (choices, ranges) => address({ dataset: key, ...choices }, ranges);
  const cut = `lower bounds for ${found.samples_cut} samples: cases not run after too many time-outs`;
  return el(
    "section",
    { "aria-label": plain(key) },
    el("h2", {}, name(key)),
    shares(found.statuses, (status) => within({ status })),
    el("dl", { class: "number" }, headline(run, key)),
    el(
      "div",
      { class: "cards" },
      el(
        "div",
        {},
        el("h3", {}, "Pass ratios"),
        found.samples_cut ? el("div", { class: "soft number" }, cut) : null,
        passRatios(found.pass_ratios, (pass_ratio) => within({}, { pass_ratio })),
      ),
      spread("Tokens", found.output_tokens, 0),
      spread("Generation, seconds", found.gen_time, 2),
      spread("Judging, seconds", found.total_judge_time, 3),
    ),
  );
}

// Findings of canaries: programs with known verdicts that a sandbox judged wrongly.
function distrust(canaries) {
  const found = (canaries?.sandboxes ?? []).flatMap((one) =>
    one.findings.map((finding) => [one.sandbox, finding.text]),
  );
  const alert = { class: "untrusted", role: "alert" };
  return found.map(([sandbox, text]) =>
    el("p", alert, "untrusted: sandbox ", name(sandbox), ": ", name(text)),
  );
}

// The state of a run as it was heard last; `lost` is the time at which the aggregator fell silent.
function state({ summary }, lost) {
  const since = lost && [
    el("b", { class: "incomplete" }, `connection lost since ${lost.toLocaleTimeString()}`),
    "; before: ",
  ];
  return [since, summary.state ?? "", `, begun ${moment(summary.started_at)}`];
}

// What keeps a run from its end: samples that wait, and those that could not be judged by reason.
function health({ summary, unjudged }) {
  const { planned, generated, judged, api_errors: errors } = summary.progress;
  const waiting = [
    [planned - generated, "to be generated"],
    [generated - judged - errors, "to be judged"],
  ].filter(([count]) => count > 0);
  const counted = (entries) => entries.map(([count, what]) => `${count} ${what}`).join(", ");
  const reasons = Object.entries(unjudged)
    .filter(([reason]) => reason !== "unknown")
    .map(([reason, count]) => [count, reason]);
  return [
    waiting.length && !isFinal(summary)
      ? el("p", { class: "soft number" }, `Waiting: ${counted(waiting)}.`)
      : null,
    reasons.length
      ? el("p", { class: "incomplete" }, "Not judged: ", name(counted(reasons)), ".")
      : null,
  ];
}

const TABS = {
  samples: "Samples",
  metrics: "Metrics",
  slices: "Slices",
  performance: "Performance",
  setup: "Setup",
};

const tabs = (run, chosen) =>
  el(
    "nav",
    { class: "tabs", "aria-label": "Parts of the run" },
    Object.entries(TABS).map(([key, text]) => {
      const href = key === "samples" ? runAddress(run) : `${runAddress(run)}/${key}`;
      return el("a", { href, "aria-current": key === chosen ? "page" : null }, text);
    }),
  );

export async function showRun(main, [run, asked], query) {
  const tab = Object.hasOwn(TABS, asked ?? "") ? asked : "samples";
  const address = filtered(run);
  const [line, warnings, bar, chart, all, panel] = [
    el("p", { class: "soft" }),
    ...Array.from({ length: 5 }, () => el("div")),
  ];
  let found = await api.run(run);
  let lost = null;
  // Parts of the tab that change with the run.
  const parts = {
    metrics: () => [
      metrics(found),
      Object.keys(found.datasets).map((key) => dataset(found, key, address)),
    ],
    slices: () => slices(found, address),
    setup: () => setup(found),
  };
  const fill = () => {
    renew(line, state(found, lost));
    renew(warnings, [
      ...distrust(found.facts.canaries),
      ...found.notes.map((note) => el("p", { class: "incomplete" }, name(note))),
    ]);
    renew(
      bar,
      progress(lost ? { ...found.summary, seconds_left: null } : found.summary),
      health(found),
    );
    renew(chart, overview(found, address), certified(found.metrics));
    if (tab === "samples") renew(all, statuses(found.datasets, address));
    if (parts[tab]) renew(panel, parts[tab]());
  };
  if (tab === "performance") renew(panel, await performance(run));
  let list = null;
  if (tab === "samples") {
    list = samplesTable(run, query);
    panel.className = "samples";
    panel.append(...list.parts);
    panel.firstChild.after(all);
  }
  fill();
  const heading = [el("h1", {}, name(found.summary.name ?? run)), el("p", {}, measured(found))];
  const compare = el("p", {}, el("a", { href: compareAddress([run]) }, "Compare with another run"));
  const above = [heading, line, warnings, bar, chart, api.only() ? null : compare];
  main.replaceChildren(
    el(
      "div",
      { class: "run" },
      el("div", { class: "overview" }, above),
      el("div", { class: "part" }, tabs(run, tab), panel),
    ),
  );
  await list?.filled; // who comes back finds the place where the page was left
  const part = main.querySelector(".part");
  if (asked || [...query.values()].some(Boolean)) part.dataset.target = ""; // a link with filters leads to what they found
  const stop = list?.stop ?? (() => {});
  if (isFinal(found.summary)) return stop;
  const update = async () => {
    if (isFinal(found.summary)) return;
    found = await api.run(run);
    lost = null;
    fill();
    warn("");
    list?.grow();
  };
  const silent = (error) => {
    if (error.status) return warn(error); // it answers: the run is gone, say
    lost ??= new Date();
    fill();
    warn(noAnswer(lost));
  };
  const leave = repeat(() => update().catch(silent));
  return () => (stop(), leave());
}
