"""The backend "baton" of torch.distributed, for tensors in the memory of the CPU.

    dist.all_reduce(tensor)
        ProcessGroup.allreduce     finds the schedule of this shape, rebinds it if the last
                                   call had another tensor, and starts it
        Work.wait                  waits for the epoch that was started

Torch 2 passes in a call whether the program will wait for it later. If it will not, `allreduce`
waits itself. Torch's C++ calls the Backend of the group, which has the same methods and
schedules. A group of torch's own class with a Backend would do, too, but torch's dispatcher
alone takes more time than all code in this file.

A process group is a sub-group of `baton.Group.world()`, whose creation takes no message. It
keeps the schedules of the last shapes, so that a training step makes nothing new. Ranks of a
group call the same collectives in the same order, as torch.distributed demands. So they make
the schedules in the same order, and drop the same ones when there are too many.

Tensors that an epoch works on live as long as the epoch: a schedule keeps its works until
they have ended, whatever becomes of the caller's references. If torch has a list of tensors
where Baton needs one vector, the work has a vector of its own, and copies it at the end.
"""
import atexit
import collections
import contextlib
import ctypes
import os
import queue
import select
import socket
import threading
import time
import weakref
from datetime import timedelta
from sys import getrefcount
from typing import Any, Iterable, List, NoReturn, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as _c10d

import baton
from baton import _arrays, _handles, errors
from baton._library import check, ffi, lib

_KEPT = 256  # the most shapes whose schedules a group keeps
_DEPTH = 8  # the most epochs of one schedule in flight; with a GPU, Baton's limit
_MESSAGES = 64  # the most messages of one size, tag and peer in flight, without a GPU
_LEAVING_S = int(os.environ.get("BATON_DESTROY_MS", 10000)) / 1000
_MONITORED = -1  # the tag of the messages of monitored_barrier
_ABANDONED = 32  # in torch 1: the most ended works kept that only C++ may still refer to

_start, _run = lib.baton_schedule_start, lib.baton_schedule_run
_wait_epoch, _rebind = lib.baton_schedule_wait_epoch, lib.baton_schedule_rebind
_SLICE, _BUSY, _cast = _handles.SLICE_MS, lib.BATON_ERR_BUSY, ffi.cast
_finishing = _handles.lock
_no_timeout = timedelta(0)
_TORCH_2 = hasattr(_c10d, "Backend")
# Whether torch says that the program will not wait for a collective. Such a collective may
# return None after it has ended.
_SAYS_SYNC = hasattr(dist.AllreduceOptions(), "asyncOp")

_OPS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "AVG")
# The reductions for tensors of bool, whose sum in torch is a logical or.
_OPS_OF_BOOL = {"sum": "lor", "max": "lor", "prod": "land", "min": "land"}
# Names by the hash of a ReduceOp, which is its number: comparing two ReduceOps takes
# microseconds.
_OF_REDUCE_OP = {hash(getattr(dist.ReduceOp, name)): name.lower()[:4] for name in _OPS}
_number_of = dist.ReduceOp.__hash__  # takes a quarter of the time of hash()


def untraced(*functions: Any) -> None:
    """Keeps torch.compile from looking into functions, and into what they call: torch's C++
    calls them while the compiler listens."""
    compiler: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(compiler, "set_code_exec_strategy"):
        skip = compiler._FrameExecStrategy(*2 * [compiler._FrameAction.SKIP])
        for code in [each.__code__ for each in functions if hasattr(each, "__code__")]:
            compiler.set_code_exec_strategy(code, skip)


