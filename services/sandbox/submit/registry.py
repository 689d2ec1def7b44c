"""Which dataset is judged how."""

from services.sandbox.submit import autoeval, common_oj, evoeval, humaneval, mbpp
from services.sandbox.submit.errors import refused
from services.sandbox.submit.plans import Plan, Planner
from services.sandbox.submit.schemas import SubmitRequest

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


def make_plan(request: SubmitRequest) -> Plan:
    """The programs to run, by the dataset's name or, for unknown ones, ``config.dataset_type``.

    Raises:
        SubmitError: 400.
    """
    return _planner(request)(request)


def _planner(request: SubmitRequest) -> Planner:
    if request.dataset in DATASETS:
        return DATASETS[request.dataset]
    name = request.config.dataset_type
    if name is None:
        raise refused(f"no eval class found for dataset {request.dataset}")
    if name not in CLASSES:
        raise refused(f"eval class {name} not found")
    return CLASSES[name]
