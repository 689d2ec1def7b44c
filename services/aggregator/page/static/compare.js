// View of runs compared with a baseline: what differs, intervals, statuses, slices, and flips.
import * as api from "./api.js";
import { STATUSES } from "./charts.js";
import {
  button,
  cell,
  column,
  columns,
  controls,
  decoded,
  el,
  figure,
  name,
  plain,
  row,
  rowHead,
  scrolled,
  select,
  soft,
  table,
  warn,
} from "./dom.js";
import { sliced } from "./figures.js";
import { flipsList } from "./flips.js";
import { compareAddress, listOf, runAddress, runLabel } from "./listing.js";
import { interval, percent, points, range, significant } from "./numbers.js";
import { problemsByRuns } from "./problem.js";

const SIGNIFICANT = 0.05;

const wide = (label, found) => scrolled(label, found, "figures");

// The choice of runs: the baseline, the others, and those that can be added.
function chooser(chosen, all) {
  const go = (runs) => (location.hash = compareAddress(runs));
  const labelled = (ids) => ids.map((id) => [id, runLabel(id, all[id])]);
  const rest = Object.keys(all).filter((id) => !chosen.includes(id));
  const swap = ({ target }) => go([target.value, ...chosen.filter((id) => id !== target.value)]);
  const add = ({ target }) => target.value && go([...chosen, target.value]);
  const less = (id) =>
    button(["Leave out ", name(all[id]?.name ?? id)], () => go(chosen.filter((one) => one !== id)));
  const added = [["", "choose"], ...labelled(rest)];
  return controls(
    {},
    chosen.length ? select("Baseline", null, labelled(chosen), chosen[0], swap) : null,
    rest.length ? select(chosen.length ? "Compare with" : "Baseline", null, added, "", add) : null,
    chosen.slice(1).map(less),
  );
}

// The runs' names by their letters, told apart by their folders where two have the same name.
function titles(runs) {
  const alone = (run) => runs.filter((one) => one.name === run.name).length === 1;
  return Object.fromEntries(
    runs.map((run) => [run.label, plain(alone(run) ? run.name : `${run.name} (${run.folder})`)]),
  );
}

function legend(runs) {
  return el(
    "dl",
    {},
    runs.flatMap((run, i) => [
      el("dt", {}, i ? "compared" : "baseline"),
      el(
        "dd",
        {},
        el("a", { href: runAddress(run.folder) }, name(run.name)),
        run.model ? [", model ", name(run.model)] : null,
        run.notes.map((note) => el("div", { class: "incomplete" }, name(note))),
      ),
    ]),
  );
}

// Differences in settings, before any number: with those of the first kind the runs are not comparable.
function settings({ first, second, mismatches, unknown, noted }) {
  const line = ({ what, first: one, second: other }) =>
    el("li", {}, name(`${what} is ${one} in ${first} and ${other} in ${second}`));
  const list = (found, text, kind, role) =>
    found.length
      ? el("div", { class: kind, role }, el("p", {}, text), el("ul", {}, found.map(line)))
      : null;
  return [
    list(
      mismatches,
      `${first} and ${second} are not the same measurement; these settings differ, so a difference below need not be the model's:`,
      "untrusted mismatch",
      "alert",
    ),
    mismatches.some((one) => one.rejudge)
      ? el(
          "p",
          { class: "untrusted" },
          "plumb rejudge RUN judges a run's completions again, by the present rules and packages.",
        )
      : null,
    list(unknown, "One of the runs did not record this, so it may differ:", "incomplete", null),
    list(noted, "A comparison may vary this:", "soft", null),
  ];
}

function leftOut({ first, second, unshared, datasets }) {
  const words = {
    only_first: `only in ${first}`,
    only_second: `only in ${second}`,
    api_error: "without a verdict in one",
    changed: "of problems whose prompt or tests are not the same",
  };
  const lines = Object.entries(datasets)
    .filter(([, { left_out: out }]) => Object.values(out).some(Boolean))
    .map(([key, { left_out: out, samples }]) => {
      const parts = Object.entries(words)
        .filter(([kind]) => out[kind])
        .map(([kind, text]) => `${out[kind]} ${text}`);
      const text = `: ${samples} samples are paired; left out: ${parts.join(", ")}.`;
      return el("p", { class: "incomplete" }, name(key), text);
    });
  return [
    ...unshared.map(({ run, dataset }) =>
      el("p", { class: "incomplete" }, name(dataset), `: only in ${run}, not compared.`),
    ),
    ...lines,
  ];
}

