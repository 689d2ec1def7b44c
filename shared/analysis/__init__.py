"""Analysis of runs: metrics, confidence intervals, comparison, release gate.

Pure functions that take samples or a loaded run and return values. Import the
modules by name: ``bootstrap``, ``paired``, ``metrics``, ``compare`` and ``gate`` need numpy, which
some images do not have.
"""
