// SVG charts; labels and title elements contain the numbers.
import { el } from "./dom.js";

export const STATUSES = ["success", "wrong_answer", "runtime_error", "timeout", "syntax_error", "empty_output", "api_error"];
export const percent = (share) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(1)}\u00a0%`);

export function shares(counts) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const there = STATUSES.filter((status) => counts[status]);
  const text = there.map((status) => `${status} ${counts[status]}`).join(", ");
  const bar = there.map((status) => el("span", { class: `fill-${status}`, "width%": (100 * counts[status]) / total }));
  const keys = there.map((status) => el("li", {}, el("i", { class: `fill-${status}` }), `${status} ${counts[status]}`));
  return [el("div", { class: "stack", role: "img", "aria-label": text }, bar), el("ul", { class: "keys" }, keys)];
}

export function passRatios(counts) {
  const values = [counts.zero, ...counts.bins, counts.one];
  const names = ["0", ...counts.bins.map((_, i) => `${i / 10}–${(i + 1) / 10}`), "1"];
  const most = Math.max(1, ...values);
  const bars = values.map((value, i) => {
    const height = (56 * value) / most;
    const bar = el("rect", { class: "first", x: 4 + i * 19, y: 60 - height, width: 16, height });
    bar.append(el("title", {}, `pass ratio ${names[i]}: ${value}`));
    return bar;
  });
  const axis = el("line", { class: "axis", x1: 0, x2: 232, y1: 60, y2: 60 });
  const marks = [["0", 8], ["½", 114], ["1", 217]].map(([text, x]) => el("text", { x, y: 72 }, text));
  const label = `Pass ratios: ${values.map((value, i) => `${names[i]}: ${value}`).join(", ")}`;
  return el("svg", { viewBox: "0 0 232 76", role: "img", "aria-label": label }, axis, bars, marks);
}

// Bar chart of a distribution's percentiles.
export function spread(heading, values, digits) {
  const known = Object.entries(values).filter(([, value]) => value !== null);
  if (!known.length) return [];
  const most = Math.max(...known.map(([, value]) => value)) || 1;
  const rows = known.map(([percent, value], i) => [
    el("text", { x: 0, y: 11 + i * 14 }, percent),
    el("rect", { class: "first", x: 26, y: 3 + i * 14, width: (150 * value) / most, height: 9 }),
    el("text", { x: 30 + (150 * value) / most, y: 11 + i * 14 }, value.toFixed(digits)),
  ]);
  const label = `${heading}: ${known.map(([percent, value]) => `${percent} ${value.toFixed(digits)}`).join(", ")}`;
  return [el("h3", {}, heading), el("svg", { viewBox: `0 0 232 ${4 + 14 * known.length}`, role: "img", "aria-label": label }, rows.flat())];
}

export function pace(line) {
  if (line.start === null) return el("p", { class: "soft" }, "Nothing has been judged yet.");
  const most = Math.max(1, ...line.generated, ...line.judged);
  const step = 600 / Math.max(1, line.judged.length - 1);
  const path = (values) => values.map((value, i) => `${i ? "L" : "M"}${(i * step).toFixed(1)} ${(90 - (84 * value) / most).toFixed(1)}`).join("");
  const seconds = line.width * line.judged.length;
  const label = `Samples generated and judged per ${line.width} s over ${seconds} s, at most ${most}`;
  return [
    el("svg", { viewBox: "0 0 600 94", role: "img", "aria-label": label },
      el("line", { class: "axis", x1: 0, x2: 600, y1: 90, y2: 90 }),
      el("path", { class: "line-first", d: path(line.generated) }),
      el("path", { class: "line-second", d: path(line.judged) })),
    el("div", { class: "ends soft number" }, el("span", {}, "0 s"), el("span", {}, `${seconds} s`)),
    el("ul", { class: "keys" },
      el("li", {}, el("i", { class: "fill-generated" }), "generated"),
      el("li", {}, el("i", { class: "fill-judged" }), `judged, per ${line.width} s`)),
  ];
}
