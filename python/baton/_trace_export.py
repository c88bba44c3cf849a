"""Writes a trace for other programs: as a timeline for Perfetto and chrome://tracing, and as
dumps for the analyser of PyTorch's flight recorder."""
import json
import pathlib
import pickle
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import numpy

from baton import _trace_files as files, _trace_report as report
from baton._trace_files import NEVER, Schedule, Trace

_EPOCHS = 1 << 24  # the number of the first schedule's track; those of threads are lower
# The name of a collective in PyTorch's analyser, by a word in the schedule's name.
_TORCH = {"broadcast": "broadcast", "barrier": "barrier", "reduce_scatter": "reduce_scatter",
          "allgather": "all_gather", "gather": "gather", "reduce-scatter": "reduce_scatter",
          "scatter": "scatter", "alltoall": "all_to_all"}


def first(times: numpy.ndarray, axis: Any = None) -> Any:
    """The earliest time that is not NEVER; NEVER if there is none."""
    most = numpy.iinfo("i8").max
    least = numpy.where(times == NEVER, most, times).min(axis=axis, initial=most)
    return numpy.where(least == most, NEVER, least)


def spans_of_epochs(trace: Trace, schedule: Schedule) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """For each epoch and rank, when the epoch began (or NEVER) and when it ended. If it has not
    ended, the end is the time of the rank's last record."""
    begun = first(numpy.stack([schedule.begin, schedule.come]), axis=0)
    last = numpy.array([trace.records["at"][trace.records["who"] == who].max(initial=0)
                        for who in schedule.who])
    ended = numpy.where(schedule.end != NEVER, schedule.end, numpy.broadcast_to(last, begun.shape))
    return begun, numpy.maximum(begun, ended)


