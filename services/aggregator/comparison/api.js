// Replacement of the API client in a comparison's file: reads the data embedded in the page.

const data = JSON.parse(document.getElementById("data").textContent);
const labels = data.document.runs.map((run) => run.label);
const OTHER = "This file holds a comparison and no single runs.";

const quoted = (part) =>
  encodeURIComponent(part).replace(
    /[!'()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
const own = (object, key) => (Object.hasOwn(object, key) ? object[key] : undefined);

export const only = () => null;
export const home = () => ["compare"];
export const compared = () => labels;
export const notes = () => data.notes;
export const runs = async () => ({});

async function none() {
  throw new Error(OTHER);
}

export const run = none;
export const samples = none;
export const cases = none;

export async function compare(asked) {
  if (asked !== labels.join(","))
    throw new Error(`This file compares ${labels.join(", ")} and no other runs.`);
  return data.document;
}

const changed = ([, , first, second]) => first.final_status !== second.final_status;
const flipped = ([, , first, second]) => second.accepted - first.accepted;
const KINDS = {
  flips: (row) => flipped(row) !== 0,
  gained: (row) => flipped(row) > 0,
  lost: (row) => flipped(row) < 0,
  changed,
  all: () => true,
};

export async function flips({
  runs: asked,
  dataset,
  kind = "flips",
  first,
  second,
  q,
  dimension,
  bucket,
  offset = 0,
  limit,
}) {
  const found = own(own(data.pairs, asked.split(",")[1]) ?? {}, dataset);
  if (!found) throw new Error("This file does not compare these runs on this data set.");
  const places = dimension ? new Set(own(own(found.slices, dimension) ?? {}, bucket) ?? []) : null;
  const text = q?.toLowerCase();
  const rows = found.rows.filter(
    (row) =>
      (KINDS[kind] ?? KINDS.flips)(row) &&
      (!first || row[2].final_status === first) &&
      (!second || row[3].final_status === second) &&
      (!places || places.has(row[0])) &&
      (!text || found.problems[row[0]].toLowerCase().includes(text)),
  );
  const from = Number(offset);
  const page = rows
    .slice(from, from + limit)
    .map(([problem, index, one, other]) => ({
      problem_id: found.problems[problem],
      sample_index: index,
      first: one,
      second: other,
    }));
  return {
    total: rows.length,
    flips: page,
    next: from + limit < rows.length ? from + limit : null,
  };
}

export async function sample(label, dataset, problem, index) {
  const key = (place) => [quoted(dataset), quoted(problem), place].join("/");
  const texts = own(own(data.samples, label) ?? {}, key(index));
  const sent = own(data.prompts, key(0)) ?? null;
  const messages = Array.isArray(sent) ? sent.map(([role, content]) => ({ role, content })) : null;
  return {
    prompt: messages ? null : sent,
    messages,
    generation: null,
    code: null,
    verdict: null,
    ...texts,
    missing: texts === undefined,
  };
}
