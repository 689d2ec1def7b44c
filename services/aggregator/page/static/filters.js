// Filters of samples: the form, what its parameters mean, and which of them are set.
import { button, controls, decoded, el, name, select } from "./dom.js";

export const CHOICES = {
  status: ["Status", "final_status"],
  dataset: ["Data set", "dataset"],
  difficulty: ["Difficulty", "difficulty"],
  tag: ["Tag", "tags"],
  detail: ["Detail", "detail"],
  finish: ["Finish reason", "finish_reason"],
  extraction: ["Extraction", "extraction"],
};
const MIB = 1_048_576;
// Label and value in a row; what is not known is in no range.
export const RANGES = {
  tokens: ["Tokens", (row) => row.output_tokens],
  gen_time: ["Generation, seconds", (row) => row.gen_time],
  judge_time: ["Judging, seconds", (row) => row.total_judge_time],
  pass_ratio: ["Pass ratio", (row) => row.pass_ratio],
  cpu: ["CPU, seconds", (row) => row.cpu_time],
  memory: ["Memory, MiB", (row) => (row.peak_memory === null ? null : row.peak_memory / MIB)],
  attempts: ["Attempts", (row) => row.attempts],
  prompt_length: ["Prompt, characters", (row) => row.prompt_length],
};
const SHORTEST = 3; // characters of a text that is searched for
export const PLACES = ["prompt", "completion", "stderr"];
export const FILTERS = [
  ...Object.keys(CHOICES),
  ...Object.keys(RANGES),
  "flipped",
  "group",
  "q",
  "text",
  "in",
];

const UNKNOWN = "-";
const escaped = (value) =>
  value === null ? UNKNOWN : value === UNKNOWN ? "%2D" : encodeURIComponent(value);

// A list of values as a parameter, and back; null is a value that is not known.
export const joined = (values) => values.map(escaped).join(",");

export const listed = (text) =>
  (text ?? "")
    .split(",")
    .filter(Boolean)
    .map((item) => (item === UNKNOWN ? null : decoded(item)));

// Bounds of a range, null for none.
export function bounds(text) {
  const [low, high] = (text ?? "").split("..");
  return [low ? Number(low) : null, high ? Number(high) : null];
}

// The parameters of an address that are filters, without empty ones.
export const filtersOf = (query) =>
  Object.fromEntries([...query].filter(([key, value]) => value && FILTERS.includes(key)));

const shown = (value) => (value === null ? "not known" : value);

// One choice: a list of boxes with the number of samples beside each.
function choice(key, query, change) {
  const [label] = CHOICES[key];
  const list = el("ul", { class: "boxes" });
  const chosen = el("span", { class: "soft" });
  const box = el("details", { class: "choice" }, el("summary", {}, label, " ", chosen), list);
  let counts = [];
  const picked = () => listed(query.get(key));
  const mark = () => {
    const values = picked();
    chosen.replaceChildren(...(values.length ? [name(values.map(shown).join(", "))] : []));
    box.hidden = counts.length < 2 && !values.length;
  };
  const toggle = (value, on) => {
    const values = picked().filter((one) => one !== value);
    query.set(key, joined(on ? [...values, value] : values));
    mark();
    change();
  };
  const line = ({ value, samples }) => {
    const box = el("input", {
      type: "checkbox",
      name: key,
      value: escaped(value),
      checked: picked().includes(value),
      onchange: (event) => toggle(value, event.target.checked),
    });
    const count = el("span", { class: "soft number" }, samples);
    return el("li", {}, el("label", {}, box, el("span", {}, name(shown(value))), count));
  };
  // The lines keep their order while the values are the same, so that a box stays where it is.
  const fill = (facet) => {
    const now = new Map(facet.counts.map((one) => [one.value, one.samples]));
    const same = counts.length === now.size && counts.every((one) => now.has(one.value));
    counts = same ? counts.map(({ value }) => ({ value, samples: now.get(value) })) : facet.counts;
    const held = document.activeElement?.name === key ? document.activeElement.value : null;
    list.replaceChildren(...counts.map(line));
    const more = facet.total - counts.length;
    if (more > 0) list.append(el("li", { class: "soft" }, `and ${more} more values`));
    if (held !== null)
      [...list.querySelectorAll("input")].find((one) => one.value === held)?.focus();
    mark();
  };
  mark();
  return { box, fill, reset: () => fill({ counts, total: counts.length }) };
}

