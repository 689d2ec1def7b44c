// View of a problem: its statement, and the answers of all runs.
import * as api from "./api.js";
import {
  button,
  cell,
  column,
  columns,
  el,
  figure,
  name,
  plain,
  row,
  rowHead,
  scrolled,
  soft,
  statusOf,
  table,
  warn,
} from "./dom.js";
import { address, listOf, problemAddress, runAddress, sampling } from "./listing.js";
import { percent } from "./numbers.js";
import { asked } from "./sample.js";

// The most answers of a run that are listed.
const MOST = 100;

function line(run, dataset, problem) {
  const sample = (one) => {
    const href = address(run.run, { dataset, problem_id: problem, sample_index: one.sample_index });
    const label = plain(`Sample ${one.sample_index} of ${run.name ?? run.run}`);
    const cases = one.cases_total ? ` ${one.cases_passed}/${one.cases_total}` : "";
    return el("li", {}, el("a", { href, "aria-label": label }, statusOf(one.final_status), cases));
  };
  const more = run.answers.length - MOST;
  return row(
    rowHead(
      el("a", { href: runAddress(run.run) }, name(run.name ?? run.run)),
      el("div", { class: "soft" }, name([run.model, ...sampling(run)].filter(Boolean).join(", "))),
      run.changed
        ? el("div", { class: "incomplete" }, "its statement or tests differ from these")
        : null,
    ),
    figure(`${run.accepted} of ${run.judged}`),
    figure(
      Object.entries(run.pass_at).map(([k, share]) => el("div", {}, `pass@${k} ${percent(share)}`)),
    ),
    cell(
      el("ul", { class: "keys" }, run.answers.slice(0, MOST).map(sample)),
      more > 0 ? soft(`${more} more`) : null,
    ),
  );
}

function facts(outline) {
  if (!outline) return [];
  const parts = [
    outline.difficulty && `difficulty ${outline.difficulty}`,
    outline.tags.length && `tags ${outline.tags.join(", ")}`,
    outline.num_tests !== null && `${outline.num_tests} test${outline.num_tests === 1 ? "" : "s"}`,
  ];
  return [soft(name(parts.filter(Boolean).join("; ")))];
}

export async function showProblem(main, [dataset, problem]) {
  const found = await api.problem(dataset, problem);
  const solved = found.runs.filter((run) => run.accepted).length;
  const lines = found.runs.map((run) => line(run, dataset, problem));
  const head = columns(["run", "accepted", "pass@k", "answers"]);
  main.replaceChildren(
    el("h1", {}, name(problem)),
    el("p", {}, name(dataset)),
    ...facts(found.outline),
    el(
      "p",
      { class: "sentence" },
      `${solved} of ${found.runs.length} runs solved it; ${found.accepted} of ${found.judged} answers were accepted.`,
    ),
    el("h2", {}, "Answers"),
    scrolled("Answers", table(head, lines, { class: "runs" }), "figures"),
    found.outline
      ? el("div", {}, asked(found.outline, { problem_id: problem, sample_index: 0 }))
      : "",
  );
}

const LATEST = 10; // runs that are shown side by side

// A table of problems by runs, `parts`, which `next` continues; `first` is what comes first.
export function problemsByRuns(ids, labels, dataset, first) {
  const body = el("tbody");
  const more = button("More problems", () => next().catch(warn));
  const shade = (share) => {
    const kind = share === 1 ? "success" : share === 0 ? "wrong_answer" : "";
    return el("td", { class: `number ${kind}` }, percent(share));
  };
  const line = ({ problem_id: problem, shares }) =>
    row(
      rowHead(el("a", { href: problemAddress(dataset, problem) }, name(problem))),
      shares.map(shade),
    );
  const next = async () => {
    const page = { runs: listOf(ids), dataset, first, offset: body.rows.length, limit: 50 };
    const { rows, total } = await api.grid(page);
    body.append(...rows.map(line));
    more.hidden = body.rows.length >= total;
  };
  const head = [column("problem"), columns(labels, "number")];
  return { parts: [scrolled("Problems by runs", table(head, body), "figures"), more], next };
}

// View of a data set's problems in the latest runs: those that no run solves come first.
export async function showProblems(main, [dataset]) {
  const runs = Object.values(await api.runs())
    .filter((run) => Object.hasOwn(run.scores, dataset))
    .sort((a, b) => (b.started_at ?? 0) - (a.started_at ?? 0))
    .slice(0, LATEST);
  if (!runs.length) throw new Error(`No run has a verdict on ${dataset}.`);
  const heads = runs.map(({ run, name: own }) =>
    el("a", { href: runAddress(run) }, name(own ?? run)),
  );
  const ids = runs.map(({ run }) => run);
  const { parts, next } = problemsByRuns(ids, heads, dataset, "hardest");
  await next();
  main.replaceChildren(
    el("h1", {}, "Problems of ", name(dataset)),
    soft(
      "The share of its samples that each run solved; the problems that no run solves come first.",
    ),
    ...parts,
  );
}
