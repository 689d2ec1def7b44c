"""Dataset registry: plans and prompts by dataset name or dataset class."""

from services.sandbox.datasets import common_oj, humaneval, mbpp
from services.sandbox.datasets.base import DatasetClass, Plan, bad_request
from services.sandbox.schemas import (
    GetPromptByIdRequest,
    GetPromptsRequest,
    Prompt,
    Prompts,
    SubmitConfig,
    SubmitRequest,
)

DATASETS: dict[str, DatasetClass] = {
    "code_contests": common_oj.DATASET,
    "humaneval_python": humaneval.DATASET,
    "shadow_humaneval_python": humaneval.DATASET,
    "mbpp": mbpp.DATASET,
}

CLASSES: dict[str, DatasetClass] = {
    "CommonOJDataset": common_oj.DATASET,
    "HumanEvalDataset": humaneval.DATASET,
    "MBPPDataset": mbpp.DATASET,
}


def make_plan(request: SubmitRequest) -> Plan:
    """Plan a submit.

    Raises:
        DatasetError: 400.
    """
    return _dataset(request.dataset, request.config).plan(request)


def write_prompts(request: GetPromptsRequest) -> Prompts:
    """Write the prompts of the records in the request.

    Raises:
        DatasetError: 400.
    """
    config = request.config
    dataset = _dataset(request.dataset, config)
    if not isinstance(config.provided_data, list):
        raise bad_request("request.config.provided_data should be a list of str -> str | int")
    return Prompts([dataset.prompt(record, config) for record in config.provided_data])


def write_prompt(request: GetPromptByIdRequest) -> Prompt:
    """Write the prompt of the record in the request.

    Raises:
        DatasetError: 400.
    """
    dataset = _dataset(request.dataset, request.config)
    if not isinstance(request.config.provided_data, dict):
        raise bad_request("request.config.provided_data should be a dict with str -> str | int")
    return dataset.prompt(request.config.provided_data, request.config)


def _dataset(name: str, config: SubmitConfig) -> DatasetClass:
    """Look up a dataset by name or, if unknown, by the class ``config.dataset_type``."""
    if name in DATASETS:
        return DATASETS[name]
    kind = config.dataset_type
    if kind is None:
        raise bad_request(f"no eval class found for dataset {name}")
    if kind not in CLASSES:
        raise bad_request(f"eval class {kind} not found")
    return CLASSES[kind]
