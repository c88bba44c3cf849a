"""Means of gradients over ranks: in DistributedDataParallel (DDP), and in loops without it.

    full      Each bucket is summed in place when it is ready, while the backward pass goes on.
    partial   The gradients are lent to the library, and are one contribution to one epoch. If
              they are other tensors than in the last step, the partial all-reduce is made
              again, and gets the contribution that was pending.
    sparse    The gradients are one vector, in which the parameters have the order of the first
              step, and whose largest entries are sent. The library owns the vector, and takes
              each bucket when it is ready.

A partial or sparse step begins after its last bucket, so that no sum has only a part of a
step's gradients. Pending contributions and residuals are kept when DDP makes other buckets
after the first step.
"""
import itertools
import re
import time
import weakref
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

import baton
from baton import _arrays, _handles, _library, errors
from baton.partial import mode_of
from baton.sparse import partial_if
from baton.torch.backend import ProcessGroup, untraced

_GOES_ON = errors.TimedOut, errors.Interrupted  # after these errors the step goes on
# The schedules of all modes have one name. So if the modes of ranks differ, their schedules
# meet, and fail.
_NAME = "gradients"
_OTHERS = "a step has other parameters than the first one; a hook is for one model"
_numbers = itertools.count()  # numbers for groups, which all ranks make in the same order


class Step(NamedTuple):
    """Facts about the last step."""

    included: bool  # whether the mean has this rank's gradient
    active: Optional[int]  # how many ranks' gradients the mean has; None: not known
    staleness: int  # the age, in steps, of this rank's oldest gradient in the mean
    living: int  # the number of ranks that live


def _group_for(group: Any) -> baton.Group:
    """Makes a group for the gradients alone, so that a failure in it affects nothing else."""
    default = dist.group.WORLD if dist.is_initialized() else None
    group = default if group is None else group
    if torch.device("cpu") in getattr(group, "_device_types", ()):  # torch 2
        group = getattr(group._get_backend(torch.device("cpu")), "group", group)
    if isinstance(group, ProcessGroup):
        group = group.group
    elif group is default:  # None, or a group of another backend
        group = baton.Group.world()
    elif not isinstance(group, baton.Group):
        raise TypeError("group is a baton.Group, a process group of the backend baton, or "
                        f"None, and not {group!r}")
    return group.sub(range(group.size), f"gradients {next(_numbers)}")


def _refuse_sparse(gradient: Optional[torch.Tensor]) -> None:
    if gradient is not None and gradient.layout is not torch.strided:
        raise errors.Invalid(f"a gradient of layout {gradient.layout} can't be averaged: "
                             "make layers with sparse=False")


class _Full:
    """An all-reduce for each tensor, which is started when the tensor is ready. It works in
    place; or with a timeout in a copy, since a step that was not done in time goes on while the
    next backward pass writes over the tensor."""

    def __init__(self, group: baton.Group, options: dict, timeout: baton.Timeout) -> None:
        self._group, self._timeout = group, timeout
        self.means: list = []  # the means of the last step, if they are not in the tensors
        self._schedules: dict = {}  # by a tensor's position, elements and type
        self._started: list = []

    def begin(self) -> None:
        if self._started:  # after TimedOut, or if a backward pass was broken off
            self.end()
        self.means = []

    def add(self, tensor: torch.Tensor, layout: tuple) -> None:
        shape = len(self._started), tensor.numel(), tensor.dtype
        if self._timeout is not None:
            tensor = tensor.clone()
            self.means.append(tensor)
        half = tensor.dtype is torch.float16  # sums of float16 may overflow
        if half:
            tensor.div_(self._group.size)
        schedule = self._schedules.get(shape)
        if schedule is None:
            schedule = self._schedules[shape] = self._group.prepare(
                "allreduce", tensor, op="sum" if half else "avg", name=_NAME)
        elif schedule.result.data_ptr() != tensor.data_ptr():
            schedule.rebind(target=tensor)
        self._started.append(schedule)  # Ctrl-C may interrupt the next call.
        schedule.start()

    def end(self) -> Step:
        end = time.monotonic() + _handles.milliseconds(self._timeout) / 1000
        for schedule in self._started:
            schedule.wait(None if self._timeout is None else max(0, end - time.monotonic()))
        self._started.clear()
        return Step(True, self._group.size, 0, self._group.size)

    state = load = lambda self, *_: None  # No gradient is pending in this mode.


