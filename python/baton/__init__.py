"""Baton: collective communication that runs in the background, for Python.

    import baton
    total = baton.allreduce(gradient)        # sums the arrays of all ranks, in place

    schedule = baton.Group.world().prepare("allreduce", gradient)
    schedule.start()                         # compute meanwhile
    schedule.wait()

Start the program by mpirun, torchrun, srun or a shell. docs/python.md has a quick start.

`baton.Group`       groups of ranks, and their collectives
`baton.Partial`     all-reduces that do not wait for slow ranks
`baton.Sparse`      all-reduces that send only the largest entries
`baton.Graph`       collectives of your own
`baton.Simulator`   a million ranks in virtual time
`baton.torch`       PyTorch
"""
from typing import Any

# "import X as X" tells type checkers that the package exports X.
from baton._handles import attach_cuda as attach_cuda, span as span
from baton._handles import trace_start as trace_start, trace_stop as trace_stop
from baton._library import version as __version__
from baton.errors import *  # noqa: F403
from baton.graph import SKIP as SKIP, Call as Call, Graph as Graph, Node as Node, View as View
from baton.group import Group as Group
from baton.partial import Partial as Partial, PartialResult as PartialResult
from baton.schedule import Failure as Failure, Schedule as Schedule, Timeout as Timeout
from baton.schedule import Lateness as Lateness
from baton.schedule import Traffic as Traffic
from baton.sparse import Sparse as Sparse, SparseResult as SparseResult, Tensors as Tensors
from baton.sparse import SparseStats as SparseStats, TensorPlan as TensorPlan
from baton.sim import Event as Event, Result as Result, Simulator as Simulator, Totals as Totals
from baton.sim import picture as picture, prove as prove, simulate as simulate


def allreduce(a: Any, op: Any = "sum", out: Any = None, *, timeout: Timeout = None) -> Any:
    """Calls `Group.allreduce` in the group of all ranks."""
    return Group.world().allreduce(a, op, out, timeout=timeout)


__all__ = [name for name in dir() if name[0] != "_" and name not in ("Any", "Timeout")]