class _Kept:
    """The schedule of a shape, and its works in flight."""

    in_order = True  # whether its futures are completed in the order of the group's calls

    def __init__(self, state: "_State", schedule: baton.Schedule, depth: int = _DEPTH) -> None:
        self.state, self.schedule, self.depth = state, schedule, depth
        self.handle = schedule._handle
        self.source = self.target = None  # type: Optional[int]
        self.closed: Optional[BaseException] = None  # why the schedule is destroyed
        self.started = self.ended = 0
        # The works that were started, and whose ends were not noticed yet.
        self.works: collections.deque = collections.deque()
        state.all.add(self)

    def bind(self, source: int, target: int) -> None:
        """Source and target are addresses; 0 means none."""
        if source != self.source or target != self.target:
            self.source = self.target = None  # Ctrl-C may interrupt the next call.
            check(self.with_room(_rebind, _cast("void *", source), _cast("void *", target)))
            self.source, self.target = source, target

    def run(self, tensors: Any, opts: Any) -> Any:
        """Starts an epoch when none is in flight, and waits for it for a moment. Returns None if
        it has ended, else its work."""
        try:
            status = _run(self.handle, _SLICE)
            if status:
                return self.in_flight(Work(tensors, opts)) or self.fail(status)
            self.ended = self.started = self.started + 1
        except BaseException:  # A signal's handler may have raised it.
            self.in_flight(Work(tensors, opts))
            raise

    def start(self, work: "Work") -> "Work":
        try:
            status = self.with_room(_start)
            return self.fail(status) if status else self.add(work)
        except BaseException:  # A signal's handler may have raised it.
            self.in_flight(work)
            raise

    def in_flight(self, work: "Work") -> Optional["Work"]:
        """Adds the work if its epoch has started and is not counted yet; else returns None."""
        return self.add(work) if lib.baton_schedule_started(self.handle) > self.started else None

    def add(self, work: "Work") -> "Work":
        """Keeps the work of the epoch that was started last until that has ended."""
        work._kept, work._epoch = self, self.started + 1
        self.works.append(work)
        self.started += 1
        if self.state.coalesced is not None:
            self.state.coalesced.append(work)
        if len(self.works) > self.depth:
            self.retire(lib.baton_schedule_epoch(self.handle))
        return work

    def with_room(self, call: Any, *given: Any) -> int:
        """Calls a function of the library, which may find that `depth` epochs are in flight. Then
        waits until the oldest of them has ended, and calls the function again."""
        status = call(self.handle, *given)
        if status == _BUSY:
            self.ends_at(self.started - self.depth + 1, self.state.timeout)
            status = call(self.handle, *given)
        if status and self.closed is not None:
            raise self.closed
        return status

    def ends_at(self, epoch: int, timeout: float) -> None:
        """Waits for an epoch; `timeout` is in seconds."""
        status = _handles.wait(lambda ms: _wait_epoch(self.handle, epoch, ms), timeout,
                               lambda: lib.baton_schedule_cancel(self.handle))
        if status == lib.BATON_ERR_TIMEOUT:
            late = self.schedule._error(status)
            raise errors.TimedOut(f"{late}, within the timeout of {timeout:g} s")
        if status:
            self.fail(status)
        self.retire(epoch)

    def fail(self, status: int) -> NoReturn:
        failed = self.closed or self.schedule._error(status)
        if not isinstance(failed, errors.Interrupted):  # an interrupted epoch goes on
            self.give_up(failed)
        raise failed

    def give_up(self, failed: BaseException) -> None:
        with _finishing:
            while self.works:
                work = self.works.popleft()
                work._failed = failed
                self.abandon(work)

    def close(self, failed: BaseException) -> None:
        """Cancels the epochs in flight. The caller then destroys the schedule."""
        with _finishing:
            if self.works:
                lib.baton_schedule_cancel(self.handle)  # returns an error if all have ended
                self.schedule._keep.append([(of._tensors, of._buffers) for of in self.works])
                self.give_up(failed)
            self.handle, self.closed = ffi.NULL, failed

    def retire(self, epoch: int) -> None:
        """Called when all works up to `epoch` have ended. Copies their results, and then publishes
        that they have ended."""
        with _finishing:
            works = self.works
            while works and works[0]._epoch <= epoch:
                work = works.popleft()
                try:
                    if work._after is not None:
                        work._after()
                        work._after = None
                except KeyboardInterrupt:  # The next wait copies the results.
                    works.appendleft(work)
                    raise
                self.abandon(work)
            self.ended = max(self.ended, epoch)

    def abandon(self, work: "Work") -> None:
        """Keeps a work to which no Python code refers. Torch 1's C++ may still refer to it, and
        would find no wait() if the Python object were gone."""
        # The three references are this variable, the caller's, and getrefcount's own.
        if not _TORCH_2 and getrefcount(work) <= 3:
            work._tensors = work._buffers = None
            self.state.abandoned.append(work)


