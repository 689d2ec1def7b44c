"""Options of all benchmark scenarios, and the configuration built from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.config import Config, load_config
from tests.bench.generation.questions import vocabulary
from tests.bench.generation.report import Report


@dataclass(frozen=True, slots=True)
class Size:
    """Of a load on one replica. ``prompt_tokens`` are those of a prompt, on average."""

    prompts: int
    prompt_tokens: int
    new_tokens: int
    max_num_seqs: int


GPU = Size(prompts=512, prompt_tokens=200, new_tokens=256, max_num_seqs=512)
CPU = Size(prompts=32, prompt_tokens=50, new_tokens=32, max_num_seqs=32)


@dataclass(frozen=True, slots=True)
class Bench:
    """``folder`` is for logs and files of the servers; ``overrides`` are of our configuration."""

    model: str
    size: Size
    cpu_engine: bool
    folder: Path
    report: Report
    overrides: Sequence[str]

    @property
    def vocabulary(self) -> int:
        return vocabulary(self.model)

    def config(self, replicas: int = 1, *more: str) -> Config:
        """A run's configuration with so many replicas of the model."""
        size = self.size
        cpu = ["actor_rollout_ref.rollout.enforce_eager=true"] if self.cpu_engine else []
        return load_config(
            None,
            [
                f"trainer.n_gpus_per_node={replicas}",
                f"actor_rollout_ref.model.path={self.model}",
                f"actor_rollout_ref.rollout.prompt_length={2 * size.prompt_tokens}",
                f"actor_rollout_ref.rollout.response_length={size.new_tokens}",
                f"actor_rollout_ref.rollout.max_num_seqs={size.max_num_seqs}",
                "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
                f"generation.verl.cpu_engine={self.cpu_engine}",
                "generation.backend=verl",
                # Speed does not depend on the weights, so the model's may be random.
                "generation.verl.allow_random_weights=true",
                *cpu,
                *self.overrides,
                *more,
            ],
        )
