"""Tester of an answer's functions: runs their tests in a trusted process, without the answer.

It runs in the sandbox. Standard library and Python 3.8 syntax only. The tests call *proxies* of the
answer's functions, which send the arguments to the answer's process and decode what it returns. So
tests and expected values are never where the answer is, and all that it can send are values:
exceptions by the name of a built-in type, objects of its own classes as opaque ones, which are
equal to nothing but themselves.

A test is a source text, or a call with its expected result (see ``function_results``), which no
exception passes.

Report (a pipe): a line with verl's numeric code after each test, then a line with how it ended,
then the traceback of the first failure, or the result of a call if it is wrong. The traceback of a
failed assertion has the result of the latest call before it.
"""

from __future__ import annotations

import _thread
import builtins
import json
import os
import re
import select
import sys
import time
import types

from shared.harness import forms, function_results, values
from shared.harness.cases.processes import clock_of, run_delay_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

PASSED, WRONG_ANSWER, RUNTIME_ERROR = 1, 0, -2
# Ends of a report: all tests ran; the answer's process was gone; a call exceeded its limits; the
# answer has no function of that name; a test cannot be run whatever the answer is.
DONE, LOST, LATE, MISSING, UNUSABLE = "done", "lost", "late", "missing", "unusable"
MAX_FAILURE = 4000
MAX_MESSAGE = 1 << 28
CHUNK = 1 << 20
# Enough for values of ``values.MAX_DEPTH`` and for the tests' own recursion.
RECURSION_LIMIT = 12_000
MAX_ITEMS = 100_000  # of an iterator that is an argument
ENDLESS = ("count", "cycle", "repeat")
HEADER = "Traceback (most recent call last):\n"
SETUP, TEST = "<setup>", "<test>"
# Exceptions that mean something to code of the tests which does not name them, if it has one of
# these words: that a ``map`` has no further value, for example.
STEERING: dict[str, tuple[str, ...]] = {
    "StopIteration": (), "StopAsyncIteration": (), "IndexError": ("__getitem__",),
    "AttributeError": ("hasattr", "getattr", "__getattr__"),
}  # fmt: skip
STAR = re.compile(r"\bimport\s*\*")
RAISED, WORD = re.compile(r"\braise\s+\w+"), re.compile(r"\w+")


class AnswerLostError(BaseException):
    """The answer's process is gone, or sent what is no reply."""


class CallLimits:
    """Limits of each call, in seconds: of CPU time in the answer's process, of wall-clock time.

    Time for which it waited for a processor does not count. Time in processes that it starts counts
    only to the limits of the whole case.
    """

    def __init__(self, cpu: float, wall: float, pid: int) -> None:
        self.cpu = cpu
        self.wall = wall
        self.pid = pid

    def await_reply(self, replies: int) -> bool:
        """Wait until a reply begins; returns whether it does so in time."""
        began, before, pause = time.monotonic(), clock_of(self.pid), self.cpu
        while not select.select([replies], [], [], pause)[0]:
            used = (clock_of(self.pid) or 0.0) - (before or 0.0)
            waited = time.monotonic() - began - run_delay_of(self.pid)
            left = min(self.cpu - used, self.wall - waited)
            if left <= 0:
                return False
            pause = max(left, 0.01)
        return True


class MissingFunctionError(NameError):
    """The answer has no function of that name."""


class WrongResultError(Exception):
    """A function returned another value than the expected one."""


class Opaque:
    """An object of the answer, of which only identity and truth are known."""

    __slots__ = ("name", "truth")

    def __init__(self, name: str, truth: bool) -> None:
        self.name = name
        self.truth = truth

    def __bool__(self) -> bool:
        return self.truth

    def __repr__(self) -> str:
        return "<%s object of the answer>" % self.name


class RemoteIterable:
    def __init__(self, answer: Answer, number: int) -> None:
        self.answer = answer
        self.number = number

    def __iter__(self) -> Any:
        return self.answer.request("iter", self.number)


class RemoteIterator(RemoteIterable):
    def __iter__(self) -> RemoteIterator:
        return self

    def __next__(self) -> Any:
        return self.answer.request("next", self.number)


def remote_generator(answer: Answer, number: int) -> Any:
    while True:
        try:
            value = answer.request("next", number)
        except StopIteration as end:
            return end.value
        yield value


async def remote_awaitable(answer: Answer, number: int) -> Any:
    return answer.request("await", number)