class Work(_c10d.Work):
    """An operation that was started. `wait()` returns True when the tensors may be used;
    it raises `baton.TimedOut` after the group's timeout, and what `Schedule.wait` raises.
    After TimedOut the operation goes on: wait again, or end the process."""

    _kept = _failed = _future = _ended = None  # type: Any
    _epoch = 0
    _after: Any = None  # a function that copies the results to the caller's tensors
    _buffers: Any = None  # tensors that the epoch works on

    def __init__(self, tensors: Any, options: Any = None) -> None:
        _c10d.Work.__init__(self)
        self._tensors, self._options = tensors, options

    def wait(self, timeout: timedelta = _no_timeout) -> bool:
        kept, epoch = self._kept, self._epoch
        if epoch > kept.ended:
            status = _wait_epoch(kept.handle, epoch, _SLICE if timeout <= _no_timeout else 0)
            if status:
                if self._failed is not None:
                    raise self._failed
                if status != lib.BATON_ERR_TIMEOUT:
                    kept.fail(status)
                kept.ends_at(epoch, self._seconds(timeout))
            else:
                with _finishing:
                    works = kept.works
                    if works and works[0] is self and self._after is None:  # the most frequent case
                        works.popleft()
                        kept.ended = max(kept.ended, epoch)
                    else:
                        kept.retire(epoch)
        elif self._failed is not None:
            raise self._failed
        return True

    def _seconds(self, timeout: timedelta) -> float:
        if timeout <= _no_timeout:
            timeout = getattr(self._options, "timeout", timeout)
        return timeout.total_seconds() if timeout > _no_timeout else self._kept.state.timeout

    def _ends_within(self, ms: int) -> bool:
        """Waits for at most `ms` milliseconds. Returns whether the operation has ended, or has
        failed."""
        kept = self._kept
        with _finishing:  # no other thread destroys the schedule meanwhile
            if self._epoch > kept.ended and self._failed is None:
                status = _wait_epoch(kept.handle, self._epoch, ms)
                if status in (lib.BATON_ERR_TIMEOUT, lib.BATON_ERR_INTERRUPTED):
                    return False
                if status:
                    self._failed = self._failed or kept.schedule._error(status)
                else:
                    kept.retire(self._epoch)
            return True

    def is_completed(self) -> bool:
        return self._ends_within(0)

    def is_success(self) -> bool:
        return self.is_completed() and self._failed is None

    def exception(self) -> Optional[BaseException]:
        return self._failed

    def result(self) -> Any:
        return self._tensors

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors; its errors are RuntimeErrors that name the class. A thread of
        this package completes it, so that the library's own thread never waits for Python."""
        if self._future is None:
            self._ended = torch.futures.Future()
            self._future = self._ended.then(self._outcome)
            # A callback of another future may wait for this one; it runs on the thread that would
            # complete both.
            called_back = threading.current_thread() is _completer._thread
            if called_back:
                with contextlib.suppress(Exception):  # then the future has the exception
                    self.wait()
            if (called_back or not _completer.pending) and self.is_completed():
                self._complete()
            else:
                _completer.add(self)
        return self._future

    def _complete(self) -> None:
        self._ended.set_result(self._tensors)

    def _outcome(self, ended: torch.futures.Future) -> Any:
        """The result of the future. An exception of this function is a failure for torch's C++,
        too, such as DDP's, which takes one that is set by set_exception for tensors."""
        if self._failed is not None:
            raise self._failed
        return ended.value()


class _Works(Work):
    """Several operations that are waited for as one."""

    def __init__(self, works: Iterable[Work], tensors: Any) -> None:
        super().__init__(tensors)
        self._works = list(works)
        self._kept = self._works[0]._kept if self._works else None

    def wait(self, timeout: timedelta = _no_timeout) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def _ends_within(self, ms: int) -> bool:
        done = all([work._ends_within(ms) for work in self._works])
        self._failed = next((work._failed for work in self._works if work._failed), None)
        return done

    def _seconds(self, timeout: timedelta) -> float:
        return max(work._seconds(timeout) for work in self._works)


class _Completer:
    """Completes futures. Its thread sleeps until an epoch has ended on the engine, whose own
    thread makes progress. Then it tests all works, since they may end in any order. But the
    futures of a group's collectives are completed in the order of the calls: their callbacks may
    call collectives, which all ranks call in the same order."""

    _queue: Any = queue.SimpleQueue()  # has works with their deadlines
    _thread: Optional[threading.Thread] = None
    pending = 0  # the number of futures that this thread has to complete

    def add(self, work: Work) -> None:
        self._queue.put((work, time.monotonic() + work._seconds(_no_timeout)))
        with _finishing:
            self.pending += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="baton futures")
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Called at exit, before the engine is closed."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(1.0)  # the thread never sleeps that long

    def _run(self) -> None:
        works, ended = [], ffi.new("int *")  # type: list, Any
        while True:
            while not works or not self._queue.empty():
                works.append(self._queue.get())
                if works[-1] is None:
                    return
            sleeps = lib.baton_engine_arm(_handles.engine(), ended) == lib.BATON_OK
            left, behind = [], set()  # type: list, set
            for work, deadline in works:
                line = work._kept.state if work._kept and work._kept.in_order else work
                if line in behind or not self._ends(work, deadline):
                    behind.add(line)
                    left.append((work, deadline))
            with _finishing:
                self.pending -= len(works) - len(left)
            works = left
            if works and sleeps:
                poll = select.poll()
                poll.register(ended[0], select.POLLIN)
                poll.poll(100)
            elif works:  # the engine is manual: only a thread that waits makes progress
                works[0][0]._ends_within(1)

    @staticmethod
    def _ends(work: Work, deadline: float) -> bool:
        try:
            if not work._ends_within(0):
                if time.monotonic() < deadline:
                    return False
                work._failed = errors.TimedOut("the operation behind a future was not done in time")
        except BaseException as failed:
            work._failed = failed
        work._complete()
        return True


