"""Sparse all-reduces: they send the largest entries of a gradient, and the rest in later steps."""
import contextlib
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import numpy

from baton import _arrays, _handles, errors
from baton._library import answer, check, error, ffi, filled, lib, options, record
from baton.group import Group
from baton.partial import mode_of
from baton.schedule import Timeout


class SparseResult(NamedTuple):
    """The entries of the sum. `indices` (uint32) ascend; they are None after a dense step, and
    then `values` has all elements. Both are memory of the library, valid until the next
    start."""

    count: int  # type: ignore[assignment]  # the number of entries; hides tuple.count
    indices: Optional[numpy.ndarray]
    values: numpy.ndarray
    included: bool  # False: in a partial step this rank was late


class SparseStats(record("baton_sparse_stats_t")):  # type: ignore[misc]
    """Statistics of this rank's last step; but k, h, threshold and teams are the next step's
    (sparse.h)."""


class TensorPlan(record("baton_tensor_plan_t")):  # type: ignore[misc]
    """The decisions about a tensor, which are the same on all ranks. `form` is packed, dense or
    sparse."""


def partial_if(mode: Optional[str]) -> dict:
    """Returns the options for a mode. None: steps are not partial."""
    return {} if mode is None else {"partial": True, **mode_of(mode)}


class _Entries(_handles.Handle):
    """The base class of Sparse and Tensors."""

    dtype: int
    _shrinker: Any

    def _open(self, group: Group, pointer: Any, timeout: Timeout, left: list) -> None:
        """Completes the creation: calls the functions in `left`, one after another. Each of them
        waits until all ranks have called it."""
        super().__init__(pointer, group)
        self._out = ffi.new("baton_sparse_result_t *")

        def wait(ms: int) -> int:
            while left and not (status := left[0](pointer, ms)):
                del left[0]
            return status if left else lib.BATON_OK

        status = _handles.wait(wait, timeout)
        if status:
            failed = error(status)
            with contextlib.suppress(errors.Error):
                self.destroy()
            raise failed

    def _result(self, wait: Any, timeout: Timeout) -> SparseResult:
        """Waits by the function `wait`, and returns the result."""
        check(_handles.wait(wait, timeout))
        result, indices = self._out, None
        if result.indices != ffi.NULL:
            indices = _arrays.vector(result.indices, result.count, _arrays.NUMBERS["u32"], self)
        values = _arrays.vector(result.values, result.count, self.dtype, self)
        return SparseResult(result.count, indices, values, result.included)

    def _copied(self, copy: Any, out: Any, count: int) -> Any:
        out = _arrays.empty(max(count, 0), self.dtype) if out is None else out
        check(copy(self._alive(), _arrays.exactly(out, True, count, self.dtype).address))
        return out

    def shrink(self, survivors: Group, timeout: Timeout = None) -> None:
        """Goes on in the group that `Group.shrink` has made, with the same residuals and options."""
        handle, group = self._alive(), survivors._alive()
        check(_handles.wait(lambda ms: type(self)._shrinker(handle, group, ms), timeout))
        self.group._made.discard(self)  # this object outlives the old group
        self.group = survivors
        survivors._made.add(self)


