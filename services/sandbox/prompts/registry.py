"""Which dataset's prompts are written how, and of which records."""

from services.sandbox.prompts import autoeval, writers
from services.sandbox.prompts.schemas import (
    GetPromptByIdRequest,
    GetPromptsRequest,
    Prompt,
    Prompts,
)
from services.sandbox.prompts.writers import Writer
from services.sandbox.submit.errors import refused
from services.sandbox.submit.registry import by_dataset
from services.sandbox.tables import Tables

DATASETS: dict[str, Writer] = {
    "code_contests": writers.common_oj,
    "humaneval_python": writers.humaneval,
    "shadow_humaneval_python": writers.humaneval,
    "evoeval": writers.evoeval,
    "mbpp": writers.mbpp,
}

CLASSES: dict[str, Writer] = {
    "AutoEvalDataset": autoeval.write,
    "CommonOJDataset": writers.common_oj,
    "HumanEvalDataset": writers.humaneval,
    "MBPPDataset": writers.mbpp,
}


def write_prompts(request: GetPromptsRequest, tables: Tables) -> Prompts:
    """Prompts of the records that were sent along, else of a page of the table.

    Raises:
        SubmitError: 400.
    """
    config = request.config
    write = by_dataset(DATASETS, CLASSES, request.dataset, config)
    records = config.provided_data or tables.page(request.dataset, request.offset, request.limit)
    if isinstance(records, dict):
        raise refused("request.config.provided_data should be a list of str -> str | int")
    return Prompts([write(record, config) for record in records])


def write_prompt(request: GetPromptByIdRequest, tables: Tables) -> Prompt:
    """The prompt of the record that was sent along, else of the table's.

    Raises:
        SubmitError: 400, or 404 where there is no such record.
    """
    write = by_dataset(DATASETS, CLASSES, request.dataset, request.config)
    filled = tables.completed(request.dataset, request.id, request.config)
    if not isinstance(filled.provided_data, dict):
        raise refused("request.config.provided_data should be a dict with str -> str | int")
    return write(filled.provided_data, filled)
