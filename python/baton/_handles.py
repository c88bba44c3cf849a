"""The base class of all handles, the engine of the process, and the end of a process.

A handle owns an object of the library. The object is destroyed by `destroy()`, at the end of
a `with` block, or when Python collects the handle. A group is destroyed only by the first
two, or when the interpreter exits: its destruction is collective, and Python collects garbage
at different times on different ranks.

At exit all objects that are left are destroyed, the newest first. Then the engine is closed,
and MPI is finalised if this package has initialised it. None of this happens after an
exception that nothing caught: MPI_Finalize would wait for ranks that wait for this one.
Without it mpirun notices that a process has ended, and ends the job.
"""
import atexit
import contextlib
import datetime
import itertools
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable, Iterator, List, Optional, TypeVar

from baton import errors
from baton._library import answer, beside, check, error, ffi, lib

SLICE_MS = 50  # the slices of a wait, between which Python handles signals
NULL = ffi.NULL

_numbers = itertools.count()
_live: weakref.WeakSet = weakref.WeakSet()  # all handles that were not destroyed
_pid = os.getpid()
_Self = TypeVar("_Self", bound="Handle")


class Handle:
    """Owns an object of the library; the base of Group, Schedule and the others."""

    _destroyer: Any = None  # the C function that destroys the object
    _collected = True  # whether __del__ may destroy the object

    def __init__(self, pointer: Any, group: Any = None) -> None:
        self._number, self._handle, self.group = next(_numbers), pointer, group
        _live.add(self)
        if group is not None:
            group._made.add(self)

    def destroy(self) -> None:
        """Destroys the object. A second call does nothing. Any other use after that raises
        `baton.State` or `baton.Invalid`."""
        if self._handle == NULL:
            return
        handle, self._handle = self._handle, NULL  # before another thread destroys it, too
        status = type(self)._destroyer(handle)
        if status in (lib.BATON_ERR_BUSY, lib.BATON_ERR_STATE):
            self._handle = handle
        else:
            _live.discard(self)
        if status == lib.BATON_ERR_TIMEOUT:
            later.append(self)  # a transfer in progress may still use the arrays
        check(status)

    def _alive(self) -> Any:
        """Returns the C object. State: it was destroyed."""
        if self._handle == NULL:
            raise errors.State(f"this {type(self).__name__} was destroyed")
        return self._handle

    def _error(self, status: int) -> BaseException:
        """Returns the exception of a wait or a test, and notes that a rank is lost."""
        global lost
        lost |= status == lib.BATON_ERR_TRANSPORT
        return error(status)

    def _has_ended(self, test: Any, *given: Any) -> bool:
        """Calls a C function that tests, and returns its answer."""
        done = ffi.new("bool *")
        status = test(self._alive(), *given, done)
        if status:
            raise self._error(status)
        return done[0]

    def __enter__(self: _Self) -> _Self:
        self._alive()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        # If the block has raised an exception, that says more than an error of destroy() would.
        with contextlib.suppress(*() if kind is None else (errors.Error,)):
            self.destroy()

    def __del__(self) -> None:
        if self._collected and getattr(self, "_handle", NULL) != NULL:
            try:
                self.destroy()
            except errors.Error:
                if self._handle != NULL and os.getpid() == _pid:
                    later.append(self)  # a call node can't destroy it, so it is destroyed at exit


later: List[Handle] = []  # handles that are destroyed at exit


def milliseconds(timeout: Any) -> int:
    """Converts a timeout (seconds, a timedelta, or None for no limit) to C's milliseconds."""
    if timeout is None:
        return -1
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    if timeout < 0:
        raise errors.Invalid(f"a timeout of {timeout} s; it is 0 or more, or None")
    return int(min(timeout * 1000 + 0.999, 2**31 - 1))


def wait(call: Callable[[int], int], timeout: Any, cancel: Any = None) -> int:
    """Waits by call(timeout_ms), and returns its status. Calls it again and again, so that
    Python handles signals between the calls. If a handler raises an exception, as Ctrl-C's
    does, this calls cancel() and ends the wait. (baton_engine_interrupt would need a thread
    that signal.set_wakeup_fd wakes, and in many programs asyncio uses that descriptor.)

    The library asks which rank all others wait for only in waits of 100 ms or more. So the
    last call has 100 ms, even if the call before took longer than it should.
    """
    global lost
    whole = left = milliseconds(timeout)
    end = time.monotonic() + whole / 1000
    try:
        while not 0 <= left <= 100:
            status = call(SLICE_MS if whole < 0 else min(SLICE_MS, left - 100))
            if status != lib.BATON_ERR_TIMEOUT:
                break
            if whole > 0:
                left = max(0, int((end - time.monotonic()) * 1000))
        else:
            status = call(min(whole, 100))
        lost |= status == lib.BATON_ERR_TRANSPORT
        return status
    except BaseException:
        if cancel is not None:
            cancel()
            call(SLICE_MS)
        raise