class _Vector:
    """All gradients as one contribution. The base of _Partial and _Sparse."""

    means: Sequence[torch.Tensor] = ()
    _make = _give = _finish = _state = _load = None  # type: Any  # defined by the subclasses

    def __init__(self, group: baton.Group, options: dict, timeout: baton.Timeout) -> None:
        self._group, self._options, self._timeout = group, options, timeout
        self._loaded: Optional[dict] = None
        # The offset of each parameter in the vector, which has the first step's order; and the
        # number of elements of the vector.
        self._offsets, self._count = {}, 0  # type: dict, int
        self._pieces: list = []  # the tensors of this step, each with its runs
        # The runs of a layout. Each run is [offset in the vector, offset in the tensor, length].
        self._runs: dict = {}
        self._steps: Any = None  # the Partial or Sparse
        self._reads = False  # whether a started step may still read gradients

    def begin(self) -> None:
        if self._reads:  # after TimedOut, or Ctrl-C; that step's mean is dropped
            self._wait()
        if self._steps is None:  # forget a first step that failed
            self._offsets, self._count, self._runs = {}, 0, {}
        self._pieces.clear()

    def add(self, tensor: torch.Tensor, layout: tuple) -> None:
        """`layout` is a tuple of the parameters whose gradients the tensor has."""
        if self._steps is None:
            for parameter in layout:
                self._offsets[parameter] = self._count
                self._count += parameter.numel()
        runs = self._runs.get(layout)
        if runs is None:
            runs, at = [], 0
            for parameter in layout:
                to, count = self._offsets.get(parameter), parameter.numel()
                if to is None:
                    raise errors.Invalid(_OTHERS)
                if runs and runs[-1][0] + runs[-1][2] == to:
                    runs[-1][2] += count
                else:
                    runs.append([to, at, count])
                at += count
            self._runs[layout] = runs
        self._pieces.append((tensor, runs))

    def end(self) -> Step:
        if self._steps is None:
            types = {tensor.dtype for tensor, _ in self._pieces}
            self._dtype = types.pop() if len(types) == 1 else torch.float32
            self._half = self._group.size if self._dtype is torch.float16 else 1
            self._steps = self._make()
        if self._loaded is not None:
            self.load(self._loaded)
        if sum(count for _, runs in self._pieces for _, _, count in runs) != self._count:
            raise errors.Invalid(_OTHERS)
        self._give()
        self._reads = True  # Ctrl-C may interrupt the next call.
        self._steps.start()
        step = self._finish(self._wait())
        self._pieces.clear()
        return step

    def _wait(self) -> Any:
        try:
            got = self._steps.wait(self._timeout)
        except errors.Error as error:
            self._reads = isinstance(error, _GOES_ON)
            raise
        self._reads = False
        return got

    def state(self) -> Optional[dict]:
        if self._steps is None:
            return self._loaded
        return {"count": self._count, "rank": self._group.rank,
                "size": self._group.size, **self._state()}

    def load(self, state: Optional[dict]) -> None:
        mine = self._group.rank, self._group.size
        if state is not None and (state["rank"], state["size"]) != mine:
            raise errors.Invalid("the state is of rank {} of {}, and this is rank {} of {}"
                                 .format(state["rank"], state["size"], *mine))
        if self._steps is None:
            self._loaded = state
        elif state is not None:
            if state["count"] != self._count:
                raise errors.Invalid(f"the state is of {state['count']} elements, and the "
                                     f"model has {self._count}")
            self._load(state)
            self._loaded = None


