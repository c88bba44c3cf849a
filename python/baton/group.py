"""Groups: ranks that communicate, and the collectives among them."""
import contextlib
import os
import sys
import weakref
from typing import Any, Optional, Sequence

from numpy import ndarray

from baton import _arrays, _handles, errors
from baton._library import answer, check, ffi, lib, options
from baton._store import Store
from baton.schedule import _NULL, _SLICE, Schedule, Timeout, _rebind, _run

_Counts = Optional[Sequence[int]]
# The extents of source and out: n elements on all ranks, this rank's block (mine), all blocks,
# or no array (-).
_SHAPES = {"allreduce": "n n", "reduce": "n n", "scan": "n n", "exscan": "n n",
           "broadcast": "- n", "allgather": "mine all", "allgatherv": "mine all",
           "gather": "mine all", "gatherv": "mine all", "scatter": "all mine",
           "scatterv": "all mine", "alltoall": "all all", "alltoallv": "all all",
           "reduce_scatter": "all mine", "barrier": "- -"}
_CREATE = {name: getattr(lib, f"baton_{name}_create") for name in _SHAPES}
_REDUCE = {"allreduce", "reduce", "scan", "exscan", "reduce_scatter"}
_ROOTED = {"reduce", "broadcast", "gather", "gatherv", "scatter", "scatterv"}
_KEPT = 64  # the most schedules kept for collectives in one call

_IN_PLACE = {*_REDUCE, "alltoall", "alltoallv"}

_from_buffer, _CHARS = ffi.from_buffer, ffi.typeof("char[]")

_world: Optional["Group"] = None


