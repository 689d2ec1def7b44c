# Loader of the harness: runs its bytecode if this interpreter's version made it, otherwise its
# source, which takes several milliseconds to compile.
import marshal as _marshal
import os as _os

_folder = _os.path.dirname(_os.path.abspath(__file__))
try:
    from _frozen_importlib_external import MAGIC_NUMBER as _MAGIC

    with open(_folder + "/harness.bin", "rb") as _file:
        _data = _file.read()
    if not _data.startswith(_MAGIC):
        raise ImportError
    _code = _marshal.loads(_data[len(_MAGIC) :])
except ImportError:
    with open(_folder + "/harness.py", "rb") as _file:
        _code = compile(_file.read(), "harness.py", "exec", dont_inherit=True)
_LEVELS = 2  # nested exec() calls below an answer
exec(_code)
