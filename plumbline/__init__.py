"""Plumbline's results in Python: finished runs as pandas data frames.

Open a run, and count the statuses of its samples by data set::

    import plumbline

    run = plumbline.load_run("outputs/demo")
    run.samples.groupby("dataset").final_status.value_counts()
"""

from plumbline.frames import RunFrames, load_run
from shared.errors import PlumblineError

__all__ = ["PlumblineError", "RunFrames", "load_run"]
