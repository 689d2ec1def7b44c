// Table of a run's samples: filters, order, pages, keys.
import * as api from "./api.js";
import {
  button,
  cell,
  column,
  download,
  el,
  figure,
  name,
  plain,
  soft,
  statusOf,
  table,
} from "./dom.js";
import { failureGroups } from "./failures.js";
import { filterForm, filtersOf } from "./filters.js";
import { keys, move } from "./help.js";
import { address, listing, lookedAt, PAGE, pageOf, runAddress, sampleName } from "./listing.js";

const number = (value, digits = 1) =>
  value === null || value === undefined ? "–" : value.toFixed(digits);
const mebibytes = (bytes) =>
  bytes === null || bytes === undefined ? "–" : (bytes / 1_048_576).toFixed(0);

// Columns that sort, with the order at the first press: what is largest is looked for first.
const COLUMNS = [
  ["problem", "problem", "asc"],
  ["status", "status", "asc"],
  ["pass ratio", "pass_ratio", "asc"],
  ["tokens", "output_tokens", "desc"],
  ["generation, s", "gen_time", "desc"],
  ["judging, s", "total_judge_time", "desc"],
  ["CPU, s", "cpu_time", "desc"],
  ["memory, MiB", "peak_memory", "desc"],
];
const SORTS = [
  "judged_at",
  ...COLUMNS.slice(1).map(([, sort]) => sort),
  "attempts",
  "prompt_length",
];

// The elements of the table (`parts`), what ends it (`stop`), a promise of its first page (`filled`), and what to call
// when the run has more samples (`grow`).
export function samplesTable(run, query) {
  const body = el("tbody");
  const back = button("Previous", () => turn(at - 1), { disabled: true });
  const on = button("Next", () => turn(at + 1), { disabled: true });
  const status = el("p", { class: "soft number", role: "status" });
  const total = el("span", { class: "soft number" });
  let list = listing(run, query);
  let at = 0;
  let asked = 0;
  let drawn = false; // the address is as it was followed, until a filter or a page is chosen
  let left = false;

  // The document holds one page at a time, so the number of samples does not matter.
  async function load(page) {
    const mine = ++asked;
    const found = await list.at(page);
    if (mine !== asked || left) return; // superseded by a newer request, or nobody looks
    at = found.page;
    lookedAt(list, found);
    if (drawn) history.replaceState(history.state, "", runAddress(run, list.queryOf(at)));
    drawn = true;
    body.replaceChildren(
      ...found.rows.map((one) => line(one, address(run, one, list.queryOf(at)))),
    );
    filters.list({ group: found.rows[0]?.failure });
    back.disabled = at === 0;
    on.disabled = !found.more;
    const last = at * PAGE + body.rows.length;
    const range = `Samples ${at * PAGE + 1} to ${last}${found.more ? "; there are more" : ""}`;
    status.textContent = body.rows.length ? range : "No such sample.";
  }

  const show = (page) => load(page).catch((error) => (status.textContent = error.message));
  const turn = (page) => show(page).then(() => filters.parts[0].scrollIntoView());
  // Counts follow the page: they are of less interest, and cost more.
  async function count() {
    const mine = asked;
    const found = await api.facets(run, filtersOf(query));
    if (mine !== asked || left) return;
    filters.count(found.facets);
    total.textContent = `${found.samples}`;
  }
  const look = (page) => show(page).then(() => count().catch(() => (total.textContent = "")));
  const filter = () => {
    query.delete("page");
    list = listing(run, query);
    mark();
    filters.list(); // at once, also where no answer comes
    groups.refresh();
    return look(0);
  };

  const filters = filterForm(query, SORTS, api.searched(), filter);
  const groups = failureGroups(run, query);
  const [head, mark] = heading(query, () => (filters.reset(), filter()));
  const release = keys("The list of samples", [
    ["/", "search in problems and details", () => filters.search.focus()],
    ...(api.searched()
      ? [["t", "search in prompts, completions and standard errors", () => filters.text.focus()]]
      : []),
    ["f", "go to the choices: status, data set, tag and others", () => filters.open()],
    ["g", "open or close the groups of failures", () => toggle(groups.box)],
    ["x", "clear all filters", () => filters.clear()],
    ["j", "go to the next sample", () => move([...body.querySelectorAll("a")], 1)],
    ["k", "go to the previous sample", () => move([...body.querySelectorAll("a")], -1)],
    ["Enter", "open the sample"],
    ["n", "turn to the next page", () => on.click()],
    ["p", "turn to the previous page", () => back.click()],
  ]);
  // All samples that the filters find, as a file.
  const save = (kind, format) => {
    const press = () =>
      list.all().then(
        (rows) => download(`${fileName(run)}.${kind}`, format(rows)),
        (error) => (status.textContent = plain(error.message)),
      );
    return button(kind, press, { "aria-label": `Download these samples as ${kind}` });
  };
  const filled = look(pageOf(query));
  const notes = api.notes().map((note) => soft(name(note)));
  const parts = [
    el("h2", {}, "Samples ", total),
    ...notes,
    ...filters.parts,
    groups.box,
    el("div", { class: "wide" }, table(head, body)),
    status,
    el("div", { class: "pager" }, back, on, save("csv", csv), save("jsonl", jsonl)),
  ];
  const stop = () => {
    left = true;
    release();
  };
  // New samples are listed while the page is not full and nobody has scrolled or chosen a row: rows would move what is read.
  const read = () => scrollY > 0 || body.contains(document.activeElement);
  const grow = () =>
    body.rows.length === 0 || (body.rows.length < PAGE && !read()) ? look(at) : null;
  return { parts, stop, filled, grow };
}

