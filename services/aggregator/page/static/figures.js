// Tables of published metrics with their intervals, for data sets and slices of them.
import { percent, range } from "./charts.js";
import { el, fold, name, plain, scrolled } from "./dom.js";

const fixed = (digits) => (value) => value.toFixed(digits);
const METRICS = [
  ["accepted@1", "accepted_at_1", percent],
  ["if all without a verdict failed, passed", "accepted_at_1_bounds", percent],
  ["of problems with one right answer", "accepted_at_1_single_answer", percent],
  ["problems with many right answers and no checker", "many_answers_problems", fixed(0)],
  ["pass ratio, mean", "pass_ratio_mean", fixed(3)],
  ["if all cases not run failed, passed", "pass_ratio_mean_bounds", fixed(3)],
  ["samples with cases not run", "samples_cut", fixed(0)],
  ["pass ratio, median", "pass_ratio_p50", fixed(3)],
  ["pass ratio, 90th percentile", "pass_ratio_p90", fixed(3)],
  ["executed", "exec_success_rate", percent],
  ["wrong answer", "wrong_answer_rate", percent],
  ["runtime error", "runtime_error_rate", percent],
  ["samples that failed for a missing module", "missing_modules", fixed(0)],
  ["time-out", "timeout_rate", percent],
  ["syntax error", "syntax_error_rate", percent],
  ["empty output", "empty_output_rate", percent],
  ["tokens per problem", "avg_total_gen_tokens", fixed(0)],
  ["generation per problem, s", "avg_gen_time", fixed(2)],
  ["judging per problem, s", "avg_total_judge_time", fixed(3)],
  ["judging, 95th percentile, s", "p95_total_judge_time", fixed(3)],
  ["tokens per solved", "cost_per_solved_tokens", fixed(0)],
  ["all tokens per solved", "total_spend_per_solved_tokens", fixed(0)],
  ["judging per solved, s", "cost_per_solved_judge_time", fixed(3)],
  ["problems per second", "throughput", fixed(2)],
  ["coverage", "coverage", percent],
];
const DIMENSIONS = { difficulty: "Difficulty", tag: "Tag", tests: "Number of tests", prompt_length: "Prompt, characters" };

// Shown only where they say something: bounds that differ.
const OPEN = {
  accepted_at_1_bounds: (one) => one.coverage !== 1,
  accepted_at_1_single_answer: (one) => one.many_answers_problems > 0,
  many_answers_problems: (one) => one.many_answers_problems > 0,
  pass_ratio_mean_bounds: (one) => one.samples_cut > 0,
  samples_cut: (one) => one.samples_cut > 0,
  missing_modules: (one) => one.missing_modules > 0,
};

// Pass ratios count the cases that were not run as failed.
const atLeast = (found, key) => (key.startsWith("pass_ratio_") && found.samples_cut > 0 ? "≥ " : "");

function value(found, key, form) {
  const value = found[key];
  const cell = el("td", { class: "number" });
  if (value === null || value === undefined) cell.append("–");
  else if (Array.isArray(value)) cell.append(range(value, form));
  else cell.append(atLeast(found, key), form(value), el("div", { class: "soft" }, range(found[`${key}_ci95`], form) ?? ""));
  return cell;
}

// pass@k rows for every k of any data set.
function passAt(metrics) {
  const keys = new Set(metrics.flatMap((found) => Object.keys(found)).filter((key) => /^pass_at_\d+$/.test(key)));
  const ks = [...keys].map((key) => Number(key.slice(8))).sort((a, b) => a - b);
  return ks.map((k) => [`pass@${k}`, `pass_at_${k}`, percent]);
}

export function metrics(found) {
  if (!found) return [];
  const all = Object.values(found);
  const [first, ...others] = METRICS;
  const there = ([, key]) => all.some((one) => (one[key] ?? null) !== null);
  const open = ([, key]) => !OPEN[key] || all.some(OPEN[key]);
  const shown = [first, ...passAt(all), ...others].filter(there).filter(open);
  const head = el("tr", {}, el("td"), Object.keys(found).map((key) => el("th", { class: "number", scope: "col" }, name(key))));
  const rows = shown.map(([label, key, form]) => el("tr", {}, el("th", { scope: "row" }, label), all.map((one) => value(one, key, form))));
  return [
    fold("metrics", "All metrics, with 95 % intervals over problems",
      scrolled("Metrics", el("table", {}, el("thead", {}, head), el("tbody", {}, rows)))),
  ];
}

// Headline metrics on the card of a data set, as names and values.
export function headline(found) {
  if (!found) return [];
  const shown = [...passAt([found]), ...METRICS.filter(([, key]) => ["pass_ratio_mean", "exec_success_rate"].includes(key))];
  return shown.filter(([, key]) => (found[key] ?? null) !== null).flatMap(([label, key, form]) => {
    const interval = range(found[`${key}_ci95`], form);
    return [el("dt", {}, label), el("dd", {}, atLeast(found, key), form(found[key]), interval ? el("div", { class: "soft" }, interval) : null)];
  });
}

const UNKNOWN = ["unknown", "untagged"];

// Characters of a bucket such as <500, 500-999 or >=4000, as a range.
function characters(bucket) {
  const [low, high] = bucket.match(/\d+/g) ?? [];
  if (bucket.startsWith("<")) return `..${low - 1}`;
  return bucket.startsWith(">") ? `${low}..` : `${low}..${high}`;
}

// Link to the samples of a bucket; null where no filter is its equal.
function bucketLink(address, dataset, dimension, bucket) {
  if (["difficulty", "tag"].includes(dimension)) return address({ dataset, [dimension]: UNKNOWN.includes(bucket) ? null : bucket });
  return dimension === "prompt_length" && !UNKNOWN.includes(bucket) ? address({ dataset }, { prompt_length: characters(bucket) }) : null;
}

function part(bucket, found, href) {
  return el("tr", {},
    el("th", { scope: "row" }, href ? el("a", { href }, name(bucket)) : name(bucket)),
    el("td", { class: "number" }, String(found.problems)),
    el("td", { class: "number" }, `${found.n}${found.api_errors ? ` (+${found.api_errors})` : ""}`),
    value(found, "accepted_at_1", percent),
    value(found, "pass_ratio_mean", fixed(3)));
}

function parts(key, dimensions, address) {
  const headings = ["", "problems", "samples", "accepted@1", "pass ratio"];
  const head = el("tr", {}, headings.map((heading) => (heading ? el("th", { class: "number", scope: "col" }, heading) : el("td"))));
  const groups = Object.entries(dimensions).map(([dimension, buckets]) =>
    el("tbody", {},
      el("tr", {}, el("th", { colspan: headings.length, scope: "rowgroup", class: "group" }, DIMENSIONS[dimension] ?? dimension)),
      Object.entries(buckets).map(([bucket, found]) => part(bucket, found, bucketLink(address, key, dimension, bucket)))));
  const note = "A problem counts for each of its tags. Behind a + are samples without a verdict.";
  return fold(`parts ${key}`, ["Parts of ", name(key)],
    el("p", { class: "soft" }, note),
    scrolled(`Parts of ${plain(key)}`, el("table", {}, el("thead", {}, head), groups)));
}

// Slices of each data set; `address` gives the link to the samples of a filter.
export function slices(found, address) {
  if (!found) return [];
  return Object.entries(found).map(([key, one]) => parts(key, one, address));
}
