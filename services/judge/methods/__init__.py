"""The ways to judge an answer, one module each behind one interface."""

from services.judge.methods import batch, compute_score
from services.judge.methods import submit as submit
from services.judge.methods.base import Method, Task

METHODS: dict[str, Method] = {
    batch.NAME: batch.judge,
    submit.NAME: submit.judge,
    compute_score.NAME: compute_score.judge,
}

__all__ = ["METHODS", "Method", "Task"]
