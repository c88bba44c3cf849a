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
    """How a schedule failed: the first cause, and the rank and epoch where it was met."""


class Schedule(_handles.Handle):
    """A collective of one group that was prepared by `Group.prepare`, or a graph of your
    own (`baton.Graph`).

        total = group.prepare("allreduce", gradient)
        for step in range(steps):
            backward(gradient)
            total.start()
            ...                       # computes meanwhile
            total.wait()
            update(weights, gradient)

    The arrays are used from `start` until `wait` has returned, and the schedule keeps
    them alive. `result` is the array that the result is in. One thread at a time starts
    and destroys it; any may test, wait and cancel. An epoch is one execution; they count
    from 1.
    """

    _destroyer = lib.baton_schedule_destroy

    def __init__(self, group: Any, pointer: Any, keep: Any = None,
                 result: Any = None, depth: int = 1) -> None:
        super().__init__(pointer, group)
        self.result = result
        # What epochs in flight may use, and the next one.
        self._keep = collections.deque([keep], maxlen=depth + 1)
        # When the last of these was bound: the group's recoveries, and started epochs.
        self._begun = group._recoveries(), 0
        self._raised: Optional[BaseException] = None  # by a call node

    def start(self) -> None:
        """Starts the next epoch, and returns at once. Busy: `depth` epochs have not
        ended. After a failure, until `Group.recover`, it raises what the first epoch
        failed with (PeerLost, Mismatch, Cancelled, Failed): here, or on a peer."""
        status = _start(self._handle)
        if status:
            raise self._error(status)

    def wait(self, timeout: Timeout = None) -> None:
        """Waits until all started epochs have ended, for `timeout` seconds at most.

        TimedOut: the epoch goes on; the message says which rank all others wait for.
        PeerLost, Mismatch, Cancelled, Failed: it failed, here or on a peer, and results
        hold anything. Ctrl-C ends the wait within 0.1 s and cancels the epoch.
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
        if cause is not None and not isinstance(cause, Exception):  # Ctrl-C, or an exit
            failed, cause = cause, failed
        failed.__cause__ = cause
        return failed

    def test(self) -> bool:
        """Whether all started epochs have ended. Makes a little progress, and does not
        block. Raises what `wait` would."""
        return self._has_ended(lib.baton_schedule_test)

    def cancel(self) -> None:
        """Fails what has been started with Cancelled, here and on the peers. State: it
        has ended."""
        check(lib.baton_schedule_cancel(self._alive()))

    def wait_epoch(self, epoch: int, timeout: Timeout = None) -> None:
        """`wait` for one epoch, where several are in flight (`depth`)."""
        handle = self._alive()
        self._wait_on(lib.BATON_ERR_TIMEOUT, timeout,
                      lambda ms: lib.baton_schedule_wait_epoch(handle, epoch, ms))

    def rebind(self, source: Any = None, target: Any = None) -> None:
        """Uses other arrays of the same size and type from the next start on. `source` is None if
        the schedule was prepared in place, or this rank has none; `target` is ignored on
        ranks without one. Busy: an epoch runs, and `depth` is 1."""
        keep = [None if a is None else _arrays.operand(a, a is target) for a in (source, target)]
        for given, bound in zip(keep, self._bound):
            if given is not None and bound is not None and given.kind != bound:
                raise errors.Invalid(f"rebind: {given!r} is given, and what was prepared is "
                                     f"{_arrays.describe(*bound)}")
        self._binding = keep  # It is kept even if Ctrl-C interrupts the next call.
        check(_rebind(self._alive(), *(_NULL if of is None else of.address for of in keep)))
        if target is not None:
            self.result = target
        begun = self.group._recoveries(), lib.baton_schedule_started(self._handle)
        if begun == self._begun:
            self._keep.pop()  # no epoch uses what was bound before
        self._begun = begun
        self._keep.append(keep)

    _bound: Any = (None, None)  # count, type and memory of what it was prepared with

    @property
    def name(self) -> str:
        """Its name, in messages."""
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
        """How late a rank of this host comes to its epochs: counts, sums in nanoseconds, and
        histograms in powers of two of a microsecond. Unsupported: it is on another host."""
        return filled(Lateness, answer("baton_lateness_t", lib.baton_schedule_lateness,
                                       self._alive(), rank))

    @property
    def failure(self) -> Optional[Failure]:
        """How it failed; None if it has not."""
        out = ffi.new("baton_failure_t *")
        return None if lib.baton_schedule_failure(self._alive(), out) else filled(Failure, out)
