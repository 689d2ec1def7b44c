"""Differences between a trainer's configuration and the protocol of a run.

A trainer's validation has to measure what the run measured, so that its step 0 is the baseline.
Its rollouts for training explore: other sampling is expected there.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from pydantic import JsonValue

from services.training.findings import Finding, Kind
from services.training.trainer_config import TrainerConfig
from shared.config import RULES
from shared.environment import REJUDGE
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
_SAMPLING = ("temperature", "top_p", "top_k", "n")


def compare(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    """Compare model, lengths, sampling, chat template and validation with a run."""
    yield from _model(trainer, run)
    yield from _lengths(trainer, run)
    yield from _sampling(trainer, run)
    yield from _chat_template(trainer, run)
    yield from _validation(trainer)


def compare_judges(service: Mapping[str, JsonValue], run: RunRecord) -> Iterator[Finding]:
    """Compare the protocol of a reward service with the run's, by leaf of judge and sandbox.

    ``service`` has the leaves that ``/v1/info`` reports.
    """
    leaves = run.config.protocol().leaves
    measured = {path: leaves[path] for path in leaves if path.startswith(("judge.", "sandbox."))}
    for path in sorted({*measured, *service}):
        if measured.get(path) != service.get(path):
            text = "the reward service judges by another protocol; start it with the run's config"
            if path == _RULES:
                text = REJUDGE
            yield Finding(Kind.DIFFERENCE, path, service.get(path), measured.get(path), text)


def compare_rules(run: RunRecord) -> Iterator[Finding]:
    """Compare the present verdict rules, by which a reward service of this release judges."""
    if run.config.judge.rules != RULES:
        yield Finding(Kind.DIFFERENCE, _RULES, RULES, run.config.judge.rules, REJUDGE)


def compare_environments(service: str, run: RunRecord) -> Iterator[Finding]:
    """Compare what programs run on: the fingerprint that a service reports, and the run's.

    A service whose operator named its sandboxes has no fingerprint to compare.
    """
    known = [one.fingerprint for one in run.environments]
    if known and service not in known and _FINGERPRINT.fullmatch(service):
        subject = "the programs' Python and packages"
        yield Finding(Kind.DIFFERENCE, subject, service[:12], known[0][:12], REJUDGE)


def _model(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    config = run.config
    names = [run.model, config.generation.model, config.actor_rollout_ref.model.path]
    path = trainer.text(f"{_MODEL}.path")
    if PurePosixPath(path) not in {PurePosixPath(name) for name in names if name}:
        text = "the trainer starts from another model"
        yield Finding(Kind.DIFFERENCE, f"{_MODEL}.path", path, run.served_model, text)
    rank = trainer.number(f"{_MODEL}.lora_rank") or 0
    if rank != config.actor_rollout_ref.model.lora_rank:
        text = "a new adapter does nothing at step 0; a trained one makes another model"
        theirs = config.actor_rollout_ref.model.lora_rank
        yield Finding(Kind.EXPECTED, f"{_MODEL}.lora_rank", rank, theirs, text)


def _lengths(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    rollout = run.config.actor_rollout_ref.rollout
    for path, name, text in _LENGTHS:
        ours, theirs = trainer.number(path), float(getattr(rollout, name))
        if ours != theirs:
            yield Finding(Kind.DIFFERENCE, path, ours, theirs, text)


def _sampling(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    rollout = run.config.actor_rollout_ref.rollout
    for name in _SAMPLING:
        theirs = _limit(name, float(getattr(rollout, name)))
        measured, exploring = (
            _limit(name, trainer.number(f"{part}.{name}"))
            for part in (f"{_ROLLOUT}.val_kwargs", _ROLLOUT)
        )
        if measured != theirs:
            text, subject = "validation samples otherwise than the run", f"val_kwargs.{name}"
            yield Finding(Kind.DIFFERENCE, f"{_ROLLOUT}.{subject}", measured, theirs, text)
        if exploring != theirs:
            text = "training explores; validation has its own sampling"
            yield Finding(Kind.EXPECTED, f"{_ROLLOUT}.{name}", exploring, theirs, text)
    if stop := run.config.generation.stop:
        text = "verl's rollouts have no stop texts; measure the baseline without them"
        yield Finding(Kind.DIFFERENCE, "generation.stop", None, list(stop), text)


def _limit(name: str, value: float | None) -> float | None:
    """A ``top_k`` below 1 means no limit, whichever number says so."""
    return -1.0 if name == "top_k" and value is not None and value < 1 else value


def _chat_template(trainer: TrainerConfig, run: RunRecord) -> Iterator[Finding]:
    subject = f"{_MODEL}.custom_chat_template"
    ours, theirs = trainer.text(subject), run.config.generation.verl.chat_template
    if bool(ours) != bool(theirs):
        text = "one of the two replaces the tokenizer's chat template"
        yield Finding(Kind.DIFFERENCE, subject, ours or None, theirs or None, text)
    elif ours:
        text = "both replace the tokenizer's chat template; compare the two texts"
        yield Finding(Kind.EXPECTED, subject, ours, theirs, text)
    path, kwargs = "data.apply_chat_template_kwargs", run.config.data.apply_chat_template_kwargs
    if (ours_kwargs := trainer.get(path) or {}) != kwargs:
        text = "the chat template gets other arguments"
        yield Finding(Kind.DIFFERENCE, path, ours_kwargs or None, kwargs or None, text)
    if tokenizer := trainer.get("data.tokenizer"):
        text = "changes the prompts' tokens; the run had nothing of the kind"
        yield Finding(Kind.DIFFERENCE, "data.tokenizer", tokenizer, None, text)


def _validation(trainer: TrainerConfig) -> Iterator[Finding]:
    for path, wrong, text in (
        (
            "trainer.val_before_train",
            trainer.get("trainer.val_before_train") is False,
            "step 0 is not validated, so nothing shows that training starts at the baseline",
        ),
        (
            "trainer.test_freq",
            (trainer.number("trainer.test_freq") or -1) < 1,
            "nothing is validated during training",
        ),
        (
            "data.val_max_samples",
            (trainer.number("data.val_max_samples") or -1) > 0,
            "validation takes a part of the problems",
        ),
    ):
        if wrong:
            yield Finding(Kind.DIFFERENCE, path, trainer.get(path), None, text)
