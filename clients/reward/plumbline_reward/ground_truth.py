"""Items from what a trainer's row has as its ground truth."""

from collections.abc import Mapping

from plumbline_reward.errors import RefusedError

_REFERENCE = "plumbline:"


def is_reference(ground_truth: object) -> bool:
    """Whether a ground truth names tests that the service has."""
    return isinstance(ground_truth, str) and ground_truth.startswith(_REFERENCE)


def judged_item(
    ground_truth: object, completion: str, data_source: object = None
) -> dict[str, object]:
    """Make an item of a reference or of inline tests.

    A reference (``plumbline:<dataset>/<id>#<hash>``) stands for itself. For inline tests
    ``data_source`` names the data set whose judge settings apply.

    Raises:
        RefusedError: There is no ground truth.
    """
    if isinstance(ground_truth, Mapping) and "ground_truth" in ground_truth:
        ground_truth = ground_truth["ground_truth"]  # verl's column reward_model
    if ground_truth is None or ground_truth == "":
        raise RefusedError(
            "the ground truth is empty: it must be a reference such as plumbline:<dataset>/<id>"
            "#<hash> (plumb data export) or inline tests"
        )
    item = {"ground_truth": ground_truth, "completion": completion}
    if not is_reference(ground_truth) and isinstance(data_source, str) and data_source:
        item["dataset"] = data_source
    return item
