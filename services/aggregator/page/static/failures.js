// Failures of a run by what they have in common, the largest group first.
import * as api from "./api.js";
import { el, name, visible } from "./dom.js";
import { filtersOf } from "./filters.js";
import { address, runAddress } from "./listing.js";

const SHOWN = 20;

function example(run, row, query) {
  const link = el(
    "a",
    { href: address(run, row, query) },
    name(row.problem_id),
    row.sample_index ? ` #${row.sample_index}` : "",
  );
  return el(
    "div",
    {},
    link,
    row.stderr
      ? el(
          "pre",
          { tabindex: 0, role: "group", "aria-label": "Standard error" },
          visible(row.stderr),
        )
      : null,
  );
}

function line(run, query, group, all) {
  const kept = new URLSearchParams({ ...filtersOf(query), group: group.id });
  const share = `${((100 * group.samples) / all).toFixed(1)}\u00a0%`;
  return el(
    "tr",
    {},
    el("td", { class: "number" }, String(group.samples), el("div", { class: "soft" }, share)),
    el("th", { scope: "row" }, el("a", { href: runAddress(run, kept) }, name(group.signature))),
    el(
      "td",
      {},
      group.examples.map((row) => example(run, row, kept)),
    ),
  );
}

// A part that is filled when it is opened; `refresh` reads the filters again.
export function failureGroups(run, query) {
  const place = el("div", { role: "group", "aria-label": "Groups of failures" });
  const box = el(
    "details",
    { class: "failures" },
    el("summary", {}, "Failures by what they have in common ( g )"),
    place,
  );
  let asked = 0;
  const load = async () => {
    const mine = ++asked;
    const found = await api.failures(run, { ...filtersOf(query), limit: SHOWN });
    if (mine !== asked) return;
    if (!found.groups.length)
      return place.replaceChildren(el("p", { class: "soft" }, "No failure under these filters."));
    const note = `${found.samples} failures in ${found.total} groups${found.total > found.groups.length ? `, the ${found.groups.length} largest` : ""}. Numbers and addresses count as equal.`;
    const headings = [
      ["samples", "number"],
      ["in common", null],
      ["examples", null],
    ];
    const head = el(
      "tr",
      {},
      headings.map(([label, kind]) => el("th", { scope: "col", class: kind }, label)),
    );
    const rows = found.groups.map((group) => line(run, query, group, found.samples));
    place.replaceChildren(
      el("p", { class: "soft number" }, note),
      el("div", { class: "wide" }, el("table", {}, el("thead", {}, head), el("tbody", {}, rows))),
    );
  };
  const refresh = () =>
    box.open
      ? load().catch((error) => place.replaceChildren(el("p", {}, name(error.message))))
      : null;
  box.addEventListener("toggle", refresh);
  return { box, refresh };
}
