"""SandboxFusion's requests and answers: the models of its SDK, read in bounded time.

The SDK's models are those of pydantic 1, which checks values in Python: an answer with many wrong
ones would hold up the event loop for seconds. So pydantic 2 checks what the models declare, and its
core makes them of what it found. They are for reading: answers have no ``__fields_set__``, which
pydantic 1 needs to change or copy them.

The SDK's package loads an HTTP client that nobody here uses, so this module is imported by the
first call that needs it. Calls of many cases to this project's sandbox do not.
"""

import json
from collections.abc import Callable, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import GetCoreSchemaHandler, TypeAdapter
from pydantic.v1 import BaseModel
from pydantic.v1.fields import ModelField
from pydantic_core import CoreSchema, core_schema
from sandbox_fusion import EvalResult, RunCodeResponse, SubmitRequest, TestConfig
from sandbox_fusion import RunCodeRequest as _RunCodeRequest

from services.judge.requests import RunCode, Submit

Model = TypeVar("Model", bound=BaseModel)


class RunCodeRequest(_RunCodeRequest):
    """The SDK's request, and the limit of memory in MiB that the server has and the SDK lacks."""

    memory_limit_MB: int = -1


# Building


def _builder(model: type[Model]) -> Callable[[Mapping[str, Any]], Model]:
    """Return what makes a model of checked values, as its ``construct`` does.

    That copies all defaults, and takes five times as long.
    """
    fields = model.__fields__.values()
    defaults = {field.name: field.default for field in fields if not field.required}
    mutable = {name: type(value) for name, value in defaults.items() if value in ({}, [])}
    make, put = model.__new__, object.__setattr__

    def build(values: Mapping[str, Any]) -> Model:
        built = make(model)
        own = {name: kind() for name, kind in mutable.items() if name not in values}
        put(built, "__dict__", {**defaults, **own, **values})
        put(built, "__fields_set__", set(values))
        return built

    return build


# Requests: they are built from our own values, some of which only the server may refuse.

_run_code_request = _builder(RunCodeRequest)
_submit_request, _test_config = _builder(SubmitRequest), _builder(TestConfig)


def run_code_body(call: RunCode) -> bytes:
    """Return the body of a call of ``/run_code``."""
    request = _run_code_request(
        {
            "code": call.code,
            "language": call.language,
            "stdin": call.stdin,
            "compile_timeout": call.compile_timeout,
            "run_timeout": call.run_timeout,
            "memory_limit_MB": call.memory_limit_mb,
            "files": call.files,
            "fetch_files": call.fetch_files,
        }
    )
    return json.dumps(_given(request)).encode()


def submit_body(call: Submit) -> bytes:
    """Return the body of a call of ``/submit``."""
    config = _test_config(call.config)
    values = {
        "dataset": call.dataset,
        "id": call.id,
        "completion": call.completion,
        "config": config,
    }
    return json.dumps(_given(_submit_request(values))).encode()


def _given(model: BaseModel) -> dict[str, Any]:
    """Return the fields that were given, without the defaults."""
    return {
        name: _given(value) if isinstance(value, BaseModel) else value
        for name, value in vars(model).items()
        if name in model.__fields_set__
    }


# Answers


def decoder(model: type[Model]) -> Callable[[bytes], Model]:
    """Return a function that decodes and checks JSON, and raises pydantic's ``ValidationError``."""
    adapter = TypeAdapter[Model](_checked(model))
    return adapter.validate_json


def _checked(kind: Any) -> Any:  # noqa: ANN401 - a type's form
    """Return the type for pydantic 2, whose values are those of the type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return Annotated[kind, _MadeByCore(kind)]
    origin, members = get_origin(kind), get_args(kind)
    if origin in (None, Literal):
        return kind
    return origin[tuple(map(_checked, members))]


class _MadeByCore:
    """Schema by which pydantic 2's core makes instances of a model of pydantic 1.

    The core takes any class for a dataclass, and sets the ``__dict__`` of its instances. A function
    in Python for each instance would take as long as all the rest.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def __get_pydantic_core_schema__(
        self, _source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        kinds = get_type_hints(self._model)
        fields = [
            core_schema.dataclass_field(name, self._with_default(field, handler, kinds[name]))
            for name, field in self._model.__fields__.items()
        ]
        name = self._model.__name__
        arguments = core_schema.dataclass_args_schema(name, fields)
        return core_schema.dataclass_schema(self._model, arguments, list(kinds))

    @staticmethod
    def _with_default(field: ModelField, handler: GetCoreSchemaHandler, kind: object) -> CoreSchema:
        schema = handler.generate_schema(_checked(kind))
        if field.required:
            return schema
        return core_schema.with_default_schema(schema, default=field.default)


read_run_code = decoder(RunCodeResponse)
read_result = decoder(EvalResult)
