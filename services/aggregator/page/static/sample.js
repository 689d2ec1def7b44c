// View of one sample: prompt, completion, extracted code, and verdict.
import * as api from "./api.js";
import { el, name, visible, warn } from "./dom.js";
import { address, backTo, neighbours } from "./listing.js";
import { coloured } from "./python.js";
import { moment } from "./runs.js";

const FENCE = /```[ \t]*(?:(?:python3?|py)[ \t]*)?\r?\n([^]*?)```/giu;
const MISSING = "This file has the figures of this sample alone; the run's generations.jsonl and verdicts.jsonl have its texts.";
const MOST = 100_000; // characters of a text; longer texts make browsers slow

// A scrollable box, reachable by keyboard and labelled.
function box(label, text, parts) {
  const note = `The first ${MOST} of ${text.length} characters; the run's files have all of them.`;
  return [
    el("pre", { tabindex: 0, role: "group", "aria-label": label }, parts(text.slice(0, MOST))),
    ...(text.length > MOST ? [el("p", { class: "soft" }, note)] : []),
  ];
}

const block = (label, text) => box(label, text ?? "", (shown) => (shown ? visible(shown) : "(empty)"));

function answer(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(FENCE)) {
    const code = found.index + found[0].length - found[1].length - 3;
    parts.push(...visible(text.slice(end, code)), ...coloured(found[1]), "```");
    end = found.index + found[0].length;
  }
  return [...parts, ...(end ? visible(text.slice(end)) : coloured(text))];
}

// Line-by-line diff of both outputs; differing lines are marked on both sides.
function outputs(expected, actual) {
  const side = (label, text, other, mark) => {
    const others = (other ?? "").split("\n");
    const line = (words, i, lines) => {
      const parts = [...visible(words), i < lines.length - 1 ? "\n" : ""];
      return words.trimEnd() === (others[i] ?? "").trimEnd() ? parts : el("span", { class: mark }, parts);
    };
    return el("div", {}, el("h3", {}, label), box(label, text ?? "", (shown) => shown.split("\n").flatMap(line)));
  };
  return el("div", { class: "sides" }, side("Expected", expected, actual, "kept"), side("Actual", actual, expected, "lost"));
}

// The expected value of HumanEval and MBPP is a test, not an output to compare.
function testAndOutput({ expected, actual }) {
  return el("div", { class: "sides" },
    el("div", {}, el("h3", {}, "Test"), box("Test", expected ?? "", coloured)),
    el("div", {}, el("h3", {}, "Output"), block("Output", actual)));
}

function failed(verdict) {
  const found = verdict?.first_failed_case;
  if (!found) return [];
  const both = verdict.method === "function" ? testAndOutput(found) : outputs(found.expected, found.actual);
  return [
    el("h2", {}, `First case that failed: ${found.case_index + 1}, `, el("span", { class: `status ${found.status}` }, found.status)),
    ...(found.input === null ? [] : [el("h3", {}, "Input"), ...block("Input", found.input)]), both,
    ...(found.stderr ? [el("h3", {}, "Standard error"), ...block("Standard error", found.stderr)] : []),
  ];
}

const RECORDED = {
  all: "",
  failed: "Only cases that failed are recorded (output.cases=failed).",
  first: "Only the first case that failed is recorded (output.cases=first).",
  mixed: "The run was resumed with another output.cases, so not all samples have the same cases recorded.",
};
const COLUMNS = ["Case", "Status", "Exit code", "Seconds", "CPU, s", "Memory, MiB", "Compiling, s"];

const figure = (value, digits) => el("td", { class: "number" }, value === null ? "–" : value.toFixed(digits));

function caseTexts(one) {
  const found = { ...one, expected: one.expected ?? "", actual: one.actual ?? "" };
  const stdio = one.input === null ? [] : [el("h3", {}, "Input"), ...block("Input", one.input)];
  const errors = (label, text) => (text ? [el("h3", {}, label), ...block(label, text)] : []);
  return [
    ...stdio, one.input === null ? testAndOutput(found) : outputs(found.expected, found.actual),
    ...errors("Standard error", one.stderr), ...errors("Compiler", one.compile_stderr),
  ];
}

