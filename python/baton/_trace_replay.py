"""How long the recorded steps would have taken in each mode of a partial all-reduce. The
computation times of each rank are replayed in the simulator, which runs the library's own
schedules."""
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Tuple

import numpy

from baton import _trace_files as files, _trace_report as report
from baton._library import check, ffi, lib
from baton.partial import Partial
from baton.sim import Simulator

# At most this many epochs are replayed, the last ones; and this many steps of all ranks.
_EPOCHS, _STEPS = 400, 40000
_SHORT = 4096  # messages of fewer bytes show the latency


class Steps(NamedTuple):
    """How long the application of each rank computed, in us. Arrays are [steps, ranks]."""

    compute: numpy.ndarray  # before the start of the step
    overlap: numpy.ndarray  # between the start of the step and the wait for it
    began: int = 0  # when the first rank began to compute, in ns on the trace's clock


class Outcome(NamedTuple):
    mean_ms: float  # the time of a step, on average over the ranks
    slowest_ms: float  # the time of a step on the slowest rank
    # How many ranks contributed in time to an epoch, on average.
    in_time: float
    # The age in epochs of the oldest contribution of a rank to an epoch, on average.
    staleness: float
    # For each rank and each of its steps: when it started the step, began to wait for it, and
    # had its result, in us.
    times: List[List[Tuple[float, float, float]]]


@ffi.callback("void(void *, uint64_t, baton_status_t)")
def _ended(arg: Any, epoch: int, status: int) -> None:
    ffi.from_handle(arg).epoch_has_ended()


class _Application:
    """The application of one rank: it computes, contributes, starts, computes on, and waits."""

    def __init__(self, sim: Simulator, rank: int, steps: Steps, data: numpy.ndarray,
                 **options: Any) -> None:
        self.partial = Partial(sim.group_of(rank), len(data), **options)
        self.sim, self.rank, self.steps, self.step = sim, rank, steps, 0
        self.data = data
        self.waits, self.done_us, self.in_time, self.staleness = False, 0.0, 0, 0
        self.times: List[Tuple[float, float, float]] = []
        self.result = ffi.new("baton_partial_result_t *")
        self.handle = ffi.new_handle(self)
        lib.baton_partial_on_end(self.partial._handle, _ended, self.handle)
        sim.at(steps.compute[0, rank], self.start)

    def start(self) -> None:
        self.started_us = self.sim.now_us
        self.partial.contribute(self.data)
        self.partial.start()
        self.sim.at(self.sim.now_us + self.steps.overlap[self.step, self.rank], self.wait)

    def wait(self) -> None:
        self.waits, self.waited_us = True, self.sim.now_us
        self.go_on()

    def epoch_has_ended(self) -> None:
        if self.waits:
            self.sim.at(self.sim.now_us, self.go_on)

    def go_on(self) -> None:
        if not self.waits or not self.partial.test():
            return
        check(lib.baton_partial_wait(self.partial._handle, 0, self.result))
        self.waits, self.done_us = False, self.sim.now_us
        self.times.append((self.started_us, self.waited_us, self.done_us))
        self.in_time += self.result.included
        self.staleness += self.result.staleness
        self.step += 1
        if self.step < len(self.steps.compute):
            self.sim.at(self.done_us + self.steps.compute[self.step, self.rank], self.start)


def replay(steps: Steps, count: int, link: Tuple[float, float], **options: Any) -> Outcome:
    """Simulates the steps with a partial all-reduce of `count` elements. `link` has the us that
    a message takes and the ns that a byte takes. `options` are those of Partial."""
    number, ranks = steps.compute.shape
    data = numpy.empty(count, "f4")  # It is not read.
    with Simulator(ranks, cost_only=True, alpha_us=link[0], beta_ns=link[1]) as sim:
        all_of = [_Application(sim, rank, steps, data, **options) for rank in range(ranks)]
        sim.run()
        took = [each.done_us / 1e3 / number for each in all_of]
        return Outcome(sum(took) / ranks, max(took), sum(each.in_time for each in all_of) / number,
                       sum(each.staleness for each in all_of) / ranks / number,
                       [each.times for each in all_of])


