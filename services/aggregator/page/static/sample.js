// View of one sample: prompt, completion, extracted code, and verdict.
import * as api from "./api.js";
import {
  button,
  cell,
  column,
  definitions,
  download,
  el,
  figure,
  fold,
  name,
  renew,
  row,
  soft,
  statusOf,
  table,
  visible,
  warn,
} from "./dom.js";
import { keys } from "./help.js";
import { address, backTo, neighbours, problemAddress } from "./listing.js";
import { coloured, marked } from "./marks.js";
import { moment } from "./runs.js";

const MISSING =
  "This file has the figures of this sample alone; the run's generations.jsonl and verdicts.jsonl have its texts.";
const MOST = 100_000; // characters of a text; longer texts make browsers slow

// Buttons that copy and download a whole text as it is, invisible characters included.
function tools(label, file, text) {
  const said = el("span", { class: "soft", role: "status" });
  const say = (words) => {
    said.textContent = words;
    setTimeout(() => (said.textContent = ""), 3000);
  };
  // Without TLS the browser gives no access to the clipboard.
  const refused = () => say("The browser refuses to copy; download it.");
  const copy = () =>
    navigator.clipboard?.writeText(text).then(() => say("Copied."), refused) ?? refused();
  const store = () => download(file, text);
  return el(
    "span",
    { class: "tools" },
    button("Copy", copy, { "aria-label": `Copy ${label}` }),
    button("Download", store, { "aria-label": `Download ${label}` }),
    said,
  );
}

// Name of a downloaded file.
const fileName = ({ problem_id: problem, sample_index: index }, what) =>
  `${problem.replace(/[^\w.-]+/g, "_").slice(0, 80)}-${index}-${what}`;
const json = (value) => `${JSON.stringify(value, null, 2)}\n`;

// A scrollable box, reachable by keyboard and labelled.
function box(label, text, parts) {
  const note = `The first ${MOST} of ${text.length} characters; the run's files have all of them.`;
  return [
    el("pre", { tabindex: 0, role: "group", "aria-label": label }, parts(text.slice(0, MOST))),
    text.length > MOST ? soft(note) : null,
  ];
}

const block = (label, text) =>
  box(label, text ?? "", (shown) => (shown ? visible(shown) : "(empty)"));

const sides = (...parts) =>
  el(
    "div",
    { class: "sides" },
    parts.map((part) => el("div", {}, part)),
  );
const titled = (label, text) => [el("h3", {}, label), block(label, text)];

// Both outputs; what differs is marked on both sides.
function outputs(expected, actual, difference) {
  const side = (label, text, marks, kind) => [
    el("h3", {}, label),
    box(label, text ?? "", (shown) => marked(shown, marks ?? [], kind)),
  ];
  return sides(
    side("Expected", expected, difference?.expected, "kept"),
    side("Actual", actual, difference?.actual, "lost"),
  );
}

// The line of a test in a traceback that failed.
const ASSERTION = /File "<test>", line \d+.*\n +(\S.*)/g;

// The expected value of HumanEval and MBPP is a test, not an output to compare. Beside the assertion that failed stands
// what the answer's function returned.
function testAndOutput({ expected, actual, stderr }, syntax) {
  const assertion = [...(stderr ?? "").matchAll(ASSERTION)].at(-1)?.[1];
  const parts = (shown) => coloured(shown, syntax);
  const test = [el("h3", {}, "Test"), box("Test", expected ?? "", parts)];
  if (!actual) return test;
  if (!assertion) return sides(test, titled("Output", actual));
  return [
    sides(titled("Assertion that failed", assertion), titled("Returned", actual)),
    assertion === expected?.trim() ? null : test,
  ];
}

// `marks` are those of the case. `id` names files; without it there are no buttons. `level` is the heading's.
export function failed(verdict, marks, id, level = "h2") {
  const found = verdict?.first_failed_case;
  if (!found) return [];
  const counted = `First case that failed: case ${found.case_index}, counted from 0, `;
  const both =
    verdict.method === "function"
      ? testAndOutput(found, marks?.test)
      : outputs(found.expected, found.actual, marks?.difference);
  return [
    el(level, {}, counted, statusOf(found.status)),
    id ? tools("the failing case", fileName(id, "case.json"), json(found)) : null,
    found.input === null ? null : titled("Input", found.input),
    both,
    found.stderr ? titled("Standard error", found.stderr) : null,
  ];
}

const RECORDED = {
  all: "",
  failed: "Only cases that failed are recorded (output.cases=failed).",
  first: "Only the first case that failed is recorded (output.cases=first).",
  mixed:
    "The run was resumed with another output.cases, so not all samples have the same cases recorded.",
};
const COLUMNS = ["Case", "Status", "Exit code", "Seconds", "CPU, s", "Memory, MiB", "Compiling, s"];

