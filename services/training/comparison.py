"""Differences between a trainer's configuration and the protocol of a run.

A trainer's validation has to measure what the run measured, so that its step 0 is the baseline.
Its rollouts for training explore: other sampling is expected there.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pydantic import JsonValue

from services.training.trainer_config import Finding, Kind, TrainerConfig
from shared.canaries import REJUDGE
from shared.config import RULES
from shared.run_record import RunRecord

_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
# The trainer's leaf, the run's, what a difference means.
_LENGTHS = (
    ("data.max_prompt_length", "prompt_length", "other prompts are left out or refused"),
    (f"{_ROLLOUT}.prompt_length", "prompt_length", "the engine's context is another one"),
    ("data.max_response_length", "response_length", "answers are cut at another length"),
    (f"{_ROLLOUT}.response_length", "response_length", "answers are cut at another length"),
)
_RULES = "judge.rules"
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def compare(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    """Compare model, lengths, sampling, chat template and validation with a run."""
    pairs = ((Kind.DIFFERENCE, _differences), (Kind.EXPECTED, _expected))
    for kind, compared in pairs:
        for subject, value, measured, text in compared(trainer, run):
            if value != measured:
                yield Finding(kind, subject, value, measured, text)


def compare_judges(service: Mapping[str, JsonValue], run: RunRecord) -> Iterator[Finding]:
    """Compare the protocol of a reward service with the run's, by leaf of judge and sandbox.

    ``service`` has the leaves that ``/v1/info`` reports.
    """
    leaves = run.config.protocol().leaves
    measured = {path: leaves[path] for path in leaves if path.startswith(("judge.", "sandbox."))}
    for path in sorted({*measured, *service}):
        if measured.get(path) != service.get(path):
            text = "the reward service judges by another protocol; start it with the run's config"
            text = REJUDGE if path == _RULES else text
            yield Finding(Kind.DIFFERENCE, path, service.get(path), measured.get(path), text)


def compare_rules(run: RunRecord) -> Iterator[Finding]:
    """Compare the present verdict rules, by which a reward service of this release judges."""
    if run.config.judge.rules != RULES:
        yield Finding(Kind.DIFFERENCE, _RULES, RULES, run.config.judge.rules, REJUDGE)


def compare_environments(service: str, run: RunRecord) -> Iterator[Finding]:
    """Compare what programs run on: the fingerprint that a service reports, and the run's.

    A service whose operator named its sandboxes has no fingerprint to compare.
    """
    measured = [environment.fingerprint for environment in run.environments]
    if measured and service not in measured and _FINGERPRINT.fullmatch(service):
        subject = "the programs' Python and packages"
        yield Finding(Kind.DIFFERENCE, subject, service[:12], measured[0][:12], REJUDGE)


_Pairs = Iterator[tuple[str, JsonValue, JsonValue, str]]
"""Subject, the trainer's value, the run's, and what a difference means."""


def _differences(trainer: TrainerConfig, run: RunRecord) -> _Pairs:
    config, rollout = run.config, run.config.actor_rollout_ref.rollout
    names = [run.model, config.generation.model, config.actor_rollout_ref.model.path]
    path = trainer.text(f"{_MODEL}.path")
    if PurePosixPath(path) not in {PurePosixPath(name) for name in names if name}:
        yield f"{_MODEL}.path", path, run.served_model, "the trainer starts from another model"
    for path, name, text in _LENGTHS:
        yield path, trainer.number(path), float(getattr(rollout, name)), text
    for name, measured in _sampling(run).items():
        path = f"{_ROLLOUT}.val_kwargs.{name}"
        value = _limit(name, trainer.number(path))
        yield path, value, measured, "validation samples otherwise than the run"
    text = "verl's rollouts have no stop texts; measure the baseline without them"
    yield "generation.stop", None, list(config.generation.stop) or None, text
    template, theirs = _templates(trainer, run)
    if not template or not theirs:
        text = "one of the two replaces the tokenizer's chat template"
        yield f"{_MODEL}.custom_chat_template", template, theirs, text
    path = "data.apply_chat_template_kwargs"
    text = "the chat template gets other arguments"
    yield path, trainer.get(path) or None, config.data.apply_chat_template_kwargs or None, text
    text = "changes the prompts' tokens; the run had nothing of the kind"
    yield "data.tokenizer", trainer.get("data.tokenizer") or None, None, text
    if trainer.get("trainer.val_before_train") is False:
        text = "step 0 is not validated, so nothing shows that training starts at the baseline"
        yield "trainer.val_before_train", False, None, text
    if (trainer.number("trainer.test_freq") or -1) < 1:
        text = "nothing is validated during training"
        yield "trainer.test_freq", trainer.get("trainer.test_freq") or 0, None, text
    if (samples := trainer.number("data.val_max_samples") or -1) > 0:
        yield "data.val_max_samples", samples, None, "validation takes a part of the problems"


def _expected(trainer: TrainerConfig, run: RunRecord) -> _Pairs:
    rank = trainer.number(f"{_MODEL}.lora_rank") or 0
    text = "a new adapter does nothing at step 0; a trained one makes another model"
    yield f"{_MODEL}.lora_rank", rank, run.config.actor_rollout_ref.model.lora_rank, text
    for name, measured in _sampling(run).items():
        value = _limit(name, trainer.number(f"{_ROLLOUT}.{name}"))
        text = "training explores; validation has its own sampling"
        yield f"{_ROLLOUT}.{name}", value, measured, text
    template, theirs = _templates(trainer, run)
    if template and theirs:
        text = "both replace the tokenizer's chat template; compare the two texts"
        yield f"{_MODEL}.custom_chat_template", template, theirs, text


def _sampling(run: RunRecord) -> dict[str, float | None]:
    rollout = run.config.actor_rollout_ref.rollout
    names = ("temperature", "top_p", "top_k", "n")
    return {name: _limit(name, float(getattr(rollout, name))) for name in names}


def _limit(name: str, value: float | None) -> float | None:
    """A ``top_k`` below 1 means no limit, whichever number says so."""
    return -1.0 if name == "top_k" and value is not None and value < 1 else value


def _templates(trainer: TrainerConfig, run: RunRecord) -> tuple[str | None, str | None]:
    template = trainer.text(f"{_MODEL}.custom_chat_template")
    return template or None, run.config.generation.verl.chat_template or None
