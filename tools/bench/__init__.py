"""``convreg bench`` times convreg and other libraries, shape by shape. It checks each result before it measures.

    problems, models, nodes     what is timed           verb                the options
    jobs, calls, check          its calls and results   timing, machine     the turns; peak and bandwidth
    peer, peers, onednn         who is timed            report              tables, JSON, picture
    sweeping                                            many machines
    comparison, builds, worker, figures                 other builds and earlier figures
"""

from .sweeping import run_on
from .timing import run
from .verb import bench

__all__ = ["bench", "run", "run_on"]
