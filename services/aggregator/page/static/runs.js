// View of all runs, the latest first.
import * as api from "./api.js";
import {
  button,
  cell,
  controls,
  el,
  figure,
  name,
  plain,
  renew,
  repeat,
  row,
  rowHead,
  scrolled,
  soft,
  table,
  warn,
} from "./dom.js";
import { keys, move } from "./help.js";
import { compareAddress, problemsAddress, runAddress, sampling } from "./listing.js";
import { percent, points, range } from "./numbers.js";

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
  const incomplete = rest && isFinal(run);
  const text = `${judged} of ${planned} judged${rest && `, ${rest}`}${incomplete ? ": incomplete" : left}`;
  const kind = incomplete ? "incomplete" : "soft";
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
  if (!found) return figure();
  const { metrics, difference } = found;
  const part = (text, attributes) => (text ? el("div", attributes, text) : null);
  const bounds = found.judged < found.planned && metrics.accepted_at_1_bounds;
  const between = bounds && `${range(bounds, percent)} with those not judged`;
  return figure(
    el("b", {}, percent(metrics.accepted_at_1)),
    part(between, { class: "incomplete" }),
    part(range(metrics.accepted_at_1_ci95, percent), { class: "soft" }),
    part(difference === null ? null : points(difference), {
      title: "points, to the run before of the same protocol",
    }),
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
  const small = (text) => (text ? el("div", { class: "soft" }, name(text)) : null);
  return el(
    "tr",
    { id: `run-${run.run}` },
    cell(box),
    rowHead(
      el("a", { href: runAddress(run.run) }, name(run.name ?? run.run)),
      small(run.name !== run.run && run.name && run.run),
      small(run.folder),
    ),
    cell(run.model ? name(run.model) : "–", small(sampling(run).join(", "))),
    cell(run.state ?? "", progress(run)),
    figure(moment(run.started_at)),
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
  (run) => (Object.hasOwn(run.scores, key) ? run.scores[key].metrics.accepted_at_1 : -1),
  -1,
  el(
    "div",
    {},
    el("a", { href: problemsAddress(key), "aria-label": plain(`Problems of ${key}`) }, "problems"),
  ),
];

// An update keeps the heading that has the same id.
function heading([label, value, first, more = null], order, sort) {
  const direction = order.label === label ? order.direction : null;
  const sorted = direction && (direction > 0 ? "ascending" : "descending");
  const press = button(name(label), () => sort(label, value, first), { class: "sort" });
  return el("th", { id: `column-${label}`, scope: "col", "aria-sort": sorted }, press, more);
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
  return [...folders.map(line), ...(waiting ? [soft(left)] : [])];
}

// What could not be read, with reasons.
function unreadable({ unreadable: found, unreadable_total: total }) {
  if (!total) return [];
  const lines = found.map(({ folder, reason }) =>
    el("li", {}, name(reason.startsWith(folder) ? reason : `${folder}: ${reason}`)),
  );
  const more = total > found.length ? soft(`and ${total - found.length} more`) : null;
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
  const [body, state, problems] = [el("tbody"), el("div"), el("div")];
  const list = table([], body, { class: "runs" });
  const box = scrolled("Runs", list, "figures");
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
  const label = el("label", {}, "Search ( / )", search);
  const form = controls({ role: "search", "aria-label": "Find runs" }, label);
  main.replaceChildren(el("h1", {}, "Runs"), el("p", {}, go), form, state, problems, count, box);
  const links = () => [...body.querySelectorAll("th a")];
  const release = keys("The list of runs", [
    ["/", "search in names, models, states and folders", () => search.focus()],
    ["j", "go to the next run", () => move(links(), 1)],
    ["k", "go to the previous run", () => move(links(), -1)],
    ["Enter", "open the run"],
    ["c", "choose the run for a comparison, or no longer", () => mark()],
  ]);
  const mark = () => document.activeElement.closest("tr")?.querySelector("input").click();
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
    box.hidden = !found.length;
    const before = (a, b) =>
      order.direction *
      (order.value(a) < order.value(b) ? -1 : order.value(a) > order.value(b) ? 1 : 0);
    const headings = [...HEADINGS, ...datasets.map(ofDataset)];
    renew(
      list.tHead,
      row(
        el("td"),
        headings.map((one) => heading(one, order, sort)),
      ),
    );
    renew(body, wanted.sort(before).map(shown));
    warn(lost ? noAnswer(lost) : "");
  };
  const look = () => {
    const query = search.value ? `?${new URLSearchParams({ q: search.value })}` : "";
    history.replaceState(history.state, "", `#/${query}`);
    fill();
  };
  const draw = async () => {
    const [runs, searched] = await Promise.all([api.runs(), api.folders()]);
    found = Object.values(runs).sort((a, b) => (b.started_at ?? 0) - (a.started_at ?? 0));
    folders = searched;
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
