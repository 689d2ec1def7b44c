"""Dataset registry: plans by dataset name or dataset class."""

from services.sandbox.datasets import common_oj, humaneval, mbpp
from services.sandbox.datasets.base import Plan, Planner, bad_request
from services.sandbox.schemas import SubmitConfig, SubmitRequest

DATASETS: dict[str, Planner] = {
    "code_contests": common_oj.plan,
    "humaneval_python": humaneval.plan,
    "shadow_humaneval_python": humaneval.plan,
    "mbpp": mbpp.plan,
}

CLASSES: dict[str, Planner] = {
    "CommonOJDataset": common_oj.plan,
    "HumanEvalDataset": humaneval.plan,
    "MBPPDataset": mbpp.plan,
}


def make_plan(request: SubmitRequest) -> Plan:
    """Plan a submit.

    Raises:
        DatasetError: 400.
    """
    return _dataset(request.dataset, request.config)(request)


def _dataset(name: str, config: SubmitConfig) -> Planner:
    """Look up a dataset by name or, if unknown, by the class ``config.dataset_type``."""
    if name in DATASETS:
        return DATASETS[name]
    kind = config.dataset_type
    if kind is None:
        raise bad_request(f"no eval class found for dataset {name}")
    if kind not in CLASSES:
        raise bad_request(f"eval class {kind} not found")
    return CLASSES[kind]
