// The samples of a run in pages, and which sample comes before or after another one in them.
import * as api from "./api.js";

export const PAGE = 50;
const PAGES_AT_ONCE = 4; // of which only the end is needed

export const address = (run, row) =>
  `#/run/${[run, row.dataset, row.problem_id, row.sample_index].map(encodeURIComponent).join("/")}`;

export const runAddress = (run, query = "") => (String(query) ? `#/run/${encodeURIComponent(run)}?${query}` : `#/run/${encodeURIComponent(run)}`);

// Of run ids, of which the first is the baseline.
export const listOf = (runs) => runs.map(encodeURIComponent).join(",");
export const compareAddress = (runs, query = {}) => `#/compare?${new URLSearchParams({ runs: listOf(runs), ...query })}`;

// The page that an address asks for, from 0.
export function pageOf(query) {
  const page = Number(query.get("page") ?? 1);
  return Number.isSafeInteger(page) && page > 0 ? page - 1 : 0;
}

// A list with the filters and the order of `query`. A page begins where the one before ended; the address of a later
// page has the place of its beginning, and the pages before it are read when they are asked for.
export function listing(run, query) {
  const { page: _page, cursor, ...wanted } = Object.fromEntries([...query].filter(([, value]) => value));
  const cursors = [null];
  if (cursor && pageOf(query)) cursors[pageOf(query)] = cursor;
  const ask = (limit, from) => api.samples(run, { ...wanted, limit, ...(cursors[from] ? { cursor: cursors[from] } : {}) });
  // The nearest page up to `page` whose beginning is known: that page itself, if there are so many.
  const reached = async (page) => {
    let near = page;
    while (cursors[near] === undefined) near -= 1;
    while (near < page) {
      const steps = Math.min(PAGES_AT_ONCE, page - near);
      const found = await ask(PAGE * steps, near);
      if (found.next_cursor === null) {
        const end = near + Math.max(0, Math.ceil(found.samples.length / PAGE) - 1);
        return end === near ? near : reached(end);
      }
      near += steps;
      cursors[near] = found.next_cursor;
    }
    return near;
  };
  const at = async (asked) => {
    const page = await reached(asked);
    const found = await ask(PAGE, page);
    cursors[page + 1] = found.next_cursor ?? undefined;
    return { page, rows: found.samples, more: found.next_cursor !== null };
  };
  const queryOf = (page) => {
    const place = page && cursors[page] ? { page: page + 1, cursor: cursors[page] } : {};
    return String(new URLSearchParams({ ...wanted, ...place }));
  };
  return { run, at, queryOf };
}

let last = null; // the list and the page of it that were looked at last

export function lookedAt(list, page) {
  last = { list, page };
}

// Address of the run, with the filters and the page of the list that was looked at last.
export const backTo = (run) => runAddress(run, last?.list.run === run ? last.list.queryOf(last.page.page) : "");

// The samples before and after one in the list that was looked at last; null where there is none.
export async function neighbours(run, dataset, problem, index) {
  if (last?.list.run !== run) return [null, null];
  const { list, page } = last;
  const same = (row) => row.dataset === dataset && row.problem_id === problem && row.sample_index === Number(index);
  const place = page.rows.findIndex(same);
  if (place < 0) return [null, null];
  const turned = async (step, there) => {
    if (!there) return null;
    const found = await list.at(page.page + step);
    const row = found.rows.at(step < 0 ? -1 : 0);
    return row ? { row, enter: () => lookedAt(list, found) } : null;
  };
  const within = (row) => ({ row, enter: () => {} });
  return Promise.all([
    place > 0 ? within(page.rows[place - 1]) : turned(-1, page.page > 0),
    place + 1 < page.rows.length ? within(page.rows[place + 1]) : turned(1, page.more),
  ]);
}
