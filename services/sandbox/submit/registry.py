"""Which dataset is judged how."""

from collections.abc import Mapping
from typing import TypeVar

from services.sandbox.submit import autoeval, common_oj, evoeval, humaneval, mbpp
from services.sandbox.submit.errors import refused
from services.sandbox.submit.plans import Plan, Planner
from services.sandbox.submit.schemas import SubmitConfig, SubmitRequest
from services.sandbox.tables import NO_TABLES, Tables

DATASETS: dict[str, Planner] = {
    "code_contests": common_oj.plan,
    "humaneval_python": humaneval.plan,
    "shadow_humaneval_python": humaneval.plan,
    "evoeval": evoeval.plan,
    "mbpp": mbpp.plan,
}

CLASSES: dict[str, Planner] = {
    "AutoEvalDataset": autoeval.plan,
    "CommonOJDataset": common_oj.plan,
    "HumanEvalDataset": humaneval.plan,
    "MBPPDataset": mbpp.plan,
}


Handler = TypeVar("Handler")


def make_plan(request: SubmitRequest, tables: Tables = NO_TABLES) -> Plan:
    """The programs to run, by the record in the request, or else the one that the server has.

    Raises:
        SubmitError: 400, or 404 where there is no such record.
    """
    plan = by_dataset(DATASETS, CLASSES, request.dataset, request.config)
    config = tables.completed(request.dataset, request.id, request.config)
    return plan(request.model_copy(update={"config": config}))


def by_dataset(
    datasets: Mapping[str, Handler],
    classes: Mapping[str, Handler],
    dataset: str,
    config: SubmitConfig,
) -> Handler:
    """What handles a dataset, by its name or, for unknown ones, ``config.dataset_type``.

    Raises:
        SubmitError: 400.
    """
    if dataset in datasets:
        return datasets[dataset]
    name = config.dataset_type
    if name is None:
        raise refused(f"no eval class found for dataset {dataset}")
    if name not in classes:
        raise refused(f"eval class {name} not found")
    return classes[name]
