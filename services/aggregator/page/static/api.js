// What the aggregator tells. Ids are path segments of their own.

const quoted = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

async function get(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const body = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (!answer.ok) throw new Error(body.error ?? `HTTP ${answer.status}`);
  return body;
}

export const runs = () => get("/api/runs");
export const run = (id) => get(`/api/runs/${quoted(id)}`);
export const timeline = (id) => get(`/api/runs/${quoted(id)}/timeline`);
export const sample = (id, dataset, problem, index) => get(`/api/runs/${quoted(id)}/samples/${quoted(dataset, problem, index)}`);
export const samples = (id, query) => get(`/api/runs/${quoted(id)}/samples?${new URLSearchParams(query)}`);

export function follow(id, progress) {
  const source = new EventSource(`/api/runs/${quoted(id)}/events`);
  source.addEventListener("progress", (event) => progress(JSON.parse(event.data)));
  for (const last of ["end", "gone"]) source.addEventListener(last, () => source.close());
  return () => source.close();
}
