// Charts over time and over runs, each with its numbers in a table behind it.
import { columns, el, figure, plain, row, rowHead, scrolled, soft, table } from "./dom.js";

// Units of a drawing: one that takes the whole width is flatter than one beside others.
export const WIDE = [900, 200];
export const SMALL = [300, 90];
const LINES = 5; // across a drawing, with their values
const EDGE = 8; // so that points at the ends are whole

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

// Rows and cells are made when the table is opened: a chart may have hundreds of points.
export function behind(label, headings, rows) {
  const place = scrolled(label, "");
  const fill = (event) => {
    if (!event.target.open || place.childElementCount) return;
    const [first, ...others] = headings;
    const body = rows().map(([name, ...values]) =>
      row(
        rowHead(name),
        values.map((value) => figure(value)),
      ),
    );
    place.replaceChildren(table([columns([first]), columns(others, "number")], body));
  };
  return el("details", { class: "behind", ontoggle: fill }, el("summary", {}, "As a table"), place);
}

// A drawing with its axes: values from `high` to `low` at lines across, and texts below from left to right. They are
// no part of the drawing, so that they keep their size.
function framed(svg, form, [high, low], below) {
  const values = Array.from({ length: LINES }, (_, i) => high - ((high - low) * i) / (LINES - 1));
  const texts = (list) => list.map((text) => el("span", {}, text));
  return el(
    "div",
    { class: "plot number" },
    el("div", { class: "scale soft" }, texts(values.map(form))),
    svg,
    el("div", { class: "ends soft" }, texts(below)),
  );
}

function drawing(label, [width, height], parts) {
  const across = Array.from({ length: LINES }, (_, i) => 0.5 + ((height - 1) * i) / (LINES - 1));
  return el(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    across.map((y) => el("line", { class: "axis", x1: 0, x2: width, y1: y, y2: y })),
    parts,
  );
}

// Lines over time from 0 on. `series`: [{ name, values, kind }] with kind "first" or "second".
export function overTime({ label, series, width, form, limit = null }) {
  const shown = series.filter(({ values }) => values.length);
  if (!shown.length) return [];
  const count = Math.max(...shown.map(({ values }) => values.length));
  const most = Math.max(limit?.value ?? 0, ...shown.flatMap(({ values }) => values)) || 1;
  const [across, height] = SMALL;
  const y = (value) => height - 0.5 - ((height - 1) * value) / most;
  const x = (i) => (count > 1 ? (across * i) / (count - 1) : across * i);
  // A single value is a line, too.
  // What is not known is a gap; a value between two gaps is a point.
  const path = (values) =>
    (count > 1 ? values : [values[0], values[0]])
      .map((value, i) =>
        known(value)
          ? `${known(values[i - 1]) ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}h.1`
          : "",
      )
      .join("");
  const parts = shown.map(({ values, kind }) =>
    el("path", { class: `line ${kind}`, d: path(values) }),
  );
  if (limit)
    parts.push(
      el("line", { class: "limit", x1: 0, x2: across, y1: y(limit.value), y2: y(limit.value) }),
    );
  const highest = shown
    .map(({ name, values }) => `${name}: at most ${form(Math.max(...values))}`)
    .join(", ");
  const keys = shown.map(({ name, kind }) => el("li", {}, el("i", { class: kind }), name));
  if (limit) keys.push(el("li", {}, el("i", { class: "limit" }), limit.name));
  const rows = () =>
    Array.from({ length: count }, (_, i) => [
      `${duration(i * width)}`,
      ...shown.map(({ values }) => (known(values[i]) ? form(values[i]) : "–")),
    ]);
  return [
    el("h3", {}, label),
    framed(
      drawing(`${label} over ${duration(count * width)}. ${highest}`, SMALL, parts),
      form,
      [most, 0],
      [0, 0.5, 1].map((part) => duration(part * count * width)),
    ),
    el("ul", { class: "keys" }, keys),
    behind(`${label}, as a table`, ["from", ...shown.map(({ name }) => name)], rows),
  ];
}

export function duration(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Ends of an axis around the values, with some room, within the least and the greatest possible.
function around(values, least, greatest) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const room = (high - low || Math.abs(high) || 1) * 0.1;
  return [Math.max(least, low - room), Math.min(greatest, high + room)];
}

// Points in order with interval bars. `points`: [{ title, value, low, high, kind }], null values are gaps.
// `pick(i)` is called when the pointer reaches a point; the table has the links for the keyboard. `ends` stand below.
export function overRuns({
  label,
  points,
  form,
  base = null,
  pick = () => {},
  greatest = Infinity,
  fromZero = false,
  size = SMALL,
  ends = ["first", "last"],
}) {
  const there = points.map((point, i) => ({ ...point, i })).filter(({ value }) => known(value));
  if (!there.length) return [el("h3", {}, label), soft("Not known of any run.")];
  const values = there.flatMap(({ value, low, high }) => [value, low, high].filter(known));
  const [low, high] = around(fromZero ? [0, ...values] : values, 0, greatest);
  const [across, height] = size;
  const step = points.length > 1 ? (across - 2 * EDGE) / (points.length - 1) : 0;
  const x = (i) => (points.length > 1 ? EDGE + i * step : across / 2);
  const y = (value) => height - 0.5 - ((height - 1) * (value - low)) / (high - low || 1);
  const half = Math.max(1.5, Math.min(5, step / 3 || 5));
  const mark = ({ i, value, low: from, high: to, kind, title }) => {
    const act = () => pick(i);
    const bar = { class: "error-bar", x1: x(i), x2: x(i), y1: y(from), y2: y(to) };
    const size = { width: 2 * half, height: 2 * half };
    return el(
      "g",
      { class: "marker", onclick: act, onpointerenter: act },
      el("title", {}, plain(title)),
      known(from) && known(to) ? el("line", bar) : null,
      el("rect", { class: `dot ${kind ?? ""}`, x: x(i) - half, y: y(value) - half, ...size }),
    );
  };
  const line = there
    .map(({ value, i }, at) => `${at ? "L" : "M"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const parts = [el("path", { class: "line first thin", d: line })];
  if (known(base))
    parts.unshift(el("line", { class: "limit", x1: 0, x2: across, y1: y(base), y2: y(base) }));
  const [first, last] = [there[0], there.at(-1)];
  const [least, most] = [Math.min, Math.max].map((of) =>
    form(of(...there.map(({ value }) => value))),
  );
  const told = `${label} of ${there.length} runs, from ${form(first.value)} to ${form(last.value)}, between ${least} and ${most}`;
  const gaps = points.length - there.length;
  return [
    el("h3", {}, label),
    framed(
      drawing(told, size, [...parts, ...there.map(mark)]),
      form,
      [high, low],
      points.length > 1 ? ends : ends.slice(0, 1),
    ),
    gaps ? soft(`Not known of ${gaps} of ${points.length} runs.`) : null,
  ];
}
