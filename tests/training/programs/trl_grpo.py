"""A GRPO run with TRL (``python -m tests.training.programs.trl_grpo MODEL ROWS OUT SEED STEPS``).

ROWS are JSON lines with the columns of a training set: ``prompt`` (messages) and ``ground_truth``.
Writes the mean reward of every step to OUT as JSON.
"""

import json
import sys
from pathlib import Path

import torch
from datasets import Dataset
from plumbline_reward import reward_func
from trl import GRPOConfig, GRPOTrainer

_N = 8  # completions per prompt


def main(model: str, rows: str, out: str, seed: str, steps: str) -> None:
    torch.set_num_threads(1)
    columns = [json.loads(line) for line in Path(rows).read_text().splitlines()]
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=reward_func,
        args=_config(Path(out).with_suffix(""), len(columns), int(seed), int(steps)),
        train_dataset=Dataset.from_list(columns),
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    Path(out).write_text(json.dumps([entry["reward"] for entry in history]))


def _config(folder: Path, prompts: int, seed: int, steps: int) -> GRPOConfig:
    return GRPOConfig(
        output_dir=str(folder),
        seed=seed,
        max_steps=steps,
        per_device_train_batch_size=prompts * _N,
        num_generations=_N,
        max_completion_length=72,
        temperature=1.0,
        learning_rate=3e-4,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