# ---- the trace ------------------------------------------------------------------


def trace_start(folder: Any = None) -> None:
    """Begins to record a trace of this process in a file in `folder` (docs/observe.md), or resumes
    recording after `trace_stop`. (With BATON_TRACE=folder a process records from its beginning.)
    Invalid: an earlier call had another folder. SystemFailed: there is no space for the file."""
    check(lib.baton_trace_start(NULL if folder is None else os.fsencode(folder)))


def trace_stop() -> None:
    """Stops recording until the next `trace_start`."""
    lib.baton_trace_stop()


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Records, under a name, when this thread begins and ends the block, such as the
    computation of a step. Spans nest. If no trace is recorded, this does nothing."""
    lib.baton_trace_begin(name.encode())
    try:
        yield
    finally:
        lib.baton_trace_end()


# ---- the engine, and MPI -------------------------------------------------------

_engine = ffi.new("baton_engine_t **")  # it has NULL until the first group is made
# A thread holds this lock while it makes the engine or the group of all ranks, or ends a Work of
# torch.distributed. A fork takes it, too: otherwise the child might have half an engine, and
# locks that no thread releases.
lock = threading.RLock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
_mpi_is_ours = has_cuda = False
lost = False  # whether a rank is lost: MPI_Finalize might then wait for ever


def engine() -> Any:
    """The engine of this process. The first call opens it."""
    global _pid
    with lock:
        if _engine[0] == NULL:
            _pid = os.getpid()
            check(lib.baton_engine_open(NULL, _engine))
    return _engine[0]


def attach_cuda(ordinal: int = 0) -> None:
    """Attaches the GPU that CUDA numbers `ordinal`, so that collectives take tensors in its
    memory. Call this before the first group is made. Unsupported: there is no libbaton_cuda,
    driver or GPU. State: there is a group."""
    global has_cuda
    try:
        cuda = beside("cuda")
    except errors.Unsupported as failed:
        raise errors.Unsupported(f"{failed}; build Baton where nvcc is, or with "
                                 "-DBATON_CUDA=ON") from None
    check(cuda.baton_cuda_attach(engine(), ordinal))
    has_cuda = True


def is_started_by_mpi() -> bool:
    """Returns whether MPI has started this process, or mpi4py has initialised MPI in it."""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
    return (any(name in os.environ for name in names)
            or "mpi4py.MPI" in sys.modules and answer("int", mpi().MPI_Initialized) != 0)


def mpi() -> Any:
    """Returns the library of the functions that need MPI. Unsupported: there is no
    libbaton_mpi_group, or no MPI."""
    try:
        return beside("mpi_group")
    except errors.Unsupported as failed:
        raise errors.Unsupported(f"{failed}; groups over MPI need a libbaton that was built "
                                 "with -DBATON_MPI=ON, and MPI") from None


def initialise_mpi() -> None:
    """Initialises MPI unless it is initialised, as it is after an import of mpi4py."""
    global _mpi_is_ours
    if answer("int", mpi().MPI_Finalized):
        raise errors.State("MPI has been finalised")
    if not answer("int", mpi().MPI_Initialized):
        _mpi_is_ours = True  # Ctrl-C may interrupt the next call.
        if mpi().MPI_Init_thread(NULL, NULL, 3, ffi.new("int *")) != 0:  # MPI_THREAD_MULTIPLE
            raise errors.PeerLost("MPI_Init_thread failed")


def _nobody_caught() -> bool:
    return getattr(sys, "last_value", None) is not None and not hasattr(sys, "ps1")


@atexit.register
def _at_exit() -> None:
    if os.getpid() != _pid or _nobody_caught():
        return
    for handle in sorted([*later, *_live], key=lambda handle: -handle._number):
        try:
            handle.destroy()
        except errors.Error as left:
            sys.stderr.write(f"baton, at exit: {left}\n")
    if _engine[0] != NULL:
        lib.baton_engine_close(_engine[0])
        _engine[0] = NULL
    if _mpi_is_ours and not lost and not answer("int", mpi().MPI_Finalized):
        mpi().MPI_Finalize()