class _Partial(_Vector):
    """The tensors are lent, and the means are read in the library's memory."""

    def _make(self) -> baton.Partial:
        self._cut, self._last = [runs for _, runs in self._pieces], 0
        return baton.Partial(self._group, counts=[len(tensor) for tensor, _ in self._pieces],
                             dtype=self._dtype, op="sum" if self._half > 1 else "avg",
                             **self._options)

    def _give(self) -> None:
        if self._cut != [runs for _, runs in self._pieces]:  # then all ranks have other buckets
            state, old = self._state(), self._steps
            self._steps = self._make()
            self._load(state)
            old.destroy()
        for i, (tensor, _) in enumerate(self._pieces):
            if self._half > 1:
                tensor.div_(self._half)
            # With a timeout the tensor is copied: after TimedOut this step would still read it
            # while the next backward pass writes over it.
            self._steps.contribute(tensor.to(self._dtype), i, lent=self._timeout is None)

    def _finish(self, got: Any) -> Step:
        self._last, size, self.means = got.staleness, self._group.size, []
        _handles.lost |= got.living < size  # so that at exit this process waits for no lost rank
        result = _arrays.vector(self._steps._result.data, self._count, self._steps.dtype)
        # Each mean has a storage of its own, since DDP in torch 2 reads a storage from its
        # beginning, wherever the tensor begins.
        means = map(torch.from_dlpack, self._steps.split(result))
        for (tensor, _), mean in zip(self._pieces, means):
            if self._half > 1 and got.living < size:
                mean = mean * (size / got.living)
            self.means.append(mean.to(tensor.dtype))
        return Step(got.included, got.active, got.staleness, got.living)

    def _ordered(self, vector: torch.Tensor, first: bool) -> torch.Tensor:
        """Copies a vector from the order of the tensors to the first step's order. If `first` is
        false, copies it from the first step's order to that of the tensors."""
        made, begin = torch.empty_like(vector), 0
        for to, _, count in itertools.chain(*self._cut):
            there, here = slice(to, to + count), slice(begin, begin + count)
            made[there if first else here] = vector[here if first else there]
            begin += count
        return made

    def _state(self) -> dict:
        pending = torch.empty(self._count, dtype=self._dtype)
        some = self._steps.pending(pending)
        return {"pending": self._ordered(pending, True) if some else None, "staleness": self._last}

    def _load(self, state: dict) -> None:
        if state["pending"] is not None:
            self._steps.contribute(self._ordered(state["pending"], False))


class _Sparse(_Vector):
    def _make(self) -> baton.Sparse:
        return baton.Sparse(self._group, self._count, dtype=self._dtype,
                            average=self._half == 1, **self._options)

    def begin(self) -> None:
        super().begin()
        self._given = 0  # the number of pieces that were contributed
        if self._steps is not None:
            self._steps.discard()  # the parts of a backward pass that was broken off

    def add(self, tensor: torch.Tensor, layout: tuple) -> None:
        super().add(tensor, layout)
        if self._steps is not None and self._loaded is None:
            self._give()

    def _give(self) -> None:
        for tensor, runs in self._pieces[self._given:]:
            part = tensor.to(self._dtype)
            part = part / self._half if self._half > 1 else part
            for to, at, count in runs:
                self._steps.contribute(to, part[at:at + count])
            self._given += 1

    def _finish(self, got: Any) -> Step:
        living = size = self._group.size
        if self._options.get("on_loss") == "continue":
            living = sum(map(self._steps.lives, range(size)))
            _handles.lost |= living < size
        for tensor, runs in self._pieces:
            result = tensor if tensor.dtype is self._dtype else tensor.to(self._dtype)
            for to, at, count in runs:
                self._steps.dense(result[at:at + count], to, count)
            if result is not tensor:
                tensor.copy_(result)
            if self._half > 1 and living < size:
                tensor.div_(living / size)
        return Step(got.included, None, 0, living)

    def _between(self) -> None:
        """In a partial mode: makes all ranks wait until all of them have their state."""
        if self._options["mode"] and all(map(self._steps.lives, range(self._group.size))):
            self._group.barrier(timeout=self._timeout)

    def _state(self) -> dict:
        state = self._steps.state()
        self._between()
        return {"sparse": state}

    def _load(self, state: dict) -> None:
        self._steps.load_state(state["sparse"])
        self._between()


def _exchange_of(mode: str, options: dict) -> Tuple[Any, dict]:
    """Returns the class for a mode, and the options of the library's object. That object is made
    in the first step. So the options are checked here. Invalid, TypeError: they are wrong."""
    if not isinstance(mode, str):
        raise TypeError(f"mode is text, such as \"majority\", and not {mode!r}")
    kind, _, rest = mode.partition(":")
    if kind == "sparse":
        given, _, late = rest.partition(":")
        try:
            density = float(given)
        except ValueError:
            density = 0.0
        if not 0 < density <= 1:
            raise errors.Invalid(f'mode is "{mode}"; a sparse one is "sparse:0.01" or '
                                 '"sparse:0.01:majority"')
        _without(options, mode, _OF_VECTOR)
        options["density"] = density
        _library.options("baton_sparse_options_t", [], {**options, **partial_if(late or None)})
        return _Sparse, {**options, "name": _NAME, "mode": late or None}
    mode_of(mode)
    _without(options, mode, set(options) - _OF_PARTIAL)
    _library.options("baton_partial_options_t", [], options)
    if mode == "full" and options.get("on_loss", "fail") == "fail":
        _without(options, mode, _OF_PARTIAL - {"on_loss"})
        return _Full, {}
    return _Partial, {**options, "name": _NAME, "mode": mode}


