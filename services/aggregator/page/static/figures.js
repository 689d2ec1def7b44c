// Tables of published metrics with their intervals, for data sets and slices of them.
import { columns, el, figure, name, plain, row, rowHead, scrolled, soft, table } from "./dom.js";
import { percent, range } from "./numbers.js";

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
  const value = found[key] ?? null;
  if (value === null) return figure("–");
  if (Array.isArray(value)) return figure(range(value, form));
  const interval = range(found[`${key}_ci95`], form);
  return figure(atLeast(found, key), form(value), el("div", { class: "soft" }, interval ?? ""));
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
  if (!found) return soft("All metrics, with their intervals, follow when the run is published.");
  const all = Object.values(found);
  const rows = shown(catalogue, all).map(({ key, label, unit, formula }) =>
    row(
      el("th", { scope: "row", title: formula }, label),
      all.map((one) => value(one, key, FORMS[unit])),
    ),
  );
  return [
    soft("With 95 % intervals over problems."),
    scrolled("Metrics", table([el("td"), columns(Object.keys(found).map(name), "number")], rows)),
  ];
}

// Headline metrics of a data set, as names and values.
export function headline({ metrics, catalogue }, dataset) {
  const found = metrics?.[dataset];
  if (!found) return [];
  return shown(catalogue, [found])
    .filter(({ key }) => HEADLINE.test(key))
    .flatMap(({ key, label, unit }) => {
      const interval = el("div", { class: "soft" }, range(found[`${key}_ci95`], FORMS[unit]));
      const shown = [atLeast(found, key), FORMS[unit](found[key]), interval];
      return [el("dt", {}, label), el("dd", {}, shown)];
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
  return row(
    rowHead(href ? el("a", { href }, name(bucket)) : name(bucket)),
    figure(found.problems),
    figure(found.n, found.api_errors ? ` (+${found.api_errors})` : ""),
    value(found, "accepted_at_1", percent),
    value(found, "pass_ratio_mean", fixed(3)),
  );
}

// A table of slices: rows of `line` under a heading for each dimension that has buckets.
export function sliced(label, headings, dimensions, line, kind = "") {
  const groups = Object.entries(dimensions)
    .filter(([, buckets]) => Object.keys(buckets).length)
    .map(([dimension, buckets]) =>
      el(
        "tbody",
        {},
        row(
          el(
            "th",
            { colspan: headings.length + 1, scope: "rowgroup", class: "group" },
            DIMENSIONS[dimension] ?? name(dimension),
          ),
        ),
        Object.entries(buckets).map(([bucket, found]) => line(dimension, bucket, found)),
      ),
    );
  const head = el("thead", {}, row(el("td"), columns(headings, "number")));
  return scrolled(label, el("table", {}, head, groups), kind);
}

const HEADINGS = ["problems", "samples", "accepted@1", "pass ratio"];

// Slices of each data set; `address` gives the link to the samples of a filter.
export function slices({ slices: found }, address) {
  if (!found) return soft("Slices follow when the run is published.");
  const note = "A problem counts for each of its tags. Behind a + are samples without a verdict.";
  return [
    soft(note),
    Object.entries(found).map(([key, one]) => [
      el("h2", {}, name(key)),
      sliced(`Slices of ${plain(key)}`, HEADINGS, one, (dimension, bucket, own) =>
        part(bucket, own, bucketLink(address, key, dimension, bucket)),
      ),
    ]),
  ];
}
