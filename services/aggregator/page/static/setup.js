// Settings and versions of a run.
import { definitions, name } from "./dom.js";
import { clock, moment } from "./runs.js";

function canaries({ sandboxes, lost }) {
  const sum = (key) => sandboxes.reduce((total, one) => total + one[key], 0);
  const rest = [
    ["wrong", "wrong"],
    ["unjudged", "not judged"],
    ["unable", "that the sandbox cannot run"],
  ];
  const parts = rest.filter(([key]) => sum(key)).map(([key, text]) => `${sum(key)} ${text}`);
  if (lost) parts.push(`${lost} rounds lost`);
  return [`${sum("right")} of ${sum("sent")} got the expected verdict`, ...parts].join(", ");
}

function values({ summary, facts }) {
  const { judge, sandbox, actor_rollout_ref: actor } = facts.config ?? {};
  const { temperature, top_p, n, response_length } = actor?.rollout ?? {};
  return {
    run: summary.run,
    model: summary.model,
    sampling: facts.completions
      ? "recorded answers"
      : actor &&
        `temperature ${temperature}, top_p ${top_p}, n ${n}, at most ${response_length} tokens`,
    seed: facts.seed,
    judging:
      judge &&
      `${judge.method}, checker ${judge.checker ?? "by method"}, ${sandbox?.timeout} s per case`,
    begun: moment(summary.started_at),
    finished: summary.finished_at && moment(summary.finished_at),
    "active time": facts.active_seconds && clock(facts.active_seconds),
    commit: facts.git_commit,
    "tokens counted with":
      facts.tokenizer &&
      `${facts.tokenizer.name} (SHA-256 ${facts.tokenizer.sha256.slice(0, 12)}…)`,
    versions:
      facts.versions &&
      Object.entries(facts.versions)
        .map(([key, one]) => `${key} ${one}`)
        .join(", "),
    canaries: facts.canaries && canaries(facts.canaries),
    parent: facts.parent?.run,
    folder: facts.output,
  };
}

// What was measured, in a line.
export function measured({ summary, facts: { config, completions }, datasets }) {
  const rollout = config?.actor_rollout_ref?.rollout;
  const all = Object.values(datasets);
  const total = (key) => all.reduce((sum, one) => sum + one[key], 0);
  const [problems, samples] = [total("planned_problems"), total("planned_samples")];
  const each = samples % problems ? `${samples} answers` : `${samples / problems} answers each`;
  return name(
    [
      summary.model ?? "an unnamed model",
      `${problems} problems of ${all.length} data set${all.length === 1 ? "" : "s"}`,
      samples === problems ? "one answer each" : each,
      completions ? "recorded answers" : rollout && `temperature ${rollout.temperature}`,
      config?.judge && `judged by ${config.judge.method}`,
    ]
      .filter(Boolean)
      .join(" · "),
  );
}

export const setup = (run) => definitions(values(run));
