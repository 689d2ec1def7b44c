// Replacement of the API client in a report: reads the data embedded in the page.

const data = JSON.parse(document.getElementById("data").textContent);
const id = data.run.summary.run;
const ORDERS = {
  judged_at: (row) => row.judged_at ?? -1,
  pass_ratio: (row) => row.pass_ratio,
  output_tokens: (row) => row.output_tokens ?? -1,
  gen_time: (row) => row.gen_time ?? -1,
  total_judge_time: (row) => row.total_judge_time,
};

function object(dataset, values) {
  const row = Object.fromEntries(data.columns.map((column, i) => [column, values[i]]));
  return { dataset, ...row, texts: values[data.columns.length] };
}

const rows = Object.entries(data.samples).flatMap(([dataset, all]) => all.map((values) => object(dataset, values)));

function known(run) {
  if (run !== id) throw new Error(`This file is the report of ${id} and contains no other run.`);
}

function wanted({ status, dataset, q }) {
  const text = q?.toLowerCase();
  return (row) =>
    (!status || row.final_status === status) &&
    (!dataset || row.dataset === dataset) &&
    (!text || row.problem_id.toLowerCase().includes(text) || row.detail?.toLowerCase().includes(text));
}

export const only = () => id;
export const notes = () => data.notes;
export const runs = async () => ({ [id]: data.run.summary });
export const follow = () => () => {};

export async function run(name) {
  known(name);
  return data.run;
}

export async function timeline(name) {
  known(name);
  return data.timeline;
}

export async function samples(name, query) {
  known(name);
  const found = rows.filter(wanted(query));
  const order = ORDERS[query.sort];
  if (order) found.sort((a, b) => order(a) - order(b));
  if (query.order === "desc") found.reverse();
  const from = Number(query.cursor ?? 0);
  const to = from + query.limit;
  return { samples: found.slice(from, to), next_cursor: to < found.length ? String(to) : null };
}

function find(name, dataset, problem, index) {
  known(name);
  const row = rows.find((one) => one.dataset === dataset && one.problem_id === problem && one.sample_index === Number(index));
  if (!row) throw new Error("This report does not contain the sample.");
  return row;
}

export async function cases(...id) {
  const { total, rows: found } = find(...id).texts?.cases ?? { total: 0, rows: [] };
  const shown = found.map((values) => Object.fromEntries(data.case_columns.map((column, i) => [column, values[i]])));
  return { recorded: data.recorded, total, cases: shown, next: null };
}

export async function sample(name, dataset, problem, index) {
  const { texts, ...verdict } = find(name, dataset, problem, index);
  const problems = Object.hasOwn(data.problems, dataset) ? data.problems[dataset] : [];
  const [, difficulty = null, tags = [], quality = null, asked = null] = problems.find(([one]) => one === problem) ?? [];
  const messages = Array.isArray(asked) ? asked.map(([role, content]) => ({ role, content })) : null;
  return { difficulty, tags, quality, prompt: messages ? null : asked, messages, generation: null, code: null, verdict, ...texts, missing: texts === null };
}