class Group(_handles.Handle):
    """P ranks that can address each other: `Group.world()`, `Group.from_mpi(comm)`,
    `Group.from_store(store, rank, size)`, `Group.alone()`, `group.sub(ranks)`.

    `rank` is this process's rank, 0 to `size` - 1. Collectives in one call (such as
    `allreduce`) wait for their result. All ranks make these calls in the same order, on one
    thread at a time, with the same counts, type, reduction and root. A call works in place in
    the given array, or leaves it alone and writes to `out`; all ranks must do the same. The
    call returns the array with the result. The group keeps the schedules of the last 64 shapes,
    so that a call only starts one and waits for it.

    Arrays are numpy arrays, PyTorch tensors, or objects with `__dlpack__`,
    `__array_interface__` or a buffer. Reductions: sum, prod, min, max of numbers; band, bor,
    bxor, land, lor, lxor of integers and bool; avg of floats and complex; minloc, maxloc of
    pairs, which are numpy's structured types of a value and an i4.

    Errors of all collectives: Invalid (an array or an argument is wrong), Mismatch (ranks
    differ), PeerLost (a rank is gone), Cancelled, Failed (until `recover`). Ctrl-C ends a wait
    and cancels the collective.
    """

    _destroyer = lib.baton_group_destroy

    def __init__(self, pointer: Any) -> None:
        super().__init__(pointer)
        self.rank: int = lib.baton_group_rank(pointer)
        self.size: int = lib.baton_group_size(pointer)
        self._made: weakref.WeakSet = weakref.WeakSet()  # the handles that were made in it
        self._kept: dict = {}  # schedules by shape; the same on all ranks
        # The schedules of in-place all-reduces, by an array's bytes and type and the reduction.
        self._quick: dict = {}

    # ---- life ------------------------------------------------------------------

    @classmethod
    def world(cls, timeout: Timeout = 300) -> "Group":
        """The group of all ranks of the job, or of this process alone if there is no job. The
        first call is collective. Under mpirun it initialises MPI, unless MPI is initialised;
        then this package finalises MPI at exit. Under torchrun, or another program that sets
        RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, the ranks meet in torch's store. Under
        srun, or a program that sets only RANK and WORLD_SIZE, they meet in a folder: see
        baton_group_create_world. TimedOut: without MPI, ranks have not come within `timeout`
        seconds. Unsupported: mpirun has started this process, and libbaton was built without
        MPI."""
        global _world
        with _handles.lock:  # One of several threads makes the group.
            if _world is None or _world._handle == _NULL:
                _world = cls._make_world(timeout)
        return _world

    @classmethod
    def _make_world(cls, timeout: Timeout) -> "Group":
        if not _handles.is_started_by_mpi():
            if "WORLD_SIZE" in os.environ and "MASTER_ADDR" in os.environ:
                import torch.distributed
                store, rank, size = next(torch.distributed.rendezvous("env://"))
                return cls.from_store(store, rank, size, timeout=timeout)
            return cls._by(lib.baton_group_create_world, _handles.engine(),
                           _handles.milliseconds(timeout))
        _handles.initialise_mpi()
        return cls._by(_handles.mpi().baton_group_create_mpi_at, _handles.engine(),
                       _world_comm())

    @classmethod
    def from_store(cls, store: Any, rank: int, size: int, name: str = "baton",
                   timeout: Timeout = 300) -> "Group":
        """A group of `size` processes, without MPI; this process becomes rank `rank`. Collective.

        The ranks meet in `store`: the path of a folder, or a torch.distributed.Store. `name` is
        the group's name in the store. It has letters, digits, ".", "_" and "-". Take another
        name after a failure. TimedOut names the ranks that have not come within `timeout`
        seconds. Unsupported: ranks are on different hosts, or can't share memory, and there
        is no UCX."""
        return cls._through(store, lambda opened, out: lib.baton_group_create_store(
            _handles.engine(), opened, rank, size, name.encode(), _handles.milliseconds(timeout),
            out))

    @classmethod
    def join(cls, store: Any, name: str = "baton", timeout: Timeout = 300) -> "Group":
        """Joins a group whose ranks call `reconfigure` with this `name`. In the new group
        `origin(rank)` is -1 for ranks that have joined; the other ranks have the state of the
        training. TimedOut: no place was free within `timeout` seconds. PeerLost: call it
        again."""
        return cls._through(store, lambda opened, out: lib.baton_group_join(
            _handles.engine(), opened, name.encode(), _handles.milliseconds(timeout), out))

    def reconfigure(self, store: Any, size: int, name: str = "baton",
                    timeout: Timeout = 300) -> "Group":
        """A new group of `size` ranks: the living ranks of this group, and processes that call
        `join`. Collective over the living ranks. They keep their numbers, unless these are `size`
        or more. Destroy both groups. PeerLost, TimedOut: call it again."""
        return self._through(store, lambda opened, out: lib.baton_group_reconfigure(
            self._alive(), opened, size, name.encode(), _handles.milliseconds(timeout), out))

    @classmethod
    def _through(cls, store: Any, create: Any) -> "Group":
        opened = Store(store)
        try:
            return cls._by(lambda out: create(opened.pointer, out))
        except errors.Error:
            if opened.raised is not None:
                raise opened.raised
            raise
        finally:
            # The functions refer to `opened`, and it refers to them. Without this line the
            # store, which may be a server, would live until Python collects cycles.
            opened._functions.clear()

    @classmethod
    def from_mpi(cls, comm: Any) -> "Group":
        """The group of the ranks of mpi4py's communicator, an intracommunicator. Collective."""
        mpi = sys.modules.get("mpi4py.MPI")
        if mpi is None or not isinstance(comm, mpi.Comm):
            raise TypeError("Group.from_mpi takes a communicator of mpi4py, and not "
                            f"{type(comm).__name__}")
        return cls._by(_handles.mpi().baton_group_create_mpi_at, _handles.engine(),
                       ffi.cast("void *", mpi._addressof(comm)))

    @classmethod
    def _by(cls, create: Any, *given: Any) -> "Group":
        return cls(answer("baton_group_t *", create, *given))

    @classmethod
    def alone(cls) -> "Group":
        """This process as a group of one rank, without MPI."""
        return cls._by(lib.baton_group_create_self, _handles.engine())

    def sub(self, ranks: Sequence[int], name: str = "") -> "Group":
        """A group of some ranks of this one: its rank i is ranks[i]. Only the ranks in the list
        call this, with the same list and name. No message is sent. Invalid: this rank is not
        in the list."""
        return Group._by(lib.baton_group_create_sub, self._alive(), list(ranks), len(ranks),
                         name.encode())

    def origin(self, rank: int) -> int:
        """The number that a rank had in the group from which `sub`, `shrink` or `reconfigure` made
        this one. -1: the rank has joined."""
        return lib.baton_group_origin(self._alive(), rank)

    def recover(self, timeout: Timeout = None) -> None:
        """Makes the group usable again after a failure. Collective. Epochs count from 1 again.
        TimedOut: call it again. PeerLost: a rank is gone, and `shrink` makes a group of the
        others."""
        while self._kept:  # the schedules of collectives in one call
            self._drop(next(iter(self._kept)))
        handle = self._alive()
        check(_handles.wait(lambda ms: lib.baton_group_recover(handle, ms), timeout))

    def shrink(self, timeout: Timeout = None) -> "Group":
        """A group of the ranks that live, after some are lost. Collective over the living ranks.
        Prepare all schedules again in it. Destroy both groups. PeerLost: this rank must not go
        on, since other ranks may go on without it."""
        handle, out = self._alive(), ffi.new("baton_group_t **")
        check(_handles.wait(lambda ms: lib.baton_group_shrink(handle, ms, out), timeout))
        return Group(out[0])

    def destroy(self) -> None:
        """Destroys the group, after all objects that were made in it. Collective. A second call
        does nothing. Any other use after that raises `baton.State` or `baton.Invalid`."""
        self._kept.clear()
        self._quick.clear()
        for handle in sorted(self._made, key=lambda handle: -handle._number):
            handle.destroy()
        super().destroy()

    def __del__(self) -> None:
        if getattr(self, "_handle", _NULL) != _NULL:
            _handles.later.append(self)  # Python collects garbage at different times on each rank

    def _drop(self, shape: tuple) -> None:
        self._quick.clear()
        self._kept.pop(shape).destroy()

    # ---- persistent collectives ------------------------------------------------

    def prepare(self, collective: str, source: Any = None, out: Any = None, *,
                op: Any = "sum", root: int = 0, counts: _Counts = None,
                target_counts: _Counts = None, algorithm: Optional[str] = None,
                name: Optional[str] = None, depth: int = 1) -> Schedule:
        """Prepares a collective as a `Schedule`, which can run any number of times.

        `collective`, and the arrays of P ranks, n elements each:

            allreduce, scan, exscan   source n, out n; without out: in place in source
            reduce                    the same, but only the root has out
            broadcast                 source n, which gets the root's elements
            allgather                 source n, out P n; without source: in place in out
            gather                    source n, out P n; only the root has out
            scatter                   source P n, out n; only the root has source
            alltoall                  source P n, out P n
            reduce_scatter            source P n, out n
            allgatherv, gatherv, scatterv, alltoallv
                                      the same, with counts: the elements of each rank's
                                      block. For alltoallv counts has those of the blocks
                                      that go to each rank, and target_counts those of the
                                      blocks that come. reduce_scatter takes counts, too
            barrier                   no arrays

        If out is not given, and the result can't be in source, a new array is made; `result`
        is the array with the result. `algorithm`: a name that baton-info --choices lists; None:
        the one that is expected to be fastest. `name` is used in messages. The k-th schedule of
        a name on one rank belongs with the k-th on the others. `depth`: the most epochs in
        flight.

        The call does not wait for other ranks, which must prepare the same collective. The
        arrays belong to the caller, and the schedule keeps them alive. Invalid: an argument is
        wrong; the message names it.
        """
        if collective not in _CREATE:
            raise errors.Invalid(f'no collective "{collective}"; there are: ' + ", ".join(_CREATE))
        operands = self._operands(collective, source, out, root, counts, target_counts)
        return self._prepare(
            collective, *operands, op=op, root=root, counts=counts, depth=depth,
            target_counts=target_counts, algorithm=algorithm, name=name)

    def _prepare(self, collective: str, source: Any, target: Any, result: Any, count: int, *,
                 op: Any = None, root: int = 0, counts: _Counts = None, depth: int = 1,
                 **more: Any) -> Schedule:
        given, alive = target or source, []  # type: Any, list
        if collective in ("gatherv", "scatterv") and self.rank != root:
            counts = None
        operands = options("baton_operands_t", alive, {
            "source": source and source.address, "target": target and target.address,
            "dtype": given and given.dtype, "memory": given and given.memory,
            "op": _arrays.operation(op) if collective in _REDUCE else None,
            "root": root if collective in _ROOTED else None,
            "count": count, "counts": counts, "depth": depth, **more})
        pointer = answer("baton_schedule_t *", _CREATE[collective], self._alive(), operands)
        schedule: Any = Schedule(self, pointer, (source, target), result, depth)
        schedule._bound = source and source.kind, target and target.kind
        schedule._op = op  # keeps a reduction of the caller's alive
        return schedule

    def _for_calls(self, collective: str, source: Any, target: Any, count: int,
                   **given: Any) -> Schedule:
        """Prepares a schedule for collectives in one call; each call keeps its own arrays alive.
        The k-th schedule of a name belongs with the k-th on the peers. Before a failure some ranks
        may have made more schedules than others. So the name contains the number of recoveries,
        and k counts from 1 again after each."""
        made = self._prepare(collective, source, target, None, count,
                             name=f"{collective} call {self._recoveries()}", **given)
        made._keep.clear()
        return made

    def _recoveries(self) -> int:
        return lib.baton_group_recoveries(self._alive())

    def _operands(self, collective: str, a: Any, out: Any, root: int, counts: _Counts,
                  target_counts: _Counts) -> tuple:
        """Returns the source, the target, the array with the result, and the count. Checks the
        lengths of the arrays, which C can't see."""
        rank, size = self.rank, self.size
        gives, gets = _SHAPES[collective].split()
        if collective in _ROOTED and not 0 <= root < size:
            raise errors.Invalid(f"{collective}: root is {root}; it is 0 to {size - 1}")
        for what, given in (("counts", counts), ("target_counts", target_counts)):
            if given is not None and len(given) != size:
                raise errors.Invalid(f"{collective}: {what} has {len(given)} numbers; there "
                                     f"are {size} ranks")
        if collective.endswith("v") and (counts is None or (
                collective == "alltoallv" and target_counts is None)):
            missing = "counts" if counts is None else "target_counts"
            raise errors.Invalid(f"{collective}: {missing} are missing")
        if collective == "broadcast":
            a, out = None, a
        elif collective in _ROOTED and rank != root:
            if collective.startswith("scatter"):
                a, gives = None, "-"
            else:
                out, gets = None, "-"
        elif collective in _IN_PLACE and (out is a or out is None and gives == gets == "n"):
            a, out, gets = None, a, gives  # the target has the data
        source = None if a is None else _arrays.operand(a, False)
        target = None if out is None else _arrays.operand(out)
        first, kind = (target, gets) if source is None else (source, gives)  # type: Any, str
        if first is None and gives + gets != "--":
            raise errors.Invalid(f"{collective}: rank {rank} gave no array, and no out=")
        total = None if counts is None else sum(counts)
        if first is None or collective == "alltoallv":
            count = 0
        elif counts is not None:
            count = counts[rank]
        else:
            count = first.count // size if kind == "all" else first.count
            total = count * size
        needed = {"n": count, "mine": count, "all": total}
        wanted = needed.get(gets) if target_counts is None else sum(target_counts)
        if target is None and gets != "-":
            shape = getattr(a, "shape", (count,))
            if counts is not None:
                shape = (wanted,)
            elif gives == "mine":
                shape = (size, *shape)
            elif gets == "mine":
                rows = collective == "reduce_scatter" and shape and shape[0] % size == 0
                shape = (shape[0] // size, *shape[1:]) if rows else (count,)
            out = _arrays.empty_like(a, shape)
            target = _arrays.operand(out)
        for what, made, of in (("source", source, needed.get(gives)), ("out", target, wanted)):
            if made is not None and made.count != of:
                raise errors.Invalid(f"{collective}: {what} has {made.count} elements on "
                                     f"rank {rank}; it needs {of}, of {size} ranks")
            if made is not None and made.kind[1:] != first.kind[1:]:
                raise errors.Invalid(f"{collective}: source is {first!r} and out {made!r}: "
                                     "their types, or kinds of memory, differ")
        return source, target, out, count

    # ---- collectives in one call -----------------------------------------------

    def _now(self, collective: str, a: Any = None, out: Any = None, timeout: Timeout = None,
             *, op: Any = None, root: int = 0, counts: _Counts = None,
             target_counts: _Counts = None) -> Any:
        """Runs a collective in one call. Either all ranks have a schedule for the shape of a call,
        or none has. So a shape has only arguments that are the same on all ranks; and if there
        are too many schedules, the oldest one is dropped."""
        if counts is not None and collective != "reduce_scatter":
            collective += "v"
        source, target, result, count = self._operands(collective, a, out, root, counts,
                                                       target_counts)
        if collective == "reduce" and source and target:  # The root reduces in place.
            if source.memory == lib.BATON_MEMORY_HOST:
                ffi.memmove(target.address, source.address, source.bytes)
            else:  # The device copies in a collective of one rank.
                with Group.alone() as copies:
                    copies.allgather(a, out)
            source = None
        given = target or source
        shape = (collective, count, given and given.kind[1:], op, root,
                 None if counts is None else tuple(counts),
                 collective in _IN_PLACE and source is None)
        kept: Any = self._kept.get(shape)
        if kept is None:
            if len(self._kept) >= _KEPT:
                self._drop(next(iter(self._kept)))
            kept = self._kept[shape] = self._for_calls(
                collective, source, target, count, op=op, root=root, counts=counts,
                target_counts=target_counts)
            kept._shape = shape
        elif given is not None:
            kept._target = None  # Ctrl-C may interrupt the next call.
            check(_rebind(kept._handle, _NULL if source is None else source.address,
                          _NULL if target is None else target.address))
        kept._target = target and target.address
        try:
            kept.run(timeout)
        except BaseException as why:
            self._give_up(kept, source, target)
            if isinstance(why, errors.TimedOut):
                why.args = (f"{why}\n    (the call is cancelled; if ranks have made different "
                            "calls, or different numbers of them, Group.recover on all ranks)",)
            raise
        if shape[0] == "allreduce" and shape[-1] and type(a) is ndarray:
            self._quick[a.nbytes, a.dtype, op] = kept
        if collective == "alltoallv":  # the counts of its calls differ between ranks
            self._drop(shape)
        return result

    def _give_up(self, kept: Any, *arrays: Any) -> None:
        """Cancels a schedule and destroys it, so that the memory is the caller's again, unless
        that takes too long. The caller raises another exception, which says more than an error
        of these calls would; so such errors are ignored."""
        lib.baton_schedule_cancel(kept._handle)
        kept._keep.append(arrays)
        with contextlib.suppress(KeyError, errors.Error):
            self._drop(kept._shape)

    def allreduce(self, a: Any, op: Any = "sum", out: Any = None, *,
                  timeout: Timeout = None) -> Any:
        """Reduces the arrays `a` of all ranks into `a`, or into `out`. The result has the same
        bits on all ranks."""
        if out is None and timeout is None and type(a) is ndarray:
            kept: Any = self._quick.get((a.nbytes, a.dtype, op))
            try:
                memory = kept and _from_buffer(_CHARS, a, True)
            except ValueError:  # strides, or read-only
                memory = None
            if memory is not None:
                if memory != kept._target:
                    kept._target = None  # Ctrl-C may interrupt the next call.
                    check(_rebind(kept._handle, _NULL, memory))
                    kept._target = ffi.cast("void *", memory)
                try:
                    status = _run(kept._handle, _SLICE)
                    if status:
                        kept._wait_on(status, None)
                except BaseException:
                    self._give_up(kept, a)
                    raise
                return a
        return self._now("allreduce", a, out, timeout, op=op)

    def reduce(self, a: Any, op: Any = "sum", root: int = 0, out: Any = None, *,
               timeout: Timeout = None) -> Any:
        """Reduces the arrays `a` of all ranks into the root's `a`, or its `out`. The root returns
        the result, and the others None. Their `a` is not written."""
        return self._now("reduce", a, out, timeout, op=op, root=root)

    def scan(self, a: Any, op: Any = "sum", out: Any = None, *, timeout: Timeout = None) -> Any:
        """Reduces the arrays `a` of ranks 0 to this one into `a`, or into `out`."""
        return self._now("scan", a, out, timeout, op=op)

    def exscan(self, a: Any, op: Any = "sum", out: Any = None, *, timeout: Timeout = None) -> Any:
        """Like `scan`, but without this rank's own array. On rank 0 nothing is written."""
        return self._now("exscan", a, out, timeout, op=op)

    def broadcast(self, a: Any, root: int = 0, *, timeout: Timeout = None) -> Any:
        """Copies the root's `a` to the `a` of all other ranks."""
        return self._now("broadcast", a, None, timeout, root=root)

    def allgather(self, a: Any, out: Any = None, counts: _Counts = None, *,
                  timeout: Timeout = None) -> Any:
        """Returns the arrays `a` of all ranks, in the order of ranks, as an array of the shape
        (size, *a.shape). With `counts`, the elements of each rank's `a`, it has one dimension."""
        return self._now("allgather", a, out, timeout, counts=counts)

    def gather(self, a: Any, root: int = 0, out: Any = None, counts: _Counts = None, *,
               timeout: Timeout = None) -> Any:
        """Like `allgather`, but only the root gets the result; the others return None. Either all
        ranks give `counts`, or none."""
        return self._now("gather", a, out, timeout, root=root, counts=counts)

    def scatter(self, a: Any = None, root: int = 0, out: Any = None, counts: _Counts = None,
                *, timeout: Timeout = None) -> Any:
        """Copies block r of the root's `a` to the `out` of rank r. Only the root gives `a`; all
        others must give `out`."""
        return self._now("scatter", a, out, timeout, root=root, counts=counts)

    def alltoall(self, a: Any, out: Any = None, counts: _Counts = None,
                 target_counts: _Counts = None, *, timeout: Timeout = None) -> Any:
        """Sends block r of `a` to rank r; block r of the result comes from rank r. `counts` has
        the elements that go to each rank, and `target_counts` those that come from it; without
        them all blocks are equal."""
        return self._now("alltoall", a, out, timeout, counts=counts, target_counts=target_counts)

    def reduce_scatter(self, a: Any, op: Any = "sum", out: Any = None,
                       counts: _Counts = None, *, timeout: Timeout = None) -> Any:
        """Reduces the arrays `a` of all ranks; rank r gets block r of the result. `counts` has the
        elements of each block; without it all blocks are equal."""
        return self._now("reduce_scatter", a, out, timeout, op=op, counts=counts)

    def barrier(self, *, timeout: Timeout = None) -> None:
        """Returns when all ranks have called it."""
        self._now("barrier", timeout=timeout)


def _world_comm() -> Any:
    """Returns the address of a handle of MPI_COMM_WORLD. In Open MPI the handle is the address
    of a variable, in MPICH a number."""
    try:
        world = ffi.cast("uintptr_t", _handles.mpi().ompi_mpi_comm_world)
    except (AttributeError, ffi.error):  # no such symbol
        world = 0x44000000  # MPICH's
    return ffi.new("uintptr_t *", world)
