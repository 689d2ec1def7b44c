// View of a problem: its statement, and the answers of all runs.
import * as api from "./api.js";
import { el, name, plain, scrolled } from "./dom.js";
import { address, runAddress } from "./listing.js";
import { percent } from "./numbers.js";
import { asked } from "./sample.js";

const status = ({ final_status: found, cases_passed: passed, cases_total: total }) => [
  el("span", { class: `status ${found}` }, found),
  total ? ` ${passed}/${total}` : "",
];

// The most answers of a run that are listed.
const MOST = 100;

function line(run, dataset, problem) {
  const sample = (one) => {
    const href = address(run.run, { dataset, problem_id: problem, sample_index: one.sample_index });
    return el(
      "li",
      {},
      el(
        "a",
        { href, "aria-label": plain(`Sample ${one.sample_index} of ${run.name ?? run.run}`) },
        status(one),
      ),
    );
  };
  const more = run.answers.length - MOST;
  const sampling = [run.model, run.temperature && `temperature ${run.temperature}`]
    .filter(Boolean)
    .join(", ");
  return el(
    "tr",
    {},
    el(
      "th",
      { scope: "row" },
      el("a", { href: runAddress(run.run) }, name(run.name ?? run.run)),
      el("div", { class: "soft" }, name(sampling)),
      run.changed
        ? el("div", { class: "incomplete" }, "its statement or tests differ from these")
        : null,
    ),
    el("td", { class: "number" }, `${run.accepted} of ${run.judged}`),
    el(
      "td",
      { class: "number" },
      Object.entries(run.pass_at).map(([k, share]) => el("div", {}, `pass@${k} ${percent(share)}`)),
    ),
    el(
      "td",
      {},
      el("ul", { class: "keys" }, run.answers.slice(0, MOST).map(sample)),
      more > 0 ? el("p", { class: "soft" }, `${more} more`) : null,
    ),
  );
}

function facts(outline) {
  if (!outline) return [];
  const parts = [
    outline.difficulty && `difficulty ${outline.difficulty}`,
    outline.tags.length && `tags ${outline.tags.join(", ")}`,
    outline.num_tests !== null && `${outline.num_tests} tests`,
  ];
  return [el("p", { class: "soft" }, name(parts.filter(Boolean).join("; ")))];
}

export async function showProblem(main, [dataset, problem]) {
  const found = await api.problem(dataset, problem);
  const solved = found.runs.filter((run) => run.accepted).length;
  const head = ["run", "accepted", "pass@k", "answers"].map((text) =>
    el("th", { scope: "col" }, text),
  );
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
    scrolled(
      "Answers",
      el(
        "table",
        { class: "runs" },
        el("thead", {}, el("tr", {}, head)),
        el(
          "tbody",
          {},
          found.runs.map((run) => line(run, dataset, problem)),
        ),
      ),
      "figures",
    ),
    ...(found.outline ? asked(found.outline, { problem_id: problem, sample_index: 0 }) : []),
  );
}