# The options that this module sets itself for a vector, and a Partial's options that a user may
# give.
_OF_VECTOR = {"size", "count", "dtype", "average", "k", "partial", "mode", "mode_ranks", "name"}
_OF_PARTIAL = {"history", "sync_every", "max_staleness", "seed", "on_loss"}


def _without(options: dict, mode: str, wrong: set) -> None:
    for option in sorted(wrong.intersection(options)):
        raise errors.Invalid(f"mode {mode} has no option {option}")


class _Averager:
    """The base class of DDPHook and GradientAverager."""

    # _is_over is set by an error after which no step can succeed; _remedy says what to do then.
    _is_over, _remedy = False, ""

    def __init__(self, mode: str = "full", *, group: Any = None, timeout: baton.Timeout = None,
                 **options: Any) -> None:
        kind, options = _exchange_of(mode, options)
        _handles.milliseconds(timeout)
        self.mode, self.step = mode, None  # type: str, Optional[Step]
        self._group = _group_for(group)
        self._exchange = kind(self._group, options, timeout)
        self.__name__ = self.__qualname__ = f"baton.torch {mode}"  # DDP logs a hook's names
        # The finalizer refers to the exchange, because a group must be destroyed after its
        # schedules.
        weakref.finalize(self, lambda group, _: group.destroy(), self._group,
                         self._exchange).atexit = False

    def state_dict(self) -> dict:
        """This rank's state: its pending contribution, or its residual. Call it between steps.
        In modes such as "sparse:0.01:majority" all ranks call it, after the same step."""
        return {"mode": self.mode, "state": self._exchange.state()}

    def load_state_dict(self, state: dict) -> None:
        """Restores a state that `state_dict()` has returned, for the same rank, number of ranks,
        model and mode. Call it before the first step. That step must have the parameters in the
        same order as the step from which the state is. Invalid: the state is of another rank,
        mode, or number of elements."""
        if state["mode"] != self.mode:
            raise errors.Invalid(f"the state is of mode {state['mode']}, and this is {self.mode}")
        self._exchange.load(state["state"])

    def _explain(self, failed: errors.Error) -> None:
        """Replaces an error's advice to recover the group, which the user does not have, by what
        the user can do."""
        if isinstance(failed, (errors.Invalid, *_GOES_ON)):
            return  # the next step may be right
        self._is_over, where = True, f"on all ranks, of one mode (here {self.mode})"
        if isinstance(failed, errors.PeerLost) or _handles.lost:
            where = ('in a process group of the ranks that live (with on_loss="continue" '
                     "they go on by themselves)")
        cause = re.split("[;:] (?=[^;:]*recover)", str(failed))[0]
        failed.args = f"{cause}; {self._remedy} {where}",

    def destroy(self) -> None:
        """Frees the library's objects. Collective."""
        self._group.destroy()


