// View of runs compared with a baseline: what differs, intervals, statuses, slices, and flips.
import * as api from "./api.js";
import { STATUSES } from "./charts.js";
import { el, name, plain, scrolled, warn } from "./dom.js";
import { flipsList } from "./flips.js";
import { compareAddress, listOf, problemAddress, runAddress, runLabel } from "./listing.js";
import { interval, percent, points, significant } from "./numbers.js";

const DIMENSIONS = {
  difficulty: "Difficulty",
  tag: "Tag",
  tests: "Number of tests",
  prompt_length: "Prompt, characters",
  judge_time: "Judging a sample, mean of both runs",
};
const SIGNIFICANT = 0.05;

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const wide = (label, table) => scrolled(label, table, "figures");
const cell = (...parts) => el("td", { class: "number" }, parts);
const heading = (text, kind = "number") => el("th", { scope: "col", class: kind }, text);

// The choice of runs: the baseline, the others, and those that can be added.
function chooser(chosen, all) {
  const go = (runs) => (location.hash = compareAddress(runs));
  const option = (id, text) => el("option", { value: id }, plain(text));
  const label = (id) => runLabel(id, all[id]);
  const rest = Object.keys(all).filter((id) => !chosen.includes(id));
  const swap = (event) =>
    go([event.target.value, ...chosen.filter((id) => id !== event.target.value)]);
  const baseline = el(
    "select",
    { onchange: swap },
    chosen.map((id) => option(id, label(id))),
  );
  const add = el(
    "select",
    { onchange: (event) => event.target.value && go([...chosen, event.target.value]) },
    option("", "choose"),
    rest.map((id) => option(id, label(id))),
  );
  const less = (id) =>
    el(
      "button",
      { type: "button", onclick: () => go(chosen.filter((one) => one !== id)) },
      "Leave out ",
      name(all[id]?.name ?? id),
    );
  return el(
    "form",
    { class: "filters", onsubmit: (event) => event.preventDefault() },
    chosen.length ? el("label", {}, "Baseline", baseline) : null,
    rest.length ? el("label", {}, chosen.length ? "Compare with" : "Baseline", add) : null,
    chosen.length > 1 ? chosen.slice(1).map(less) : null,
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
        api.compared().length
          ? [name(run.name), ", ", name(run.folder)]
          : el("a", { href: runAddress(run.folder) }, name(run.name)),
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
      return el(
        "p",
        { class: "incomplete" },
        name(key),
        `: ${samples} samples are paired; left out: ${parts.join(", ")}.`,
      );
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
  const row = (key, label, found, flips) =>
    el(
      "tr",
      {},
      key === null ? el("td") : el("th", { scope: "row" }, name(key)),
      el("td", { class: "metric" }, label),
      cell(key === null ? "" : String(found.problems)),
      cell(percent(found.first)),
      cell(percent(found.second)),
      el("td", { class: `number ${better(found)}` }, points(found.difference)),
      cell(interval(found.ci95)),
      cell(significant(found.p_value)),
      cell(found.detectable === null ? "–" : points(found.detectable).slice(1)),
      cell(flips),
    );
  const rows = Object.entries(datasets).flatMap(([key, one]) => [
    row(key, "accepted@1", one.accepted_at_1, `${one.samples_gained}/${one.samples_lost}`),
    row(
      null,
      one.pass_ratio_bounds ? "pass ratio, at least" : "pass ratio",
      one.pass_ratio_mean,
      "",
    ),
  ]);
  const headings = ["data set", "metric"].map((text) => heading(text, null));
  const numbers = [
    "problems",
    first,
    second,
    "difference",
    "95 % interval",
    "p",
    "detectable",
    "gained/lost",
  ].map((text) => heading(text));
  return scrolled(
    `${second} against ${first}`,
    el("table", {}, el("thead", {}, el("tr", {}, headings, numbers)), el("tbody", {}, rows)),
    "figures results",
  );
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

// Differences with their intervals, in points, on one axis.
function forest({ first, second, datasets }) {
  const found = Object.entries(datasets)
    .map(([key, one]) => [key, one.accepted_at_1])
    .filter(([, one]) => one.ci95);
  if (!found.length) return null;
  const most = Math.max(...found.flatMap(([, one]) => one.ci95).map(Math.abs), 0.01) * 1.05;
  const x = (value) => 100 + (100 * value) / most;
  const zero = (bottom) => el("line", { class: "axis", x1: 100, x2: 100, y1: 0, y2: bottom });
  const rows = found.flatMap(([key, one]) => [
    el("div", {}, name(key)),
    el(
      "svg",
      {
        viewBox: "0 0 200 8",
        role: "img",
        "aria-label": plain(
          `${key}: ${points(one.difference)} points, 95 % interval ${interval(one.ci95)}`,
        ),
      },
      zero(8),
      el("line", { class: "whisker", x1: x(one.ci95[0]), x2: x(one.ci95[1]), y1: 4, y2: 4 }),
      el("rect", { class: "first", x: x(one.difference) - 1, y: 1.5, width: 2, height: 5 }),
    ),
  ]);
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
    el("p", { class: "soft" }, `Left of the line ${first} is better, right of it ${second}.`),
  );
}

// Each run's own accepted@1 with its interval.
function scores(runs, title) {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.datasets)))];
  const rows = keys.flatMap((key) =>
    runs.map((run, i) => {
      const own = run.datasets[key];
      const [low, high] = own?.ci95 ?? [null, null];
      const text = own?.ci95 ? `${percent(low)} to ${percent(high)}` : "–";
      return el(
        "tr",
        {},
        i ? el("td") : el("th", { scope: "row" }, name(key)),
        el("td", {}, title[run.label]),
        cell(String(own?.samples ?? 0)),
        cell(percent(own?.accepted_at_1)),
        cell(text),
        el("td", { class: "scale" }, bar(own)),
      );
    }),
  );
  const head = el(
    "tr",
    {},
    heading("data set", null),
    heading("run", null),
    heading("samples"),
    heading("accepted@1"),
    heading("95 % interval"),
    heading("0 to 100 %", null),
  );
  return el(
    "details",
    { open: runs.length > 2 },
    el("summary", {}, "Each run by itself"),
    wide("Each run by itself", el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
  );
}