_completer = _Completer()


# ---- process groups -------------------------------------------------------------


_states: weakref.WeakSet = weakref.WeakSet()


class _State:
    """The parts of a process group that its works need. These parts don't refer to the process
    group, so that Python frees a process group as soon as nobody uses it."""

    def __init__(self, group: baton.Group, timeout: float) -> None:
        self.group, self.timeout = group, timeout
        self.all: weakref.WeakSet = weakref.WeakSet()  # all _Kept
        self.kept: dict = {}  # the _Kept of collectives, by shape; the same on all ranks
        self.pairs: dict = {}  # the groups of two ranks for send and recv, by peer
        self.messages: dict = {}  # the _Kept of send and recv
        self.old_pairs: list = []  # the groups of two ranks from before the last recovery
        self.abandoned: collections.deque = collections.deque(maxlen=_ABANDONED)
        self.coalesced: Any = None  # the works since start_coalescing
        _states.add(self)

    def destroy(self) -> None:
        """Waits for the works in flight, for as long as the library would. Works that have not
        ended then fail."""
        for kept in list(self.all):
            with contextlib.suppress(errors.Error):  # The works report them.
                if kept.works:
                    kept.ends_at(kept.started, _LEAVING_S)
            kept.close(errors.State("the process group was destroyed"))
        for group in [*self.old_pairs, *self.pairs.values(), self.group]:
            group.destroy()


def _vector(tensor: Tensor) -> Tensor:
    """Returns the tensor if its memory has its elements, contiguously; else a copy for which that
    holds. It must be on the CPU."""
    if not tensor.is_cpu or tensor.layout is not torch.strided:
        raise errors.Invalid(f"the backend baton is for dense tensors of the CPU; this one "
                             f"is {tensor.layout} on {tensor.device}")
    return tensor.resolve_conj().resolve_neg().contiguous()


def _into(tensor: Tensor, options: Any = None) -> Tuple[Tensor, Work]:
    """Returns the target of a collective: the tensor, or a vector that the returned work copies
    into the tensor."""
    vector, work = _vector(tensor), Work([tensor], options)
    if vector is not tensor:
        work._after = lambda: tensor.copy_(vector)
    return vector, work


def _address(tensor: Tensor) -> int:
    return tensor.data_ptr() or _arrays.NOWHERE


def _overlap(a: Tensor, b: Tensor) -> bool:
    return (a.data_ptr() < b.data_ptr() + b.numel() * b.element_size()
            and b.data_ptr() < a.data_ptr() + a.numel() * a.element_size())


def _sizes(what: str, given: Sequence[int], wanted: Sequence[int]) -> None:
    if list(given) != list(wanted):
        raise ValueError(f"{what}: there are tensors of {list(given)} elements, where "
                         f"{list(wanted)} are needed")


def _into_all(tensors: Sequence[Tensor], options: Any) -> Tuple[Tensor, Work]:
    """Returns a vector, and a work that copies its elements to the tensors, one after another."""
    counts = [tensor.numel() for tensor in tensors]
    vector, work = torch.empty(sum(counts), dtype=tensors[0].dtype), Work(tensors, options)

    work._after = lambda: [tensor.copy_(part.view(tensor.shape))
                           for tensor, part in zip(tensors, vector.split(counts))]
    return vector, work


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([_vector(tensor).reshape(-1) for tensor in tensors])


def _one(tensors: Any) -> Tensor:
    if isinstance(tensors, torch.Tensor):
        return tensors
    if len(tensors) != 1:
        raise errors.Invalid(f"the backend baton takes one tensor of a rank, and not "
                             f"{len(tensors)}: call it once for each")
    return tensors[0]


def _number(opts: Any) -> int:
    return hash(dist.ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts))


def _reduction(opts: Any) -> str:
    if _number(opts) not in _OF_REDUCE_OP:
        raise errors.Invalid("the backend baton has the reductions " + ", ".join(_OPS))
    return _OF_REDUCE_OP[_number(opts)]


