"""Harness: runs one answer on many inputs in one sandbox call (prefork, one process per case).

It runs in the sandbox, not in the judge. Standard library and Python 3.8 syntax only. Its modules
get there in two ways: as files of a ``/run_code`` call (``entry.start``), or already loaded in a
slot of this project's own sandbox. Two kinds of processes:

- The *zygote* (``answer.Cases``) compiles the answer once, forks a child per case, enforces its
  limits and writes the results. It never executes code of the answer, and inputs do not get into
  its memory.
- The *child* runs the answer in a separate process with its own standard streams (see ``Streams``),
  folder, session and limits. It behaves as ``python solution.py`` would (see ``Program``).

Three files: the call (a line of words, the answer, its prelude), the inputs one after another, and
the results (per record a line of words, then its bytes). Expected outputs are never sent to the
sandbox.

By ``/run_code`` a third process writes the results with a MAC. It forks the zygote before it reads
the key and the inputs, so an answer cannot forge, change or omit a record. If the harness is root,
answers run as a separate user and cannot affect it. Otherwise they cannot read the memory of its
processes but can kill them.
"""
