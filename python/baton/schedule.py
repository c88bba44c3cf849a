"""Schedules: collectives that are prepared once and run any number of times."""
import collections
import datetime
from typing import Any, Optional, Union

from baton import _arrays, _handles, errors
from baton._library import answer, check, failed_start, ffi, filled, lib, record

_start, _wait = lib.baton_schedule_start, lib.baton_schedule_wait
_run, _rebind = lib.baton_schedule_run, lib.baton_schedule_rebind
_SLICE, _NULL = _handles.SLICE_MS, ffi.NULL
Timeout = Union[float, datetime.timedelta, None]  # seconds; None: for ever


class Traffic(record("baton_traffic_t")):  # type: ignore[misc]
    """What this rank has sent for a schedule in all of its epochs."""


class Lateness(record("baton_lateness_t")):  # type: ignore[misc]
    """How late a rank comes to the epochs of a schedule, and what that costs (lateness.h)."""


class Failure(record("baton_failure_t")):  # type: ignore[misc]
    """How a schedule failed: the first cause, and the rank and the epoch where it occurred."""


class Schedule(_handles.Handle):
    """A collective of one group that was prepared by `Group.prepare`, or a graph of your
    own (`baton.Graph`).

        total = group.prepare("allreduce", gradient)
        for step in range(steps):
            backward(gradient)
            total.start()
            ...                       # compute meanwhile
            total.wait()
            update(weights, gradient)

    The library uses the arrays from `start` until `wait` has returned, and the schedule keeps
    them alive. `result` is the array with the result. Only one thread at a time may start or
    destroy a schedule; any thread may test, wait and cancel. An epoch is one execution. Epochs
    count from 1.
    """

    _destroyer = lib.baton_schedule_destroy

    def __init__(self, group: Any, pointer: Any, keep: Any = None,
                 result: Any = None, depth: int = 1) -> None:
        super().__init__(pointer, group)
        self.result = result
        # The arrays that the epochs in flight and the next epoch may use.
        self._keep = collections.deque([keep], maxlen=depth + 1)
        # When the newest of these arrays were bound: after how many recoveries of the group, and
        # how many starts.
        self._begun = group._recoveries(), 0
        self._raised: Optional[BaseException] = None  # the exception of a call node

    def start(self) -> None:
        """Starts the next epoch, and returns at once. Busy: `depth` epochs have not ended.
        After a failure, until `Group.recover`, it raises the exception of the first epoch that
        has failed, here or on a peer (PeerLost, Mismatch, Cancelled, Failed)."""
        status = _start(self._handle)
        if status:
            raise self._error(status)

    def wait(self, timeout: Timeout = None) -> None:
        """Waits until all started epochs have ended, for `timeout` seconds at most.

        TimedOut: the epoch goes on; the message says which rank all others wait for.
        PeerLost, Mismatch, Cancelled, Failed: an epoch has failed, here or on a peer, and the
        contents of the results are undefined. Ctrl-C ends the wait within 0.1 s and cancels the
        epoch.
        """
        status = _wait(self._handle, _SLICE) if timeout is None else lib.BATON_ERR_TIMEOUT
        if status:
            self._wait_on(status, timeout)

    def run(self, timeout: Timeout = None) -> None:
        """`start` and `wait`."""
        ms = _SLICE if timeout is None else min(0, _handles.milliseconds(timeout))
        status = _run(self._handle, ms)
        if status:
            self._wait_on(status, timeout)

    def _wait_on(self, status: int, timeout: Timeout, wait: Any = None) -> None:
        handle = self._alive()
        if status == lib.BATON_ERR_TIMEOUT:
            status = _handles.wait(wait or (lambda ms: _wait(handle, ms)), timeout,
                                   lambda: lib.baton_schedule_cancel(handle))
        if status:
            raise self._error(status)

    def _error(self, status: int) -> BaseException:
        failed: Any = failed_start(status, self._alive())
        _handles.lost |= failed.status == lib.BATON_ERR_TRANSPORT
        cause, self._raised = self._raised, None
        # A call node has raised KeyboardInterrupt or SystemExit: these are not to be swallowed.
        if cause is not None and not isinstance(cause, Exception):
            failed, cause = cause, failed
        failed.__cause__ = cause
        return failed

    def test(self) -> bool:
        """Returns whether all started epochs have ended. Makes a little progress, and does not
        block. Raises the same exceptions as `wait`."""
        return self._has_ended(lib.baton_schedule_test)

    def cancel(self) -> None:
        """Makes the started epochs fail with Cancelled, here and on the peers. State: they have
        ended."""
        check(lib.baton_schedule_cancel(self._alive()))

    def wait_epoch(self, epoch: int, timeout: Timeout = None) -> None:
        """Like `wait`, but waits only for this epoch and earlier ones; see `depth`."""
        handle = self._alive()
        self._wait_on(lib.BATON_ERR_TIMEOUT, timeout,
                      lambda ms: lib.baton_schedule_wait_epoch(handle, epoch, ms))

    def rebind(self, source: Any = None, target: Any = None) -> None:
        """Replaces the arrays, from the next start on, by others of the same size and type.
        `source` is None if the schedule was prepared in place, or if this rank has no source. On
        ranks without a target `target` is ignored. Busy: an epoch runs, and `depth` is 1."""
        keep = [None if a is None else _arrays.operand(a, a is target) for a in (source, target)]
        for given, bound in zip(keep, self._bound):
            if given is not None and bound is not None and given.kind != bound:
                raise errors.Invalid(f"rebind: {given!r} is given, and what was prepared is "
                                     f"{_arrays.describe(*bound)}")
        self._binding = keep  # keeps the arrays alive if Ctrl-C interrupts the next call
        check(_rebind(self._alive(), *(_NULL if of is None else of.address for of in keep)))
        if target is not None:
            self.result = target
        begun = self.group._recoveries(), lib.baton_schedule_started(self._handle)
        if begun == self._begun:
            self._keep.pop()  # no epoch was started with the arrays that were bound last
        self._begun = begun
        self._keep.append(keep)

    _bound: Any = (None, None)  # count, type and memory of the first source and target

    @property
    def name(self) -> str:
        """The schedule's name, which messages contain."""
        return ffi.string(lib.baton_schedule_name(self._alive())).decode()

    @property
    def epoch(self) -> int:
        """The number of the last epoch that has ended here."""
        return lib.baton_schedule_epoch(self._alive())

    @property
    def started(self) -> int:
        """The number of the last epoch that this rank has started."""
        return lib.baton_schedule_started(self._alive())

    @property
    def sent(self) -> Traffic:
        """Messages and bytes of payload that this rank has sent in all epochs."""
        return filled(Traffic, lib.baton_schedule_sent(self._alive()))

    def lateness(self, rank: int) -> Lateness:
        """How late a rank of this host comes to the schedule's epochs: counts, sums in
        nanoseconds, and histograms by powers of two of a microsecond. Unsupported: the rank is on
        another host."""
        return filled(Lateness, answer("baton_lateness_t", lib.baton_schedule_lateness,
                                       self._alive(), rank))

    @property
    def failure(self) -> Optional[Failure]:
        """How the schedule failed; None if it has not failed."""
        out = ffi.new("baton_failure_t *")
        return None if lib.baton_schedule_failure(self._alive(), out) else filled(Failure, out)
