// View of all runs, the latest first.
import * as api from "./api.js";
import { percent, range } from "./charts.js";
import { el, name, plain, renew, repeat, scrolled, warn } from "./dom.js";
import { keys, move } from "./help.js";
import { compareAddress, runAddress } from "./listing.js";
import { points } from "./numbers.js";

const FINAL = ["complete", "incomplete", "untrusted", "failed"];

// Whether nothing more is to come.
export const isFinal = ({ state, reading }) => FINAL.includes(state) && !reading;

export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours
    ? `${hours} h ${minutes} min`
    : minutes
      ? `${minutes} min ${whole % 60} s`
      : `${whole} s`;
}

const time = (seconds) =>
  new Date(1000 * seconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });

export const moment = (seconds) => (seconds ? new Date(1000 * seconds).toLocaleString() : "–");

export const noAnswer = (since) =>
  `The aggregator does not answer since ${since.toLocaleTimeString()}; what is shown is older. This page tries again by itself.`;

export function progress(run) {
  const { planned, judged, api_errors: errors, ratio } = run.progress;
  const left = run.seconds_left === null ? "" : `, ${clock(run.seconds_left)} left`;
  if (run.reading)
    return [
      el("progress", { class: "soft", max: 1, value: ratio ?? 0, "aria-label": "read so far" }),
      el("div", { class: "soft number" }, `being read: ${judged} of ${planned} samples`),
    ];
  const lost = isFinal(run) ? Math.max(0, planned - judged - errors) : 0;
  const rest = [
    errors && `${errors} could not be judged (api_error)`,
    lost && `${lost} without a verdict`,
  ]
    .filter(Boolean)
    .join(", ");
  const text = `${judged} of ${planned} judged${rest && `, ${rest}: incomplete`}${left}`;
  const kind = rest ? "incomplete" : "soft";
  const stopped = run.stopped_at && `no command since ${time(run.stopped_at)}; repeat it to resume`;
  const outages = run.outages.map(
    ({ what, since, reason }) => `${what} since ${time(since)}${reason && ` (${reason})`}`,
  );
  return [
    el("progress", { class: kind, max: 1, value: ratio ?? 0, "aria-label": text }),
    el("div", { class: `${kind} number` }, text),
    ...[stopped, ...outages]
      .filter(Boolean)
      .map((line) => el("div", { class: "incomplete" }, name(line))),
  ];
}

// accepted@1 with its interval, and the difference to the run before of the same protocol.
function score(found) {
  if (!found) return el("td", { class: "number" });
  const between =
    found.bounds &&
    el("div", { class: "incomplete" }, `${range(found.bounds, percent)} with those not judged`);
  return el(
    "td",
    { class: "number" },
    el("b", {}, percent(found.accepted_at_1)),
    between,
    found.ci95 ? el("div", { class: "soft" }, range(found.ci95, percent)) : null,
    found.difference === null
      ? null
      : el(
          "div",
          { title: "points, to the run before of the same protocol" },
          points(found.difference),
        ),
  );
}

function line(run, datasets, chosen, choose) {
  const box = el("input", {
    type: "checkbox",
    value: run.run,
    checked: chosen.has(run.run),
    onchange: choose,
    "aria-label": plain(`Compare ${run.name ?? run.run}`),
  });
  const sampling = [run.temperature && `temperature ${run.temperature}`, run.n > 1 && `n ${run.n}`]
    .filter(Boolean)
    .join(", ");
  const soft = (text) => (text ? el("div", { class: "soft" }, name(text)) : null);
  return el(
    "tr",
    { id: `run-${run.run}` },
    el("td", {}, box),
    el(
      "th",
      { scope: "row" },
      el("a", { href: runAddress(run.run) }, name(run.name ?? run.run)),
      soft(run.name !== run.run && run.name && run.run),
      soft(run.folder),
    ),
    el("td", {}, run.model ? name(run.model) : "–", soft(sampling)),
    el("td", {}, run.state ?? "", progress(run)),
    el("td", { class: "number" }, moment(run.started_at)),
    datasets.map((key) => score(Object.hasOwn(run.scores, key) ? run.scores[key] : null)),
  );
}

// Headings that sort: label, value, and direction of the first press, which shows the highest figures first.
const HEADINGS = [
  ["run", (run) => run.name ?? run.run, 1],
  ["model", (run) => run.model ?? "", 1],
  ["samples", (run) => run.progress.judged, -1],
  ["begun", (run) => run.started_at ?? 0, -1],
];
const ofDataset = (key) => [
  key,
  (run) => (Object.hasOwn(run.scores, key) ? run.scores[key].accepted_at_1 : -1),
  -1,
];

// An update keeps the heading that has the same id.
function heading([label, value, first], order, sort) {
  const direction = order.label === label ? order.direction : null;
  return el(
    "th",
    {
      id: `column-${label}`,
      scope: "col",
      "aria-sort": direction && (direction > 0 ? "ascending" : "descending"),
    },
    el(
      "button",
      { type: "button", class: "sort", onclick: () => sort(label, value, first) },
      name(label),
    ),
  );
}