def recorded(waits: report.Waits) -> Optional[Tuple[Steps, float]]:
    """The recorded steps of a schedule, and the mean time of a step in ms. None: no two recorded
    steps follow each other."""
    schedule, rows = waits.of, waits.rows[-min(_EPOCHS, _STEPS // waits.of.size + 1) - 1:]
    breaks = numpy.flatnonzero(numpy.diff(rows) != 1)
    rows = rows[breaks[-1] + 1:] if len(breaks) else rows
    if len(rows) < 2:
        return None
    start = numpy.where(schedule.start != files.NEVER, schedule.start, schedule.come)[rows]
    end = schedule.end[rows]
    back = numpy.maximum(end, schedule.waited[rows])
    asked = numpy.where(schedule.asked[rows] != files.NEVER, schedule.asked[rows], start)
    compute = numpy.maximum(start[1:] - back[:-1], 0) / 1e3
    overlap = numpy.maximum(asked - start, 0)[1:] / 1e3
    return (Steps(compute, overlap, int(back[0].min())),
            float((back[-1] - back[0]).mean() / (len(rows) - 1) / 1e6))


def link_of(trace: files.Trace, waits: report.Waits) -> Tuple[int, Tuple[float, float]]:
    """Returns the number of elements of an all-reduce that sends as many bytes as the schedule,
    and a link on which it takes the schedule's own time. On that link a message takes as long as
    the recorded short ones, but no more than the own time allows; the bytes take the rest."""
    size, own_us = waits.of.size, report.own_time(waits) / 1e3
    sent = float(waits.of.bytes[waits.rows].sum(axis=1).mean())
    count = max(1, round(sent / max(1, 2 * (size - 1)) / 4))
    nothing = Steps(numpy.zeros((1, size)), numpy.zeros((1, size)))
    messages_us, bytes_us = (replay(nothing, count, link, mode="full").slowest_ms * 1e3
                             for link in ((1.0, 0.0), (0.0, 1.0)))
    sends, receipts = trace.records[trace.sends], trace.records[trace.receipts]
    took = (receipts["at"] - sends["at"])[sends["value"] < _SHORT] / 1e3
    alpha = min(float(numpy.quantile(took, 0.1)) if len(took) else 0.0, own_us / messages_us)
    beta = max(0.0, own_us - alpha * messages_us) / bytes_us if bytes_us else 0.0
    return count, (alpha if beta else own_us / messages_us, beta)


def _modes(size: int) -> Iterable[Tuple[str, str]]:
    quorums = dict.fromkeys(f"quorum:{q}" for q in (size - 1, (size + 1) // 2) if 1 < q < size)
    yield "full", "all"
    for keep in "all", "latest":
        yield from ((mode, keep) for mode in (*quorums, "majority", "solo"))


def _chosen(trace: files.Trace) -> Optional[Tuple[report.Waits, Steps, float]]:
    """The schedule in which ranks waited longest, its steps, and their mean time in ms."""
    found = ((waits, recorded(waits)) for waits in report.all_waits_of(trace)
             if waits.of.size > 1)
    return next(((waits, *steps) for waits, steps in found if steps is not None), None)


def lines(trace: files.Trace) -> List[str]:
    """The lines of a table of all modes, for the schedule in which ranks waited longest."""
    chosen = _chosen(trace)
    if chosen is None:
        return []
    waits, steps, mean_ms = chosen
    count, link = link_of(trace, waits)
    rows: List[List[Any]] = [["mode", "keep", "mean rank", "slowest", "in time", "staleness"],
                             ["recorded", "", mean_ms, mean_ms, "", ""]]
    for mode, keep in _modes(waits.of.size):
        came = replay(steps, count, link, mode=mode, keep=keep)
        rows.append([mode, keep, came.mean_ms, came.slowest_ms, f"{came.in_time:.2f}",
                     f"{came.staleness:.2f}"])
    return [f'what each mode of baton.Partial would have taken for "{waits.of.name}", in ms a '
            f"step, by the last {len(steps.compute)} steps", *report.table(rows)]


def simulated(trace: files.Trace, mode: str) -> Iterator[Tuple[int, str, int, int, int]]:
    """Simulates the same schedule's steps in a mode. Yields, for each rank and step: the rank,
    the step's name, and when it was started, waited for and complete, in ns on the trace's
    clock."""
    chosen = _chosen(trace)
    if chosen is None:
        raise ValueError("--simulate: no steps that follow each other were recorded")
    waits, steps, _ = chosen
    times = replay(steps, *link_of(trace, waits), mode=mode).times
    for rank, of_rank in enumerate(times):
        for number, step in enumerate(of_rank, 1):
            at = [steps.began + round(1000 * us) for us in step]
            yield rank, f"{mode} {number}", at[0], at[1], at[2]
