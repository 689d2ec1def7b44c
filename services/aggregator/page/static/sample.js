// One sample: the question, the answer, and what judging found.
import * as api from "./api.js";
import { el, name, visible } from "./dom.js";
import { coloured } from "./python.js";
import { moment } from "./runs.js";

const FENCE = /```[ \t]*(?:python3?|py)?[ \t]*\r?\n([^]*?)```/giu;
const block = (text) => el("pre", { tabindex: 0 }, text ? visible(text) : "(empty)");

function answer(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(FENCE)) {
    const code = found.index + found[0].length - found[1].length - 3;
    parts.push(...visible(text.slice(end, code)), ...coloured(found[1]), "```");
    end = found.index + found[0].length;
  }
  parts.push(...(end ? visible(text.slice(end)) : coloured(text)));
  return el("pre", { tabindex: 0 }, parts);
}

// Both outputs line by line; a line that differs is marked on both sides.
function outputs(expected, actual) {
  const [left, right] = [expected, actual].map((text) => (text ?? "").split("\n"));
  const side = (lines, others, mark) =>
    el("pre", { tabindex: 0 }, lines.map((text, i) => {
      const same = text.trimEnd() === (others[i] ?? "").trimEnd();
      return el("span", { class: same ? null : mark }, visible(text), i < lines.length - 1 ? "\n" : "");
    }));
  return el("div", { class: "sides" },
    el("div", {}, el("h3", {}, "Expected"), side(left, right, "kept")),
    el("div", {}, el("h3", {}, "Actual"), side(right, left, "lost")));
}

function failed(found) {
  if (!found) return [];
  return [
    el("h2", {}, `First case that failed: ${found.case_index + 1}, `, el("span", { class: `status ${found.status}` }, found.status)),
    el("h3", {}, "Input"), block(found.input), outputs(found.expected, found.actual),
    ...(found.stderr ? [el("h3", {}, "Standard error"), block(found.stderr)] : []),
  ];
}

function facts(found) {
  const { generation, verdict } = found;
  const values = {
    "cases passed": verdict && `${verdict.cases_passed} of ${verdict.cases_total}`,
    "judged by": verdict && `${verdict.method}, ${verdict.checker}`,
    "judging, s": verdict?.total_judge_time?.toFixed(3),
    "CPU, s": verdict?.cpu_time?.toFixed(3),
    "sandbox requests": verdict?.attempts,
    "failures of ours": verdict?.infra_failures?.join("; "),
    "judged at": verdict?.judged_at && moment(verdict.judged_at),
    "prompt tokens": generation?.prompt_tokens,
    "output tokens": generation?.output_tokens,
    "generation, s": generation?.gen_time?.toFixed(2),
    "finish reason": generation?.finish_reason,
    replica: generation?.replica,
    seed: generation?.seed,
    difficulty: found.difficulty,
    tags: found.tags.join(", "),
  };
  const there = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return el("dl", { class: "number" }, there.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, name(value))]));
}

export async function showSample(main, [run, dataset, problem, index]) {
  const found = await api.sample(run, dataset, problem, index);
  const { generation, verdict } = found;
  const status = verdict
    ? [el("span", { class: `status ${verdict.final_status}` }, verdict.final_status), verdict.detail ? [" ", name(verdict.detail)] : null]
    : ["not judged yet"];
  main.replaceChildren(
    el("h1", {}, name(problem), Number(index) ? ` #${index}` : ""),
    el("p", {}, name(dataset), ": ", ...status.flat()),
    facts(found),
    ...failed(verdict?.first_failed_case),
    el("h2", {}, "Answer"),
    generation ? (generation.error ? block(generation.error) : answer(generation.completion)) : block(""),
    el("h2", {}, "Prompt"), block(found.prompt),
    el("p", {}, el("a", { href: `#/run/${encodeURIComponent(run)}` }, "Back to the run")));
}
