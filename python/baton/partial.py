"""Partial all-reduces: sums that do not wait for the slowest rank."""
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Sequence

import numpy

from baton import _arrays, _handles, errors
from baton._library import answer, check, failed_start, ffi, lib, options, words
from baton.group import Group
from baton.schedule import Timeout

_MODES = [word.rpartition("_")[2] for word in words(ffi.typeof("baton_partial_mode_t"))]
# The functions that contribute all elements, or one tensor. The first of each pair copies the
# array, and the second borrows it.
_CONTRIBUTE = lib.baton_partial_contribute, lib.baton_partial_contribute_lent
_CONTRIBUTE_TENSOR = (lib.baton_partial_contribute_tensor, lib.baton_partial_contribute_tensor_lent)
_LOANS_GO_ON = lib.BATON_ERR_TIMEOUT, lib.BATON_ERR_INTERRUPTED, lib.BATON_ERR_STATE


def mode_of(text: str) -> dict:
    """Returns the options `mode` and `mode_ranks` of a text such as "majority" or "quorum:2"."""
    name, _, ranks = text.partition(":")
    if name not in _MODES or (ranks and not ranks.isdigit()):
        raise errors.Invalid(f'no mode "{text}"; there are: {", ".join(_MODES)}; or with '
                             "a number of ranks, as in quorum:2")
    return {"mode": _MODES.index(name), "mode_ranks": int(ranks or 0)}


class PartialResult(NamedTuple):
    """The result of a step. `data` is memory of the library, valid until the next wait or the
    destruction; copy it if you need it for longer. It is a numpy array. For bfloat16, which
    numpy lacks, it is a tensor if PyTorch is loaded, else the bits as uint16."""

    epoch: int  # the epoch whose result this is
    data: numpy.ndarray
    included: bool  # whether the sum has this step's contribution
    active: int  # the number of ranks that contributed to the sum
    staleness: int  # the age, in epochs, of this rank's oldest contribution in the sum
    living: int  # the number of ranks that are not lost


