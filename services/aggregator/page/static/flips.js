// Samples of two runs: a list with filters, and one of them opened side by side.
import * as api from "./api.js";
import { STATUSES } from "./charts.js";
import { sideBySide } from "./diff.js";
import {
  button,
  cell,
  column,
  controls,
  el,
  name,
  scrolled,
  select,
  soft,
  statusOf,
  table,
} from "./dom.js";
import { keys } from "./help.js";
import { address, listOf, sampleName } from "./listing.js";
import { asked, failed } from "./sample.js";

const PAGE = 50;
const KINDS = {
  flips: "accepted in one run only",
  gained: "gained",
  lost: "lost",
  changed: "another status",
  all: "all",
};
const FILTERS = ["kind", "first", "second", "q", "dimension", "bucket", "offset"];
const MOST = 30_000; // characters of a text that are compared

const sample = (one) => `${one.sample_index}/${one.problem_id}`;

function status(found) {
  if (!found?.final_status) return ["not judged yet"];
  const cases = `${found.cases_passed}/${found.cases_total}${found.cases_not_run ? `, ${found.cases_not_run} not run` : ""}`;
  return [
    statusOf(found.final_status),
    ` ${cases}`,
    found.detail ? el("div", { class: "soft" }, name(found.detail)) : null,
  ];
}