// Folders of finished runs: what is searched, how much is still to be read.
function searching({ folders, waiting }) {
  const line = ({ folder, searched, runs, error }) => {
    const state = error
      ? `: ${error}`
      : searched
        ? `: ${runs} ${runs === 1 ? "run" : "runs"}`
        : ": being searched";
    return el("p", { class: error ? "incomplete" : "soft" }, name(folder), name(state));
  };
  const left = `${waiting} ${waiting === 1 ? "run is" : "runs are"} still being read.`;
  return [...folders.map(line), ...(waiting ? [el("p", { class: "soft" }, left)] : [])];
}

// What could not be read, with reasons.
function unreadable({ unreadable: found, unreadable_total: total }) {
  if (!total) return [];
  const lines = found.map(({ folder, reason }) =>
    el("li", {}, name(reason.startsWith(folder) ? reason : `${folder}: ${reason}`)),
  );
  const more =
    total > found.length ? [el("p", { class: "soft" }, `and ${total - found.length} more`)] : [];
  const heading = `${total} ${total === 1 ? "thing" : "things"} could not be read`;
  return [
    el("details", { class: "incomplete" }, el("summary", {}, heading), el("ul", {}, lines), more),
  ];
}

// Whether a run's name, model, state, id or folder contains the text.
const contains = (text) => (run) =>
  [run.name, run.model, run.state, run.run, run.folder].some((one) =>
    one?.toLowerCase().includes(text.toLowerCase()),
  );

export async function showRuns(main, _parts, query) {
  const [head, body, state, problems] = [el("thead"), el("tbody"), el("div"), el("div")];
  const table = scrolled("Runs", el("table", { class: "runs" }, head, body), "figures");
  // In the order of choice: the first is the baseline.
  const chosen = new Set();
  const go = el("a", { class: "button", href: "#/compare" });
  const choose = (event) => {
    if (event?.target.checked) chosen.add(event.target.value);
    else if (event) chosen.delete(event.target.value);
    go.href = compareAddress([...chosen]);
    go.textContent =
      chosen.size > 1
        ? `Compare ${chosen.size} runs; the first chosen is the baseline`
        : "Compare runs";
  };
  choose();
  const search = el("input", {
    name: "q",
    type: "search",
    maxlength: 200,
    value: query.get("q") ?? "",
    placeholder: "name, model, folder",
    oninput: () => look(),
  });
  const count = el("p", { class: "soft number", role: "status" });
  const form = el(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "Find runs",
      onsubmit: (event) => event.preventDefault(),
    },
    el("label", {}, "Search ( / )", search),
  );
  main.replaceChildren(
    el("h1", {}, "Runs"),
    api.only() ? "" : el("p", {}, go),
    form,
    state,
    problems,
    count,
    table,
  );
  const links = () => [...body.querySelectorAll("th a")];
  const release = keys("The list of runs", [
    ["/", "search in names, models, states and folders", () => search.focus()],
    ["j", "go to the next run", () => move(links(), 1)],
    ["k", "go to the previous run", () => move(links(), -1)],
    ["Enter", "open the run"],
    [
      "c",
      "choose the run for a comparison, or no longer",
      () => document.activeElement.closest("tr")?.querySelector("input").click(),
    ],
  ]);
  let [found, folders] = [[], { folders: [], waiting: 0, unreadable: [], unreadable_total: 0 }];
  let order = { label: "begun", value: HEADINGS[3][1], direction: -1 };
  const sort = (label, value, first) => {
    order = { label, value, direction: order.label === label ? -order.direction : first };
    fill();
  };
  let lost = null;
  const fill = () => {
    const datasets = [...new Set(found.flatMap((run) => Object.keys(run.scores)))];
    const shown = (run) =>
      line(lost ? { ...run, seconds_left: null } : run, datasets, chosen, choose);
    renew(state, searching(folders));
    renew(problems, unreadable(folders));
    const wanted = found.filter(contains(search.value));
    form.hidden = found.length < 2 && !search.value;
    count.textContent = !found.length
      ? "No run yet: plumb run begins one."
      : search.value
        ? `${wanted.length} of ${found.length} runs`
        : "";
    table.hidden = !found.length;
    const before = (a, b) =>
      order.direction *
      (order.value(a) < order.value(b) ? -1 : order.value(a) > order.value(b) ? 1 : 0);
    renew(
      head,
      el(
        "tr",
        {},
        el("td"),
        [...HEADINGS, ...datasets.map(ofDataset)].map((one) => heading(one, order, sort)),
      ),
    );
    renew(body, wanted.sort(before).map(shown));
    warn(lost ? noAnswer(lost) : "");
  };
  const look = () => {
    history.replaceState(
      history.state,
      "",
      search.value ? `#/?${new URLSearchParams({ q: search.value })}` : "#/",
    );
    fill();
  };
  const draw = async () => {
    const [runs, searched] = await Promise.all([api.runs(), api.folders()]);
    [found, folders] = [
      Object.values(runs).sort((a, b) => (b.started_at ?? 0) - (a.started_at ?? 0)),
      searched,
    ];
    lost = null;
    fill();
  };
  const silent = () => {
    lost ??= new Date();
    fill();
  };
  await draw();
  const stop = repeat(() => draw().catch(silent));
  return () => (stop(), release());
}
