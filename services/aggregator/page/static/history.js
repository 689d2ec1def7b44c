// View of the runs of one protocol over time: trend per data set, cost, the gate's verdict on each.
import * as api from "./api.js";
import {
  cell,
  columns,
  controls,
  el,
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
import { compareAddress, runAddress, runLabel } from "./listing.js";
import { known, percent, range } from "./numbers.js";
import { moment } from "./runs.js";
import { behind, overRuns, SMALL, WIDE } from "./trend.js";

const VERDICTS = { pass: "go", fail: "no-go", undecided: "inconclusive" };
const FEW = 3; // deciding rules that are named
const number = (digits) => {
  const form = { maximumFractionDigits: digits, minimumFractionDigits: digits };
  return (value) => (known(value) ? value.toLocaleString("en-GB", form) : "–");
};
const COSTS = [
  ["Problems a second", "throughput", number(2)],
  ["Tokens per problem", "avg_total_gen_tokens", number(0)],
  ["Tokens per solved", "total_spend_per_solved_tokens", number(0)],
  ["Judging per solved, s", "total_spend_per_solved_judge_time", number(3)],
  ["Judging per problem, s", "avg_total_judge_time", number(3)],
];

const brief = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
const title = (run) => run.name ?? run.run;
// Texts below an axis: of the first, the middle and the last run the day and the model, whose path ends with what differs.
function below(runs) {
  const day = (run) =>
    run.started_at ? `${new Date(1000 * run.started_at).toLocaleDateString()}, ` : "";
  const some = runs.length > 2 ? [runs[0], runs[Math.floor(runs.length / 2)], runs.at(-1)] : runs;
  return some.map((run) => `${day(run)}${plain(run.model ?? title(run)).slice(-24)}`);
}

const interval = (ends) => range(ends, percent) ?? "–";

function address(query) {
  const given = Object.entries(query).filter(([, value]) => value);
  return `#/history${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

// Links to a run and to its comparison with the baseline.
function links(run, base) {
  const to = el("a", { href: runAddress(run.run) }, name(title(run)));
  if (run.run === base.run) return [to];
  const label = `compare ${plain(title(run))} with the baseline`;
  const href = compareAddress([base.run, run.run]);
  return [to, ", ", el("a", { href, "aria-label": label }, "compare")];
}

// Figures of a data set, whose name may be that of anything.
const own = (run, key) => (Object.hasOwn(run.datasets, key) ? run.datasets[key] : null);

const score = (found) => found?.metrics.accepted_at_1;

// A run whose figures may still change, or cover only some of its samples.
const partial = (found) => found.judged < found.planned;

function trend(key, runs, base) {
  const found = runs.map((run) => own(run, key));
  const picked = el("p", { class: "picked number", role: "status" });
  const figures = (one) => `${percent(score(one))}, ${interval(one?.metrics.accepted_at_1_ci95)}`;
  const pick = (i) => {
    const one = found[i];
    picked.replaceChildren(...links(runs[i], base), one ? `: ${figures(one)}` : "");
  };
  const points = runs.map((run, i) => {
    const one = found[i];
    const [low, high] = one?.metrics.accepted_at_1_ci95 ?? [null, null];
    const kind = run.run === base.run ? "baseline" : one && partial(one) ? "partial" : "";
    return { title: `${title(run)}: ${figures(one)}`, value: score(one), low, high, kind };
  });
  const rows = () =>
    runs.map((run, i) => {
      const one = found[i];
      const bounds = one && partial(one) ? range(one.metrics.accepted_at_1_bounds, percent) : null;
      return [
        el("span", {}, links(run, base)),
        run.model ? name(run.model) : "–",
        moment(run.started_at),
        one ? `${one.judged} of ${one.planned}` : "–",
        [percent(score(one)), bounds && el("div", { class: "incomplete" }, bounds)],
        interval(one?.metrics.accepted_at_1_ci95),
        number(3)(one?.metrics.pass_ratio_mean),
        ...COSTS.map(([, cost, form]) => form(one?.metrics[cost])),
      ];
    });
  const ends = [runs[0], runs.at(-1)].map((run) => plain(title(run)).slice(-16));
  const costs = COSTS.slice(0, 4).map(([label, cost, form]) => {
    const points = runs.map((run, i) => ({
      title: `${title(run)}: ${form(found[i]?.metrics[cost])}`,
      value: found[i]?.metrics[cost],
    }));
    return el("div", {}, overRuns({ label, form, fromZero: true, pick, ends, points }));
  });
  const headings = ["run", "model", "begun", "judged", "accepted@1", "95 % interval", "pass ratio"];
  const baseline = score(own(base, key));
  return el(
    "article",
    { class: "card trend" },
    el("h2", {}, name(key)),
    overRuns({
      label: "accepted@1 with 95 % intervals",
      points,
      form: percent,
      base: baseline,
      pick,
      greatest: 1,
      size: innerWidth < 700 ? SMALL : WIDE,
      ends: below(runs),
    }),
    picked,
    el("div", { class: "plots" }, costs),
    behind(`Runs on ${plain(key)}`, [...headings, ...COSTS.map(([label]) => label)], rows),
  );
}

// The gate's verdict on each run, asked for one by one: each reads all samples of two runs.
function gates(runs, base, policy) {
  const none = (...notes) => ({ parts: [el("h2", {}, "Gate"), ...notes], fill: async () => {} });
  if (!policy)
    return none(
      soft("No policy is known: set PLUMBLINE_GATE_POLICY to a file like configs/gate.yaml."),
    );
  const rules = [name(title(base)), " by the rules of ", name(policy)];
  const note = soft("Each run against ", rules, ", as plumb gate.");
  const others = runs.filter((run) => run.run !== base.run);
  if (!others.length) return none(note, soft("There is no other run to check."));
  const cells = new Map(others.map((run) => [run.run, [cell("…"), cell()]]));
  const rows = runs.map((run) =>
    row(
      rowHead(links(run, base)),
      cell(run.model ? name(run.model) : "–"),
      cells.get(run.run) ?? [cell(el("span", { class: "gate" }, "baseline")), cell()],
    ),
  );
  const head = columns(["run", "model", "verdict", "deciding rules"]);
  const found = scrolled("The gate's verdicts", table(head, rows), "figures gates");
  const fill = async (current) => {
    for (const run of others) {
      const [verdict, rules] = cells.get(run.run);
      try {
        const found = await api.gate(base.run, run.run);
        if (!current()) return;
        const kind = { class: `gate ${found.outcome ?? "unknown"}` };
        verdict.replaceChildren(el("span", kind, VERDICTS[found.outcome] ?? "none"));
        rules.replaceChildren(...deciding(found));
      } catch (error) {
        if (!current()) return;
        verdict.replaceChildren("unknown");
        rules.replaceChildren(name(error.message));
      }
    }
  };
  return { parts: [el("h2", {}, "Gate"), note, found], fill };
}

function deciding(found) {
  if (found.reason) return [name(found.reason)];
  const rules = found.findings.filter((one) => one.outcome === found.outcome);
  if (found.outcome === "pass") return [`all ${found.findings.length} rules hold`];
  const line = (one) =>
    el(
      "div",
      {},
      name([one.dataset, one.rule].filter(Boolean).join(" ")),
      ": ",
      name(one.found),
      one.why ? [" (", name(one.why), ")"] : null,
    );
  return [
    ...rules.slice(0, FEW).map(line),
    rules.length > FEW ? el("div", { class: "soft" }, `and ${rules.length - FEW} more`) : null,
  ].filter(Boolean);
}

function others(history) {
  if (!history.others.length) return [];
  const one = (group) => {
    const rows = group.differences.map(({ what, first: here, second: there }) =>
      row(rowHead(name(what)), cell(name(here)), cell(name(there))),
    );
    const runs = Object.entries(group.names).flatMap(([run, text], i) => [
      i ? ", " : "",
      el("a", { href: runAddress(run) }, name(text)),
    ]);
    const head = columns(["setting", "here", "there"]);
    const few = group.differences
      .slice(0, FEW)
      .map(({ what, first, second }) => `${what} ${brief(second)} in place of ${brief(first)}`);
    return el(
      "details",
      {},
      el(
        "summary",
        {},
        `${count(group.runs, "run")}: `,
        name(few.join(", ") || "unknown differences"),
      ),
      el("p", {}, runs),
      rows.length
        ? scrolled("What differs", table(head, rows), "figures")
        : soft("What differs is not recorded."),
      el("p", {}, el("a", { href: address({ protocol: group.protocol }) }, "Their history")),
    );
  };
  return [
    el("h2", {}, "Runs of other protocols"),
    soft("They measure something else, so they are not in the trend."),
    ...history.others.map(one),
  ];
}

const count = (many, what) => `${many} ${what}${many === 1 ? "" : "s"}`;

function label(group) {
  const models = group.models.slice(0, 2).map(plain).join(", ");
  return `${count(group.runs, "run")} on ${group.datasets.map(plain).join(", ") || "no data set"}${models ? ` (${models}${group.models.length > 2 ? ", …" : ""})` : ""}`;
}

export async function showHistory(main, _parts, given) {
  document.title = "History – Plumbline";
  const query = { protocol: given.get("protocol"), baseline: given.get("baseline") };
  const [{ groups, unreadable }, all] = await Promise.all([api.history(), api.runs()]);
  const heading = el("h1", {}, "History");
  const torn = Object.entries(unreadable).map(([run, reason]) =>
    soft("Of ", name(run), " the record cannot be read: ", name(reason)),
  );
  let turn = 0;
  const left = () => (turn = -1);
  if (!groups.length) {
    main.replaceChildren(heading, soft("No run yet: plumb run begins one."), ...torn);
    return left;
  }
  const [choices, stage] = [controls({}), el("div")];
  const draw = async () => {
    const mine = ++turn;
    const found = await api.history(query.protocol ?? groups[0].protocol);
    if (turn !== mine) return;
    const { runs } = found.history;
    const base = runs.find(({ run }) => run === query.baseline) ?? runs[0];
    const gate = gates(runs, base, found.policy);
    const notes = [];
    if (query.baseline && base.run !== query.baseline)
      notes.push([
        "The baseline ",
        name(query.baseline),
        " is not among these runs; the first one is taken.",
      ]);
    if (runs.length === 1)
      notes.push(["There is one run of this protocol, so there is no trend yet."]);
    const protocols = groups.map((one) => [one.protocol, label(one)]);
    const baselines = runs.map((run) => [run.run, runLabel(run.run, all[run.run] ?? run)]);
    choices.replaceChildren(
      select("Protocol", "protocol", protocols, found.history.group.protocol, change),
      select("Baseline", "baseline", baselines, base.run, change),
    );
    stage.replaceChildren(
      ...notes.map((note) => soft(note)),
      el(
        "div",
        { class: "trends" },
        found.history.group.datasets.map((key) => trend(key, runs, base)),
      ),
      ...gate.parts,
      ...others(found.history),
    );
    gate.fill(() => turn === mine).catch(warn);
  };
  const change = (event) => {
    const { name: key, value } = event.target;
    if (key === "protocol") query.baseline = null;
    query[key] = value;
    history.replaceState(history.state, "", address(query));
    draw().then(() => choices.elements[key]?.focus(), warn);
  };
  await draw();
  main.replaceChildren(heading, choices, stage, ...torn);
  return left;
}