function caseTexts(one, marks) {
  const found = { ...one, expected: one.expected ?? "", actual: one.actual ?? "" };
  return [
    one.input === null ? null : titled("Input", one.input),
    one.input === null
      ? testAndOutput(found, marks?.test)
      : outputs(found.expected, found.actual, marks?.difference),
    one.stderr ? titled("Standard error", one.stderr) : null,
    one.compile_stderr ? titled("Compiler", one.compile_stderr) : null,
  ];
}

// A row of figures, and one with the texts, which are made when they are opened.
function caseRows(one, marks) {
  const texts = el("details", {}, el("summary", {}, `Texts of case ${one.case_index}`));
  const open = () => texts.append(el("div", {}, caseTexts(one, marks)));
  texts.addEventListener("toggle", open, { once: true });
  const number = (value, digits) => figure(value === null ? "–" : value.toFixed(digits));
  return [
    row(
      el("th", { scope: "row", class: "number" }, one.case_index),
      cell(statusOf(one.status)),
      number(one.exit_code, 0),
      number(one.duration, 3),
      number(one.cpu_time, 3),
      number(one.memory_mb, 1),
      number(one.compile_duration, 3),
    ),
    row(el("td", { colspan: COLUMNS.length }, texts)),
  ];
}

// The recorded cases, those that failed first; the next ones follow at a press of the button.
async function showCases(place, verdict, id) {
  const failures = verdict.cases_total - verdict.cases_passed - (verdict.cases_not_run ?? 0);
  const rows = el("tbody");
  const more = button("More cases", () => next().catch(warn));
  let offset = 0;
  const next = async () => {
    const page = await api.cases(...id, { offset });
    rows.append(...page.cases.flatMap((one, i) => caseRows(one, page.marks[i])));
    offset = page.next;
    more.hidden = offset === null;
    return page;
  };
  const { recorded, total } = await next();
  if (!recorded) {
    const failing = `${failures} cases of ${verdict.cases_total} failed`;
    const why = api.only()
      ? `${failing}. This file has the first one alone.`
      : `${failing}. The run kept the texts of the first one alone; output.cases=failed keeps all.`;
    if (failures > 1) place.append(soft(why));
    return;
  }
  const head = COLUMNS.map((label, i) => column(label, i === 1 ? null : "number"));
  const region = { class: "wide", tabindex: 0, role: "group", "aria-label": "Cases" };
  const all = `${total} recorded, of ${verdict.cases_total}; those that failed first`;
  const parts = [
    el("h2", {}, "Cases ", el("span", { class: "soft" }, all)),
    soft("Cases are counted from 0, as in the run's files and exports."),
    RECORDED[recorded] ? soft(RECORDED[recorded]) : null,
    rows.rows.length ? [el("div", region, table(head, rows)), more] : null,
  ];
  renew(place, parts);
}

const FOUND = {
  fenced: "from a fenced block",
  unlabelled: "from a block without a label",
  combined: "several blocks that belong together",
  unclosed_fence: "from a block that was never closed",
  fragment: "from a block that is no program",
  bare_code: "the whole text",
  body_only: "a function's body, which continues the prompt",
  prose_heuristic: "lines within prose",
};

function judgedCode({ code, verdict, marks }, id) {
  const title = "Code that was judged";
  const from = FOUND[code?.found];
  if (!from) return [el("h2", {}, title), soft(nothing(code, verdict))];
  return [
    el("h2", {}, title, el("span", { class: "soft" }, `, ${from}`)),
    tools("the code", fileName(id, "code.txt"), code.text),
    box(title, code.text, (shown) => coloured(shown, marks?.code)),
  ];
}

function completion({ generation, marks }, id) {
  const raw = generation?.error
    ? block("Completion", generation.error)
    : box("Completion", generation?.completion ?? "", (shown) =>
        coloured(shown, marks?.completion),
      );
  return [
    el("h2", {}, "Completion"),
    generation?.completion
      ? tools("the completion", fileName(id, "completion.txt"), generation.completion)
      : null,
    raw,
  ];
}

function nothing(code, verdict) {
  if (code) return "No code was found in the completion.";
  if (verdict?.method === "submit")
    return "SandboxFusion extracted the code from the completion by its own rules.";
  if (!verdict) return "Not judged yet.";
  return ["guard", "none"].includes(verdict.method)
    ? "Nothing was run."
    : "An older version wrote the verdict and did not record the code.";
}

// Unless it was the engine.
const COUNTED = {
  tokenizer: "us, with data.tokenizer",
  estimate: "the length of the text, an estimate",
};

function facts(found) {
  const { generation, outline, verdict } = found;
  const values = {
    "cases passed": verdict && `${verdict.cases_passed} of ${verdict.cases_total}`,
    "cases not run, after too many time-outs": verdict?.cases_not_run || null,
    "judged by":
      verdict && verdict.method !== "none" ? `${verdict.method}, ${verdict.checker}` : null,
    tests: verdict?.shared_process ? "in the answer's process, within its reach" : null,
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
    difficulty: outline?.difficulty,
    tags: outline?.tags.join(", "),
    quality: outline?.quality === "ok" ? null : outline?.quality?.replaceAll(",", ", "),
  };
  return definitions(values, "number facts");
}

