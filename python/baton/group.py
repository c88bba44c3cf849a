"""Groups: ranks that communicate, and the collectives among them."""
from __future__ import annotations

import sys
import weakref
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Sequence

import numpy

from baton import _arrays, _handles, errors
from baton._library import MPICH_COMM_WORLD, answer, check, ffi, lib
from baton.schedule import Schedule

_NULL = ffi.NULL
# What source and out have: n elements on all ranks, one of blocks (mine), or all of them.
_SHAPES = {"allreduce": "n n", "reduce": "n n", "scan": "n n", "exscan": "n n",
           "broadcast": "- n", "allgather": "mine all", "allgatherv": "mine all",
           "gather": "mine all", "gatherv": "mine all", "scatter": "all mine",
           "scatterv": "all mine", "alltoall": "all all", "alltoallv": "all all",
           "reduce_scatter": "all mine", "barrier": "- -"}
_CREATE = {name: getattr(lib, f"baton_{name}_create") for name in _SHAPES}
_REDUCE = {"allreduce", "reduce", "scan", "exscan", "reduce_scatter"}
_ROOTED = {"reduce", "broadcast", "gather", "gatherv", "scatter", "scatterv"}
_KEPT = 64  # schedules of collectives in one call, by shape

_IN_PLACE = {"allreduce", "scan", "exscan", "alltoall", "reduce_scatter"}

_start = lib.baton_schedule_start
_run = lib.baton_schedule_run
_wait = lib.baton_schedule_wait
_rebind = lib.baton_schedule_rebind
_SLICE = _handles.SLICE_MS
_from_buffer = ffi.from_buffer
_CHARS = ffi.typeof("char[]")
_ndarray = numpy.ndarray

_world: Optional["Group"] = None