def remote_function(answer: Answer, target: int | str, name: str) -> Callable[..., Any]:
    def function(*arguments: Any, **keywords: Any) -> Any:
        return answer.request("call", target, arguments, keywords)

    function.__name__ = function.__qualname__ = name
    return function


PROXIES: dict[str, Callable[[Answer, int], Any]] = {
    values.GENERATOR: remote_generator,
    values.ITERATOR: RemoteIterator,
    values.ITERABLE: RemoteIterable,
    values.AWAITABLE: remote_awaitable,
}


class ArgumentEncoder(values.Encoder):
    """Encodes arguments; objects that came from the answer go back as what they are there."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer
        self.classes = answer.classes

    def other(self, value: Any) -> Any:
        target = self.answer.targets.get(id(value))
        if target is not None:
            return {"own": [target]}
        if forms.is_function(value):
            return {"function": [value.__name__]}
        node = self.numpy(value)
        return super().other(value) if node is None else node

    def refuse(self, value: object) -> Any:
        if not hasattr(type(value), "__next__") or type(value).__name__ in ENDLESS:
            super().refuse(value)
        items = []
        for item in value:  # type: ignore[attr-defined]
            items.append(item)
            if len(items) > MAX_ITEMS:
                raise ValueError("an iterator of too many values")
        return {"iterator": self.nodes(items)}


class ResultDecoder(values.Decoder):
    def __init__(self, answer: Answer, objects: list[Any]) -> None:
        super().__init__(objects)
        self.answer = answer
        self.classes = answer.classes

    def numpy(self, dtype: Any, shape: Any, items: list[Any]) -> Any:
        array = super().numpy(dtype, shape, items)
        return array if array.size else function_results.without_broadcast(array)

    def handled(self, form: str, parts: list[Any]) -> Any:
        kind, number, truth, name = parts
        if form != "handle" or type(number) is not int or type(name) is not str:
            raise forms.CodecError("no handle")
        return self.answer.proxy(kind, number, bool(truth), name)


class Answer:
    """The answer's process: sends requests, receives results.

    Attributes:
        lost: Whether it is of no use any more; what tests catch and do then does not matter.
        ended: Whether that is because its process has ended.
        late: Whether it is because a call exceeded its limits.
        refused: Whether an argument could not be sent in this test.
        named: The words of the tests, but for exceptions that they raise.
    """

    def __init__(self, calls: int, replies: int, limits: CallLimits | None = None) -> None:
        self.calls = calls
        self.replies = replies
        self.limits = limits
        self.lost = self.ended = self.late = self.refused = False
        self.proxies: dict[int, Any] = {}
        self.targets: dict[int, int | str] = {}
        self.raised: BaseException | None = None
        self.returned: list[Any] = []  # the latest call's result, if there is one
        self.classes = forms.Classes()
        self.named = frozenset[str]()
        self.lock = _thread.RLock()

    def share(self, names: list[str], namespace: dict[str, Any]) -> None:
        """Let instances of these classes cross as their fields."""
        if names:
            self.request("classes", names)
            self.classes = forms.Classes(names, namespace)

    def function(self, name: str) -> Callable[..., Any]:
        function = remote_function(self, name, name)
        self.targets[id(function)] = name
        self.proxies[-len(self.proxies) - 1] = function  # keeps it alive
        return function

    def proxy(self, kind: str, number: int, truth: bool, name: str) -> Any:
        if number not in self.proxies:
            made: Any
            if kind == values.FUNCTION:
                made = remote_function(self, number, name)
            elif kind in PROXIES:
                made = PROXIES[kind](self, number)
            else:
                made = Opaque(name, truth)
            self.proxies[number] = made
            self.targets[id(made)] = number
        return self.proxies[number]

    def request(
        self,
        verb: str,
        target: int | str | list[str],
        arguments: tuple[Any, ...] = (),
        keywords: dict[str, Any] | None = None,
    ) -> Any:
        """Ask the answer for something; returns its result, or raises its exception."""
        with self.lock:  # tests may have threads
            if self.lost:
                raise AnswerLostError
            encoder = ArgumentEncoder(self)
            try:
                body = encoder.message(arguments, forms.dict_parts(keywords or {}))
            except forms.UncrossableError:
                self.refused = True
                raise
            self.send(values.dumps([verb, target]) + b"\n" + body)
            return self.result(verb, encoder.objects)

    def result(self, verb: str, objects: list[Any]) -> Any:
        try:
            kind, value = self.decode(self.receive(), objects)
            if kind == b"S" and verb != "next":
                raise forms.CodecError("no iterator ended")
        except (forms.CodecError, MemoryError):
            self.lost = True
            raise
        if kind == b"R":
            if verb == "call":
                self.returned = [value]
            return value
        if kind == b"S":
            raise StopIteration(value)
        if kind == b"M":
            raise MissingFunctionError("name %r is not defined" % (value,))
        self.raised = forms.exception_of(value, self.classes, self.named)
        raised = type(self.raised).__name__
        if raised in STEERING and raised not in self.named and self.steers(raised):
            self.raised = RuntimeError("the answer raised %s" % raised)
        raise self.raised

    def steers(self, kind: str) -> bool:
        return not STEERING[kind] or not self.named.isdisjoint(STEERING[kind])

    def next(self, iterator: Any, *default: Any) -> Any:
        """``next`` for tests, which the end of an answer's iterator fails likewise."""
        try:
            return next(iterator, *default)
        except StopIteration:
            if "StopIteration" in self.named or id(iterator) not in self.targets:
                raise
        raise RuntimeError("the answer's iterator has no further value")

    def decode(self, reply: bytes, objects: list[Any]) -> tuple[bytes, Any]:
        """Return kind and value of a reply; changed arguments are updated."""
        kind, changed = reply[:1], reply[1:2]
        if kind not in (b"R", b"E", b"S", b"M") or changed not in (b"=", b"!"):
            raise forms.CodecError("no reply")
        parts = ResultDecoder(self, objects).values(reply[2:])
        if len(parts) != 1 + (len(objects) if changed == b"!" else 0):
            raise forms.CodecError("other objects")
        for container, contents in zip(objects, parts[:-1]):
            forms.update(container, contents)
        return kind, parts[-1]

    def send(self, data: bytes) -> None:
        rest = memoryview(values.SIZE.pack(len(data)) + data)
        try:
            while rest:
                rest = rest[os.write(self.calls, rest) :]
        except OSError:
            self.lose()

    def receive(self) -> bytes:
        if self.limits is not None and not self.limits.await_reply(self.replies):
            self.lost = self.late = True
            raise AnswerLostError
        (size,) = values.SIZE.unpack(self.take(values.SIZE.size))
        if size > MAX_MESSAGE:
            raise forms.CodecError("a message of %d bytes" % size)
        return bytes(self.take(size))

    def take(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            part = os.read(self.replies, min(size - len(data), CHUNK))
            if not part:
                self.lose()
            data += part
        return data

    def lose(self) -> NoReturn:
        self.lost, self.ended = True, True
        raise AnswerLostError

    def describe(self) -> str:
        """Return the answer's own traceback of the exception that it raised last."""
        try:
            text = self.request("describe", 0)
        except BaseException:
            return ""
        return text if type(text) is str else ""


class Tester:
    """Runs setup and tests.

    Args:
        answer: The answer's process.
        setup: Source text that runs before the tests: helpers of the prompt, for example.
        tests: Source texts, which share a namespace, or calls of the first function: arguments,
            expected result, convention.
        names: The answer's functions.
        classes: Classes of ``setup``, which the answer has, too.
        modules: Modules that the tests use without an import, as the answer may import them.
    """

    def __init__(
        self,
        answer: Answer,
        setup: str,
        tests: list[str | list[str]],
        names: list[str],
        modules: list[str],
        classes: list[str],
    ) -> None:
        self.answer = answer
        self.setup = setup
        self.tests = tests
        self.names = names
        self.modules = modules
        self.classes = classes
        self.sources: dict[str, str] = {}
        self.failure = ""
        self.end = DONE
        self.strict = False  # whether numpy's comparisons are
        texts = [setup, *(test for test in tests if isinstance(test, str))]
        answer.named = frozenset(WORD.findall(RAISED.sub("", " ".join(texts))))
        module = types.ModuleType("answer")
        sys.modules["answer"] = sys.modules["__main__"] = module
        self.namespace = module.__dict__
        # Not those of this module, which are a copy (see the loaders).
        self.namespace["__builtins__"] = builtins

    def run(self, report: Callable[[bytes], None]) -> None:
        code = self.attempt(self.prepare)
        for test in self.tests:
            result = self.run_test(test) if code == PASSED else code
            if self.answer.late:
                self.end = LATE
                break
            report(b"%d\n" % result)
        if self.end in (DONE, MISSING) and self.answer.ended:
            self.end = LOST
        text = self.failure.encode("utf-8", "backslashreplace")
        report(b"%s\n\n%s" % (self.end.encode(), text))

    def prepare(self) -> None:
        """Wait until the answer is loaded, and prepare the namespace."""
        self.answer.result("load", [])
        if "numpy" in self.answer.named:
            self.strict = function_results.compare_shapes()
            self.namespace[function_results.NUMBER] = function_results.Number
        self.execute(self.setup, SETUP)
        for name in self.modules:
            if name not in self.namespace:
                self.namespace[name] = __import__(name)
        self.namespace.setdefault("next", self.answer.next)
        self.answer.share(self.classes, self.namespace)
        for place, name in enumerate(self.names):
            if (place == 0 and not STAR.search(self.setup)) or name not in self.namespace:
                self.namespace[name] = self.answer.function(name)

    def run_test(self, test: str | list[str]) -> int:
        self.answer.refused = False
        if isinstance(test, str):
            code = self.attempt(lambda: self.execute(test, TEST), AssertionError)
        else:
            code = self.attempt(lambda: self.call(*test), WrongResultError)
        return RUNTIME_ERROR if self.answer.lost or self.answer.refused else code

    def attempt(self, action: Callable[[], None], wrong: type[Exception] = AssertionError) -> int:
        try:
            action()
        except BaseException as error:
            self.failure = self.failure or self.describe(error)
            if isinstance(error, MissingFunctionError):
                self.end = MISSING
            elif isinstance(error, function_results.UnusableTestError):
                self.end = UNUSABLE
            return WRONG_ANSWER if isinstance(error, wrong) else RUNTIME_ERROR
        return PASSED

    def call(self, arguments: str, expected: str, convention: str) -> None:
        """Call the function.

        Raises:
            WrongResultError: Its result is not the expected one.
            function_results.UnusableTestError: An argument or the expected result cannot be read.
        """
        items = function_results.arguments_of(arguments, convention)
        result = self.answer.request("call", self.names[0], tuple(items))
        if not function_results.is_expected(result, expected, convention):
            raise WrongResultError(function_results.shown(result))

    def execute(self, source: str, filename: str) -> None:
        if source:
            self.sources[filename] = source
            try:
                tree = function_results.mark_numbers(source, filename) if self.strict else source
                code = compile(tree, filename, "exec", dont_inherit=True)
            except (SyntaxError, ValueError) as error:
                raise function_results.UnusableTestError(str(error)) from None
            exec(code, self.namespace)

    def describe(self, error: BaseException) -> str:
        """Return a traceback of the tests' frames, and the answer's own if it raised the error."""
        if isinstance(error, AnswerLostError):
            return ""
        if isinstance(error, (WrongResultError, function_results.UnusableTestError)):
            return str(error)
        try:
            import linecache  # slow to load, and only needed for a failure
            import traceback

            for name, text in self.sources.items():
                linecache.cache[name] = (len(text), None, text.splitlines(True), name)
            own = error is self.answer.raised
            theirs = self.answer.describe() if own else ""
            frames = traceback.extract_tb(error.__traceback__)
            shown = [frame for frame in frames if frame.filename in self.sources]
            if theirs.startswith(HEADER):
                theirs = theirs[len(HEADER) :]
            lines = [HEADER, *traceback.format_list(shown)]
            if not theirs:
                lines += traceback.format_exception_only(type(error), error)
            text = ("".join(lines) + theirs)[-MAX_FAILURE:]
            if isinstance(error, AssertionError) and not own and self.answer.returned:
                text = function_results.shown(self.answer.returned[0]) + "\n" + text
            return text
        except BaseException:
            return type(error).__name__ + "\n"


def run(calls: int, replies: int, report: int, payload: bytes, answer: int) -> None:
    """Run the tests in ``payload`` (see ``wire.FunctionTests``); ``answer`` is a process."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    # Modules in the answer's folder, or in the harness's, are not the tests'.
    here = os.getcwd()
    reachable = ("", here, os.path.dirname(here))
    sys.path[:] = [path for path in sys.path if path and os.path.abspath(path) not in reachable]
    *parts, limits = json.loads(payload.partition(b"\n")[2])

    def write(data: bytes) -> None:
        while data:
            data = data[os.write(report, data) :]

    cpu, wall = limits or (0.0, 0.0)
    call_limits = CallLimits(cpu, wall, answer) if limits else None
    Tester(Answer(calls, replies, call_limits), *parts).run(write)