// A text comparison may have rejected a right answer.
const manyAnswers = (found) =>
  found.outline?.quality?.split(",").includes("many_answers")
    ? soft(
        "Several outputs are right for this problem, but it has no checker: a right answer may be judged wrong.",
      )
    : null;

// What the model was sent, as far as it is known; else the problem's prompt.
export function asked(outline, id) {
  const { messages, prompt } = outline ?? {};
  const note = messages
    ? ", as it was sent"
    : ", without the template, which the run did not record";
  const several = (messages?.length ?? 0) > 1;
  const [file, text] = several
    ? ["prompt.json", json(messages)]
    : ["prompt.txt", messages?.[0]?.content ?? prompt ?? ""];
  const message = ({ role, content }) => [
    several ? el("h3", {}, name(role)) : null,
    block(`Prompt, ${role}`, content),
  ];
  return [
    el("h2", {}, "Prompt", el("span", { class: "soft" }, note)),
    text && id ? tools("the prompt", fileName(id, file), text) : null,
    messages ? messages.map(message) : block("Prompt", prompt),
  ];
}

// Prompt, code and the case that failed side by side, then the rest.
function texts(found, id, cases) {
  const failing = failed(found.verdict, found.marks?.case, id);
  return [
    sides(asked(found.outline, id), judgedCode(found, id), ...(failing.length ? [failing] : [])),
    cases,
    completion(found, id),
  ];
}

// Links to the samples before and after this one in the list that it was opened from, with their keys.
function pager(run, before, after) {
  const way = (label, there) =>
    there
      ? el("a", { href: address(run, there.row, there.query), onclick: there.enter }, label)
      : null;
  const back = el("a", { href: backTo(run) }, "Back to the run");
  const links = { k: way("Previous sample", before), j: way("Next sample", after), Escape: back };
  const named = {
    k: "go to the previous sample",
    j: "go to the next sample",
    Escape: "go back to the run",
  };
  const there = Object.entries(links).filter(([, link]) => link);
  const parts = there.map(([key, link]) =>
    el("span", {}, link, el("span", { class: "soft" }, ` (${key === "Escape" ? "Esc" : key})`)),
  );
  const release = keys(
    "This sample",
    there.map(([key, link]) => [key, named[key], () => link.click()]),
  );
  return [el("nav", { class: "pager", "aria-label": "Samples" }, parts), release];
}

// Links to the answers of a run to one problem, if there are several, with keys to step through them.
function answers(all, run, dataset, problem, index) {
  if (all.length < 2) return [null, () => {}];
  const at = all.findIndex((one) => one.sample_index === Number(index));
  const links = all.map(({ sample_index: other, final_status: status }, i) => {
    const href = address(run, { dataset, problem_id: problem, sample_index: other });
    const attributes = { href, "aria-current": i === at ? "page" : null, class: status };
    return el("a", attributes, `#${other} ${status}`);
  });
  const step = (way) => () => links[at + way]?.click();
  const release = keys("The answers to this problem", [
    ["[", "go to the answer before", step(-1)],
    ["]", "go to the next answer", step(1)],
  ]);
  return [
    el(
      "nav",
      { class: "answers", "aria-label": "Answers to this problem" },
      el("span", { class: "soft" }, `${all.length} answers ( [ ] )`),
      links,
    ),
    release,
  ];
}

export async function showSample(main, [run, dataset, problem, index], query) {
  const [found, [before, after]] = await Promise.all([
    api.sample(run, dataset, problem, index),
    neighbours(run, dataset, problem, index, query).catch(() => [null, null]),
  ]);
  const cases = el("div", { class: "cases" });
  const { verdict } = found;
  const status = verdict
    ? [statusOf(verdict.final_status), verdict.detail ? [" ", name(verdict.detail)] : null]
    : ["not judged yet"];
  const [others, release] = answers(found.answers, run, dataset, problem, index);
  const [ways, stop] = pager(run, before, after);
  const link = el("a", { href: problemAddress(dataset, problem) }, "All answers to this problem");
  renew(
    main,
    ways,
    el("h1", {}, name(problem), Number(index) ? ` #${index}` : ""),
    el("p", {}, name(dataset), ": ", status, api.only() ? null : [". ", link]),
    others,
    manyAnswers(found),
    fold("facts", "Tokens, times, judging", facts(found)),
    found.missing
      ? el("p", {}, MISSING)
      : texts(found, { problem_id: problem, sample_index: index }, cases),
  );
  if (verdict && !found.missing)
    await showCases(cases, verdict, [run, dataset, problem, index]).catch(warn);
  return () => (stop(), release());
}
