"""Server of an answer's functions: runs in the answer's process, where its tests never are.

It runs in the sandbox. Standard library and Python 3.8 syntax only. It loads the answer as a module
that is not named ``__main__`` (a main guard does not run), with empty standard input and discarded
output, and then performs what the tests ask for: calls of functions by name, and of objects that it
returned before. It knows names and arguments, no expected values.

Nothing here has to be kept from the answer, which may replace any of it: all that reaches the tests
are values, which it may choose anyway.
"""

from __future__ import annotations

import builtins
import os
import sys
import types
from os import _exit, read, write
from sys import getrecursionlimit, setrecursionlimit

from shared.harness.forms import FUNCTIONS, Classes, contents
from shared.harness.values import CALLS, SIZE, Decoder, Handles, ObjectEncoder, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

ANSWER, PRELUDE = "<answer>", "<setup>"
MAX_TRACEBACK = 4000
# Frames of this module below those of a call that tests make.
FRAMES = 3
# Enough for values of ``MAX_DEPTH``; an answer's own limit holds while its code runs.
RECURSION_LIMIT = 12_000
FUTURES = 0x1FF0000  # flags of ``from __future__ import`` in a code object
CHUNK = 1 << 20


class MissingFunctionError(Exception):
    """The answer has no function of that name."""


class ArgumentDecoder(Decoder):
    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.classes = server.classes

    def handled(self, form: str, parts: list[Any]) -> Any:
        if form == "own":
            return self.server.target(parts[0])
        return FUNCTIONS[parts[0]] if form == "function" else (part for part in parts)


