// HTTP client for the aggregator's API. Each id is one path segment.

const quoted = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

async function get(path) {
  const ask = () => fetch(path, { headers: { Accept: "application/json" } }).catch(() => null);
  // Once more, since another network (a container's, a VPN) ends what the browser is asking for.
  const answer = (await ask()) ?? (await ask());
  if (!answer) throw new Error("The aggregator does not answer; is it running?");
  const body = await answer.json().catch(() => ({ error: `HTTP ${answer.status}` }));
  if (!answer.ok)
    throw Object.assign(new Error(body.error ?? `HTTP ${answer.status}`), {
      status: answer.status,
    });
  return body;
}

// A report replaces this module: `only` returns its single run, `notes` describe omitted data, `searched` is whether
// the texts of all samples are there to be searched.
export const only = () => null;
export const notes = () => [];
export const searched = () => true;
export const runs = () => get("api/runs");
export const folders = () => get("api/folders");
export const run = (id) => get(`api/runs/${quoted(id)}`);
export const sample = (id, dataset, problem, index) =>
  get(`api/runs/${quoted(id)}/samples/${quoted(dataset, problem, index)}`);
export const cases = (id, dataset, problem, index, query) =>
  get(
    `api/runs/${quoted(id)}/samples/${quoted(dataset, problem, index)}/cases?${new URLSearchParams(query)}`,
  );
export const facets = (id, query) =>
  get(`api/runs/${quoted(id)}/facets?${new URLSearchParams(query)}`);
export const failures = (id, query) =>
  get(`api/runs/${quoted(id)}/failures?${new URLSearchParams(query)}`);
export const samples = (id, query) =>
  get(`api/runs/${quoted(id)}/samples?${new URLSearchParams(query)}`);
export const performance = (id) => get(`api/runs/${quoted(id)}/performance`);
export const problem = (dataset, problem) => get(`api/problems/${quoted(dataset, problem)}`);
export const history = (protocol) =>
  get(`api/history${protocol ? `?${new URLSearchParams({ protocol })}` : ""}`);
export const gate = (baseline, run) => get(`api/gate?${new URLSearchParams({ baseline, run })}`);

export const compare = (runs) => get(`api/compare?${new URLSearchParams({ runs })}`);
export const grid = (query) => get(`api/compare/grid?${new URLSearchParams(query)}`);
export const flips = (query) => get(`api/compare/flips?${new URLSearchParams(query)}`);
