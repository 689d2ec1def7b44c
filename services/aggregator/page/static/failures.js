// Failures of a run by what they have in common, the largest group first.
import * as api from "./api.js";
import { cell, column, el, figure, name, row, rowHead, soft, table, visible } from "./dom.js";
import { filtersOf } from "./filters.js";
import { address, runAddress, sampleName } from "./listing.js";

const SHOWN = 20;

function example(run, one, query) {
  const attributes = { tabindex: 0, role: "group", "aria-label": "Standard error" };
  return el(
    "div",
    {},
    el("a", { href: address(run, one, query) }, sampleName(one)),
    one.stderr ? el("pre", attributes, visible(one.stderr)) : null,
  );
}

function line(run, query, group, all) {
  const kept = new URLSearchParams({ ...filtersOf(query), group: group.id });
  const share = `${((100 * group.samples) / all).toFixed(1)}\u00a0%`;
  return row(
    figure(group.samples, el("div", { class: "soft" }, share)),
    rowHead(el("a", { href: runAddress(run, kept) }, name(group.signature))),
    cell(group.examples.map((one) => example(run, one, kept))),
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
    if (!found.groups.length) return place.replaceChildren(soft("No failure under these filters."));
    const note = `${found.samples} failures in ${found.total} groups${found.total > found.groups.length ? `, the ${found.groups.length} largest` : ""}. Numbers and addresses count as equal.`;
    const head = [column("samples", "number"), column("in common"), column("examples")];
    const rows = found.groups.map((group) => line(run, query, group, found.samples));
    place.replaceChildren(soft(note), el("div", { class: "wide" }, table(head, rows)));
  };
  const refresh = () =>
    box.open
      ? load().catch((error) => place.replaceChildren(el("p", {}, name(error.message))))
      : null;
  box.addEventListener("toggle", refresh);
  return { box, refresh };
}
