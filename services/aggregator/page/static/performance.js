// Performance of a run: what it waits for, and the load of generation and judging over time.
import * as api from "./api.js";
import { el, name, soft } from "./dom.js";
import { overTime } from "./trend.js";

const whole = (value) =>
  value.toLocaleString("en-GB", { maximumFractionDigits: value < 10 ? 1 : 0 });

function charts(found) {
  const chart = (label, series, more = {}) =>
    overTime({
      label,
      width: found.width,
      form: whole,
      series: series.map(([title, values, kind]) => ({ name: title, values, kind })),
      ...more,
    });
  const slots = found.slots
    ? { limit: { name: `the sandbox's ${found.slots} slots`, value: found.slots } }
    : {};
  const per = found.width === 1 ? "a second" : `per ${found.width} s`;
  const one = (label, title, values, kind, more) => chart(label, [[title, values, kind]], more);
  const programs = "sandbox seconds a second";
  return [
    one("Requests in flight", "requests to the generator", found.in_flight, "first"),
    one("Output tokens a second", "tokens", found.tokens, "first"),
    chart(`Samples ${per}`, [
      ["generated", found.generated, "first"],
      ["judged", found.judged, "second"],
    ]),
    one("Waiting to be judged", "generated and not judged", found.waiting, "second"),
    one("Programs in the sandbox", programs, found.programs, "second", slots),
    one(`Time-outs ${per}`, "verdicts that are time-outs", found.timeouts, "second"),
  ]
    .filter((parts) => parts.length)
    .map((parts) => el("div", {}, parts));
}

export async function performance(run) {
  const found = await api.performance(run);
  return [
    el("h2", {}, "What the run waits for"),
    el("p", { class: "sentence" }, name(found.sentence)),
    found.notes.map((note) => soft(name(note))),
    el("div", { class: "plots" }, charts(found)),
  ];
}
