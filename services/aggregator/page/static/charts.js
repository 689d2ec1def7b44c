// Charts as SVG or as bars of tables; labels and table cells contain the numbers.
import { el } from "./dom.js";

export const STATUSES = [
  "success",
  "wrong_answer",
  "runtime_error",
  "timeout",
  "syntax_error",
  "empty_output",
  "api_error",
];
export const percent = (share) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)}\u00a0%`;
export const range = (interval, form) =>
  interval ? `${form(interval[0])} to ${form(interval[1])}` : null;

// Stacked bar of statuses with its legend; `address` gives the link behind a status.
export function shares(counts, address = () => null) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const there = STATUSES.filter((status) => counts[status]);
  if (!there.length) return [];
  const text = there.map((status) => `${status} ${counts[status]}`).join(", ");
  const bar = there.map((status) =>
    el("span", { class: `fill-${status}`, "width%": (100 * counts[status]) / total }),
  );
  const keys = there.map((status) =>
    el(
      "li",
      {},
      el("i", { class: `fill-${status}` }),
      linked(address(status), `${status} ${counts[status]}`),
    ),
  );
  return [
    el("div", { class: "stack", role: "img", "aria-label": text }, bar),
    el("ul", { class: "keys" }, keys),
  ];
}

const linked = (href, ...content) => (href ? el("a", { href }, ...content) : content);

const GRID = [0, 25, 50, 75, 100];
const across = (share) => `${(100 * share).toFixed(2)}%`;
const gridlines = () =>
  GRID.map((at) => el("line", { class: "axis", x1: `${at}%`, x2: `${at}%`, y1: 0, y2: "100%" }));

function interval({ label, value, ci95, bounds }) {
  const text = [
    `${label}: ${percent(value)}`,
    ci95 && `95 % interval ${range(ci95, percent)}`,
    bounds && `${range(bounds, percent)} with the samples that were not judged`,
  ];
  const band =
    bounds &&
    el("rect", {
      class: "bounds",
      x: across(bounds[0]),
      width: across(bounds[1] - bounds[0]),
      y: "20%",
      height: "60%",
    });
  const line =
    ci95 &&
    el("line", {
      class: "whisker",
      x1: across(ci95[0]),
      x2: across(ci95[1]),
      y1: "50%",
      y2: "50%",
    });
  const ends = (ci95 ?? []).map((end) =>
    el("line", { class: "whisker", x1: across(end), x2: across(end), y1: "32%", y2: "68%" }),
  );
  const point =
    value === null ? null : el("circle", { class: "point", cx: across(value), cy: "50%", r: 5 });
  return el(
    "svg",
    { class: "interval", role: "img", "aria-label": text.filter(Boolean).join(", ") },
    gridlines(),
    band,
    line,
    ends,
    point,
  );
}

function scale() {
  const anchor = (at) => (at === 0 ? "start" : at === 100 ? "end" : "middle");
  const marks = GRID.map((at) =>
    el("text", { x: `${at}%`, y: "80%", "text-anchor": anchor(at) }, `${at} %`),
  );
  return el("svg", { class: "interval", "aria-hidden": "true" }, marks);
}

// Chart of shares with their intervals, one row for each of `rows`: `heading` (a node), `label` (its text), `value`,
// `ci95`, `bounds` (null where everything was judged) and `note`. It is a table of the same numbers, for those who
// cannot see it and for print.
export function intervals(caption, heading, measure, rows) {
  const cell = (kind, name, ...content) =>
    el(kind, { role: { td: "cell", th: "rowheader" }[kind], class: name }, ...content);
  const head = (name, ...content) =>
    el("th", { role: "columnheader", scope: "col", class: name }, ...content);
  const line = (row) =>
    el(
      "tr",
      { role: "row" },
      cell("th", "what", row.heading),
      cell("td", "chart", interval(row)),
      cell(
        "td",
        "value number",
        el("b", {}, percent(row.value)),
        row.ci95 ? el("div", { class: "soft" }, range(row.ci95, percent)) : null,
      ),
      cell(
        "td",
        "note number",
        row.note,
        row.bounds
          ? el("div", { class: "incomplete" }, `${range(row.bounds, percent)}, depending on them`)
          : null,
      ),
    );
  return el(
    "table",
    { class: "intervals", role: "table" },
    el("caption", { class: "soft" }, caption),
    el(
      "thead",
      { role: "rowgroup" },
      el(
        "tr",
        { role: "row" },
        head("what", heading),
        head("chart", el("span", { class: "hidden" }, "Chart"), scale()),
        head("value number", measure),
        head("note number", "samples"),
      ),
    ),
    el("tbody", { role: "rowgroup" }, rows.map(line)),
  );
}

// Bars as a table: `rows` are [label, value, text, link or null].
function bars(headings, rows) {
  const most = Math.max(...rows.map(([, value]) => value)) || 1;
  const line = ([label, value, text, href]) => {
    const content = [
      el("span", { class: "bar", "width%": (60 * value) / most }),
      el("span", {}, text),
    ];
    return el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, label),
      el(
        "td",
        { class: "number" },
        href ? el("a", { class: "bars", href }, content) : el("div", { class: "bars" }, content),
      ),
    );
  };
  const head = el(
    "tr",
    {},
    headings.map((heading) => el("th", { scope: "col" }, heading)),
  );
  return el(
    "table",
    { class: "histogram" },
    el("thead", {}, head),
    el("tbody", {}, rows.map(line)),
  );
}

// Histogram of pass ratios: exactly 0, ten bins between, exactly 1. `address` gives the link behind a range of them.
export function passRatios(counts, address) {
  const within = (i) => `${i ? i / 10 : "0.000001"}..${(i / 10 + 0.099999).toFixed(6)}`; // a bin has its lower end, not its upper one
  const row = (label, count, ratios) => [
    label,
    count,
    String(count),
    count ? address(ratios) : null,
  ];
  return bars(
    ["pass ratio", "samples"],
    [
      row("0", counts.zero, "0..0"),
      ...counts.bins.map((count, i) =>
        row(`${(i / 10).toFixed(1)} to ${((i + 1) / 10).toFixed(1)}`, count, within(i)),
      ),
      row("1", counts.one, "1..1"),
    ],
  );
}

// Bar chart of a distribution's percentiles.
export function spread(heading, values, digits) {
  const known = Object.entries(values).filter(([, value]) => value !== null);
  if (!known.length) return null;
  const rows = known.map(([percent, value]) => [percent, value, value.toFixed(digits), null]);
  return el("div", {}, el("h3", {}, heading), bars(["percentile", heading.toLowerCase()], rows));
}
