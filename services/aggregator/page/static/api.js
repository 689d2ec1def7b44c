// HTTP client for the aggregator's API. Each id is one path segment.

const quoted = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!answer) throw new Error("The aggregator does not answer; is it running?");
  const body = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
  return body;
}

// A report replaces this module: `only` returns its single run, `notes` describe omitted data.
export const only = () => null;
export const notes = () => [];
export const runs = () => get("/api/runs");
export const run = (id) => get(`/api/runs/${quoted(id)}`);
export const timeline = (id) => get(`/api/runs/${quoted(id)}/timeline`);
export const sample = (id, dataset, problem, index) => get(`/api/runs/${quoted(id)}/samples/${quoted(dataset, problem, index)}`);
export const cases = (id, dataset, problem, index, query) =>
  get(`/api/runs/${quoted(id)}/samples/${quoted(dataset, problem, index)}/cases?${new URLSearchParams(query)}`);
export const samples = (id, query) => get(`/api/runs/${quoted(id)}/samples?${new URLSearchParams(query)}`);

// Follow server-sent events. `lost` is called on connection errors; the browser reconnects by itself.
export function follow(id, progress, lost) {
  const source = new EventSource(`/api/runs/${quoted(id)}/events`);
  source.addEventListener("error", lost);
  source.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  for (const last of ["end", "gone"]) source.addEventListener(last, () => source.close());
  return () => source.close();
}