const better = ({ difference, p_value: p }) =>
  !difference || p === null || p > SIGNIFICANT ? "" : difference > 0 ? "success" : "syntax_error";

// What a difference says, in a sentence.
function verdict(found, first, second) {
  if (!found.problems) return "Nothing is paired.";
  const seen =
    found.detectable === null
      ? ""
      : ` With ${found.problems} problems only about ${points(found.detectable).slice(1)} points would be detected (80 % power).`;
  if (!better(found)) return `No significant difference.${seen}`;
  return `${found.difference > 0 ? second : first} is better by ${points(Math.abs(found.difference)).slice(1)} points.`;
}

// Exact McNemar where each problem is accepted or not in both runs; sign flips otherwise.
function results({ first, second, datasets }) {
  const line = (key, label, found, flips) =>
    row(
      key === null ? el("td") : rowHead(name(key)),
      el("td", { class: "metric" }, label),
      figure(key === null ? "" : found.problems),
      figure(percent(found.first)),
      figure(percent(found.second)),
      el("td", { class: `number ${better(found)}` }, points(found.difference)),
      figure(interval(found.ci95)),
      figure(significant(found.p_value)),
      figure(found.detectable === null ? "–" : points(found.detectable).slice(1)),
      figure(flips),
    );
  const rows = Object.entries(datasets).flatMap(([key, one]) => {
    const ratio = one.pass_ratio_bounds ? "pass ratio, at least" : "pass ratio";
    return [
      line(key, "accepted@1", one.accepted_at_1, `${one.samples_gained}/${one.samples_lost}`),
      line(null, ratio, one.pass_ratio_mean, ""),
    ];
  });
  const numbers = ["problems", first, second, "difference", "95 % interval"];
  const head = [
    columns(["data set", "metric"]),
    columns([...numbers, "p", "detectable", "gained/lost"], "number"),
  ];
  return scrolled(`${second} against ${first}`, table(head, rows), "figures results");
}

function sentences({ first, second, datasets }) {
  return Object.entries(datasets).flatMap(([key, one]) => {
    const { clusters, problems } = one.accepted_at_1;
    const bounds = one.pass_ratio_bounds;
    const cut =
      bounds &&
      `Cases of ${one.samples_cut} of ${one.samples} pairs were not run (judge.max_timeouts) and count as failed in the pass ratio; the exact difference is between ${points(bounds.worst.difference)} and ${points(bounds.best.difference)}.`;
    const drawn =
      clusters &&
      `The intervals draw ${clusters} clusters of its ${problems} problems: contests, and other problems alone.`;
    return el(
      "p",
      {},
      name(key),
      ": ",
      verdict(one.accepted_at_1, first, second),
      cut ? ` ${cut}` : "",
      drawn ? ` ${drawn}` : "",
    );
  });
}

// A value with its interval on a scale: `x` gives their places, `axis` is its line.
function whisker(label, x, value, ci95, width, axis) {
  return el(
    "svg",
    { viewBox: `0 0 ${width} 8`, role: "img", "aria-label": plain(label) },
    el("line", { class: "axis", ...axis }),
    el("line", { class: "whisker", x1: x(ci95[0]), x2: x(ci95[1]), y1: 4, y2: 4 }),
    el("rect", { class: "first", x: x(value) - 0.8, y: 1.5, width: 1.6, height: 5 }),
  );
}

