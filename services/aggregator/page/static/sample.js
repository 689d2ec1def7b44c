// View of one sample: prompt, completion, extracted code, and verdict.
import * as api from "./api.js";
import { el, name, visible } from "./dom.js";
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

function facts(found) {
  const { generation, verdict } = found;
  const values = {
    "cases passed": verdict && `${verdict.cases_passed} of ${verdict.cases_total}`,
    "cases not run, after too many time-outs": verdict?.cases_not_run || null,
    "judged by": verdict?.method && `${verdict.method}, ${verdict.checker}`,
    "tests": verdict?.shared_process ? "in the answer's process, within its reach" : null,
    "judging, s": verdict?.total_judge_time?.toFixed(3),
    "CPU, s": verdict?.cpu_time?.toFixed(3),
    "sandbox requests": verdict?.attempts,
    "infrastructure failures": verdict?.infra_failures?.join("; "),
    "judged at": verdict?.judged_at && moment(verdict.judged_at),
    "prompt tokens": generation?.prompt_tokens,
    "output tokens": generation?.output_tokens ?? verdict?.output_tokens,
    "generation, s": (generation?.gen_time ?? verdict?.gen_time)?.toFixed(2),
    "finish reason": generation?.finish_reason,
    replica: generation?.replica,
    seed: generation?.seed,
    difficulty: found.difficulty,
    tags: found.tags.join(", "),
  };
  const there = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", { class: "number facts" }, there.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, name(value))]));
}

const texts = (found) => [
  ...failed(found.verdict), answers(found), el("h2", {}, "Prompt"), ...block("Prompt", found.prompt),
];

export async function showSample(main, [run, dataset, problem, index]) {
  const found = await api.sample(run, dataset, problem, index);
  const { verdict } = found;
  const status = verdict
    ? [el("span", { class: `status ${verdict.final_status}` }, verdict.final_status), verdict.detail ? [" ", name(verdict.detail)] : null]
    : ["not judged yet"];
  main.replaceChildren(
    el("h1", {}, name(problem), Number(index) ? ` #${index}` : ""),
    el("p", {}, name(dataset), ": ", ...status.flat()),
    facts(found),
    ...(found.missing ? [el("p", {}, MISSING)] : texts(found)),
    el("p", {}, el("a", { href: `#/run/${encodeURIComponent(run)}` }, "Back to the run")));
}
