"""The simulator: all ranks in one process and one thread, in virtual time.

    def ring(s, source, target, op): ...             # adds nodes of rank s.rank of s.size

    baton.prove(ring, ranks=12)                       # whose data is in each element
    baton.simulate(ring, ranks=4096, bytes=1 << 20, alpha_us=1.5, gbit=100).us
"""
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import numpy

from baton import _arrays, _handles, draw, errors
from baton._library import answer, check, error, ffi, filled, lib, options, record
from baton.graph import Graph
from baton.group import Group

Build = Callable[..., Any]


class Totals(record("baton_sim_totals_t")):  # type: ignore[misc]
    """Counts of the events on all ranks."""


class Event(record("baton_sim_event_t")):  # type: ignore[misc]
    """An event on a rank. `what` is its kind, such as send. Times are in virtual us."""


class Result(NamedTuple):
    """The result of `simulate`: the virtual time of an epoch, and the messages and bytes that all
    ranks sent in it."""

    us: float
    messages: int
    bytes: int


@ffi.callback("void(void *, baton_schedule_t *)")
def _build(arg: Any, pointer: Any) -> None:
    sim, build = ffi.from_handle(arg)
    sim._graphs.append(Graph._lent(pointer))
    if not _guarded(sim, build, sim._graphs[-1]):
        lib.baton_schedule_fail(pointer, lib.BATON_ERR_FAILED, b"its builder has raised")


def _guarded(sim: Any, function: Any, *given: Any) -> bool:
    """Calls a function. Returns false if the function has raised an exception. The method that
    runs the simulator raises it again (`Simulator._check`)."""
    try:
        function(*given)
        return True
    except BaseException as raised:
        sim._raised = sim._raised or raised
        return False


@ffi.callback("void(void *)")
def _act(arg: Any) -> None:
    sim, action = ffi.from_handle(arg)
    _guarded(sim, action)


@ffi.callback("void(void *, const baton_sim_event_t *)")
def _trace(arg: Any, event: Any) -> None:
    sim, function = ffi.from_handle(arg)
    _guarded(sim, function, filled(Event, event))


_interrupts: List[BaseException] = []


# The simulator calls this function now and then, so that Python can raise KeyboardInterrupt
# in it.
@ffi.callback("bool(void *)", error=False,
              onerror=lambda kind, raised, trace: _interrupts.append(raised))
def _go_on(arg: Any) -> bool:
    return True


class _Simulated(Group):
    """The group of a simulated rank. The simulator destroys it."""

    _destroyer = staticmethod(lambda pointer: 0)


class Simulator(_handles.Handle):
    """All ranks of a group in virtual time. They run the same code as outside of the simulator.

    A message of n bytes takes alpha_us + n beta_ns / 1000 (`gbit` sets beta), occupies a
    port at both ends, and arrives `lag` us later; a reduction takes gamma_ns a byte,
    a message overhead_us at both ends. `skew`, `lag` and `speed` are numbers or
    distributions: "uniform:0:5", "exponential:20", "normal:m:d", "lognormal:m:s",
    "pareto:m:s". `host_ranks` consecutive ranks share a host, whose links have
    host_alpha_us and host_beta_ns. More `options` by the names of include/baton/sim.h:
    cost_only (nodes touch no data), seed, multi_ported, eager_bytes, sync_bytes. The same
    seed gives the same run on any machine.
    """

    _destroyer = lib.baton_sim_destroy

    def __init__(self, ranks: int, *, alpha_us: float = 0.0, beta_ns: float = 0.0,
                 gbit: Optional[float] = None, host_alpha_us: float = 0.0,
                 host_beta_ns: float = 0.0, **more: Any) -> None:
        for name in {"skew", "lag", "speed"} & set(more):
            more[name] = answer("baton_distribution_t", lib.baton_distribution_parse,
                                str(more[name]).encode())
        given = options("baton_sim_options_t", [], {
            "ranks": ranks, "on_progress": _go_on,
            "link": {"alpha_us": alpha_us, "beta_ns": beta_ns if gbit is None else 8.0 / gbit},
            "host_link": {"alpha_us": host_alpha_us, "beta_ns": host_beta_ns}, **more})
        super().__init__(answer("baton_sim_t *", lib.baton_sim_create, given))
        self.ranks = ranks
        self._graphs, self._alive_too = [], []  # type: List[Graph], list
        self._groups: List[Group] = []
        self._raised: Optional[BaseException] = None

    def destroy(self) -> None:
        """Destroys the simulator, and all objects in its groups. A second call does nothing."""
        for made in [made for group in self._groups for made in group._made]:
            made.destroy()
        super().destroy()
        for graph in self._graphs:
            graph._handle = ffi.NULL

    def _check(self, status: int) -> None:
        raised, self._raised = _interrupts.pop() if _interrupts else self._raised, None
        if raised is not None:
            raise raised
        check(status)

    def _pass(self, function: Any) -> Any:
        """Returns the argument for a callback of C: a handle of the simulator and a function."""
        self._alive_too.append(ffi.new_handle((self, function)))
        return self._alive_too[-1]

    def group_of(self, rank: int) -> Group:
        """Returns the group of a rank, in which `Partial` and other objects can be made. Make
        them on all ranks before time passes, and start them in actions (`at`). In an action no
        call may wait for an epoch that has not ended."""
        pointer = lib.baton_sim_group(self._alive(), rank)
        if pointer == ffi.NULL:
            raise errors.Invalid(f"there is no rank {rank}")
        self._groups.append(_Simulated(pointer))
        return self._groups[-1]

    def build(self, build: Build, name: str = "schedule") -> "Simulator":
        """Calls build(graph) for each rank, commits all graphs, and compares every send with its
        receive. Can be called only once. Mismatch names both ranks and nodes. The other errors
        are those of `Graph.commit`."""
        self._check(lib.baton_sim_build(self._alive(), name.encode(), _build, self._pass(build)))
        return self

    def epoch(self) -> float:
        """Starts an epoch on every rank, late by its skew, and runs until all have ended.
        Returns the virtual us from the first start to the last end. Deadlock says which
        node waits for which."""
        us = ffi.new("double *")
        self._check(lib.baton_sim_epoch(self._alive(), us))
        return us[0]

    def at(self, us: float, action: Callable[[], Any]) -> None:
        """Calls action() at a virtual time."""
        check(lib.baton_sim_at(self._alive(), us, _act, self._pass(action)))

    def run(self, until_us: float = -1.0) -> None:
        """Lets time pass until no event is left, or until `until_us`, which raises TimedOut."""
        self._check(lib.baton_sim_run(self._alive(), until_us))

    def trace(self, function: Optional[Callable[[Event], Any]]) -> None:
        """Calls function(event) for each event from now on. None stops these calls."""
        lib.baton_sim_trace(self._alive(), ffi.NULL if function is None else _trace,
                            self._pass(function))

    @property
    def now_us(self) -> float:
        """Virtual us since the simulator was made."""
        return lib.baton_sim_now_us(self._alive())

    @property
    def totals(self) -> Totals:
        """Counts of the events so far."""
        return filled(Totals, lib.baton_sim_totals(self._alive()))

    def kill(self, rank: int) -> None:
        """Kills a rank: it does nothing from now on."""
        check(lib.baton_sim_kill(self._alive(), rank))