class Partial(_handles.Handle):
    """An all-reduce of gradients whose epoch does not wait for all contributions.

        partial = baton.Partial(group, gradient.size, mode="majority")
        for step in range(steps):
            partial.contribute(backward())
            partial.start()
            ...                            # compute meanwhile
            update(weights, partial.wait().data / group.size)

    A late contribution is not lost: it goes into a later sum. Each contribution is in exactly
    one result. Results have the same bits on all ranks. All ranks must start the same number of
    steps.

    `count`: the number of elements. `counts`: instead, the elements of each of several tensors,
    which are contributed one by one. `mode` says when an epoch begins: "solo" (with the first
    rank that arrives), "majority" (with one elected rank), "quorum:Q" (with the Q-th rank),
    "any:M" (with the first of M elected ranks), "all:M" (with the last of them), or "full" (with
    the last rank of all). `keep`: "all" (each rank gets each result, in order, and a rank that
    is `history` epochs behind holds up the others) or "latest". `sync_every`: each N-th epoch
    is full. `max_staleness`: the largest age of a contribution, in epochs. `on_loss`: "fail", or
    "continue" among the ranks that live. All ranks give the same options. Mismatch, Invalid:
    they differ, or are wrong.
    """

    _destroyer = lib.baton_partial_destroy

    def __init__(self, group: Group, count: int = 0, *, mode: str = "majority",
                 dtype: Any = "f32", op: Any = "sum",
                 counts: Optional[Sequence[int]] = None, keep: str = "all",
                 history: int = 0, sync_every: int = 0, max_staleness: int = 0,
                 seed: int = 0, on_loss: str = "fail", name: str = "partial") -> None:
        self.dtype, alive = _arrays.dtype_number(dtype), []  # type: int, list
        self.counts = None if counts is None else list(counts)
        given = options("baton_partial_options_t", alive, {
            "dtype": self.dtype, "op": _arrays.operation(op), "history": history,
            "sync_every": sync_every, "max_staleness": max_staleness, "seed": seed,
            "count": count, "keep": keep, "on_loss": on_loss, "name": name,
            "counts": self.counts, "tensors": len(self.counts or ()), **mode_of(mode)})
        self.count = count or sum(self.counts or ())
        self._parts = self.counts or [self.count]
        self._op = op  # keeps a reduction of the caller's alive
        super().__init__(answer("baton_partial_t *", lib.baton_partial_create,
                                group._alive(), given), group)
        self._result = ffi.new("baton_partial_result_t *")
        self._lent: list = []  # arrays that were lent for the next step
        self._kept: list = []  # arrays that were lent for started steps

    def contribute(self, a: Any, tensor: Optional[int] = None, *, lent: bool = False) -> None:
        """Adds `a` to this rank's pending contribution, for the step that is started next. With
        `tensor`, adds it to the tensor of that number. `a` is copied. But if it is `lent` and
        longer than 1 MiB it is not copied, and must not change until the step's wait has
        returned. (After TimedOut the loan goes on.)"""
        calls, count, where = _CONTRIBUTE, self.count, ()  # type: Any, int, tuple
        if tensor is not None:
            if self.counts is None or not 0 <= tensor < len(self.counts):
                raise errors.Invalid(f"there is no tensor {tensor}")
            calls, count, where = _CONTRIBUTE_TENSOR, self.counts[tensor], (tensor,)
        given = _arrays.exactly(a, False, count, self.dtype)
        try:
            check(calls[lent](self._alive(), *where, given.address))
        finally:  # also if Ctrl-C raises; and no other thread starts a step before this
            if lent:
                self._lent.append(given)

    def start(self) -> None:
        """Starts this rank's next step, and returns at once. After a failure, until the group
        recovers, it raises the exception of the failed step, here or on a peer."""
        lent = len(self._lent)
        status = lib.baton_partial_start(self._alive())
        if status:
            raise failed_start(status, lib.baton_partial_schedule(self._handle))
        self._kept += self._lent[:lent]
        del self._lent[:lent]

    def test(self) -> bool:
        """Returns whether the last step has ended. Does not block."""
        return self._has_ended(lib.baton_partial_test)

    def wait(self, timeout: Timeout = None, out: Any = None) -> PartialResult:
        """Waits for the step's result, for `timeout` seconds at most. With `out` the result is
        copied there. `out` is an array of all elements, or a list of an array for each tensor;
        these may be the lent arrays. TimedOut: the step goes on; wait again. PeerLost,
        Cancelled, Failed: the step failed; recover the group."""
        handle, result = self._alive(), self._result
        call, given = lib.baton_partial_wait, ()  # type: Any, tuple
        if out is not None:
            call, given = lib.baton_partial_wait_into, (self._targets(out),)
        status = _handles.wait(lambda ms: call(handle, ms, *given, result), timeout, lambda: (
            lib.baton_schedule_cancel(lib.baton_partial_schedule(self._handle))))
        if status not in _LOANS_GO_ON:
            self._kept.clear()
        check(status)
        data = _arrays.vector(result.data, self.count, self.dtype, self) if out is None else out
        return PartialResult(result.epoch, data, result.included, result.active,
                             result.staleness, result.living)

    def _targets(self, out: Any) -> Any:
        """Returns the addresses where `wait` stores each tensor: parts of one array, or an array
        for each tensor."""
        if isinstance(out, (list, tuple)) and self.counts is not None:
            if len(out) != len(self.counts):
                raise errors.Invalid(f"{len(out)} arrays were given, for {len(self.counts)} "
                                     "tensors")
            return ffi.new("void *[]", [_arrays.exactly(a, True, count, self.dtype).address
                                        for a, count in zip(out, self.counts)])
        at = ffi.cast("char *", _arrays.exactly(out, True, self.count, self.dtype).address)
        starts = accumulate([0, *self._parts[:-1]])
        return ffi.new("void *[]", [at + _arrays.SIZES[self.dtype] * start for start in starts])

    def step(self, a: Any, timeout: Timeout = None) -> PartialResult:
        """Calls `contribute`, `start` and `wait`."""
        self.contribute(a)
        self.start()
        return self.wait(timeout)

    def split(self, data: Any) -> list:
        """Cuts a result into its tensors."""
        return [data[end - count:end] for count, end in zip(self._parts, accumulate(self._parts))]

    def pending(self, out: Any) -> bool:
        """Copies the pending contribution, which no epoch has taken yet, to `out`. Returns whether
        there is one."""
        given = _arrays.exactly(out, True, self.count, self.dtype)
        return answer("bool", lib.baton_partial_pending, self._alive(), given.address)

    def lives(self, rank: int) -> bool:
        """Whether a rank still takes part."""
        return lib.baton_partial_lives(self._alive(), rank)