// Differences with their intervals, in points, on one axis.
function forest({ first, second, datasets }) {
  const found = Object.entries(datasets)
    .map(([key, one]) => [key, one.accepted_at_1])
    .filter(([, one]) => one.ci95);
  if (!found.length) return null;
  const most = Math.max(...found.flatMap(([, one]) => one.ci95).map(Math.abs), 0.01) * 1.05;
  const x = (value) => 100 + (100 * value) / most;
  const zero = { x1: 100, x2: 100, y1: 0, y2: 8 };
  const rows = found.flatMap(([key, { difference, ci95 }]) => {
    const label = `${key}: ${points(difference)} points, 95 % interval ${interval(ci95)}`;
    return [el("div", {}, name(key)), whisker(label, x, difference, ci95, 200, zero)];
  });
  const scale = el(
    "div",
    { class: "ends soft number" },
    [-most, 0, most].map((value) => el("span", {}, points(value))),
  );
  return el(
    "div",
    { class: "card" },
    el("h3", {}, `accepted@1, ${second} − ${first}, in points with 95 % intervals`),
    el("div", { class: "forest" }, rows, el("div"), scale),
    soft(`Left of the line ${first} is better, right of it ${second}.`),
  );
}

// Each run's own accepted@1 with its interval.
function scores(runs, title) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.datasets)))];
  const line = (key, run, i) => {
    const own = run.datasets[key];
    return row(
      i ? el("td") : rowHead(name(key)),
      cell(title[run.label]),
      figure(own?.samples ?? 0),
      figure(percent(own?.accepted_at_1)),
      figure(range(own?.ci95, percent) ?? "–"),
      el("td", { class: "scale" }, bar(own)),
    );
  };
  const head = [
    columns(["data set", "run"]),
    columns(["samples", "accepted@1", "95 % interval"], "number"),
    column("0 to 100 %"),
  ];
  const rows = keys.flatMap((key) => runs.map((run, i) => line(key, run, i)));
  return el(
    "details",
    { open: runs.length > 2 },
    el("summary", {}, "Each run by itself"),
    wide("Each run by itself", table(head, rows)),
  );
}

function bar(own) {
  if (!own?.ci95) return null;
  const label = `${percent(own.accepted_at_1)}, 95 % interval ${range(own.ci95, percent)}`;
  const axis = { x1: 0, x2: 100, y1: 7, y2: 7 };
  return whisker(label, (value) => 100 * value, own.accepted_at_1, own.ci95, 100, axis);
}

// Pairs by both statuses; a number shows its samples.
function matrix({ first, second }, { statuses, samples }, show) {
  const there = STATUSES.filter(
    (one) => statuses[one] || Object.values(statuses).some((row) => row[one]),
  );
  const count = (one, other) => statuses[one]?.[other] ?? 0;
  const number = (one, other) => {
    const label = `${count(one, other)} samples: ${one} in ${first}, ${other} in ${second}`;
    const press = () => show({ kind: "all", first: one, second: other });
    return count(one, other)
      ? button(count(one, other), press, { class: "count", "aria-label": label })
      : "0";
  };
  const rows = there.map((one) =>
    row(
      rowHead(`${first}: ${one}`),
      there.map((other) =>
        el("td", { class: one === other ? "number agree" : "number" }, number(one, other)),
      ),
    ),
  );
  const same = there.reduce((sum, one) => sum + count(one, one), 0);
  const head = there.map((one) => `${second}: ${one}`);
  const note = `${same} of ${samples} samples have the same status in both runs. A number shows its samples below.`;
  return [
    el("h3", {}, "Statuses"),
    soft(samples ? note : "Nothing is paired."),
    wide("Statuses", table([el("td"), columns(head, "number")], rows)),
  ];
}

function slices({ first, second }, found, show) {
  const headings = ["problems", first, second, "difference", "95 % interval", "better/worse"];
  const line = (dimension, bucket, one) => {
    const press = () => show({ kind: "flips", dimension, bucket });
    return row(
      rowHead(button(name(bucket), press, { class: "count" })),
      figure(one.problems),
      figure(percent(one.first)),
      figure(percent(one.second)),
      figure(points(one.difference)),
      figure(interval(one.ci95)),
      figure(`${one.improved}/${one.worsened}`),
    );
  };
  return el(
    "details",
    {},
    el("summary", {}, "Slices: difficulty, tag, tests, prompt, time"),
    soft(
      "accepted@1 over parts of the problems; a problem counts for each of its tags. Of many slices some differ by chance. A name shows the flips in it.",
    ),
    sliced("Slices", headings, found, line, "figures"),
  );
}

