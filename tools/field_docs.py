"""Descriptions of model fields: the docstrings below them.

Pydantic can read them itself (``use_attribute_docstrings``), but does so whenever a class is
defined: a tenth of the time that `plumb` needs to start, for texts that only documents show.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise

from pydantic import BaseModel


def describe_fields(models: Iterable[type[BaseModel]]) -> None:
    """Set ``description`` of each model's fields, those of its base classes included."""
    for model in models:
        texts: dict[str, str] = {}
        for base in reversed(model.__mro__):
            if issubclass(base, BaseModel) and not base.__module__.startswith("pydantic"):
                texts.update(_docstrings(base))
        for name, field in model.model_fields.items():
            field.description = field.description or texts.get(name)


def with_subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    yield model
    for child in model.__subclasses__():
        yield from with_subclasses(child)


def _docstrings(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Names of fields and the strings below them."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(found, ast.ClassDef)
    for field, below in pairwise(found.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            text = below.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield ast.unparse(field.target), inspect.cleandoc(text.value)