class Sparse(_Entries):
    """An all-reduce of the k largest entries of each rank's gradient.

        sparse = baton.Sparse(group, gradient.size, density=0.01)
        for step in range(steps):
            sparse.start(backward())       # the gradient stays as it is until wait
            sparse.wait()
            update(weights, sparse.dense(out))

    Entries that are not sent wait in a residual, which the library keeps, for a later step.
    `count`: the number of elements (f32, f64, f16 or bf16). `k`: the number of entries that are
    sent; or `density`: their share. `algorithm`: auto, spardl, topka, topkdsa, gtopk, oktopk,
    redsync, dense. `average`: results are divided by the number of ranks. More options, by
    their names in include/baton/sparse.h: momentum, nesterov, clip, warmup, teams, exchange,
    redsync, quantise, max_k, short_velocity. With a `mode` (see `Partial`) steps are partial;
    then the options history, sync_every, max_staleness, seed and on_loss apply, too.

    Collective: waits until all ranks have created it. Mismatch, Invalid: on all ranks.
    """

    _destroyer = lib.baton_sparse_destroy
    _shrinker = lib.baton_sparse_shrink

    def __init__(self, group: Group, count: int, *, k: int = 0, density: float = 0.0,
                 dtype: Any = "f32", mode: Optional[str] = None, name: str = "sparse",
                 timeout: Timeout = None, **more: Any) -> None:
        self.count, self.dtype = count, _arrays.dtype_number(dtype)
        self._keep: Any = []
        self._memory = more.get("memory") or lib.BATON_MEMORY_HOST
        given = options("baton_sparse_options_t", self._keep, {
            "count": count, "k": k, "density": density, "dtype": self.dtype, "name": name,
            **more, **partial_if(mode)})
        self._open(group, answer("baton_sparse_t *", lib.baton_sparse_prepare, group._alive(),
                                 given), timeout, [lib.baton_sparse_connect])

    def start(self, gradient: Any = None) -> None:
        """Starts a step. The gradient must not change until `wait` has returned. None: the
        gradient was contributed in parts. Busy: a step runs. State: a part is missing."""
        given = self._given(gradient, self._memory)
        self._keep = self._keep, given  # Ctrl-C may interrupt the next call.
        check(lib.baton_sparse_start(self._alive(), given.address if given else ffi.NULL))
        self._keep = given

    def _given(self, a: Any, *memory: int) -> Any:
        return None if a is None else _arrays.exactly(a, False, self.count, self.dtype, *memory)

    def contribute(self, first: int, part: Any) -> None:
        """Adds a part of the next step's gradient, from element `first` on: for instance a bucket
        that the backward pass has filled. Parts may come in any order. The part has been read
        when this returns. If the step fails, contribute all parts again after the recovery,
        unless the step is partial: a partial step that was started keeps its gradient. Invalid:
        some of the elements were contributed before."""
        given = _arrays.exactly(part, False, None, self.dtype)
        check(lib.baton_sparse_contribute(self._alive(), first, given.count, given.address))

    def discard(self) -> None:
        """Forgets the parts of a step that was not started."""
        check(lib.baton_sparse_discard(self._alive()))

    def test(self) -> bool:
        """Returns whether the step has ended. Does not block."""
        return self._has_ended(lib.baton_sparse_test)

    def wait(self, timeout: Timeout = None) -> SparseResult:
        """Waits for the result, for `timeout` seconds at most. TimedOut: the step goes on;
        wait again. After any other error recover the group; the residual has not changed."""
        handle, out = self._alive(), self._out
        got = self._result(lambda ms: lib.baton_sparse_wait(handle, ms, out), timeout)
        self._keep = None
        return got

    def dense(self, out: Any = None, first: int = 0, count: Optional[int] = None) -> Any:
        """Returns the last result as a dense vector, in `out` or in a new numpy array. It has all
        elements, or `count` of them from `first` on, such as those of a bucket. (For bf16 the
        new array is a tensor, if PyTorch is loaded.)"""
        count = self.count - first if count is None else count
        return self._copied(lambda handle, to: lib.baton_sparse_dense_range(
            handle, first, count, to), out, count)

    def residual(self, out: Any = None) -> Any:
        """Returns this rank's residual: `count` elements, in `out` or in a new array."""
        return self._copied(lib.baton_sparse_residual, out, self.count)

    def velocity(self, out: Any = None) -> Any:
        """Returns this rank's velocity: `count` elements. State: momentum is 0."""
        return self._copied(lib.baton_sparse_velocity, out, self.count)

    def set_residual(self, residual: Any, velocity: Any = None) -> None:
        """Replaces this rank's residual, and, if there is momentum, its velocity."""
        given = self._given(residual), self._given(velocity)
        check(lib.baton_sparse_set_residual(
            self._alive(), *(a.address if a else ffi.NULL for a in given)))

    def flush(self) -> None:
        """Starts a dense step without a gradient. Its result is the sum of all residuals."""
        check(lib.baton_sparse_flush(self._alive()))

    def set_k(self, k: int) -> None:
        """Sets k, 1 to max_k, from the next step on. All ranks set the same."""
        check(lib.baton_sparse_set_k(self._alive(), k))

    def set_density(self, density: float) -> None:
        """Sets the density from the next step on. All ranks set the same."""
        check(lib.baton_sparse_set_density(self._alive(), density))

    def lives(self, rank: int) -> bool:
        """Returns whether a rank still takes part. With on_loss="continue" a lost rank does not."""
        return lib.baton_sparse_lives(self._alive(), rank)

    def state(self) -> bytes:
        """Returns this rank's state, for a checkpoint; `load_state` takes it. With a `mode` all
        ranks call this after the same step, and then group.barrier(). The same holds for
        `load_state`. Busy: another rank has gone on to its next step."""
        made = bytearray(lib.baton_sparse_state_size(self._alive()))
        check(lib.baton_sparse_state_export(self._handle, ffi.from_buffer(made), len(made)))
        return bytes(made)

    def load_state(self, state: bytes) -> None:
        """Restores a state. Later results have the same bits as without the interruption.
        Invalid: the state is of another rank, or of other options."""
        check(lib.baton_sparse_state_import(self._alive(), ffi.from_buffer(state), len(state)))

    def stats(self) -> SparseStats:
        """Returns the statistics of the last step."""
        return filled(SparseStats, answer("baton_sparse_stats_t", lib.baton_sparse_stats,
                                          self._alive()))