function bar(own) {
  if (!own?.ci95) return null;
  const [low, high] = own.ci95;
  const label = `${percent(own.accepted_at_1)}, 95 % interval ${percent(low)} to ${percent(high)}`;
  return el(
    "svg",
    { viewBox: "0 0 100 8", role: "img", "aria-label": label },
    el("line", { class: "axis", x1: 0, x2: 100, y1: 7, y2: 7 }),
    el("line", { class: "whisker", x1: 100 * low, x2: 100 * high, y1: 4, y2: 4 }),
    el("rect", { class: "first", x: 100 * own.accepted_at_1 - 0.7, y: 1, width: 1.4, height: 6 }),
  );
}

// Pairs by both statuses; a number shows its samples.
function matrix({ first, second }, { statuses, samples }, show) {
  const there = STATUSES.filter(
    (one) => statuses[one] || Object.values(statuses).some((row) => row[one]),
  );
  const count = (one, other) => statuses[one]?.[other] ?? 0;
  const number = (one, other) =>
    count(one, other)
      ? el(
          "button",
          {
            type: "button",
            class: "count",
            "aria-label": `${count(one, other)} samples: ${one} in ${first}, ${other} in ${second}`,
            onclick: () => show({ kind: "all", first: one, second: other }),
          },
          String(count(one, other)),
        )
      : "0";
  const rows = there.map((one) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, `${first}: ${one}`),
      there.map((other) =>
        el("td", { class: one === other ? "number agree" : "number" }, number(one, other)),
      ),
    ),
  );
  const same = there.reduce((sum, one) => sum + count(one, one), 0);
  return [
    el("h3", {}, "Statuses"),
    el(
      "p",
      { class: "soft" },
      samples
        ? `${same} of ${samples} samples have the same status in both runs. A number shows its samples below.`
        : "Nothing is paired.",
    ),
    wide(
      "Statuses",
      el(
        "table",
        {},
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("td"),
            there.map((one) => heading(`${second}: ${one}`)),
          ),
        ),
        el("tbody", {}, rows),
      ),
    ),
  ];
}

