// Tables of published metrics with their intervals, for data sets and slices of them.
import { percent, range } from "./charts.js";
import { el, name, plain, scrolled } from "./dom.js";

const fixed = (digits) => (value) => value.toFixed(digits);
// By the units of the catalogue of metrics, which comes with the run.
const FORMS = {
  share: percent,
  "mean of shares": fixed(3),
  count: fixed(0),
  tokens: fixed(0),
  seconds: (value) => `${Number(value.toPrecision(3))}\u00a0s`,
  "problems per second": fixed(2),
};
const HEADLINE = /^(pass_at_\d+|pass_ratio_mean|exec_success_rate)$/;
const DIMENSIONS = {
  difficulty: "Difficulty",
  tag: "Tag",
  tests: "Number of tests",
  prompt_length: "Prompt, characters",
};

// Pass ratios count the cases that were not run as failed.
const atLeast = (found, key) =>
  key.startsWith("pass_ratio_") && found.samples_cut > 0 ? "≥ " : "";

function value(found, key, form) {
  const value = found[key];
  const cell = el("td", { class: "number" });
  if (value === null || value === undefined) cell.append("–");
  else if (Array.isArray(value)) cell.append(range(value, form));
  else
    cell.append(
      atLeast(found, key),
      form(value),
      el("div", { class: "soft" }, range(found[`${key}_ci95`], form) ?? ""),
    );
  return cell;
}

// Metrics that some data set has, and that it is about.
const shown = (catalogue, all) =>
  catalogue.filter(
    ({ key, only_if: needed }) =>
      all.some((one) => (one[key] ?? null) !== null) &&
      (!needed || all.some((one) => one[needed] > 0)),
  );

// What a certificate says of each data set's tests, and the scores corrected by it.
export function certified(found) {
  const sets = Object.entries(found ?? {}).filter(([, one]) => one.certified_problems);
  return sets.map(([key, one]) => {
    const ends = range(one.accepted_at_1_corrected_ci95, percent);
    const score = one.accepted_at_1_corrected ?? null;
    const [wrong, right] = [one.wrong_rejected_rate ?? null, one.right_accepted_rate ?? null];
    return el(
      "p",
      {},
      name(key),
      ": accepted@1 corrected for its tests: ",
      score === null ? "none" : el("b", {}, percent(score)),
      score === null ? "" : [" (", ends, ")"],
      wrong === null
        ? "; the tests' rates are unknown"
        : `; they reject ${percent(wrong)} of wrong and accept ${percent(right)} of right programs`,
      ` (${one.certified_problems} problems certified)`,
    );
  });
}

// The table of all metrics by data set.
export function metrics({ metrics: found, catalogue }) {
  if (!found)
    return el(
      "p",
      { class: "soft" },
      "All metrics, with their intervals, follow when the run is published.",
    );
  const all = Object.values(found);
  const head = el(
    "tr",
    {},
    el("td"),
    Object.keys(found).map((key) => el("th", { class: "number", scope: "col" }, name(key))),
  );
  const rows = shown(catalogue, all).map(({ key, label, unit, formula }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", title: formula }, label),
      all.map((one) => value(one, key, FORMS[unit])),
    ),
  );
  return [
    el("p", { class: "soft" }, "With 95 % intervals over problems."),
    scrolled("Metrics", el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
  ];
}

// Headline metrics of a data set, as names and values.
export function headline({ metrics, catalogue }, dataset) {
  const found = metrics?.[dataset];
  if (!found) return [];
  return shown(catalogue, [found])
    .filter(({ key }) => HEADLINE.test(key))
    .flatMap(({ key, label, unit }) => {
      const interval = range(found[`${key}_ci95`], FORMS[unit]);
      return [
        el("dt", {}, label),
        el(
          "dd",
          {},
          atLeast(found, key),
          FORMS[unit](found[key]),
          interval ? el("div", { class: "soft" }, interval) : null,
        ),
      ];
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
  if (["difficulty", "tag"].includes(dimension))
    return address({ dataset, [dimension]: UNKNOWN.includes(bucket) ? null : bucket });
  return dimension === "prompt_length" && !UNKNOWN.includes(bucket)
    ? address({ dataset }, { prompt_length: characters(bucket) })
    : null;
}

function part(bucket, found, href) {
  return el(
    "tr",
    {},
    el("th", { scope: "row" }, href ? el("a", { href }, name(bucket)) : name(bucket)),
    el("td", { class: "number" }, String(found.problems)),
    el("td", { class: "number" }, `${found.n}${found.api_errors ? ` (+${found.api_errors})` : ""}`),
    value(found, "accepted_at_1", percent),
    value(found, "pass_ratio_mean", fixed(3)),
  );
}

function parts(key, dimensions, address) {
  const headings = ["", "problems", "samples", "accepted@1", "pass ratio"];
  const head = el(
    "tr",
    {},
    headings.map((heading) =>
      heading ? el("th", { class: "number", scope: "col" }, heading) : el("td"),
    ),
  );
  const groups = Object.entries(dimensions).map(([dimension, buckets]) =>
    el(
      "tbody",
      {},
      el(
        "tr",
        {},
        el(
          "th",
          { colspan: headings.length, scope: "rowgroup", class: "group" },
          DIMENSIONS[dimension] ?? dimension,
        ),
      ),
      Object.entries(buckets).map(([bucket, found]) =>
        part(bucket, found, bucketLink(address, key, dimension, bucket)),
      ),
    ),
  );
  return [
    el("h2", {}, name(key)),
    scrolled(`Slices of ${plain(key)}`, el("table", {}, el("thead", {}, head), groups)),
  ];
}

// Slices of each data set; `address` gives the link to the samples of a filter.
export function slices({ slices: found }, address) {
  if (!found) return el("p", { class: "soft" }, "Slices follow when the run is published.");
  const note = "A problem counts for each of its tags. Behind a + are samples without a verdict.";
  return [
    el("p", { class: "soft" }, note),
    Object.entries(found).map(([key, one]) => parts(key, one, address)),
  ];
}
