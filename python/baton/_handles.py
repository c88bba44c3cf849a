"""What all handles have in common, the engine of the process, and the end of a process.

A handle owns an object of the library. It is destroyed by `destroy()`, at the end of a
`with` block, or when Python collects it, but a group only by the first two, or when the
interpreter exits: its destruction is collective, and ranks collect at different times.

At exit everything that is left is destroyed, the last that was made first, then the
engine is closed, and MPI finalised if this package initialised it. After an exception that
nothing caught none of this happens: MPI_Finalize would wait for ranks that wait for this
one, while mpirun ends the job when it finds a process that ended without it.
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

SLICE_MS = 50  # of a wait, between which Python handles signals
NULL = ffi.NULL

_numbers = itertools.count()
_live: weakref.WeakSet = weakref.WeakSet()  # all handles that were not destroyed
_pid = os.getpid()
_Self = TypeVar("_Self", bound="Handle")


class Handle:
    """Owns an object of the library; the base of Group, Schedule and the others."""

    _destroyer: Any = None  # the function of C
    _collected = True  # whether __del__ may destroy it

    def __init__(self, pointer: Any, group: Any = None) -> None:
        self._number, self._handle, self.group = next(_numbers), pointer, group
        _live.add(self)
        if group is not None:
            group._made.add(self)

    def destroy(self) -> None:
        """Destroys it, after what was made in it; a second call does nothing. Any other
        use afterwards is `baton.State` or `baton.Invalid`."""
        if self._handle == NULL:
            return
        handle, self._handle = self._handle, NULL  # before another thread destroys it, too
        status = type(self)._destroyer(handle)
        if status in (lib.BATON_ERR_BUSY, lib.BATON_ERR_STATE):
            self._handle = handle
        else:
            _live.discard(self)
        if status == lib.BATON_ERR_TIMEOUT:
            later.append(self)  # a transfer that has not ended may use its arrays
        check(status)

    def _alive(self) -> Any:
        """The C object; State if it was destroyed."""
        if self._handle == NULL:
            raise errors.State(f"this {type(self).__name__} was destroyed")
        return self._handle

    def _error(self, status: int) -> BaseException:
        """Returns the exception of a wait or a test, and notes that a rank is lost."""
        global lost
        lost |= status == lib.BATON_ERR_TRANSPORT
        return error(status)

    def _has_ended(self, test: Any, *given: Any) -> bool:
        """What a function of C that tests says."""
        done = ffi.new("bool *")
        status = test(self._alive(), *given, done)
        if status:
            raise self._error(status)
        return done[0]

    def __enter__(self: _Self) -> _Self:
        self._alive()
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        # An exception that is raised already says more.
        with contextlib.suppress(*() if kind is None else (errors.Error,)):
            self.destroy()

    def __del__(self) -> None:
        if self._collected and getattr(self, "_handle", NULL) != NULL:
            try:
                self.destroy()
            except errors.Error:
                if self._handle != NULL and os.getpid() == _pid:
                    later.append(self)  # in a call node: it lives on until the exit


later: List[Handle] = []  # what lives on until the exit


def milliseconds(timeout: Any) -> int:
    """A timeout in seconds, a timedelta, or None for ever, as C has it."""
    if timeout is None:
        return -1
    if isinstance(timeout, datetime.timedelta):
        timeout = timeout.total_seconds()
    if timeout < 0:
        raise errors.Invalid(f"a timeout of {timeout} s; it is 0 or more, or None")
    return int(min(timeout * 1000 + 0.999, 2**31 - 1))


def wait(call: Callable[[int], int], timeout: Any, cancel: Any = None) -> int:
    """Returns the status of call(timeout_ms), which is called again and again, so that
    Python handles signals meanwhile. What a handler raises, as that of Ctrl-C does, ends
    the wait, after cancel(). (baton_engine_interrupt would have to be called by a thread
    that signal.set_wakeup_fd wakes, and that descriptor is asyncio's in many programs.)

    Only a wait of 100 ms asks the ranks whom all others wait for, so that is the last,
    even where the slice before it took longer than it should.
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
    """Begins to record what this process does, in a file in `folder` (docs/observe.md), or
    goes on where it did, as a job with BATON_TRACE=folder does from the first. Invalid:
    another folder. SystemFailed: there is no room for the file."""
    check(lib.baton_trace_start(NULL if folder is None else os.fsencode(folder)))


def trace_stop() -> None:
    """Ends recording until the next `trace_start`."""
    lib.baton_trace_stop()


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Records when this thread begins and ends the block, such as the computation of a
    step, under a name. Spans nest; where nothing is recorded this does nothing."""
    lib.baton_trace_begin(name.encode())
    try:
        yield
    finally:
        lib.baton_trace_end()


# ---- the engine, and MPI -------------------------------------------------------

_engine = ffi.new("baton_engine_t **")  # It has NULL until the first group is made.
# Held while the engine or the world is made, and while works end; and by a fork, whose child
# would otherwise have half of an engine, and locks that nobody releases.
lock = threading.RLock()
os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
_mpi_is_ours = has_cuda = False
lost = False  # a rank: MPI_Finalize may wait for it for ever


def engine() -> Any:
    """The engine of this process, which is opened at the first call."""
    global _pid
    with lock:
        if _engine[0] == NULL:
            _pid = os.getpid()
            check(lib.baton_engine_open(NULL, _engine))
    return _engine[0]


def attach_cuda(ordinal: int = 0) -> None:
    """Attaches a GPU, by CUDA's number, before the first group: then collectives take
    tensors of its memory. Unsupported: there is no libbaton_cuda, driver or GPU. State:
    there is a group."""
    global has_cuda
    try:
        cuda = beside("cuda")
    except errors.Unsupported as failed:
        raise errors.Unsupported(f"{failed}; build Baton where nvcc is, or with "
                                 "-DBATON_CUDA=ON") from None
    check(cuda.baton_cuda_attach(engine(), ordinal))
    has_cuda = True


def is_started_by_mpi() -> bool:
    """Whether MPI has started this process, or mpi4py is in use in it."""
    names = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
    return (any(name in os.environ for name in names)
            or "mpi4py.MPI" in sys.modules and answer("int", mpi().MPI_Initialized) != 0)


def mpi() -> Any:
    """The functions that need MPI. Unsupported: there is no libbaton_mpi_group, or no MPI."""
    try:
        return beside("mpi_group")
    except errors.Unsupported as failed:
        raise errors.Unsupported(f"{failed}; groups over MPI need a libbaton that was built "
                                 "with -DBATON_MPI=ON, and MPI") from None


def initialise_mpi() -> None:
    """Initialises MPI, unless that has been done; mpi4py does it when it is imported."""
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