def _named(build: Build) -> str:
    return getattr(build, "__name__", "schedule")


def _adder(build: Build, bytes: Optional[int], dtype: Any, op: Any) -> Build:
    if bytes is None:
        return build
    count = bytes // _arrays.SIZES[_arrays.dtype_number(dtype)]
    return lambda s: build(s, s.scratch(count, dtype), s.scratch(count, dtype), op)


def simulate(build: Build, ranks: int, bytes: Optional[int] = None, *, dtype: Any = "f32",
             op: Any = "sum", **costs: Any) -> Result:
    """Simulates an epoch of a collective of your own on `ranks` ranks, and returns its cost.

    `build(s)` adds the nodes of rank s.rank of s.size to the graph s. With `bytes` it is called
    as build(s, source, target, op), where source and target are views of `bytes` bytes. `costs`
    are the options of Simulator. Mismatch: a send differs from its receive. Deadlock says why the
    schedule can't end. The other errors are those of `Graph.commit`.
    """
    costs.setdefault("cost_only", True)
    with Simulator(ranks, **costs) as sim:
        us = sim.build(_adder(build, bytes, dtype, op), _named(build)).epoch()
        return Result(us, sim.totals.messages, sim.totals.bytes)


def prove(build: Build, ranks: int, count: int = 64, root: Optional[int] = None,
          sources: Optional[Sequence[int]] = None) -> None:
    """Proves that build(s, source, target, op) builds an all-reduce on `ranks` ranks. With `root`
    proves that it is a reduce to that rank; with sources=[0] that it is a broadcast from rank
    0: then all targets must have the data of that rank alone. In a proof an element is the set
    of the ranks that have contributed to it, and op unites sets. Mismatch names the first
    element that lacks a rank, has one twice, or has one that is not among the sources."""
    proof = ffi.gc(answer("baton_proof_t *", lib.baton_proof_create, ranks),
                   lib.baton_proof_destroy)
    expected = ffi.NULL if sources is None else [r in sources for r in range(ranks)]
    arrays = [(numpy.empty(count, "u4"), numpy.zeros(count, "u4")) for _ in range(ranks)]
    for rank, (source, _) in enumerate(arrays):
        check(lib.baton_proof_fill(proof, rank, 0, count, ffi.from_buffer("uint32_t[]", source)))
    op = lib.baton_proof_op(proof)
    with Simulator(ranks) as sim:
        sim.build(lambda s: build(s, s.input(arrays[s.rank][0]), s.bind(arrays[s.rank][1]),
                                  op), _named(build)).epoch()
    for rank in range(ranks) if root is None else [root]:
        status = lib.baton_proof_check(proof, expected, 0, count,
                                       ffi.from_buffer("uint32_t[]", arrays[rank][1]))
        if status:
            raise error(status, f"on rank {rank}: {error(status)}")


def picture(build: Build, ranks: int, path: Optional[str] = None, *,
            bytes: Optional[int] = None, dtype: Any = "f32", op: Any = "sum") -> str:
    """Draws a collective of your own on `ranks` ranks, with the messages between them. Returns
    SVG, or graphviz's language if `path` ends in .dot; also writes it to `path`. The other
    arguments are those of `simulate`."""
    with Simulator(ranks, cost_only=True) as sim:
        sim.build(_adder(build, bytes, dtype, op), _named(build))
        return draw.draw(sim._graphs, path)