class _Collectives:
    """The methods that torch calls in a process group, and in torch 2 in a backend."""

    def _prepare(self, group: baton.Group, timeout: timedelta) -> None:
        self.group = group
        self._rank, self._size = group.rank, group.size
        self._state = _State(group, timeout.total_seconds())
        self._kept = self._state.kept
        # The _Kept of in-place all-reduces, by elements, type and the number of the reduction.
        self._sums: dict = {}
        self.shutdown = weakref.finalize(self, self._state.destroy)
        self.shutdown.atexit = False  # at exit baton destroys all groups, the newest one first

    # ---- schedules ---------------------------------------------------------------

    def _run(self, work: Work, collective: str, source: Any, target: Any, count: int = 0,
             op: Any = None, root: int = 0, counts: Any = None, target_counts: Any = None) -> Work:
        """Starts a collective. Source and target are contiguous tensors, or None. `counts` has
        the elements of each rank's block, if blocks may differ."""
        if counts is not None and target_counts is None:
            count, equal = counts[self._rank], len(set(counts)) == 1
            collective += "v" if collective == "allgather" and not equal else ""
            counts = None if equal else counts
        given = source if target is None else target
        if source is not None and target is not None:
            if source.dtype != target.dtype:
                raise ValueError(f"{collective}: tensors of {source.dtype} and {target.dtype}")
            source = source.clone() if _overlap(source, target) else source
        once = collective == "alltoallv"  # counts are not the same on all ranks
        shape = (collective, count, given is not None and given.dtype, op, root, counts)
        kept = None if once else self._kept.get(shape)
        if kept is None:
            if shape[2] is torch.bool:
                op = _OPS_OF_BOOL.get(op, op)
            sends, gets = [of if of is None else _arrays.operand(of) for of in (source, target)]
            schedule = self.group._for_calls(
                collective, sends, gets, count, op=op, root=root, counts=counts, depth=_DEPTH,
                target_counts=target_counts)
            kept = _Kept(self._state, schedule)
            if once:
                copy = work._after or bool
                work._after = lambda: [end() for end in (copy, schedule.destroy)]
            else:
                if len(self._kept) >= _KEPT:
                    self._drop(next(iter(self._kept)))
                self._kept[shape] = kept
        kept.bind(*[0 if of is None else _address(of) for of in (source, target)])
        work._buffers = source, target
        return kept.start(work)

    def _drop(self, shape: tuple) -> None:
        """Forgets a schedule, after all of its epochs have ended."""
        kept = self._kept.pop(shape)
        self._sums.clear()
        if kept.works:
            kept.ends_at(kept.started, self._state.timeout)
        kept.schedule.destroy()

    def recover(self, timeout: baton.Timeout = None) -> None:
        """Makes the group usable again after a failure, like `baton.Group.recover`. Collective.
        Operations in flight are cancelled, and messages that no rank has received are lost."""
        state = self._state
        for kept in list(state.all):
            kept.close(errors.Cancelled("the process group was recovered"))
            kept.schedule.destroy()
        for of in (self._kept, self._sums, state.messages):
            of.clear()
        state.old_pairs += state.pairs.values()  # their destruction may wait for the peer
        state.pairs.clear()
        self.group.recover(timeout)

    # ---- collectives --------------------------------------------------------------

    def allreduce(self, tensors: Any, opts: Any = None) -> Optional[Work]:
        kept = tensor = None  # type: Any
        try:
            tensor, = tensors
            kept = self._sums[tensor.numel(), tensor.dtype, _number_of(opts.reduceOp)]
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # An error of the next call is not one in handling this one.
        if kept is None or not (tensor.is_cpu and tensor.is_contiguous()) or tensor.is_neg():
            return self._allreduce(tensors, opts)
        address = tensor.data_ptr()
        if address != kept.target:
            kept.bind(0, address)
        if _SAYS_SYNC and not opts.asyncOp and not kept.works:
            return kept.run(tensors, opts)
        return kept.start(Work(tensors, opts))

    def _allreduce(self, tensors: Any, opts: Any) -> Work:
        vector, work = _into(_one(tensors), opts)
        self._run(work, "allreduce", None, vector, vector.numel(), _reduction(opts))
        if vector.numel():
            self._sums[vector.numel(), vector.dtype, _number(opts)] = work._kept
        return work

    def allreduce_coalesced(self, tensors: List[Tensor], opts: Any = None) -> Work:
        return _Works([self._allreduce([tensor], opts) for tensor in tensors], tensors)

    def broadcast(self, tensors: Any, opts: Any = 0) -> Work:
        vector, work = _into(_one(tensors), opts)
        return self._run(work, "broadcast", None, vector, vector.numel(),
                         root=getattr(opts, "rootRank", opts))

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        vector, work = _into(_one(tensors), opts)
        operands = None, vector
        if self._rank != opts.rootRank:
            operands, work._after = (vector, None), None
        return self._run(work, "reduce", *operands, vector.numel(), _reduction(opts),
                         opts.rootRank)

    def barrier(self, opts: Any = None) -> Work:
        return self._run(Work([], opts), "barrier", None, None)

    def monitored_barrier(self, timeout: timedelta = timedelta(-1),
                          wait_all_ranks: bool = False) -> None:
        """A barrier that rank 0 watches. If some ranks are late, all other ranks raise TimedOut.
        The error names the first late rank, or with `wait_all_ranks` all late ranks. The other
        ranks may call this again; the late ranks then have to make the missed call first. A
        negative timeout stands for the group's timeout."""
        seconds = self._state.timeout if timeout < _no_timeout else timeout.total_seconds()
        end = time.monotonic() + seconds + (0.1 if self._rank else 0)  # rank 0 ends first
        others, late = range(1, self._size), torch.zeros(self._size, dtype=torch.bool)

        def comes(work: Work) -> bool:
            try:
                return work.wait(timedelta(seconds=max(end - time.monotonic(), 1e-3)))
            except errors.TimedOut:
                return False

        if self._rank:
            self.send([late[:0]], 0, _MONITORED)
            late[0] = not comes(self.recv([late], 0, _MONITORED))
        else:
            came = [self.recv([late[:0]], peer, _MONITORED) for peer in others]
            for peer in others:
                if wait_all_ranks or not late.any():
                    late[peer] = not comes(came[peer - 1])
            for peer in others:
                self.send([late], peer, _MONITORED)
        if late.any():  # the message is gloo's
            who = ", ".join(map(str, late.nonzero().flatten().tolist()))
            here = ("successfully reached monitoredBarrier, but received errors while waiting "
                    "for send/recv from rank 0" if self._rank else "timed out in monitoredBarrier")
            raise errors.TimedOut(f"Rank {self._rank} {here}: Rank{'s' * (',' in who)} {who} "
                                  "failed to pass monitoredBarrier")

    def _of_ranks(self, what: str, given: Any) -> Tuple[Sequence[Tensor], Tuple[int, ...]]:
        """Returns the tensors, one for each rank, and their numbers of elements. `given` is the
        list of the tensors, or a list whose only item is that list."""
        tensors = given if isinstance(given[0], torch.Tensor) else _one(given)
        if len(tensors) != self._size:
            raise ValueError(f"{what}: {len(tensors)} tensors for {self._size} ranks")
        return tensors, tuple(of.numel() for of in tensors)

    def allgather(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        outputs, counts = self._of_ranks("all_gather", output_lists)
        tensor = _one(inputs)
        _sizes("all_gather: the input", [tensor.numel()], [counts[self._rank]])
        vector, work = _into_all(outputs, opts)
        return self._run(work, "allgather", _vector(tensor), vector, counts=counts)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        _sizes("all_gather_into_tensor: the output", [output.numel()],
               [tensor.numel() * self._size])
        vector, work = _into(output, opts)
        return self._run(work, "allgather", _vector(tensor), vector, tensor.numel())

    def allgather_coalesced(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        """Gathers several tensors of each rank. Output list r gets the tensors of rank r."""
        return _Works(map(self.allgather, zip(*output_lists), inputs), output_lists)

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return _Works(map(self.all_gather_single, outputs, inputs), outputs)

    def gather(self, output_lists: Any, inputs: Any, opts: Any = None) -> Work:
        tensor, vector, work = _one(inputs), None, Work([], opts)
        if self._rank == opts.rootRank:
            outputs, counts = self._of_ranks("gather", output_lists)
            _sizes("gather", counts, [tensor.numel()] * self._size)
            vector, work = _into_all(outputs, opts)
        return self._run(work, "gather", _vector(tensor), vector, tensor.numel(),
                         root=opts.rootRank)

    def scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Work:
        (vector, work), source = _into(_one(outputs), opts), None
        if self._rank == opts.rootRank:
            inputs, counts = self._of_ranks("scatter", input_lists)
            _sizes("scatter", counts, [vector.numel()] * self._size)
            source = _joined(inputs)
        return self._run(work, "scatter", source, vector, vector.numel(), root=opts.rootRank)

    def reduce_scatter(self, outputs: Any, input_lists: Any, opts: Any = None) -> Work:
        inputs, counts = self._of_ranks("reduce_scatter", input_lists)
        return self._scatter_sums(_one(outputs), _joined(inputs), counts, opts)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        return self._scatter_sums(output, _vector(tensor), (output.numel(),) * self._size, opts)

    def _scatter_sums(self, output: Tensor, source: Tensor, counts: tuple, opts: Any) -> Work:
        _sizes("reduce_scatter", [source.numel(), output.numel()],
               [sum(counts), counts[self._rank]])
        vector, work = _into(output, opts)
        return self._run(work, "reduce_scatter", source, vector, op=_reduction(opts),
                         counts=counts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        return _Works([self.reduce_scatter_single(*pair, opts)
                       for pair in zip(outputs, inputs)], outputs)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        outputs, come = self._of_ranks("all_to_all", outputs)
        inputs, go = self._of_ranks("all_to_all", inputs)
        vector, work = _into_all(outputs, opts)
        return self._run(work, "alltoallv", _joined(inputs), vector, counts=go, target_counts=come)

    def all_to_all_single(self, output: Tensor, tensor: Tensor, output_splits: Any,
                          input_splits: Any, opts: Any = None) -> Work:
        vector, work = _into(output, opts)
        if not output_splits and not input_splits:
            _sizes("all_to_all_single", [output.numel(), tensor.numel() % self._size],
                   [tensor.numel(), 0])
            return self._run(work, "alltoall", _vector(tensor), vector,
                             tensor.numel() // self._size)
        counts = []
        for of, splits in ((output, output_splits), (tensor, input_splits)):
            rows = of.shape[0]
            splits = splits or [rows // self._size] * self._size
            if sum(splits) != rows or len(splits) != self._size:
                raise ValueError(f"all_to_all_single: splits {list(splits)} of a tensor "
                                 f"with {rows} rows, for {self._size} ranks")
            counts.append([split * (of.numel() // max(rows, 1)) for split in splits])
        return self._run(work, "alltoallv", _vector(tensor), vector, counts=counts[1],
                         target_counts=counts[0])

    # ---- messages -------------------------------------------------------------------

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        tensor = _vector(_one(tensors))
        return self._message("send", tensor, Work([tensor]), peer, tag)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Work:
        return self._message("recv", *_into(_one(tensors)), peer, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> NoReturn:
        raise errors.Unsupported("the backend baton receives from a rank that is named: "
                                 "give recv its src")

    def _message(self, kind: str, vector: Tensor, work: Work, peer: int, tag: int) -> Work:
        """Sends or receives a message, by the schedule for its size and tag in a group of the two
        ranks."""
        size = vector.numel() * vector.element_size()
        kept = self._state.messages.get((kind, peer, tag, size))
        if kept is None:
            kept = self._make_message(kind, peer, tag, size)
        kept.bind(*((_address(vector), 0) if kind == "send" else (0, _address(vector))))
        work._buffers = vector
        return kept.start(work)

    def _make_message(self, kind: str, peer: int, tag: int, size: int) -> _Kept:
        if not 0 <= peer < self._size or peer == self._rank:
            raise ValueError(f"{kind}: the peer is {peer}; this is rank {self._rank} of "
                             f"{self._size}")
        pair = self._state.pairs.get(peer)
        if pair is None:
            # The k-th group of a name meets the peer's k-th. So the name has the number of
            # recoveries; Group._for_calls says why.
            ranks = sorted((self._rank, peer))
            pair = self._state.pairs[peer] = self.group.sub(
                ranks, "ranks {} and {}, {} recoveries".format(*ranks, self.group._recoveries()))
        sender = self._rank if kind == "send" else peer
        graph = baton.Graph(pair, f"from {sender}, tag {tag}, {size} bytes")
        depth = _DEPTH if _handles.has_cuda else _MESSAGES
        graph.set_depth(depth)
        operand = _arrays.Operand(_arrays.NOWHERE, size, _arrays.NUMBERS["u8"],
                                  lib.BATON_MEMORY_HOST, None)
        getattr(graph, kind)(1 - pair.rank, graph._bind(operand, int(kind == "recv")))
        kept = _Kept(self._state, graph.commit(), depth)
        kept.in_order = False
        self._state.messages[kind, peer, tag, size] = kept
        return kept

    # ---- the rest of what torch calls -------------------------------------------------

    def getBackendName(self) -> str:
        return "baton"

    def start_coalescing(self, *_: Any) -> None:
        self._state.coalesced = []

    def end_coalescing(self, *_: Any) -> Work:
        works, self._state.coalesced = self._state.coalesced, None
        return _Works(works, [])

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing
    # Names of torch 1, and of the first versions of torch 2.
    _allgather_base, alltoall_base = all_gather_single, all_to_all_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


if _TORCH_2:
    class Backend(_Collectives, _c10d.Backend):
        """The backend for the CPU in a process group of torch, whose C++ calls it."""

        # In torch's own class these are properties.
        supports_splitting, options = True, None
        supports_coalescing = supports_shrinking = supports_reconfigure = False
        supports_window = _supports_time_estimate = False

        def __init__(self, group: baton.Group, timeout: timedelta, shared: Any = None) -> None:
            _c10d.Backend.__init__(self, group.rank, group.size)
            self.__dict__.update(shared) if shared else self._prepare(group, timeout)


class ProcessGroup(_Collectives, dist.ProcessGroup):
    """Ranks of `baton.Group.world()`, for torch.distributed. `group` is the baton.Group.

    It takes dense tensors in the memory of the CPU, of all types that Baton has. Tensors that
    are not contiguous are copied. `all_gather` and `reduce_scatter` take tensors of different
    sizes. torch.distributed calls this class directly, without the C++ of torch's own groups,
    which would take most of the time of a small collective.
    """

    def __init__(self, group: baton.Group, timeout: timedelta, store: Any = None) -> None:
        dist.ProcessGroup.__init__(self, *([] if store is None else [store]), group.rank,
                                   group.size)
        self._prepare(group, timeout)
        if _TORCH_2:
            kind = dist.ProcessGroup.BackendType.CUSTOM
            self._set_default_backend(kind)
            self._register_backend(torch.device("cpu"), kind, Backend(group, timeout, vars(self)))

    def split_group(self, ranks: Sequence[int], timeout: timedelta, group_name: str,
                    group_desc: Optional[str], **_: Any) -> Optional["ProcessGroup"]:
        if self._rank not in ranks:
            return None
        group = ProcessGroup(self.group.sub(ranks, f"torch {group_name}"), timeout,
                             dist.PrefixStore(f"{group_name}/", self.get_group_store()))
        group._set_group_name(group_name)
        group._set_group_desc(group_desc or "undefined")
        return group


untraced(*vars(Work).values(), *vars(_Works).values(), *vars(_Collectives).values())


# ---- torch's registration --------------------------------------------------------

_base: Any = None  # the group whose ranks are those of torch's default group


@atexit.register
def _at_exit() -> None:
    """Ends the thread of the futures. After an exception that nobody caught, operations may be
    in flight while Python frees all objects; their tensors must stay."""
    _completer.stop()
    if _handles._nobody_caught():
        for state in _states:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(state))


def _create(options: Any, _: Any) -> Any:
    """Makes a process group; torch calls this function."""
    global _base
    ranks, mine = list(options.global_ranks_in_group), (options.group_rank, options.group_size)
    if not ranks and not _handles.is_started_by_mpi() and (
            _base is None or (_base.rank, _base.size) != mine):
        is_world = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE")] == [*map(str, mine)]
        _base = None if is_world else baton.Group.from_store(options.store, *mine, "torch",
                                                             options.timeout)
    base = _base or baton.Group.world(options.timeout)
    if not ranks and mine != (base.rank, base.size):
        raise errors.Invalid(
            f"torch says that this is rank {options.group_rank} of {options.group_size}, "
            f"and MPI that it is rank {base.rank} of {base.size}: start the program with "
            "mpirun, and call baton.torch.init_process_group(), or set RANK and WORLD_SIZE "
            "to OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE")
    group = base.sub(ranks or range(base.size), f"torch {options.group_id}")
    if _TORCH_2 and options.process_group.name() != "custom":
        return Backend(group, options.timeout)  # torch has another backend for the GPU
    return ProcessGroup(group, options.timeout, options.store if _TORCH_2 else None)


dist.Backend.register_backend("baton", _create, extended_api=True,
                              **({"devices": ["cpu"]} if _TORCH_2 else {}))


def init_process_group(group: Optional[baton.Group] = None,
                       timeout: timedelta = timedelta(minutes=30), **options: Any) -> None:
    """Calls torch.distributed.init_process_group("baton") for the ranks of mpirun, or of `group`,
    a baton.Group (after a loss, the one that `shrink` has made). Collective. Sets RANK,
    WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in the environment; ranks with the same host name
    count as ranks of one host. `options` are torch's. Without init_method or store among them,
    rank 0 opens torch's store at a free port; with init_method="env://" the store is where
    MASTER_ADDR and MASTER_PORT say."""
    global _base
    if dist.is_initialized():  # check this first: a later error would leave others without a store
        raise errors.State("torch.distributed is initialised: dist.destroy_process_group() first")
    _base = group or baton.Group.world(timeout)
    name = socket.gethostname()
    names = _texts(name)
    local = [rank for rank in range(_base.size) if names[rank] == name]
    os.environ.update(
        RANK=str(_base.rank), WORLD_SIZE=str(_base.size), LOCAL_WORLD_SIZE=str(len(local)),
        LOCAL_RANK=str(local.index(_base.rank)))
    if "init_method" not in options and "store" not in options:
        host, first = "127.0.0.1" if len(local) == _base.size else names[0], _base.rank == 0
        store: Any = first and dist.TCPStore(host, 0, _base.size, True, timeout,
                                             wait_for_workers=False)
        port = int(_texts(str(store.port) if first else "")[0])
        options["store"] = store or dist.TCPStore(host, port, _base.size, False, timeout)
    dist.init_process_group("baton", rank=_base.rank, world_size=_base.size, timeout=timeout,
                            **options)


def _texts(text: str) -> List[str]:
    """Returns the texts of all ranks, which have at most 256 bytes each."""
    mine = torch.tensor(list(text.encode().ljust(256, b"\0")), dtype=torch.uint8)
    return [bytes(of).rstrip(b"\0").decode() for of in _base.allgather(mine).tolist()]
