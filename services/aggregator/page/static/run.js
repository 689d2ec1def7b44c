// View of one run: what was measured, intervals over all data sets, its samples, and folded details.
import * as api from "./api.js";
import { intervals, passRatios, shares, spread } from "./charts.js";
import { el, fold, name, plain, renew, repeat, warn } from "./dom.js";
import { headline, metrics, slices } from "./figures.js";
import { joined } from "./filters.js";
import { compareAddress, runAddress } from "./listing.js";
import { performance } from "./performance.js";
import { isFinal, moment, noAnswer, progress } from "./runs.js";
import { samplesTable } from "./samples.js";
import { measured, setup } from "./setup.js";

// Address of the run with the samples of a choice; `ranges` are written as parameters already.
const filtered = (run) => (choices, ranges = {}) => {
  const lists = Object.entries(choices).map(([key, value]) => [key, joined([value])]);
  return runAddress(run, new URLSearchParams([...lists, ...Object.entries(ranges)]));
};

// Samples without a judgement, and in the end those without any verdict.
const unjudged = ({ judged, planned_samples: planned, statuses }, final) => Math.max(statuses.api_error ?? 0, final ? planned - judged : 0);

// accepted@1 with the samples that were not judged; the published bounds where these are the same.
function bounds({ accepted, judged, statuses: { api_error: errors = 0 } }, open, published) {
  if (!open) return null;
  return (open === errors ? published?.accepted_at_1_bounds : null) ?? [accepted / (judged + open), (accepted + open) / (judged + open)];
}

function row([key, found], published, address, final) {
  const open = unjudged(found, final);
  return {
    heading: el("a", { href: address({ dataset: key }) }, name(key)),
    label: plain(key),
    value: found.accepted_at_1,
    ci95: found.accepted_at_1_ci95,
    bounds: bounds(found, open, published?.[key]),
    note: [`${found.judged} of ${found.planned_samples} judged`, open ? el("div", { class: "incomplete" }, `${open} not judged`) : null],
  };
}

const CAPTION = "accepted@1: the share of judged samples that passed every test, with its 95 % interval over problems.";
const BAND = " The band is where it would lie with the samples that were not judged: all failed, or all passed.";

function overview({ summary, datasets, metrics }, address) {
  const rows = Object.entries(datasets).map((one) => row(one, metrics, address, isFinal(summary)));
  return intervals(`${CAPTION}${rows.some((one) => one.bounds) ? BAND : ""}`, "data set", "accepted@1", rows);
}

function statuses(datasets, address) {
  const counts = {};
  for (const one of Object.values(datasets))
    for (const [status, count] of Object.entries(one.statuses)) counts[status] = (counts[status] ?? 0) + count;
  return shares(counts, (status) => address({ status }));
}

function dataset(key, found, metrics, address) {
  const within = (choices, ranges) => address({ dataset: key, ...choices }, ranges);
  const cut = `lower bounds for ${found.samples_cut} samples: cases not run after too many time-outs`;
  return fold(`dataset ${key}`, [name(key), ": statuses, pass ratios, tokens, timings"],
    shares(found.statuses, (status) => within({ status })),
    el("dl", { class: "number" }, headline(metrics)),
    el("div", { class: "cards" },
      el("div", {},
        el("h3", {}, "Pass ratios"),
        found.samples_cut ? el("div", { class: "soft number" }, cut) : null,
        passRatios(found.pass_ratios, (pass_ratio) => within({}, { pass_ratio }))),
      spread("Tokens", found.output_tokens, 0),
      spread("Generation, seconds", found.gen_time, 2),
      spread("Judging, seconds", found.total_judge_time, 3)));
}

// Findings of canaries: programs with known verdicts that a sandbox judged wrongly.
function distrust(canaries) {
  const found = (canaries?.sandboxes ?? []).flatMap((one) => one.findings.map((finding) => [one.sandbox, finding.text]));
  return found.map(([sandbox, text]) => el("p", { class: "untrusted", role: "alert" }, `untrusted: sandbox `, name(sandbox), ": ", name(text)));
}

// The state of a run as it was heard last; `lost` is the time at which the aggregator fell silent.
function state({ summary }, lost) {
  const since = lost && [el("b", { class: "incomplete" }, `connection lost since ${lost.toLocaleTimeString()}`), "; before: "];
  return [since, summary.state ?? "", `, begun ${moment(summary.started_at)}`];
}

export async function showRun(main, [run], query) {
  const address = filtered(run);
  const [line, warnings, bar, chart, all, details] = [el("p", { class: "soft" }), ...Array.from({ length: 5 }, () => el("div"))];
  let found = await api.run(run);
  let lost = null;
  const fill = () => {
    renew(line, state(found, lost));
    renew(warnings, [...distrust(found.facts.canaries), ...found.notes.map((note) => el("p", { class: "incomplete" }, name(note)))]);
    renew(bar, progress(lost ? { ...found.summary, seconds_left: null } : found.summary));
    renew(chart, overview(found, address));
    renew(all, statuses(found.datasets, address));
    renew(details,
      Object.entries(found.datasets).map(([key, one]) => dataset(key, one, found.metrics?.[key], address)),
      metrics(found.metrics), slices(found.slices, address));
  };
  fill();
  const [parts, stop, filled, grow] = samplesTable(run, Object.keys(found.datasets), query);
  const samples = el("div", { class: "samples" }, parts);
  samples.firstChild.after(all);
  main.replaceChildren(
    el("div", { class: "run" },
      el("div", { class: "overview" }, el("h1", {}, name(found.summary.name ?? run)), el("p", {}, measured(found)), line, warnings, bar, chart,
        api.only() ? null : el("p", {}, el("a", { href: compareAddress([run]) }, "Compare with another run")), setup(found)),
      samples,
      el("div", { class: "details" }, el("h2", {}, "Details"), performance(run), details)));
  await filled; // who comes back finds the place where the page was left
  if ([...query.values()].some(Boolean)) samples.dataset.target = ""; // a link with filters leads to what they found
  if (isFinal(found.summary)) return stop;
  const update = async () => {
    if (isFinal(found.summary)) return;
    found = await api.run(run);
    lost = null;
    fill();
    warn("");
    grow();
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