// A row of figures, and one with the texts, which are made when they are opened.
function caseRows(one) {
  const texts = el("details", {}, el("summary", {}, `Texts of case ${one.case_index + 1}`));
  texts.addEventListener("toggle", () => texts.append(...caseTexts(one)), { once: true });
  return [
    el("tr", {},
      el("th", { scope: "row", class: "number" }, String(one.case_index + 1)),
      el("td", {}, el("span", { class: `status ${one.status}` }, one.status)),
      figure(one.exit_code, 0), figure(one.duration, 3), figure(one.cpu_time, 3), figure(one.memory_mb, 1), figure(one.compile_duration, 3)),
    el("tr", {}, el("td", { colspan: COLUMNS.length }, texts)),
  ];
}

// The recorded cases, those that failed first; the next ones follow at a press of the button.
async function showCases(place, verdict, id) {
  const rows = el("tbody");
  const more = el("button", { type: "button" }, "More cases");
  let offset = 0;
  let shown = 0;
  const next = async () => {
    const page = await api.cases(...id, { offset });
    rows.append(...page.cases.flatMap((one) => caseRows(one)));
    offset = page.next;
    shown += page.cases.length;
    more.hidden = offset === null;
    return page;
  };
  const { recorded, total } = await next();
  if (!recorded) return;
  more.addEventListener("click", () => next().catch(warn));
  const numbers = COLUMNS.map((label, i) => el("th", { scope: "col", class: i === 1 ? null : "number" }, label));
  const table = el("table", {}, el("thead", {}, el("tr", {}, numbers)), rows);
  place.append(
    el("h2", {}, "Cases ", el("span", { class: "soft" }, `${total} recorded, of ${verdict.cases_total}`)),
    ...(RECORDED[recorded] ? [el("p", { class: "soft" }, RECORDED[recorded])] : []),
    ...(shown ? [el("div", { class: "wide", tabindex: 0, role: "group", "aria-label": "Cases" }, table), more] : []),
    ...(offset === null && shown < total ? [el("p", { class: "soft" }, `This file has ${shown} of them; the run's cases.jsonl.gz has all.`)] : []));
}

const FOUND = {
  fenced: "from a fenced block",
  unlabelled: "from a block without a label",
  combined: "several blocks that belong together",
  markup: "from a tag, LaTeX or JSON",
  unclosed_fence: "from a block that was never closed",
  bare_code: "the whole text",
  body_only: "a function's body, which continues the prompt",
  prose_heuristic: "lines within prose",
};

// The extracted code, next to the completion.
function answers({ generation, code, verdict }) {
  const raw = generation?.error ? block("Completion", generation.error) : box("Completion", generation?.completion ?? "", answer);
  const ran = FOUND[code?.found] ? box("Code that was judged", code.text, coloured) : [el("p", { class: "soft" }, nothing(code, verdict))];
  return el("div", { class: "sides" },
    el("div", {}, el("h2", {}, "Code that was judged", FOUND[code?.found] ? el("span", { class: "soft" }, `, ${FOUND[code.found]}`) : null), ran),
    el("div", {}, el("h2", {}, "Completion"), raw));
}

function nothing(code, verdict) {
  if (code) return "No code was found in the completion.";
  if (verdict?.method === "submit") return "SandboxFusion extracted the code from the completion by its own rules.";
  if (!verdict) return "Not judged yet.";
  return ["guard", "none"].includes(verdict.method) ? "Nothing was run." : "An older version wrote the verdict and did not record the code.";
}

// Unless it was the engine.
const COUNTED = { tokenizer: "us, with data.tokenizer", estimate: "the length of the text, an estimate" };

