"""Harness: runs one answer on many inputs in one sandbox call (prefork, one process per case).

It runs in the sandbox, not in the judge. Standard library and Python 3.8 syntax only. Its modules
get there in two ways: as a file of a ``/run_code`` call (``entry.start``), or already loaded in a
slot of this project's own sandbox (``entry.run_in_slot``). Three kinds of processes:

- The *supervisor* reads the run's specification from standard input, starts one case after another,
  enforces the time limits and writes the results. It never executes code of the answer.
- The *zygote*, forked before the specification is read, compiles the answer once and forks a child
  per case. It knows neither the inputs nor the key.
- The *child* runs the answer in a separate process with its own standard streams (see ``Streams``),
  folder, session and limits. It behaves as ``python solution.py`` would (see ``Program``).

Specification (standard input, or a pipe): a line of words, then the inputs one after another.
Results (a file, or a pipe): per record a line of words, then its bytes. Each record carries a MAC
over itself and the previous one, with a key that only the supervisor knows, so an answer cannot
forge, change or omit a record. Expected outputs are never sent to the sandbox.

If the harness is root, answers run as a separate user and cannot affect it. Otherwise they cannot
read the memory of supervisor and zygote but can kill them; the call then has no records.
"""
