"""Seconds that a reward adds to a step of GRPO: Plumbline's beside verl's own sandbox reward.

    python -m tests.bench.reward_step --model DIR --out DIR [--rewards plumbline,verl] [KEY=VALUE …]

One GPU. Both train the same model on the same problems for the same number of steps with their
programs in the same sandbox, which is started here, as is the reward service. Each reward's log,
settings and figures stay in a folder of `--out`; the table of all rewards found there is printed as
JSON and written to `table.json`, so the two can be measured by two commands. KEY=VALUE are further
settings of `main_ppo`. `VERL_PYTHON` is the interpreter that has verl, by default this one.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.reward_step import trainer
from tests.bench.reward_step.figures import Figures, as_json, figures, read_metrics, read_rewards
from tests.bench.reward_step.trainer import OURS, VERLS, Size
from tests.e2e.plumb import DEMO
from tests.e2e.reward import reward_service
from tests.sandboxes import sandbox

_CORES = len(os.sched_getaffinity(0))


def main() -> int:
    options = _arguments()
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    failed = [reward for reward in options.rewards if not _measure(reward, out, options)]
    print(_table(out, options))
    return 1 if failed else 0


def _measure(reward: str, out: Path, options: argparse.Namespace) -> bool:
    """Train with one reward; returns whether the trainer came to its end."""
    folder = out / reward
    folder.mkdir(exist_ok=True)
    for old in ("rewards.jsonl", "metrics.jsonl"):
        (folder / old).unlink(missing_ok=True)
    size = Size(options.steps, options.prompts, options.n)
    trainer.write_rows(folder / "train.parquet", size, reference=reward == OURS)
    settings = trainer.overrides(options.model.absolute(), folder / "train.parquet", folder, size)
    started = time.monotonic()
    with sandbox(_made(folder / "sandbox")) as programs:
        settings += [*trainer.reward_overrides(reward, programs), *options.settings]
        with _service(reward, programs) as url:
            code = trainer.train(
                trainer.default_python(),
                settings,
                trainer.environment(folder, url),
                folder / "trainer.log",
                options.limit_seconds,
            )
    seconds = time.monotonic() - started
    print(f"{reward}: exit code {code} after {seconds:.0f} s (None: ended by --limit-seconds)")
    if code != 0:
        print(trainer.tail(folder / "trainer.log"), file=sys.stderr)
    return code == 0


@contextmanager
def _service(reward: str, programs: str) -> Iterator[str | None]:
    """Start what Plumbline's reward needs; its state is new, so no verdict is remembered."""
    if reward != OURS:
        yield None
        return
    workers = f"judge.workers={max(1, _CORES // 4)}"
    # The demo's sets are for evaluation; nothing is evaluated here.
    with reward_service(DEMO / "data", workers, allow_eval=True, SANDBOX_URLS=programs) as service:
        yield service.url


def _table(out: Path, options: argparse.Namespace) -> str:
    results: dict[str, Figures] = {}
    for reward in (OURS, VERLS):
        log = out / reward / "rewards.jsonl"
        if log.exists():
            try:
                metrics = read_metrics(out / reward / "metrics.jsonl")
                results[reward] = figures(read_rewards(log), metrics)
            except ValueError as error:
                print(f"{reward}: {error}", file=sys.stderr)
    facts = {
        "model": str(options.model),
        "prompts_per_step": options.prompts,
        "completions_per_prompt": options.n,
        "cores": _CORES,
        "unit": "seconds",
    }
    text = as_json(results, facts)
    (out / "table.json").write_text(text + "\n")
    return text


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _rewards(text: str) -> list[str]:
    rewards = text.split(",")
    if unknown := set(rewards) - {OURS, VERLS}:
        raise argparse.ArgumentTypeError(f"no reward {unknown}; there are {OURS} and {VERLS}")
    return rewards


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="reward_step", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="`make tiny-model`, or another")
    parser.add_argument("--out", type=Path, required=True, help="folder for logs and figures")
    parser.add_argument("--rewards", type=_rewards, default=[OURS, VERLS])
    parser.add_argument("--steps", type=int, default=21, help="the first does not count (21)")
    parser.add_argument("--prompts", type=int, default=32, help="in a step (32)")
    parser.add_argument("--n", type=int, default=8, help="completions per prompt (8)")
    parser.add_argument("--limit-seconds", type=float, default=265.0, help="of each reward (265)")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="more for main_ppo")
    return parser.parse_intermixed_args()


if __name__ == "__main__":
    sys.exit(main())