class Tensors(_Entries):
    """The gradients of a model, as a set of tensors. Small tensors are packed together. Of a
    large tensor only the largest entries are sent, if that is expected to be faster (RedSync).

        model = baton.Tensors(group, [("w", "dense", w.size), ("b", "bias_or_norm", b.size)],
                              density=0.01)
        for i in reversed(range(2)):
            model.ready(i, gradients[i])
        for i in range(2):
            update(i, model.wait(i))

    Each tensor is given by a name, a role (dense, convolution, recurrent, bias_or_norm, output)
    and its number of elements. More options by their names in include/baton/tensors.h. With a
    `mode` steps are partial. Collective. Mismatch, Invalid: on all ranks.
    """

    _destroyer = lib.baton_tensors_destroy
    _shrinker = lib.baton_tensors_shrink

    def __init__(self, group: Group, tensors: Sequence[Tuple[str, str, int]], *,
                 density: float = 0.0, dtype: Any = "f32", mode: Optional[str] = None,
                 name: str = "tensors", densities: Sequence[float] = (),
                 timeout: Timeout = None, **more: Any) -> None:
        self.dtype, keep = _arrays.dtype_number(dtype), []  # type: int, list
        if not all(isinstance(of, (tuple, list)) and len(of) == 3 for of in tensors):
            raise errors.Invalid("tensors are given as (name, role, elements), such as "
                                 '("w", "dense", w.size)')
        self.counts = [count for _, _, count in tensors]
        given = options("baton_tensors_options_t", keep, {
            "density": density, "dtype": self.dtype, "name": name, "densities": densities or None,
            "density_count": len(densities), **more, **partial_if(mode)})
        array = ffi.new("baton_tensor_t[]", [options(
            "baton_tensor_t", keep, dict(zip(("name", "role", "count"), of)))[0] for of in tensors])
        self._keep: dict = {}
        self._open(group, answer("baton_tensors_t *", lib.baton_tensors_prepare,
                                 group._alive(), array, len(tensors), given),
                   timeout, [lib.baton_tensors_agree, lib.baton_tensors_connect])

    def ready(self, tensor: int, gradient: Any) -> None:
        """Passes the gradient of a tensor, which must not change until `wait` has returned."""
        count = self.counts[self._within(tensor)]
        given = _arrays.exactly(gradient, False, count, self.dtype)
        self._keep[tensor] = self._keep.get(tensor), given  # Ctrl-C may interrupt the next call.
        check(lib.baton_tensors_ready(self._alive(), tensor, given.address))
        self._keep[tensor] = given

    def test(self, tensor: int) -> bool:
        """Returns whether the tensor's all-reduce has ended."""
        return self._has_ended(lib.baton_tensors_test, self._within(tensor))

    def wait(self, tensor: int, timeout: Timeout = None) -> SparseResult:
        """Waits for a tensor's result. It is memory of the library, valid until the next `ready`
        of this tensor, or of one that is packed with it. State: a tensor that is packed with
        this one, or this one, is not ready."""
        handle, out = self._alive(), self._out
        self._within(tensor)
        got = self._result(lambda ms: lib.baton_tensors_wait(handle, tensor, ms, out), timeout)
        self._keep.pop(tensor, None)
        return got

    def dense(self, tensor: int, out: Any = None) -> Any:
        """Returns a tensor's last result as a dense vector, in `out` or in a new numpy array."""
        return self._copied(lambda handle, to: lib.baton_tensors_dense(handle, tensor, to),
                            out, self.counts[self._within(tensor)])

    def plan(self, tensor: int) -> TensorPlan:
        """Returns how a tensor's gradient is sent."""
        return filled(TensorPlan, answer("baton_tensor_plan_t", lib.baton_tensors_plan,
                                         self._alive(), self._within(tensor)))

    def _within(self, tensor: int) -> int:
        if not 0 <= tensor < len(self.counts):
            raise errors.Invalid(f"there is no tensor {tensor}; there are {len(self.counts)}")
        return tensor
