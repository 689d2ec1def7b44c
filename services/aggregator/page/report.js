// Replacement of the API client in a report: reads the data embedded in the page.
import { bounds, CHOICES, listed, PLACES, RANGES } from "./filters.js";

const data = JSON.parse(document.getElementById("data").textContent);
const id = data.run.summary.run;
const ORDERS = {
  judged_at: (row) => row.judged_at ?? -1,
  pass_ratio: (row) => row.pass_ratio,
  output_tokens: (row) => row.output_tokens ?? -1,
  gen_time: (row) => row.gen_time ?? -1,
  total_judge_time: (row) => row.total_judge_time,
  status: (row) => row.final_status,
  cpu_time: (row) => row.cpu_time ?? -1,
  peak_memory: (row) => row.peak_memory ?? -1,
  attempts: (row) => row.attempts,
  prompt_length: (row) => row.prompt_length ?? -1,
};
const MOST_VALUES = 100;

const rows = data.samples.map((values) => ({
  ...Object.fromEntries(data.columns.map((column, i) => [column, values[i]])),
  texts: values[data.columns.length],
}));

function mine(run) {
  if (run !== id) throw new Error(`This file is the report of ${id} and contains no other run.`);
}

const lower = (text) => (text ?? "").replace(/[A-Z]/g, (letter) => letter.toLowerCase());
const has = (text, part) => lower(text).includes(part);

// Values of a row by choice; null for one that is not known.
function values(row, key) {
  const found = row[CHOICES[key][1]];
  if (Array.isArray(found)) return found.length ? found : [null];
  return [found === "" || found === undefined ? null : found];
}

function text({ texts: { outline, generation, verdict } }, place) {
  if (place === "prompt")
    return outline?.messages?.map(({ content }) => content).join("\n") ?? outline?.prompt;
  return place === "completion" ? generation?.completion : verdict.first_failed_case?.stderr;
}

// Whether a row matches the filters, of which the choice `besides` is left out.
function wanted(query, besides = null) {
  const chosen = Object.keys(CHOICES)
    .filter((key) => query[key] && key !== besides)
    .map((key) => [key, listed(query[key])]);
  const within = Object.keys(RANGES)
    .filter((key) => query[key])
    .map((key) => [RANGES[key][1], ...bounds(query[key])]);
  for (const [, ...ends] of within)
    if (ends.some(Number.isNaN)) throw new Error("A range is MIN..MAX, MIN.. or ..MAX.");
  const [part, sought] = [lower(query.q), searched() ? lower(query.text) : ""];
  const places = query.in ? listed(query.in) : PLACES;
  return (row) =>
    chosen.every(([key, some]) => values(row, key).some((value) => some.includes(value))) &&
    within.every(([value, low, high]) => {
      const found = value(row) ?? null;
      return found !== null && (low === null || found >= low) && (high === null || found <= high);
    }) &&
    (!query.flipped || (query.flipped === "1") === row.flipped > 0) &&
    (!query.group || row.failure_id === query.group) &&
    (!part || has(row.problem_id, part) || has(row.detail, part)) &&
    (!sought || places.some((place) => has(text(row, place), sought)));
}

export const only = () => id;
export const notes = () => data.notes;
export const searched = () => rows.every((row) => row.texts);

export async function run(name) {
  mine(name);
  return data.run;
}

export async function performance(name) {
  mine(name);
  return data.performance;
}

export async function samples(name, query) {
  mine(name);
  const found = rows.filter(wanted(query));
  const order = ORDERS[query.sort];
  if (order) found.sort((a, b) => (order(a) < order(b) ? -1 : order(a) > order(b) ? 1 : 0));
  if (query.order === "desc") found.reverse();
  const to = query.offset + query.limit;
  return { samples: found.slice(query.offset, to), next: to < found.length ? to : null };
}

export async function facets(name, query) {
  mine(name);
  const found = Object.keys(CHOICES).map((key) => {
    const counts = new Map();
    for (const row of rows.filter(wanted(query, key)))
      for (const value of values(row, key)) counts.set(value, (counts.get(value) ?? 0) + 1);
    const ordered = [...counts].sort(([a, m], [b, n]) => n - m || ((a ?? "") < (b ?? "") ? -1 : 1));
    const shown = new Map(ordered.slice(0, MOST_VALUES));
    for (const value of listed(query[key])) shown.set(value, counts.get(value) ?? 0);
    return [
      key,
      { total: counts.size, counts: [...shown].map(([value, samples]) => ({ value, samples })) },
    ];
  });
  return { samples: rows.filter(wanted(query)).length, facets: Object.fromEntries(found) };
}

const withStderr = (row) => ({
  ...row,
  stderr: row.texts?.verdict.first_failed_case?.stderr?.slice(-400) ?? null,
});

export async function failures(name, query) {
  mine(name);
  const groups = new Map();
  const failed = rows.filter(wanted(query)).filter((row) => row.failure_id);
  for (const row of failed) {
    if (!groups.has(row.failure_id)) groups.set(row.failure_id, []);
    groups.get(row.failure_id).push(row);
  }
  const ordered = [...groups].sort(([a, m], [b, n]) => n.length - m.length || (a < b ? -1 : 1));
  const shown = ordered.slice(0, query.limit).map(([group, all]) => {
    const examples = [...new Set([all[0], all.at(-1)])].map(withStderr);
    return { id: group, signature: all[0].failure, samples: all.length, examples };
  });
  return { samples: failed.length, total: groups.size, groups: shown };
}

// A report has the first failed case of a sample, which is in its verdict.
export const cases = async () => ({ recorded: null, total: 0, cases: [], marks: [], next: null });

export async function sample(name, dataset, problem, index) {
  mine(name);
  const answers = rows.filter((row) => row.dataset === dataset && row.problem_id === problem);
  const row = answers.find((one) => one.sample_index === Number(index));
  if (!row) throw new Error("This report does not contain the sample.");
  const { texts, ...verdict } = row;
  return { outline: verdict, verdict, missing: texts === null, ...texts, answers };
}