// Two numbers; the parameter is set when one of them changes.
function range(key, query, change) {
  const [label] = RANGES[key];
  const ends = ["at least", "at most"].map((end) =>
    el("input", {
      type: "number",
      step: "any",
      "aria-label": `${label}, ${end}`,
      placeholder: end,
      oninput: () => set(),
    }),
  );
  const set = () => {
    const [low, high] = ends.map((one) => one.value);
    query.set(key, low || high ? `${low}..${high}` : "");
    change();
  };
  const reset = () =>
    bounds(query.get(key)).forEach(
      (value, i) => (ends[i].value = value === null || Number.isNaN(value) ? "" : value),
    );
  reset();
  return { box: el("div", { class: "range" }, el("span", { class: "soft" }, label), ends), reset };
}

// A choice of one parameter; a value of the address that is none of `values` is shown, too.
function options(label, key, values, query, change) {
  const now = query.get(key) ?? "";
  const all = values.some(([value]) => value === now) ? values : [...values, [now, now]];
  return select(label, key, all, now, change);
}

// Waits until nothing more is typed for a moment.
function later(act) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, 200);
  };
}

// The form. `change` is called when a parameter of `query` has changed; `searched` is whether texts can be.
// Returns its parts: the elements, the box of the search, `count` to show facets, `reset` to read `query` again.
export function filterForm(query, sorts, searched, change) {
  const take = (key) => (event) => {
    query.set(key, event.target.value);
    change();
  };
  const slow = later(change);
  const input = (key, label) =>
    el("input", {
      name: key,
      type: "search",
      maxlength: 200,
      value: query.get(key) ?? "",
      placeholder: label,
    });
  const search = input("q", "problem or detail");
  search.addEventListener("input", take("q"));
  const text = input("text", `${SHORTEST} characters or more`);
  text.addEventListener(
    "input",
    () => (query.set("text", text.value.length < SHORTEST ? "" : text.value), slow()),
  );
  const places = [["", "prompt, completion, stderr"], ...PLACES.map((one) => [one, one])];
  const sorted = [["", "problem"], ...sorts.map((one) => [one, one])];
  const orders = Object.entries({ "": "asc", desc: "desc" });
  const outcomes = [
    ["", "all"],
    ["1", "flipped"],
    ["0", "not flipped"],
  ];
  const flipped = options("Outcome when run again", "flipped", outcomes, query, take("flipped"));
  const lists = Object.keys(CHOICES).map((key) => choice(key, query, change));
  const ranges = Object.keys(RANGES).map((key) => range(key, query, slow));
  const figures = el(
    "details",
    { class: "choice" },
    el("summary", {}, "Ranges"),
    el("div", { class: "ranges" }, [...ranges.map((one) => one.box), flipped]),
  );
  figures.open = Object.keys(RANGES).some((key) => query.get(key));
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Filters that are set" });
  const form = controls(
    { role: "search", "aria-label": "Filters of samples" },
    options("Sort", "sort", sorted, query, take("sort")),
    options("Order", "order", orders, query, take("order")),
    el("label", {}, "Search ( / )", search),
    searched
      ? [el("label", {}, "Text ( t )", text), options("In", "in", places, query, take("in"))]
      : null,
  );
  const reset = () => {
    for (const box of [...form.elements, flipped.querySelector("select")])
      box.value = query.get(box.name) ?? "";
    for (const one of [...lists, ...ranges]) one.reset();
  };
  const drop = (keys) => {
    for (const key of keys) query.delete(key);
    reset();
    change();
    search.focus();
  };
  // Buttons that remove a filter; `titles` says what a value that is no words stands for.
  const list = (titles = {}) => {
    const set = Object.keys(filtersOf(query)).filter(
      (key) => key !== "in" && !(key === "text" && !searched),
    );
    const chip = (key) => {
      const label =
        CHOICES[key]?.[0] ??
        RANGES[key]?.[0] ??
        { q: "problem or detail", text: "text", flipped: "flipped", group: "failure" }[key];
      const value = CHOICES[key]
        ? listed(query.get(key)).map(shown).join(", ")
        : (titles[key] ?? query.get(key));
      const text = [`${label}: `, name(value), " ×"];
      return button(text, () => drop([key]), { title: "Remove this filter" });
    };
    const all = button("Clear all filters", () => drop(set));
    chips.replaceChildren(...set.map(chip), ...(set.length > 1 ? [all] : []));
    chips.hidden = !set.length;
  };
  const boxes = el("div", { class: "choices" }, [...lists.map((one) => one.box), figures]);
  const count = (facets) =>
    Object.keys(CHOICES).forEach((key, i) => facets[key] && lists[i].fill(facets[key]));
  const open = () => boxes.querySelector("details:not([hidden]) summary")?.focus();
  const clear = () => drop(FILTERS);
  list();
  return { parts: [form, boxes, chips], search, text, count, list, reset, open, clear };
}
