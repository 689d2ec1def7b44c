"""Analysis of runs: metrics, confidence intervals, comparison, release gate.

Pure functions: they take samples or a loaded run, return values, and print nothing. Import the
modules by name: ``bootstrap``, ``paired``, ``metrics``, ``compare`` and ``gate`` need numpy, which
some images do not have.
"""
