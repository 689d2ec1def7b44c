// The samples of a run in pages, and which sample comes before or after another one in them.
import * as api from "./api.js";
import { name } from "./dom.js";

export const PAGE = 50;

// Of a sample; `query` is the list that it was opened from, so that a link has the ones before and after it.
export const address = (run, row, query = "") =>
  `#/run/${[run, row.dataset, row.problem_id, row.sample_index].map(encodeURIComponent).join("/")}${String(query) ? `?${query}` : ""}`;

export const runAddress = (run, query = "") =>
  String(query) ? `#/run/${encodeURIComponent(run)}?${query}` : `#/run/${encodeURIComponent(run)}`;

// How a run samples, where it is not the default.
export const sampling = ({ temperature, n }) =>
  [temperature && `temperature ${temperature}`, n > 1 && `n ${n}`].filter(Boolean);

// What tells a run apart from others: its name, model, sampling, and id.
export function runLabel(id, run) {
  if (!run) return id;
  const other = run.name && run.name !== id ? id : null;
  return [run.name ?? id, run.model, ...sampling(run), run.folder, other]
    .filter(Boolean)
    .join(" · ");
}

// A sample's problem, and its index where there are several.
export const sampleName = ({ problem_id: problem, sample_index: index }) => [
  name(problem),
  index ? ` #${index}` : "",
];

export const problemAddress = (dataset, problem) =>
  `#/problem/${[dataset, problem].map(encodeURIComponent).join("/")}`;

export const problemsAddress = (dataset) => `#/problems/${encodeURIComponent(dataset)}`;

// Of run ids, of which the first is the baseline.
export const listOf = (runs) => runs.map(encodeURIComponent).join(",");
export const compareAddress = (runs, query = {}) =>
  `#/compare?${new URLSearchParams({ runs: listOf(runs), ...query })}`;

// The page that an address asks for, from 0; the API refuses places far beyond any end.
export function pageOf(query) {
  const page = Number(query.get("page") ?? 1);
  return Number.isInteger(page) && page > 0 ? Math.min(page, 1_000_000) - 1 : 0;
}

// A list with the filters and the order of `query`, in pages from 0 on.
export function listing(run, query) {
  const { page: _page, ...wanted } = Object.fromEntries([...query].filter(([, value]) => value));
  const read = (limit, offset) => api.samples(run, { ...wanted, limit, offset });
  const at = async (page) => {
    const found = await read(PAGE, PAGE * page);
    if (page && !found.samples.length) return at(Math.floor(page / 2)); // beyond the end
    return { page, rows: found.samples, more: found.next !== null };
  };
  const queryOf = (page) =>
    String(new URLSearchParams({ ...wanted, ...(page ? { page: page + 1 } : {}) }));
  // Every sample of the list, for a download; those of a report have their texts, too.
  const all = async (rows = []) => {
    const found = await read(200, rows.length);
    rows.push(...found.samples.map(({ texts: _texts, ...figures }) => figures));
    return found.next === null ? rows : all(rows);
  };
  return { run, at, all, queryOf };
}

let last = null; // the list and the page of it that were looked at last

export function lookedAt(list, page) {
  last = { list, page };
}

// Address of the run, with the filters and the page of the list that was looked at last.
export const backTo = (run) =>
  runAddress(run, last?.list.run === run ? last.list.queryOf(last.page.page) : "");

// The samples before and after one in the list of `query`, each as its row, the query of its page, and what to do when it
// is opened; null where there is none.
export async function neighbours(run, dataset, problem, index, query) {
  const asked = listing(run, query);
  if (
    last?.list.run !== run ||
    last.list.queryOf(last.page.page) !== asked.queryOf(pageOf(query))
  ) {
    lookedAt(asked, await asked.at(pageOf(query)));
  }
  const { list, page } = last;
  const same = (row) =>
    row.dataset === dataset && row.problem_id === problem && row.sample_index === Number(index);
  const place = page.rows.findIndex(same);
  if (place < 0) return [null, null];
  const found = (row, there) =>
    row ? { row, query: list.queryOf(there.page), enter: () => lookedAt(list, there) } : null;
  const turned = async (step, more) => {
    if (!more) return null;
    const there = await list.at(page.page + step);
    return found(there.rows.at(step < 0 ? -1 : 0), there);
  };
  return Promise.all([
    place > 0 ? found(page.rows[place - 1], page) : turned(-1, page.page > 0),
    place + 1 < page.rows.length ? found(page.rows[place + 1], page) : turned(1, page.more),
  ]);
}
