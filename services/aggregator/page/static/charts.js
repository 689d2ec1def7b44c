// Charts as SVG or as bars of tables; labels and table cells contain the numbers.
import { columns, el, figure, row, table } from "./dom.js";
import { percent, range } from "./numbers.js";

export const STATUSES = [
  "success",
  "wrong_answer",
  "runtime_error",
  "timeout",
  "syntax_error",
  "empty_output",
  "api_error",
];

// Stacked bar of statuses with its legend; `address` gives the link behind a status.
export function shares(counts, address = () => null) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const there = STATUSES.filter((status) => counts[status]);
  if (!there.length) return [];
  const text = there.map((status) => `${status} ${counts[status]}`).join(", ");
  const bar = there.map((status) =>
    el("span", { class: status, "width%": (100 * counts[status]) / total }),
  );
  const keys = there.map((status) =>
    el(
      "li",
      {},
      el("i", { class: status }),
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
  const whisker = ([from, to], y1, y2) =>
    el("line", { class: "whisker", x1: across(from), x2: across(to), y1, y2 });
  const band = bounds && {
    class: "bounds",
    x: across(bounds[0]),
    width: across(bounds[1] - bounds[0]),
    y: "20%",
    height: "60%",
  };
  return el(
    "svg",
    { class: "interval", role: "img", "aria-label": text.filter(Boolean).join(", ") },
    gridlines(),
    band && el("rect", band),
    ci95 && whisker(ci95, "50%", "50%"),
    (ci95 ?? []).map((end) => whisker([end, end], "32%", "68%")),
    value === null ? null : el("circle", { class: "point", cx: across(value), cy: "50%", r: 5 }),
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
  const head = (name, ...content) =>
    el("th", { role: "columnheader", scope: "col", class: name }, content);
  const part = (kind, role, name, ...content) => el(kind, { role, class: name }, content);
  const line = (one) => [
    part("th", "rowheader", "what", one.heading),
    part("td", "cell", "chart", interval(one)),
    part(
      "td",
      "cell",
      "value number",
      el("b", {}, percent(one.value)),
      one.ci95 ? el("div", { class: "soft" }, range(one.ci95, percent)) : null,
    ),
    part(
      "td",
      "cell",
      "note number",
      one.note,
      one.bounds
        ? el("div", { class: "incomplete" }, `${range(one.bounds, percent)}, depending on them`)
        : null,
    ),
  ];
  const group = (kind, lines) =>
    el(
      kind,
      { role: "rowgroup" },
      lines.map((cells) => el("tr", { role: "row" }, cells)),
    );
  return el(
    "table",
    { class: "intervals", role: "table" },
    el("caption", { class: "soft" }, caption),
    group("thead", [
      [
        head("what", heading),
        head("chart", el("span", { class: "hidden" }, "Chart"), scale()),
        head("value number", measure),
        head("note number", "samples"),
      ],
    ]),
    group("tbody", rows.map(line)),
  );
}

// Bars as a table: `rows` are [label, value, text, link or null].
function bars(headings, rows) {
  const most = Math.max(...rows.map(([, value]) => value)) || 1;
  const line = ([label, value, text, href]) => {
    const bar = el("span", { class: "bar", "width%": (60 * value) / most });
    return row(
      el("th", { scope: "row", class: "number" }, label),
      figure(el(href ? "a" : "div", { class: "bars", href }, bar, el("span", {}, text))),
    );
  };
  return table(columns(headings), rows.map(line), { class: "histogram" });
}

// Histogram of pass ratios: exactly 0, ten bins between, exactly 1. `address` gives the link behind a range of them.
export function passRatios(counts, address) {
  const within = (i) => `${i ? i / 10 : "0.000001"}..${(i / 10 + 0.099999).toFixed(6)}`; // a bin has its lower end, not its upper one
  const bin = (label, count, ratios) => [
    label,
    count,
    String(count),
    count ? address(ratios) : null,
  ];
  return bars(
    ["pass ratio", "samples"],
    [
      bin("0", counts.zero, "0..0"),
      ...counts.bins.map((count, i) =>
        bin(`${(i / 10).toFixed(1)} to ${((i + 1) / 10).toFixed(1)}`, count, within(i)),
      ),
      bin("1", counts.one, "1..1"),
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