class DDPHook(_Averager):
    """A communication hook of DistributedDataParallel.

        model = DistributedDataParallel(module)
        hook = baton.torch.DDPHook(mode="majority")
        model.register_comm_hook(None, hook)

    `mode`: "full" (waits for all ranks; the buckets are summed while the backward pass goes on);
    "solo", "majority", "quorum:2", "any:2", "all:2" (see `baton.Partial`: late gradients go into
    a later mean); "sparse:0.01" (sends the largest entries, 1 % of them); or
    "sparse:0.01:majority" (both). Each gradient becomes the mean over all ranks that live, with
    the same bits on all ranks. With "full" the mean of two ranks has the same bits as gloo's.

    `group`: a baton.Group or a ProcessGroup of this package; None: the default group of
    torch.distributed, or all ranks. `timeout`: the limit of a step, in seconds. `options`: those
    of baton.Partial or baton.Sparse, such as history=8, max_staleness=2, momentum=0.9; with
    on_loss="continue" training goes on among the ranks that live. All ranks make the same hooks,
    of the same modes, in the same order; else the first step raises Mismatch.

    `step` has facts about the last step. An error is a RuntimeError of the backward pass. It
    names the class of the error, and what to do. After TimedOut the step goes on, and the next
    one waits for it first. This rank does not use its mean, so its weights then differ from
    those of the others: broadcast the weights (dist.broadcast), or end the program.
    """

    _remedy = "wrap the module in a new DistributedDataParallel with a new DDPHook"

    def __call__(self, state: Any, bucket: dist.GradBucket
                 ) -> torch.futures.Future[torch.Tensor]:  # DDP demands these two annotations
        buffer, future = bucket.buffer(), torch.futures.Future()
        _refuse_sparse(buffer)
        if bucket.index() == 0:  # A step begins.
            self._buckets, self._failed = [], None  # type: list, Any
        self._buckets.append((buffer, future))
        if self._failed is None:
            try:
                if bucket.index() == 0:
                    self._exchange.begin()
                self._exchange.add(buffer, tuple(bucket.parameters()))
                if bucket.is_last():
                    self.step = self._exchange.end()
            except errors.Error as failed:
                self._explain(failed)
                self._failed = failed
        if bucket.is_last():
            means = () if self._failed else self._exchange.means
            for i, (mean, each) in enumerate(self._buckets):
                each.set_result(means[i] if means else mean)
            self._buckets.clear()
            if self._failed is not None:  # DDP never goes on after a hook that raises
                return future.then(self._raise)
        return future

    def _raise(self, _: Any) -> None:
        raise self._failed


_averagers: Any = weakref.WeakKeyDictionary()


class GradientAverager(_Averager):
    """Averages gradients as `DDPHook` does, for loops without DistributedDataParallel. Call
    `average()` after the backward pass: it replaces each gradient of the model by the mean over
    ranks. A parameter without a gradient counts as one whose gradient is zero."""

    _remedy = "make a new GradientAverager"

    def __init__(self, model: torch.nn.Module, mode: str = "full", *, group: Any = None,
                 timeout: baton.Timeout = None, **options: Any) -> None:
        super().__init__(mode, group=group, timeout=timeout, **options)
        self._model = model
        self._parameters = self._trained()

    def _trained(self) -> list:
        return [of for of in self._model.parameters() if of.requires_grad]

    def _trains_others(self) -> bool:
        return list(map(id, self._trained())) != list(map(id, self._parameters))

    def average(self) -> Step:
        """Returns the `Step`. Invalid: the model trains other parameters than when this object was
        made, for instance because layers were unfrozen. Then make a new one on all ranks."""
        if self._trains_others():
            raise errors.Invalid("the model trains other parameters than when its "
                                 "GradientAverager was made: make a new one on all ranks")
        for parameter in self._parameters:
            _refuse_sparse(parameter.grad)
        gradients = []
        try:
            self._exchange.begin()
            for parameter in self._parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                if not parameter.grad.is_contiguous():
                    parameter.grad = parameter.grad.contiguous()
                gradients.append(parameter.grad.view(-1))
                self._exchange.add(gradients[-1], (parameter,))
            self.step = step = self._exchange.end()
        except errors.Error as failed:
            self._explain(failed)
            raise
        for gradient, mean in zip(gradients, self._exchange.means):
            gradient.copy_(mean)
        return step


def average_gradients(model: torch.nn.Module, mode: str = "full", *, group: Any = None,
                      **options: Any) -> Step:
    """Replaces each gradient of the model by the mean over ranks, as `DDPHook` does. Call it
    after the backward pass. A `GradientAverager` is kept for the model. If the options or the
    trained parameters change, or after a step has failed, a new one is made, and pending
    contributions are dropped. Returns the `Step`."""
    given = mode, group, options
    known = _averagers.get(model)
    if known is None or known[0] != given or known[1]._is_over or known[1]._trains_others():
        if known is not None:
            known[1].destroy()
        known = given, GradientAverager(weakref.proxy(model), mode, group=group, **options)
        _averagers[model] = known
    return known[1].average()


untraced(DDPHook.__call__, DDPHook._raise, GradientAverager.average, average_gradients)