def _when_all_came(trace: Trace, epoch: Optional[int]) -> int:
    """When the last rank came to an epoch of the schedule for which ranks waited longest: the one
    with that number, or else one that took as long as the middle of all."""
    for waits in report.all_waits_of(trace)[:1]:
        numbers = waits.of.epochs[waits.rows]
        at = numpy.flatnonzero(numbers == epoch) if epoch is not None else numpy.argsort(
            waits.own)[len(numbers) // 2:]
        if len(at):
            return int(waits.last[at[0]])
    raise ValueError("--with: no such epoch was recorded on all ranks")


class _Timeline:
    def __init__(self, trace: Trace, prefix: str = "") -> None:
        self.trace, self.prefix = trace, prefix
        self.zero = int(trace.records["at"].min(initial=numpy.iinfo("i8").max))

    def us(self, ns: Any) -> float:
        return (int(ns) - self.zero) / 1000

    def slice(self, who: int, track: int, name: str, begin: int, end: int, **args: Any) -> dict:
        return {"ph": "X", "pid": who + 1, "tid": track, "name": name, "ts": self.us(begin),
                "dur": (int(end) - int(begin)) / 1000, "args": args}

    def titles(self) -> Iterator[dict]:
        records = self.trace.records
        for who, rank in enumerate(self.trace.ranks):
            yield from ({"ph": "M", "pid": who + 1, "name": name, "args": args} for name, args in (
                ("process_name", {
                    "name": f"{self.prefix}{rank.name} ({rank.host}, {rank.process})"}),
                ("process_sort_index", {"sort_index": who})))
            threads = numpy.unique(records["thread"][records["who"] == who]).tolist()
            yield from ({"ph": "M", "pid": who + 1, "tid": thread, "name": "thread_name",
                         "args": {"name": f"thread {thread}"}} for thread in threads)
            yield from ({"ph": "M", "pid": who + 1, "tid": _EPOCHS + of, "name": "thread_name",
                         "args": {"name": f"epochs of {schedule.name}"}}
                        for of, schedule in enumerate(self.trace.schedules)
                        if who in schedule.who)

    def epochs(self) -> Iterator[dict]:
        for of, schedule in enumerate(self.trace.schedules):
            begun, ended = spans_of_epochs(self.trace, schedule)
            for row, rank in numpy.argwhere(begun != NEVER):
                here = row, rank
                args: Dict[str, Any] = {"epoch": int(schedule.epochs[row])}
                if schedule.end[here] == NEVER:
                    args["ended"] = False
                elif schedule.status[here] != 0:
                    args["status"] = int(schedule.status[here])
                if schedule.come[here] != schedule.begin[here]:
                    came = int(schedule.come[here])
                    args["came"] = came != NEVER and self.us(came)
                args["sent"] = {"messages": int(schedule.messages[here]),
                                "bytes": int(schedule.bytes[here])}
                yield self.slice(int(schedule.who[rank]), _EPOCHS + of,
                                 f"{schedule.name} {args['epoch']}", begun[here], ended[here],
                                 **args)

    def threads(self) -> Iterator[dict]:
        """Waits, sleeps, work and the application's spans, on the tracks of threads."""
        titles = {files.WAIT: "wait", files.SLEEP: "sleep", files.WORK: "work"}
        open_spans: Dict[Tuple[int, int], List[Tuple[str, int]]] = {}
        records = self.trace.records
        for record in records[numpy.isin(records["what"], [
                *titles, files.SPAN, files.SPAN_END, files.LOST])]:
            who, thread, what, at = (int(record[name]) for name in ("who", "thread", "what", "at"))
            stack = open_spans.setdefault((who, thread), [])
            name = self.trace.schedules[record["of"]].name if record["of"] >= 0 else ""
            if what in titles and record["value"] > 0:
                args = {"of": name, "epoch": int(record["epoch"])} if name else {}
                if what == files.WAIT and record["peer"] != 0:
                    args["status"] = int(record["peer"])
                yield self.slice(who, thread, f"{titles[what]} {name}".strip(),
                                 at - int(record["value"]), at, **args)
            elif what == files.SPAN:
                stack.append((dict(enumerate(self.trace.names[who])).get(
                    int(record["value"]), "?"), at))
            elif what == files.SPAN_END and stack:  # else the record of its begin was overwritten
                yield self.slice(who, thread, *stack.pop(), at)
            elif what == files.LOST:
                yield {"ph": "i", "s": "p", "pid": who + 1, "tid": thread, "ts": self.us(at),
                       "name": f"rank {int(record['peer'])} is lost", "args": {"of": name}}
        for (who, thread), stack in open_spans.items():
            last = int(records["at"][records["who"] == who].max())
            yield from (self.slice(who, thread, name, at, last) for name, at in stack)

    def messages(self) -> Iterator[dict]:
        """An arrow for each message, from the sender's epoch to the receiver's."""
        trace = self.trace
        for number, (send, receipt) in enumerate(zip(trace.records[trace.sends],
                                                     trace.records[trace.receipts])):
            title = {"cat": "message", "name": "activation" if send["tag"] >= files.ACTIVATION
                     else "message", "id": number, "tid": _EPOCHS + int(send["of"])}
            yield {"ph": "s", "pid": int(send["who"]) + 1, "ts": self.us(send["at"]), **title,
                   "args": {"bytes": int(send["value"]), "node": int(send["node"])}}
            # The arrow ends in an epoch, which may end at the time of the message.
            yield {"ph": "f", "bp": "e", "pid": int(receipt["who"]) + 1, **title,
                   "ts": self.us(max(receipt["at"] - 1, send["at"]))}


    def simulated(self, mode: str, steps: Iterable[Tuple[int, str, int, int, int]]
                  ) -> Iterator[dict]:
        """The steps of simulated ranks, whose tracks are below those of the job."""
        for rank, name, start, wait, done in steps:
            pid = len(self.trace.ranks) + rank
            if name == f"{mode} 1":
                title = {"name": f"rank {rank}, simulated: {mode}"}
                yield {"ph": "M", "pid": pid + 1, "name": "process_name", "args": title}
            yield self.slice(pid, 0, name, start, done)
            yield self.slice(pid, 0, "wait", wait, done)

    def beside(self, path: str, at: int) -> Iterator[dict]:
        """The events of another timeline, moved so that the first one begins at `at`. Its
        processes are below the others, and have the name of the file before their own."""
        try:
            with open(path, encoding="utf-8") as source:
                events = json.load(source)
            events = events if isinstance(events, list) else events["traceEvents"]
            shift = self.us(at) - min(event["ts"] for event in events if event["ph"] == "X")
            pids = {pid: 1 + 2 * len(self.trace.ranks) + i
                    for i, pid in enumerate(dict.fromkeys(event["pid"] for event in events))}
        except (KeyError, TypeError, ValueError) as failed:
            raise ValueError(f"{path}: it is no timeline in Chrome's trace format") from failed
        names = {event["pid"]: event["args"]["name"] for event in events
                 if event.get("name") == "process_name"}
        for pid, moved in pids.items():
            title = f"{pathlib.Path(path).stem}: {names.get(pid, f'rank {pid}')}"
            yield from ({"ph": "M", "pid": moved, "name": name, "args": args} for name, args in (
                ("process_name", {"name": title}), ("process_sort_index", {"sort_index": moved})))
        for event in events:
            if event.get("name") not in ("process_name", "process_sort_index"):
                event["pid"] = pids[event["pid"]]
                event.update({"ts": event["ts"] + shift} if "ts" in event else {})
                event.update({"id": f"beside {event['id']}"} if "id" in event else {})
                yield event


def write_timeline(trace: Trace, path: str, mode: str = "",
                   simulated: Iterable[Tuple[int, str, int, int, int]] = (), beside: str = "",
                   epoch: Optional[int] = None) -> None:
    """Writes a file in Chrome's trace format. `simulated` has the steps of simulated ranks;
    `beside` is the path of another such file, which begins when all ranks have come to the
    epoch."""
    timeline = _Timeline(trace, "run: " if beside else "")
    other = timeline.beside(beside, _when_all_came(trace, epoch)) if beside else ()
    with open(path, "w", encoding="utf-8") as out:
        out.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        before = ""
        for part in (timeline.titles(), timeline.epochs(), timeline.threads(),
                     timeline.messages(), timeline.simulated(mode, simulated), other):
            for event in part:
                out.write(before + json.dumps(event))
                before = ",\n"
        out.write("\n]}\n")


def write_flight_recorder(trace: Trace, prefix: str) -> None:
    """Writes a dump for each rank, as PyTorch does; its path is the prefix and the rank's
    number. In the dump each schedule is a process group, and its epochs are that group's
    collectives. The analyser knows only its own names of collectives, and its checks pass only
    if all sizes are equal."""
    entries: List[List[dict]] = [[] for _ in trace.ranks]
    config: List[dict] = [{} for _ in trace.ranks]
    begun = []
    for of, schedule in enumerate(trace.schedules):
        title = f"{schedule.name} ({of})"
        begins = first(numpy.stack([schedule.start, schedule.begin, schedule.come]), axis=0)
        begun += [(int(at), of, row) for row, at in enumerate(first(begins, axis=1))]
        group = {"name": title, "desc": schedule.name, "ranks": str(
            [trace.ranks[who].number for who in schedule.who if who >= 0])}
        for who in schedule.who[schedule.who >= 0]:
            config[who][title] = group
    # The analyser begins with the largest of the dumps' first numbers. Since epochs are numbered
    # in the order in which they began anywhere, that is the same epoch in all dumps.
    for number, (_, of, row) in enumerate(sorted(begun)):
        schedule = trace.schedules[of]
        kind = next((_TORCH[word] for word in _TORCH if word in schedule.name), "all_reduce")
        for rank, who in enumerate(schedule.who):
            start, begin, end = (int(times[row, rank]) for times in (
                schedule.start, first(numpy.stack([schedule.begin, schedule.come]), axis=0),
                schedule.end))
            if who < 0 or start == begin == NEVER:
                continue
            done = end != NEVER and schedule.status[row, rank] == 0
            entries[who].append({
                "record_id": number, "pg_id": of, "is_p2p": False, "p2p_seq_id": 0,
                "process_group": (f"{schedule.name} ({of})", schedule.name),
                "collective_seq_id": int(schedule.epochs[row]), "op_id": number,
                "profiling_name": f"nccl:{kind}", "frames": [],
                "time_created_ns": begin if start == NEVER else start,
                "time_discovered_started_ns": None if begin == NEVER else begin,
                "time_discovered_completed_ns": end if done else None,
                "duration_ms": (end - begin) / 1e6 if done and begin != NEVER else None,
                "input_sizes": [[1]], "output_sizes": [[1]], "input_dtypes": ["Byte"],
                "output_dtypes": ["Byte"], "timeout_ms": 0, "retired": done,
                "state": "completed" if done else "scheduled" if begin == NEVER else "started"})
    for of_rank, groups, mine in zip(trace.ranks, config, entries):
        with open(f"{prefix}{of_rank.number}", "wb") as out:
            pickle.dump({"version": "2.4", "pg_config": groups, "pg_status": {},
                         "entries": mine}, out)