// The list of a data set's pairs. `link` makes an address from filters and the opened sample.
export function flipsList({ runs, labels, dataset, query, link }) {
  const filters = Object.fromEntries(
    FILTERS.map((key) => [key, query.get(key)]).filter(([, value]) => value),
  );
  const body = el("tbody");
  const count = el("p", { class: "soft number", role: "status" }, "Loading …");
  const opened = el("div", { class: "opened" });
  const back = button("Previous", () => turn(-1), { disabled: true });
  const on = button("Next", () => turn(1), { disabled: true });
  let [open, asking, shown] = [query.get("open"), 0, { flips: [], total: 0, next: null }];

  const wanted = () => Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
  let left = false; // then the address is another view's
  const remember = () =>
    left ||
    history.replaceState(history.state, "", link({ ...wanted(), ...(open ? { open } : {}) }));

  async function load() {
    const mine = ++asking;
    const found = await api.flips({ runs: listOf(runs), dataset, limit: PAGE, ...wanted() });
    if (mine !== asking) return;
    shown = found;
    const from = Number(filters.offset ?? 0);
    body.replaceChildren(...found.flips.map(line));
    back.disabled = from === 0;
    on.disabled = found.next === null;
    const inside = filters.dimension ? `, ${filters.dimension} ${filters.bucket}` : "";
    count.replaceChildren(
      name(
        found.flips.length
          ? `Samples ${from + 1} to ${from + found.flips.length} of ${found.total}${inside}`
          : `No such sample${inside}.`,
      ),
    );
  }

  const fail = (error) => count.replaceChildren(name(error.message));
  const again = () => load().then(remember).catch(fail);
  const turn = (way) => {
    filters.offset = String(Math.max(0, Number(filters.offset ?? 0) + way * PAGE));
    return again();
  };
  const change = (event) => {
    for (const key of ["offset", ...(event.target.name === "slice" ? ["dimension", "bucket"] : [])])
      delete filters[key];
    if (event.target.name !== "slice") filters[event.target.name] = event.target.value;
    return again();
  };

  function line(one) {
    const gained = one.second.accepted - one.first.accepted;
    const href = link({ ...wanted(), open: sample(one) });
    const press = (event) => (event.preventDefault(), show(one));
    return el(
      "tr",
      { class: "row", onclick: (event) => event.target.closest("a") || show(one) },
      cell(el("a", { href, onclick: press }, sampleName(one))),
      el("td", { class: "metric" }, gained > 0 ? "gained" : gained < 0 ? "lost" : "same"),
      cell(status(one.first)),
      cell(status(one.second)),
    );
  }

  async function show(one, focus = true) {
    open = sample(one);
    remember();
    const mine = open;
    opened.replaceChildren(soft("Loading …"));
    const id = [dataset, one.problem_id, one.sample_index];
    const parts = await Promise.all(runs.map((run) => api.sample(run, ...id))).then(
      (both) => side(both, one),
      (error) => [el("p", { class: "incomplete" }, name(error.message))],
    );
    if (open !== mine) return;
    const close = button("Close (Esc)", shut);
    const title = el("h3", { tabindex: -1 }, sampleName(one));
    opened.replaceChildren(el("article", { class: "card" }, title, close, parts));
    if (focus) title.focus();
  }

  function shut() {
    open = null;
    remember();
    opened.replaceChildren();
    body.querySelector("a")?.focus();
  }

  function failing({ verdict, marks }, one) {
    const parts = failed(verdict, marks?.case, one, "h4");
    const none = verdict?.accepted ? "Every case passed." : "None is recorded.";
    return parts.length ? parts : [soft(none)];
  }

  // Both samples: statuses, judged code as a diff, the cases that failed, the prompt.
  function side(both, one) {
    const whole = both.map(({ code, generation }) =>
      code ? code.text : (generation?.completion ?? ""),
    );
    const texts = whole.map((text) => text.slice(0, MOST));
    const kind = both.every(({ code }) => code)
      ? "Code that was judged"
      : "Completion or judged code";
    const sides = (parts) => el("div", { class: "sides" }, parts);
    const heads = both.map((found, i) => {
      const href = address(runs[i], { ...one, dataset });
      return el(
        "div",
        {},
        el("h3", {}, `${labels[i]}: `, status(found.verdict ?? [one.first, one.second][i])),
        el("a", { href }, `Whole sample in ${labels[i]}`),
      );
    });
    const prompt = el("details", {}, el("summary", {}, "Prompt"));
    const open = () => prompt.append(el("div", {}, asked(both[0].outline, one)));
    prompt.addEventListener("toggle", open, { once: true });
    const signs = `, - only in ${labels[0]}, + only in ${labels[1]}`;
    const names = labels.map((label) => `${kind}, ${label}`);
    const cases = both.map((found, i) =>
      el("div", {}, el("h3", {}, `Failing case in ${labels[i]}`), failing(found, one)),
    );
    return [
      sides(heads),
      el("h3", {}, kind, el("span", { class: "soft" }, signs)),
      texts[0] === texts[1] && texts[0] ? soft("Both runs gave the same.") : [],
      sides(sideBySide(names, ...texts)),
      whole.some((text) => text.length > MOST)
        ? soft(`The first ${MOST} characters of each are compared.`)
        : [],
      sides(cases),
      prompt,
    ].flat();
  }

  const statuses = [["", "any"], ...STATUSES.map((one) => [one, one])];
  const q = { name: "q", type: "search", value: filters.q ?? "", oninput: change };
  const form = controls(
    {},
    select("Show", "kind", Object.entries(KINDS), filters.kind ?? "flips", change),
    select(`Status in ${labels[0]}`, "first", statuses, filters.first, change),
    select(`Status in ${labels[1]}`, "second", statuses, filters.second, change),
    el("label", {}, "Problem ( / )", el("input", q)),
    button("All slices", change, { name: "slice" }),
  );
  const head = ["problem", "", ...labels.map((label) => `in ${label}`)].map((text) => column(text));
  const found = scrolled("Samples", table(head, body), "figures flips");

  // Called from the matrix and the slices: other filters, and the list in sight.
  const filtered = async (changed) => {
    for (const key of FILTERS) delete filters[key];
    Object.assign(filters, changed);
    for (const field of form.elements)
      if (field.localName !== "button")
        field.value = filters[field.name] ?? (field.name === "kind" ? "flips" : "");
    await again();
    form.scrollIntoView();
    body.querySelector("a")?.focus();
  };
  const step = (way) => {
    const at = shown.flips.findIndex((one) => sample(one) === open);
    const next = shown.flips[Math.min(shown.flips.length - 1, Math.max(0, at + way))];
    if (next) show(next);
  };
  const release = keys("Flips and other pairs", [
    ["/", "search in problems", () => form.elements.q.focus()],
    ["j", "open the next sample", () => step(1)],
    ["k", "open the previous sample", () => step(-1)],
    ["Escape", "close the sample", () => open && shut()],
  ]);
  const filled = load()
    .then(() => {
      const slash = open?.indexOf("/") ?? -1;
      if (slash > 0)
        return show(
          {
            problem_id: open.slice(slash + 1),
            sample_index: Number(open.slice(0, slash)),
            first: {},
            second: {},
          },
          false,
        );
    })
    .catch(fail);
  return {
    parts: [
      el("h3", {}, "Flips and other pairs"),
      form,
      found,
      count,
      el("div", { class: "pager" }, back, on),
      opened,
    ],
    filled,
    show: filtered,
    stop: () => {
      left = true;
      release();
    },
  };
}