function slices({ first, second }, found, show) {
  const headings = ["problems", first, second, "difference", "95 % interval", "better/worse"].map(
    (text) => heading(text),
  );
  const row =
    (dimension) =>
    ([bucket, one]) =>
      el(
        "tr",
        {},
        el(
          "th",
          { scope: "row" },
          el(
            "button",
            {
              type: "button",
              class: "count",
              onclick: () => show({ kind: "flips", dimension, bucket }),
            },
            name(bucket),
          ),
        ),
        cell(String(one.problems)),
        cell(percent(one.first)),
        cell(percent(one.second)),
        cell(points(one.difference)),
        cell(interval(one.ci95)),
        cell(`${one.improved}/${one.worsened}`),
      );
  const groups = Object.entries(found)
    .filter(([, buckets]) => Object.keys(buckets).length)
    .map(([dimension, buckets]) =>
      el(
        "tbody",
        {},
        el(
          "tr",
          {},
          el(
            "th",
            { colspan: 7, scope: "rowgroup", class: "group" },
            DIMENSIONS[dimension] ?? name(dimension),
          ),
        ),
        Object.entries(buckets).map(row(dimension)),
      ),
    );
  return el(
    "details",
    {},
    el("summary", {}, "Slices: difficulty, tag, tests, prompt, time"),
    el(
      "p",
      { class: "soft" },
      "accepted@1 over parts of the problems; a problem counts for each of its tags. Of many slices some differ by chance. A name shows the flips in it.",
    ),
    wide("Slices", el("table", {}, el("thead", {}, el("tr", {}, el("td"), headings)), groups)),
  );
}

// Problems by runs, for three runs or more: those on which the runs disagree most come first.
function grid(ids, labels, dataset) {
  const body = el("tbody");
  const more = el("button", { type: "button", onclick: () => next().catch(warn) }, "More problems");
  const shade = (share) =>
    el(
      "td",
      {
        class: `number ${share === null ? "" : share === 1 ? "success" : share === 0 ? "wrong_answer" : ""}`,
      },
      percent(share),
    );
  const next = async () => {
    const { rows, total } = await api.grid({
      runs: listOf(ids),
      dataset,
      offset: body.rows.length,
      limit: 50,
    });
    body.append(
      ...rows.map((row) =>
        el(
          "tr",
          {},
          el(
            "th",
            { scope: "row" },
            el("a", { href: problemAddress(dataset, row.problem_id) }, name(row.problem_id)),
          ),
          row.shares.map(shade),
        ),
      ),
    );
    more.hidden = body.rows.length >= total;
  };
  const table = el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        heading("problem", null),
        labels.map((text) => heading(text)),
      ),
    ),
    body,
  );
  const place = el(
    "details",
    {},
    el("summary", {}, "Problems × runs"),
    el(
      "p",
      { class: "soft" },
      "The share of its samples that each run solved; the problems on which the runs disagree most come first.",
    ),
    wide("Problems by runs", table),
    more,
  );
  place.addEventListener("toggle", () => next().catch(warn), { once: true });
  return place;
}

function choice(label, key, values, chosen, change) {
  return el(
    "label",
    {},
    label,
    el(
      "select",
      { name: key, onchange: change },
      values.map(([value, text]) =>
        el("option", { value, selected: value === chosen }, plain(text)),
      ),
    ),
  );
}

export async function showCompare(main, _parts, query) {
  const asked = (query.get("runs") ?? listOf(api.compared()))
    .split(",")
    .filter(Boolean)
    .map(decoded);
  const all = await api.runs();
  const choose = api.compared().length ? "" : chooser(asked, all);
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
    main.replaceChildren(
      el("h1", {}, "Compare"),
      el("p", { class: "incomplete", role: "alert" }, name(error.message)),
      choose,
    );
    return () => {};
  }
  const ids = api.compared().length ? asked : found.runs.map((run) => run.folder);
  const notes = api.notes().map((note) => el("p", { class: "soft" }, name(note)));
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
    ...notes,
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
    const chosen = el(
      "form",
      { class: "filters", onsubmit: (event) => event.preventDefault() },
      pairs.length > 1 ? choice("Runs", "against", pairs, one.second, change(null, dataset)) : null,
      choice(
        "Data set",
        "dataset",
        keys.map((each) => [each, each]),
        dataset,
        change(one.second, null),
      ),
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
      ids.length > 2 && !api.compared().length ? grid(ids, Object.values(title), dataset) : "",
      ...list.parts,
    );
    return list.filled;
  }

  await fill(query.get("against"), query.get("dataset"), query);
  return [place, () => list.stop()];
}
