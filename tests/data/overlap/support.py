"""Problems to compare."""

from services.data.records import ProblemText
from shared.datasets import canonicalize
from shared.schemas import sha256


def problem(dataset, problem_id, prompt, *solutions):
    # Half a surrogate pair has no UTF-8; the importer refuses it, the comparison has to bear it.
    digest = sha256(canonicalize(prompt).encode("utf-8", "replace").decode())
    return ProblemText(dataset, problem_id, prompt, solutions, "test", digest)