function facts(found) {
  const { generation, verdict } = found;
  const values = {
    "cases passed": verdict && `${verdict.cases_passed} of ${verdict.cases_total}`,
    "cases not run, after too many time-outs": verdict?.cases_not_run || null,
    "judged by": verdict && verdict.method !== "none" ? `${verdict.method}, ${verdict.checker}` : null,
    "tests": verdict?.shared_process ? "in the answer's process, within its reach" : null,
    "judging, s": verdict?.total_judge_time?.toFixed(3),
    "CPU, s": verdict?.cpu_time?.toFixed(3),
    "sandbox requests": verdict?.attempts,
    "infrastructure failures": verdict?.infra_failures?.join("; "),
    "judged at": verdict?.judged_at && moment(verdict.judged_at),
    "prompt tokens": generation?.prompt_tokens,
    "output tokens": generation?.output_tokens ?? verdict?.output_tokens,
    "tokens counted by": COUNTED[generation?.output_tokens_from],
    "generation, s": (generation?.gen_time ?? verdict?.gen_time)?.toFixed(2),
    "finish reason": generation?.finish_reason,
    replica: generation?.replica,
    seed: generation?.seed,
    difficulty: found.difficulty,
    tags: found.tags.join(", "),
    quality: found.quality === "ok" ? null : found.quality?.replaceAll(",", ", "),
  };
  const there = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", { class: "number facts" }, there.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, name(value))]));
}

// A text comparison may have rejected a right answer.
const manyAnswers = (found) =>
  found.quality?.split(",").includes("many_answers")
    ? [el("p", { class: "soft" }, "Several outputs are right for this problem, but it has no checker: a right answer may be judged wrong.")]
    : [];

// What the model was sent, as far as it is known; else the problem's prompt.
function asked({ messages, prompt }) {
  if (!messages) return [el("h2", {}, "Prompt", el("span", { class: "soft" }, ", without the template, which the run did not record")), ...block("Prompt", prompt)];
  const parts = messages.flatMap(({ role, content }) => [...(messages.length > 1 ? [el("h3", {}, name(role))] : []), ...block(`Prompt, ${role}`, content)]);
  return [el("h2", {}, "Prompt", el("span", { class: "soft" }, ", as it was sent")), ...parts];
}

const texts = (found, cases) => [...failed(found.verdict), cases, answers(found), ...asked(found)];

// Links to the samples before and after this one in the list that it was opened from, with their keys.
function pager(run, before, after) {
  const way = (label, there) => (there ? el("a", { href: address(run, there.row), onclick: there.enter }, label) : null);
  const back = el("a", { href: backTo(run) }, "Back to the run");
  const links = { k: way("Previous sample", before), j: way("Next sample", after), Escape: back };
  const keys = (event) => {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    links[event.key]?.click();
  };
  addEventListener("keydown", keys);
  const named = { k: "k", j: "j", Escape: "Esc" };
  const parts = Object.entries(links).filter(([, link]) => link).map(([key, link]) => el("span", {}, link, el("span", { class: "soft" }, ` (${named[key]})`)));
  return [el("nav", { class: "pager", "aria-label": "Samples" }, parts), () => removeEventListener("keydown", keys)];
}

export async function showSample(main, [run, dataset, problem, index]) {
  const [found, [before, after]] = await Promise.all([
    api.sample(run, dataset, problem, index),
    neighbours(run, dataset, problem, index).catch(() => [null, null]),
  ]);
  const cases = el("div", { class: "cases" });
  const { verdict } = found;
  const status = verdict
    ? [el("span", { class: `status ${verdict.final_status}` }, verdict.final_status), verdict.detail ? [" ", name(verdict.detail)] : null]
    : ["not judged yet"];
  const [ways, stop] = pager(run, before, after);
  main.replaceChildren(
    ways, el("h1", {}, name(problem), Number(index) ? ` #${index}` : ""),
    el("p", {}, name(dataset), ": ", ...status.flat()),
    ...manyAnswers(found),
    facts(found),
    ...(found.missing ? [el("p", {}, MISSING)] : texts(found, cases)));
  if (verdict && !found.missing) await showCases(cases, verdict, [run, dataset, problem, index]).catch(warn);
  return stop;
}