// Problems by runs, for three runs or more: those on which the runs disagree most come first.
function grid(ids, labels, dataset) {
  const { parts, next } = problemsByRuns(ids, labels, dataset, "disagreement");
  const place = el(
    "details",
    {},
    el("summary", {}, "Problems × runs"),
    soft(
      "The share of its samples that each run solved; the problems on which the runs disagree most come first.",
    ),
    parts,
  );
  place.addEventListener("toggle", () => next().catch(warn), { once: true });
  return place;
}

export async function showCompare(main, _parts, query) {
  const asked = (query.get("runs") ?? "").split(",").filter(Boolean).map(decoded);
  const all = await api.runs();
  const choose = chooser(asked, all);
  if (asked.length < 2) {
    const text =
      Object.keys(all).length < 2
        ? "There are not two runs yet."
        : "Choose the baseline and one run or more to compare with it.";
    main.replaceChildren(el("h1", {}, "Compare"), el("p", {}, text), choose);
    return () => {};
  }
  let found;
  try {
    found = await api.compare(listOf(asked));
  } catch (error) {
    const why = el("p", { class: "incomplete", role: "alert" }, name(error.message));
    main.replaceChildren(el("h1", {}, "Compare"), why, choose);
    return () => {};
  }
  const ids = found.runs.map((run) => run.folder);
  const title = titles(found.runs);
  const overviews = found.comparisons
    .map((one) => named(one, title))
    .map((one) =>
      el(
        "div",
        { class: "comparison" },
        el("h2", {}, `${one.second} against ${one.first}`),
        settings(one),
        leftOut(one),
        forest(one),
        results(one),
        sentences(one),
      ),
    );
  const [place, stop] = await details(ids, found, query);
  main.replaceChildren(
    el("h1", {}, `Compare ${found.runs.length} runs`),
    choose,
    legend(found.runs),
    ...overviews,
    scores(found.runs, title),
    place,
  );
  return stop;
}

// A comparison in which the runs have their names in place of letters.
function named(one, title) {
  const unshared = one.unshared.map((left) => ({ ...left, run: title[left.run] }));
  return { ...one, first: title[one.first], second: title[one.second], unshared };
}

// One data set of one pair of runs: statuses, slices, and the list of flips. The address holds the choice.
async function details(ids, found, query) {
  const place = el("div");
  const title = titles(found.runs);
  const pairs = found.comparisons.map((each) => [
    each.second,
    `${title[each.second]} against ${title[each.first]}`,
  ]);
  let list = { stop: () => {} };

  // Its controls stand at once: what is chosen while the list loads is chosen in the new one.
  function fill(against, key, filters) {
    const one = found.comparisons.find((each) => each.second === against) ?? found.comparisons[0];
    const keys = Object.keys(one.datasets);
    const dataset = keys.includes(key) ? key : keys[0];
    const address = (changed) => compareAddress(ids, { against: one.second, dataset, ...changed });
    const change = (against, key) => (event) => {
      const { name: field, value } = event.target;
      fill(against ?? value, key ?? value, new URLSearchParams());
      history.replaceState(history.state, "", list.address({}));
      place.querySelector(`select[name=${field}]`).focus();
    };
    const sets = keys.map((each) => [each, each]);
    const chosen = controls(
      {},
      pairs.length > 1 ? select("Runs", "against", pairs, one.second, change(null, dataset)) : null,
      select("Data set", "dataset", sets, dataset, change(one.second, null)),
    );
    const other = ids[found.runs.findIndex((run) => run.label === one.second)];
    list.stop();
    list = {
      ...flipsList({
        runs: [ids[0], other],
        labels: [title[one.first], title[one.second]],
        dataset,
        query: filters,
        link: address,
      }),
      address,
    };
    const shown = named(one, title);
    place.replaceChildren(
      el("h2", {}, "Samples of ", name(dataset)),
      chosen,
      ...matrix(shown, one.datasets[dataset], list.show),
      slices(shown, one.datasets[dataset].slices, list.show),
      ids.length > 2 ? grid(ids, Object.values(title), dataset) : "",
      ...list.parts,
    );
    return list.filled;
  }

  await fill(query.get("against"), query.get("dataset"), query);
  return [place, () => list.stop()];
}