class Server:
    """Loads an answer and serves its functions.

    Args:
        prelude: Source text that runs before the answer: imports and helpers of the prompt.
        source: The answer.
        code: The answer, compiled.
    """

    def __init__(self, prelude: str, source: str, code: types.CodeType) -> None:
        self.sources = {PRELUDE: prelude, ANSWER: source}
        self.code = code
        self.module = types.ModuleType("answer")
        # Not those of this module, which are a copy (see the loaders).
        self.module.__dict__["__builtins__"] = builtins
        self.module.__file__ = os.path.join(os.getcwd(), "answer.py")
        self.handles = Handles()
        self.classes = Classes()
        self.failure: BaseException | None = None
        self.launcher = types.ModuleType("__main__")
        self.launcher.__dict__["serve"] = self.serve
        self.launch = compile("serve()", "<serve>", "exec", dont_inherit=True)

    def serve(self) -> NoReturn:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.close(null)
        sys.modules["answer"] = self.module  # dataclasses and pickle look up a class's module
        sys.modules["__main__"] = self.module
        self.send(self.perform_loading())
        while True:
            self.send(self.perform(self.receive()))

    # The answer

    def perform_loading(self) -> bytes:
        try:
            self.load(self.module.__dict__)
        except BaseException as error:
            return self.raised(error)
        return b"R=" + self.encoder().message(None)

    def load(self, namespace: dict[str, object]) -> None:
        prelude = self.sources[PRELUDE]
        if prelude:
            exec(compile(prelude, PRELUDE, "exec", dont_inherit=True), namespace)
        try:
            exec(self.code, namespace)
        except Exception as error:
            import re

            if re.search(r"\b(input\s*\(|stdin\b)", self.sources[ANSWER]) is None:
                raise
            # An example call reads standard input, or works on what it did not find there.
            self.run_rest(namespace, error)

    def run_rest(self, namespace: dict[str, object], error: Exception) -> None:
        """Execute each statement behind the line of an error, whether or not it succeeds."""
        import ast

        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self.code:
            trace = trace.tb_next
        line = trace.tb_lineno if trace is not None else 0
        tree = ast.parse(self.sources[ANSWER])
        for node in tree.body:
            if node.lineno > line:
                tree.body = [node]
                code = compile(tree, ANSWER, "exec", self.code.co_flags & FUTURES, True)
                try:
                    exec(code, namespace)
                except Exception:
                    continue

    def perform(self, request: bytes) -> bytes:
        limit = getrecursionlimit()
        try:
            setrecursionlimit(max(limit, RECURSION_LIMIT))
            head, _, body = request.partition(b"\n")
            verb, target = loads(head)
            decoder = ArgumentDecoder(self)
            arguments, keywords = decoder.values(body)
            kind, result = b"R", None
            setrecursionlimit(limit)
            try:
                result = self.call(verb, target, arguments, keywords)
            except StopIteration as error:
                if verb != "next":
                    raise
                kind, result = b"S", error.value
            except MissingFunctionError:
                kind, result = b"M", target
            except BaseException as error:
                kind, result = b"E", self.parts(error)
            limit = getrecursionlimit()  # the answer may have changed it
            setrecursionlimit(max(limit, RECURSION_LIMIT))
            return self.reply(kind, result, (arguments, keywords), decoder.objects, body)
        except BaseException as error:
            return self.raised(error)
        finally:
            setrecursionlimit(limit)

    def call(self, verb: str, target: Any, arguments: Any, keywords: Any) -> Any:
        if verb == "describe":
            return self.describe()
        if verb == "classes":
            self.classes = Classes(target, self.module.__dict__)
            return None
        self.failure = None
        function = self.target(target)
        if verb == "call":
            return function(*arguments, **dict(zip(keywords[::2], keywords[1::2])))
        if verb == "next":
            return next(function)
        if verb == "iter":
            return iter(function)
        return await_(function)

    def target(self, target: int | str) -> Any:
        """Return a function by its name, or an object by the number of its handle.

        The name of a method of ``Solution``, or else of a function, follows a dot.
        """
        if not isinstance(target, str):
            return self.handles.objects[target]
        namespace = self.module.__dict__
        name = target[1:] if target[:1] == "." else target
        solution = namespace.get("Solution")
        if not isinstance(solution, type) or name is target:
            solution = None
        if solution and (hasattr(solution, name) or name not in namespace):
            made = solution()  # which may have the method by its ``__init__`` alone
            if hasattr(made, name):
                return getattr(made, name)
        if name not in namespace:
            raise MissingFunctionError
        return namespace[name]

    # Replies

    def reply(
        self, kind: bytes, result: object, arguments: Any, objects: list[Any], body: bytes
    ) -> bytes:
        """Encode a result, and the arguments' containers if the call has changed one."""
        encoder = self.encoder()
        if not objects or encoder.message(*arguments) == body:
            return kind + b"=" + encoder.message(result)
        encoder = self.encoder()
        for container in objects:
            encoder.register(container)
        return kind + b"!" + encoder.message(*map(contents, objects), result)

    def encoder(self) -> ObjectEncoder:
        return ObjectEncoder(self.handles, self.classes)

    def raised(self, error: BaseException) -> bytes:
        try:
            return b"E=" + self.encoder().message(self.parts(error))
        except BaseException as second:  # its arguments, for example, are nested too deeply
            return b"E=" + self.encoder().message(((type(second).__name__,), (), (), ()))

    def parts(self, error: BaseException) -> tuple[Any, ...]:
        """Return the names of an exception's bases, its arguments, its text, its fields.

        The names end with the nearest base that both sides have; the text is instead of the
        arguments where that one would not show them as the exception does.
        """
        self.failure = error
        kind = type(error)
        base = self.classes.find(self.classes.name_of(kind) or "Exception")
        names = []
        for parent in kind.__mro__:
            if parent is base:
                names.append(parent.__name__)
                break
            names.append("%s:%s" % (parent.__module__, parent.__name__))
        text: tuple[Any, ...] = tuple(error.args)
        if kind.__str__ is not getattr(base, "__str__", None):
            try:
                text = (str(error),)
            except BaseException:
                text = ()
        fields = getattr(error, "__dict__", {})
        named = [part for name in fields if type(name) is str for part in (name, fields[name])]
        return tuple(names), tuple(error.args), text, tuple(named)

    def describe(self) -> str:
        """Return the traceback of the last exception, for the verdict."""
        error, self.failure = self.failure, None
        if error is None:
            return ""
        try:
            import linecache  # slow to load, and only needed for a failure
            import traceback

            for name, text in self.sources.items():
                linecache.cache[name] = (len(text), None, text.splitlines(True), name)
            first = error.__traceback__
            while first is not None and first.tb_frame.f_code.co_filename not in self.sources:
                first = first.tb_next
            return "".join(traceback.format_exception(type(error), error, first))[-MAX_TRACEBACK:]
        except BaseException:
            return type(error).__name__ + "\n"

    # Messages

    def receive(self) -> bytes:
        (size,) = SIZE.unpack(self.take(SIZE.size))
        return self.take(size)

    def take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = read(CALLS[0], min(size - len(data), CHUNK))
            except OSError:
                _exit(1)
            except BaseException:
                continue  # raised by a signal handler of the answer
            if not part:
                _exit(0)
            data += part
        return bytes(data)

    @staticmethod
    def send(data: bytes) -> None:
        rest = memoryview(SIZE.pack(len(data)) + data)
        while rest:
            try:
                rest = rest[write(CALLS[1], rest) :]
            except OSError:
                _exit(1)
            except BaseException:
                continue


def await_(awaitable: Any) -> Any:
    import asyncio

    async def wait() -> Any:
        return await awaitable

    return asyncio.run(wait())
