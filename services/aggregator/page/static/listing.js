// The samples of a run in pages, and which sample comes before or after another one in them.
import * as api from "./api.js";

export const PAGE = 50;

export const address = (run, row) =>
  `#/run/${[run, row.dataset, row.problem_id, row.sample_index].map(encodeURIComponent).join("/")}`;

export const runAddress = (run, query = "") => `#/run/${encodeURIComponent(run)}${query ? `?${query}` : ""}`;

// A list with the filters of `query`. Pages are asked for in order: each begins where one before ended.
export function listing(run, query) {
  const cursors = [null];
  const wanted = Object.fromEntries([...query].filter(([, value]) => value));
  const at = async (page) => {
    const found = await api.samples(run, { ...wanted, limit: PAGE, ...(page ? { cursor: cursors[page] } : {}) });
    cursors[page + 1] = found.next_cursor;
    return { page, rows: found.samples, more: found.next_cursor !== null };
  };
  return { run, query: String(new URLSearchParams(wanted)), at };
}

let last = null; // the list and the page of it that were looked at last

export function lookedAt(list, page) {
  last = { list, page };
}

// Address of the run, with the filters of the list that was looked at last.
export const backTo = (run) => runAddress(run, last?.list.run === run ? last.list.query : "");

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