const fileName = (run) => `${run.replace(/[^\w.-]+/g, "_").slice(0, 80)}-samples`;
const jsonl = (rows) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

// A line of names and one for each sample; lists are joined by semicolons.
function csv(rows) {
  const names = Object.keys(rows[0] ?? {});
  const field = (value) =>
    value === null
      ? ""
      : `"${String(Array.isArray(value) ? value.join(";") : value).replaceAll('"', '""')}"`;
  return [names, ...rows.map((row) => names.map((key) => row[key]))]
    .map((values) => `${values.map(field).join(",")}\r\n`)
    .join("");
}

// The row of headers, each a button, and a function that marks the order of `query` on them.
function heading(query, change) {
  const cells = COLUMNS.map(([label, sort, first]) => {
    const press = () => {
      const now = (query.get("sort") || "problem") === sort;
      const order = now ? (query.get("order") === "desc" ? "asc" : "desc") : first;
      query.set("sort", sort === "problem" ? "" : sort);
      query.set("order", order === "asc" ? "" : order);
      change();
    };
    const kind = ["problem", "status"].includes(sort) ? null : "number";
    return column(button(label, press, { class: "sort" }), kind);
  });
  const mark = () =>
    cells.forEach((cell, i) => {
      if ((query.get("sort") || "problem") !== COLUMNS[i][1])
        return cell.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", query.get("order") === "desc" ? "descending" : "ascending");
    });
  mark();
  return [cells, mark];
}

function line(one, href) {
  const small = (...content) => el("div", { class: "soft" }, content);
  return el(
    "tr",
    { class: "row", onclick: (event) => event.target.closest("a") || (location.hash = href) },
    cell(
      el("a", { href }, sampleName(one)),
      small(name(one.dataset), one.texts === null ? ", figures alone" : null),
    ),
    cell(statusOf(one.final_status), one.detail ? small(name(one.detail)) : null),
    figure(
      `${one.cases_passed}/${one.cases_total}`,
      one.cases_not_run ? small(`${one.cases_not_run} not run`) : null,
    ),
    figure(number(one.output_tokens, 0)),
    figure(number(one.gen_time, 1)),
    figure(number(one.total_judge_time, 3)),
    figure(number(one.cpu_time, 3)),
    figure(mebibytes(one.peak_memory)),
  );
}

function toggle(box) {
  box.open = !box.open;
  box.querySelector("summary").focus();
}