class Group(_handles.Handle):
    """P ranks that can address each other: `Group.world()`, `Group.from_mpi(comm)`,
    `Group.alone()`, `group.sub(ranks)`.

    `rank` is this process's, 0 to `size` - 1. Collectives in one call wait; all ranks
    make them in the same order, on one thread at a time, with the same counts, type,
    reduction and root. They work on the array that they are given, or leave it alone and
    write to `out` (on all ranks, or on none), and return the array with the result. The
    group keeps the schedules of the last 64 shapes, so that a call is a start and a wait.

    Arrays are numpy's, PyTorch's tensors, or what has `__dlpack__`, `__array_interface__`
    or a buffer. Reductions: sum, prod, min, max of numbers; band, bor, bxor, land, lor,
    lxor of integers and bool; avg of floats and complex; minloc, maxloc of pairs, which
    are numpy's structured types of a value and an i4.

    Errors of all collectives: Invalid (an array or an argument), Mismatch (ranks differ),
    PeerLost (a rank is gone), Cancelled, Failed (until `recover`). Ctrl-C ends a wait and
    cancels.
    """

    _destroyer = lib.baton_group_destroy
    _collected = False

    def __init__(self, pointer: Any, engine: Any = None) -> None:
        super().__init__(pointer)
        self.rank: int = lib.baton_group_rank(pointer)
        self.size: int = lib.baton_group_size(pointer)
        self._engine = engine
        self._made = weakref.WeakSet()  # what was made in it
        self._kept: dict = {}  # by shape, the same on all ranks
        self._quick: dict = {}  # those of in-place all-reduces, by what numpy says

    def _adopt(self, handle: _handles.Handle) -> None:
        self._made.add(handle)

    # ---- life ------------------------------------------------------------------

    @classmethod
    def world(cls) -> "Group":
        """All ranks of the job; alone without mpirun. The first call is collective. It
        initialises MPI, unless that is done, and MPI is finalised at exit then."""
        global _world
        if _world is None or _world._handle == _NULL:
            _handles.initialise_mpi()
            _world = cls._over(_world_comm())
        return _world

    @classmethod
    def from_mpi(cls, comm: Any) -> "Group":
        """The ranks of a communicator of mpi4py (an intracommunicator). Collective."""
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or not isinstance(comm, mpi.Comm):
            raise TypeError("Group.from_mpi takes a communicator of mpi4py, and not "
                            f"{type(comm).__name__}")
        return cls._over(ffi.cast("void *", mpi._addressof(comm)))

    @classmethod
    def _over(cls, comm: Any) -> "Group":
        return cls(answer("baton_group_t *", lib.baton_group_create_mpi_at, _handles.engine(),
                          comm))

    @classmethod
    def alone(cls) -> "Group":
        """This process as a group of one rank, without MPI."""
        return cls(answer("baton_group_t *", lib.baton_group_create_self, _handles.engine()))

    def sub(self, ranks: Sequence[int], name: str = "") -> "Group":
        """A group of some ranks of this one: rank i of it is ranks[i]. Its ranks call, and
        no others, with the same list and name. Costs no message. Invalid: this rank is not
        among them."""
        return Group(answer("baton_group_t *", lib.baton_group_create_sub, self._alive(),
                            list(ranks), len(ranks), name.encode()))

    def origin(self, rank: int) -> int:
        """The rank in the group that `sub` or `shrink` made this one of; or -1."""
        return lib.baton_group_origin(self._alive(), rank)

    def recover(self, timeout: Optional[float] = None) -> None:
        """Makes the group usable again after a failure. Collective: all ranks call it.
        Epochs count from 1 again. TimedOut: call it again. PeerLost: a rank is gone, and
        `shrink` makes a group of the others."""
        self._forget()
        handle = self._alive()
        check(_handles.wait(lambda ms: lib.baton_group_recover(handle, ms), timeout))

    def shrink(self, timeout: Optional[float] = None) -> "Group":
        """A group of the ranks that live, after some are lost. Collective over those.
        Prepare schedules anew, and destroy both groups. PeerLost: others may go on
        alone."""
        handle, out = self._alive(), ffi.new("baton_group_t **")
        check(_handles.wait(lambda ms: lib.baton_group_shrink(handle, ms, out), timeout))
        return Group(out[0])

    def _before_destroy(self) -> None:
        self._kept.clear()
        self._quick.clear()
        for handle in _handles.in_order(self._made):
            handle.destroy()

    def _forget(self) -> None:
        """Destroys the schedules of collectives in one call."""
        while self._kept:
            self._drop(next(iter(self._kept)))

    def _drop(self, shape: tuple) -> None:
        self._quick.clear()
        self._kept.pop(shape).schedule.destroy()

    # ---- persistent collectives ------------------------------------------------

    def prepare(self, collective: str, source: Any = None, out: Any = None, *,
                op: Any = "sum", root: int = 0, counts: Optional[Sequence[int]] = None,
                target_counts: Optional[Sequence[int]] = None,
                algorithm: Optional[str] = None, name: Optional[str] = None,
                depth: int = 1) -> Schedule:
        """A collective as an object that runs again and again: see `Schedule`.

        `collective`, and the arrays of P ranks, n elements each:

            allreduce, scan, exscan   source n, out n; without out in place in source
            reduce                    the same, and out at the root alone
            broadcast                 source n: the root's goes to all
            allgather                 source n, out P n; without source in place
            gather                    source n, out P n at the root alone
            scatter                   source P n at the root alone, out n
            alltoall                  source P n, out P n
            reduce_scatter            source P n, out n
            allgatherv, gatherv, scatterv, alltoallv
                                      with counts: the elements of each rank's block
                                      (alltoallv: of those that go; target_counts: of
                                      those that come). reduce_scatter takes counts, too
            barrier                   no arrays

        Where out is left out and can't be source, a new array is made: `result` has it.
        `algorithm`: by name, as baton-info --choices lists them; None: what is expected
        to be fastest. `name` is in messages; the k-th that is prepared of a name on one
        rank belongs with the k-th on the others. `depth`: epochs that may be in flight.

        Does not wait for other ranks, which prepare the same. The arrays stay the
        caller's; the schedule keeps them alive. Invalid: an argument, which is named.
        """
        if collective not in _CREATE:
            raise errors.Invalid(f'no collective "{collective}"; there are: '
                                 + ", ".join(_CREATE))
        return self._prepare(
            collective, *self._operands(collective, source, out, root, counts,
                                        target_counts),
            op=op, root=root, counts=counts, target_counts=target_counts,
            algorithm=algorithm, name=name, depth=depth)

    def _prepare(self, collective: str, source: Any, target: Any, result: Any, count: int,
                 *, op: Any = None, root: int = 0, counts: Any = None,
                 target_counts: Any = None, algorithm: Optional[str] = None,
                 name: Optional[str] = None, depth: int = 1) -> Schedule:
        given = target if target is not None else source
        operands = ffi.new("baton_operands_t *")
        keep = [source, target]
        if given is not None:
            operands.dtype = given.dtype
            operands.memory = given.memory
        operands.source = _NULL if source is None else source.address
        operands.target = _NULL if target is None else target.address
        operands.count = count
        operands.depth = depth
        if collective in _REDUCE:
            operands.op = _arrays.operation(op)
            keep.append(op)
        operands.root = root if collective in _ROOTED else 0
        if collective in ("gatherv", "scatterv") and self.rank != root:
            counts = None
        for field, value in (("counts", counts), ("target_counts", target_counts)):
            if value is not None:
                keep.append(ffi.new("size_t[]", list(value)))
                setattr(operands, field, keep[-1])
        for field, value in (("algorithm", algorithm), ("name", name)):
            if value is not None:
                keep.append(ffi.new("char[]", value.encode()))
                setattr(operands, field, keep[-1])
        schedule = Schedule(self, answer("baton_schedule_t *", _CREATE[collective],
                                         self._alive(), operands), keep[:2], result, depth)
        schedule._bound = [of and of.kind for of in keep[:2]]
        schedule._op = op  # one of the caller's own
        return schedule

    def _operands(self, collective: str, a: Any, out: Any, root: int,
                  counts: Any, target_counts: Any) -> tuple:
        """Source, target, the array of the result, and the count: C can't see whether
        arrays are as long as they must be."""
        rank, size = self.rank, self.size
        gives, gets = _SHAPES[collective].split()
        if collective in _ROOTED and not 0 <= root < size:
            raise errors.Invalid(f"{collective}: root is {root}; it is 0 to {size - 1}")
        for what, given in (("counts", counts), ("target_counts", target_counts)):
            if given is not None and len(given) != size:
                raise errors.Invalid(f"{collective}: {what} has {len(given)} numbers; there "
                                     f"are {size} ranks")
        if collective.endswith("v") and counts is None or (
                collective == "alltoallv" and target_counts is None):
            raise errors.Invalid(f"{collective}: counts are missing")
        if collective == "broadcast":
            a, out = None, a
        elif collective in _ROOTED and rank != root:
            a, out = (None, out) if collective.startswith("scatter") else (a, None)
            gives, gets = (gives, "-") if out is None and a is not None else ("-", gets)
        elif out is a or (out is None and gives == gets == "n"):
            a, out = None, a  # in place: the target has the data
            gets = gives
        source = None if a is None else _arrays.operand(a, False)
        target = None if out is None else _arrays.operand(out)
        first, kind = (target, gets) if source is None else (source, gives)
        if first is None and gives + gets != "--":
            raise errors.Invalid(f"{collective}: an array is missing on rank {rank}")
        total = None if counts is None else sum(counts)
        if first is None or collective == "alltoallv":
            count = 0
        elif counts is not None:
            count = counts[rank]
        else:
            count = first.count // size if kind == "all" else first.count
            total = count * size
        if gets != "-" and target is None and not collective.startswith("scatter"):
            shape = getattr(a, "shape", (count,))
            if gets == "all" and counts is None:
                shape = shape if gives == "all" else (size, *shape)
            elif counts is None and gives == "all" and shape and shape[0] % size == 0:
                shape = (shape[0] // size, *shape[1:])
            else:
                shape = (sum(target_counts or counts or [count])
                         if gets == "all" else count,)
            out = _arrays.empty_like(a, shape)
            target = _arrays.operand(out)
        needed = {"n": count, "mine": count, "all": total}
        for what, made, of in (("source", source, needed.get(gives)),
                               ("out", target, needed.get(gets))):
            if what == "out" and target_counts is not None:
                of = sum(target_counts)
            if made is not None and made.count != of:
                raise errors.Invalid(f"{collective}: {what} has {made.count} elements on "
                                     f"rank {rank}; it needs {of}, of {size} ranks")
            if made is not None and (made.dtype, made.memory) != (first.dtype, first.memory):
                raise errors.Invalid(f"{collective}: source is {first!r} and out {made!r}: "
                                     "their types, or kinds of memory, differ")
        return source, target, out, count

    # ---- collectives in one call -----------------------------------------------

    def _now(self, collective: str, a: Any = None, out: Any = None, *, op: Any = None,
             root: int = 0, counts: Optional[Sequence[int]] = None,
             target_counts: Optional[Sequence[int]] = None,
             timeout: Optional[float] = None) -> Any:
        """Ranks must find a shape, or not, alike: so it is known by what is the same on
        all of them, and the first that was made is dropped for a new one."""
        if collective == "reduce" and out is not None and self.rank == root:
            given, target = _arrays.operand(a, False), _arrays.operand(out)
            if (given.dtype, given.count) != (target.dtype, target.count):
                raise errors.Invalid(f"reduce: source is {given!r} and out {target!r}")
            ffi.memmove(target.address, given.address, given.bytes)
            a, out = out, None
        if collective == "scatter" and out is None and self.rank == root:
            block = _arrays.operand(a, False).count // self.size
            out = _arrays.empty_like(a, (block,))
        source, target, result, count = self._operands(collective, a, out, root, counts,
                                                       target_counts)
        given = target if target is not None else source
        kind = None if given is None else (given.dtype, given.memory)
        shape = (collective, count, kind, op, root, counts and tuple(counts),
                 collective in _IN_PLACE and source is None)
        kept = self._kept.get(shape)
        if kept is None:
            if len(self._kept) >= _KEPT:
                self._drop(next(iter(self._kept)))
            made = self._prepare(collective, source, target, None, count, op=op, root=root,
                                 counts=counts, target_counts=target_counts,
                                 name=f"{collective} call "
                                      f"{lib.baton_group_recoveries(self._alive())}")
            kept = self._kept[shape] = SimpleNamespace(schedule=made, handle=made._handle,
                                                       shape=shape)
            made._keep.clear()  # each call's arrays live as long as that
        elif given is not None:
            check(_rebind(kept.handle, _NULL if source is None else source.address,
                          _NULL if target is None else target.address))
        kept.target = _NULL if target is None else target.address
        self._go_on(kept, _start(kept.handle) or lib.BATON_ERR_TIMEOUT, timeout)
        if shape[0] == "allreduce" and shape[-1] and type(a) is _ndarray:
            self._quick[a.nbytes, a.dtype, op] = kept
        if collective == "alltoallv":  # its counts are not the same on all ranks
            self._drop(shape)
        return result

    def _go_on(self, kept: Any, status: int, timeout: Optional[float]) -> None:
        """Waits; and raises, after the schedule has been destroyed, what fails."""
        handle = kept.handle
        try:
            if status == lib.BATON_ERR_TIMEOUT:
                status = _handles.wait(lambda ms: _wait(handle, ms), timeout)
            if status:
                kept.schedule._fail(status)
        except BaseException:
            self._give_up(kept)
            raise

    def _give_up(self, kept: Any) -> None:
        """Cancels, and destroys: memory is the caller's again. Another exception is on
        its way, and says more than what these may fail with."""
        lib.baton_schedule_cancel(kept.handle)
        try:
            self._drop(kept.shape)
        except (KeyError, errors.Error):
            pass

    def allreduce(self, a: Any, op: Any = "sum", out: Any = None, *,
                  timeout: Optional[float] = None) -> Any:
        """The reduction of all ranks' `a`, n elements, into `a`, or into `out`; the same
        bits on all ranks."""
        if out is None and timeout is None and type(a) is _ndarray:
            kept = self._quick.get((a.nbytes, a.dtype, op))
            try:
                memory = kept and _from_buffer(_CHARS, a, True)
            except ValueError:  # strides, or read-only
                memory = None
            if memory is not None:
                if memory != kept.target:
                    check(_rebind(kept.handle, _NULL, memory))
                    kept.target = ffi.cast("void *", memory)
                try:
                    status = _run(kept.handle, _SLICE)
                except BaseException:
                    self._give_up(kept)
                    raise
                if status:
                    self._go_on(kept, status, None)
                return a
        return self._now("allreduce", a, out, op=op, timeout=timeout)

    def reduce(self, a: Any, op: Any = "sum", root: int = 0, out: Any = None, *,
               timeout: Optional[float] = None) -> Any:
        """The reduction of all ranks' `a`, into `a` or `out` of the root, which gets it;
        others get None, and their `a` is not written."""
        return self._now("reduce", a, out, op=op, root=root, timeout=timeout)

    def scan(self, a: Any, op: Any = "sum", out: Any = None, *,
             timeout: Optional[float] = None) -> Any:
        """The reduction of the `a` of ranks 0 to this one, into `a` or `out`."""
        return self._now("scan", a, out, op=op, timeout=timeout)

    def exscan(self, a: Any, op: Any = "sum", out: Any = None, *,
               timeout: Optional[float] = None) -> Any:
        """That of ranks 0 to the one before; on rank 0 nothing is written."""
        return self._now("exscan", a, out, op=op, timeout=timeout)

    def broadcast(self, a: Any, root: int = 0, *, timeout: Optional[float] = None) -> Any:
        """The root's `a` goes to the `a` of all others."""
        return self._now("broadcast", a, root=root, timeout=timeout)

    def allgather(self, a: Any, out: Any = None, counts: Optional[Sequence[int]] = None, *,
                  timeout: Optional[float] = None) -> Any:
        """All ranks' `a`, in the order of ranks: an array (size, *a.shape). With `counts`,
        the elements of each rank's, of one dimension."""
        return self._now("allgather" if counts is None else "allgatherv", a, out,
                         counts=counts, timeout=timeout)

    def gather(self, a: Any, root: int = 0, out: Any = None,
               counts: Optional[Sequence[int]] = None, *,
               timeout: Optional[float] = None) -> Any:
        """The same at the root; others get None. All ranks give `counts`, or none."""
        return self._now("gather" if counts is None else "gatherv", a, out, root=root,
                         counts=counts, timeout=timeout)

    def scatter(self, a: Any = None, root: int = 0, out: Any = None,
                counts: Optional[Sequence[int]] = None, *,
                timeout: Optional[float] = None) -> Any:
        """Block r of the root's `a` goes to `out` of rank r. Only the root gives `a`, and
        only the root may leave out `out`."""
        return self._now("scatter" if counts is None else "scatterv", a, out, root=root,
                         counts=counts, timeout=timeout)

    def alltoall(self, a: Any, out: Any = None, counts: Optional[Sequence[int]] = None,
                 target_counts: Optional[Sequence[int]] = None, *,
                 timeout: Optional[float] = None) -> Any:
        """Block r of `a` goes to rank r; block r of the result came from it. With `counts`,
        the elements that go to each rank, and `target_counts`, those that come."""
        return self._now("alltoall" if counts is None else "alltoallv", a, out,
                         counts=counts, target_counts=target_counts, timeout=timeout)

    def reduce_scatter(self, a: Any, op: Any = "sum", out: Any = None,
                       counts: Optional[Sequence[int]] = None, *,
                       timeout: Optional[float] = None) -> Any:
        """Block r of the reduction of all ranks' `a` goes to rank r. Blocks are equal, or
        `counts` elements."""
        return self._now("reduce_scatter", a, out, op=op, counts=counts, timeout=timeout)

    def barrier(self, *, timeout: Optional[float] = None) -> None:
        """Returns when all ranks have called it."""
        self._now("barrier", timeout=timeout)


def _world_comm() -> Any:
    """The address of an MPI_COMM_WORLD: with Open MPI that is a variable's address."""
    try:
        world = ffi.cast("uintptr_t", lib.ompi_mpi_comm_world)
    except (AttributeError, ffi.error):  # no such symbol
        world = MPICH_COMM_WORLD
    return ffi.new("uintptr_t *", world)
