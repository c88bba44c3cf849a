"""What the ranks of a job have done, from the files that include/baton/trace.h describes.

    python3 -m baton.trace FOLDER               who came late to what, and what it cost
    python3 -m baton.trace FOLDER -o job.json   a timeline, for ui.perfetto.dev

The ranks of a host have one clock. Those of other hosts are aligned by the trace's own
messages: none of them may arrive before it was sent, in either direction.
"""
import argparse
import collections
import json
import pathlib
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

_HEAD = [("magic", "u8"), ("format", "u4"), ("schedules", "u4"), ("names", "u4"),
         ("records", "u4"), ("process", "i4"), ("reserved", "u4"), ("written", "u8"),
         ("monotonic_ns", "u8"), ("realtime_ns", "u8"), ("host", "S64"), ("boot", "S40"),
         ("pad", "S40")]
_SCHEDULE = [("key", "u8"), ("channel", "u8"), ("rank", "i4"), ("size", "i4"),
             ("incarnation", "u4"), ("nodes", "u4"), ("name", "S64"), ("pad", "S32")]
_RECORD = [("time_ns", "u8"), ("value", "u8"), ("epoch", "u4"), ("thread", "u4"),
           ("node", "u4"), ("tag", "u4"), ("peer", "i4"), ("schedule", "u2"), ("lap", "u1"),
           ("what", "u1")]
_MAGIC, _FORMAT = 0x6563617274617462, 1
(_NONE, _START, _BEGIN, _COME, _SEND, _SENT, _RECEIVED, _WORK, _END, _WAIT, _SLEEP, _LOST,
 _SPAN, _SPAN_END) = range(14)

Message = Tuple[int, int, int, int, int, int]  # key, incarnation, epoch, from, to, tag


class File:
    """What one process has recorded, in the order of time. Records that were just being
    written, or that a slower thread has spoilt, are left out."""

    def __init__(self, path: pathlib.Path) -> None:
        import numpy
        raw = path.read_bytes()
        head = numpy.dtype(_HEAD)
        self.head = numpy.frombuffer(raw[:head.itemsize].ljust(head.itemsize, b"\0"), head)[0]
        if self.head["magic"] != _MAGIC or self.head["format"] != _FORMAT:
            raise ValueError(f"{path} is no trace, or one of another version of Baton")
        at = head.itemsize
        tables = []
        for fields, count in ((_SCHEDULE, "schedules"), ([("name", "S48")], "names"),
                              (_RECORD, "records")):
            kind = numpy.dtype(fields)
            tables.append(numpy.frombuffer(raw, kind, int(self.head[count]), at))
            at += tables[-1].nbytes
        self.schedules, names, ring = tables
        self.names = [name.decode(errors="replace") for name in names["name"]]
        last = int(self.head["written"]) - 1
        place = numpy.arange(len(ring))
        number = last - (last - place) % len(ring)
        whole = (number >= 0) & (ring["what"] != _NONE) & (
            ring["lap"] == number // len(ring) % 256)
        ring = ring[whole][numpy.argsort(number[whole])]
        self.records = ring[numpy.argsort(ring["time_ns"], kind="stable")].copy()
        self.host = self.head["host"].decode(errors="replace")
        # The ranks of this process, in the largest of its groups.
        used = self.schedules[:max(1, int((self.schedules["key"] != 0).sum()))]
        largest = used[used["size"] == used["size"].max()]
        self.ranks = sorted(set(largest["rank"].tolist()))
        self.error_ns: Optional[float] = 0.0  # of its clock; None: unknown

    def rank_of(self, schedule: int) -> int:
        """The rank that a record belongs to, in the largest group."""
        own = int(self.schedules[schedule - 1]["rank"]) if schedule > 0 else self.ranks[0]
        return own if own in self.ranks and len(self.ranks) > 1 else self.ranks[0]

    def messages(self, what: int) -> Iterator[Tuple[Message, Any]]:
        for record in self.records[self.records["what"] == what]:
            of = self.schedules[record["schedule"] - 1]
            ends = [int(of["rank"]), int(record["peer"])]
            sender, receiver = ends if what == _SEND else ends[::-1]
            yield (int(of["key"]), int(of["incarnation"]), int(record["epoch"]), sender,
                   receiver, int(record["tag"])), record


class Trace:
    """The files of a folder, with their times moved to the clock of the first host."""

    def __init__(self, folder: Any) -> None:
        paths = sorted(pathlib.Path(folder).glob("*.trace"))
        if not paths:
            raise ValueError(f"there is no file *.trace in {folder}")
        self.files = sorted((File(path) for path in paths), key=lambda file: file.ranks)
        self.sends: Dict[Message, Tuple[File, Any]] = {}
        self.arrivals: List[Tuple[Message, File, Any]] = []
        self._match()
        if len({bytes(file.head["boot"]) for file in self.files}) > 1:
            self._align()
            self._match()

    def _match(self) -> None:
        """Finds for each message that has arrived when it was sent."""
        self.sends.clear()
        for file in self.files:
            for message, record in file.messages(_SEND):
                self.sends.setdefault(message, (file, record))
        self.arrivals = [(message, file, record) for file in self.files
                         for message, record in file.messages(_RECEIVED)
                         if message in self.sends]

    def _align(self) -> None:
        boots = list(dict.fromkeys(bytes(file.head["boot"]) for file in self.files))
        # By pairs of hosts: the times of a message's sending, in the one clock, and of its
        # arrival, in the other.
        pairs = collections.defaultdict(list)
        for message, file, record in self.arrivals:
            sender, sent = self.sends[message]
            pairs[bytes(sender.head["boot"]), bytes(file.head["boot"])].append(
                (int(sent["time_ns"]), int(record["time_ns"])))
        known = {boots[0]: (0.0, 0.0, 0.0)}
        for base in boots:
            for other in boots:
                if base in known and other not in known and pairs[base, other] and \
                        pairs[other, base]:
                    known[other] = _offset(pairs[base, other], pairs[other, base],
                                           known[base])
        for file in self.files:
            first = self.files[0].head
            by_date = float(int(file.head["monotonic_ns"]) - int(first["monotonic_ns"])) - float(
                int(file.head["realtime_ns"]) - int(first["realtime_ns"]))
            boot = bytes(file.head["boot"])
            offset, slope, file.error_ns = known.get(boot, (by_date, 0.0, None))
            if boot != boots[0]:
                time = file.records["time_ns"].astype("i8")
                file.records["time_ns"] = time - (offset + slope * time).astype("i8")


def _offset(there: List[Tuple[int, int]], back: List[Tuple[int, int]],
            base: Tuple[float, float, float]) -> Tuple[float, float, float]:
    """How far another host's clock is ahead: its offset, its drift and the largest error.
    Each message bounds that from one side; the drift is taken that leaves most room."""
    import numpy
    upper = numpy.array([(arrived, arrived - sent) for sent, arrived in there], "f8")
    lower = numpy.array([(sent, sent - arrived) for sent, arrived in back], "f8")

    def room(slope: float) -> Tuple[float, float]:
        return (float((upper[:, 1] - slope * upper[:, 0]).min()),
                float((lower[:, 1] - slope * lower[:, 0]).max()))
    low, high = -2e-4, 2e-4
    for _ in range(60):  # the room is a concave function of the drift
        one, two = low + (high - low) / 3, high - (high - low) / 3
        if room(one)[0] - room(one)[1] < room(two)[0] - room(two)[1]:
            low = one
        else:
            high = two
    slope = (low + high) / 2
    most, least = room(slope)
    return (base[0] + (most + least) / 2, base[1] + slope,
            base[2] + (most - least) / 2)


def _name(file: File, schedule: int) -> str:
    if schedule == 0:
        return "an epoch"
    return bytes(file.schedules[schedule - 1]["name"]).decode(errors="replace")


# ---- the timeline ----------------------------------------------------------------


def timeline(trace: Trace) -> Dict[str, Any]:
    """The trace in the JSON format of Chrome's and Perfetto's viewers. Each rank is a
    process there, each of its schedules and threads a track."""
    events: List[Dict[str, Any]] = []
    begin_ns = min(int(file.records["time_ns"].min()) for file in trace.files
                   if len(file.records) > 0)
    tracks = set()

    def add(file: File, record: Any, phase: str, name: str, **more: Any) -> None:
        schedule = int(record["schedule"])
        rank = file.rank_of(schedule)
        is_thread = record["what"] in (_WORK, _WAIT, _SLEEP, _SPAN, _SPAN_END, _START)
        track = int(record["thread"]) if is_thread else -schedule
        if (rank, -1) not in tracks:
            tracks.add((rank, -1))
            events.append({"ph": "M", "pid": rank, "name": "process_name", "args": {
                "name": f"rank {rank} (host {file.host}, process {file.head['process']})"}})
        if (rank, track) not in tracks:
            tracks.add((rank, track))
            text = f"thread {track}" if is_thread else _name(file, schedule)
            events.append({"ph": "M", "pid": rank, "tid": track, "name": "thread_name",
                           "args": {"name": text}})
        events.append({"ph": phase, "pid": rank, "tid": track, "name": name,
                       "ts": (int(record["time_ns"]) - begin_ns) / 1000, **more})

    for file in trace.files:
        begun: Dict[int, Any] = {}
        depth: Dict[int, int] = collections.defaultdict(int)
        for record in file.records:
            what, schedule = int(record["what"]), int(record["schedule"])
            epoch = {"epoch": int(record["epoch"])}
            if what == _BEGIN:
                begun[schedule] = record
            elif what in (_WORK, _WAIT, _SLEEP):
                began = record.copy()
                began["time_ns"] -= record["value"]
                name = {_WORK: f"node {record['node']}", _SLEEP: "sleep",
                        _WAIT: f"wait for {_name(file, schedule)}"}[what]
                add(file, began, "X", name, dur=int(record["value"]) / 1000, args=epoch)
            elif what == _END and schedule in begun:
                start = begun.pop(schedule)
                add(file, start, "X", f"{_name(file, schedule)} {record['epoch']}",
                    dur=(int(record["time_ns"]) - int(start["time_ns"])) / 1000 + 0.002,
                    args=dict(epoch, status=int(record["peer"])))
            elif what in (_COME, _START, _LOST):
                add(file, record, "i", {_COME: "comes", _START: "start"}.get(
                    what, f"rank {record['peer']} is lost"), s="t", args=epoch)
            elif what == _SPAN:
                depth[int(record["thread"])] += 1
                add(file, record, "B", file.names[int(record["value"])])
            elif what == _SPAN_END and depth[int(record["thread"])] > 0:
                depth[int(record["thread"])] -= 1
                add(file, record, "E", "")
    for number, (message, file, record) in enumerate(trace.arrivals):
        sender, sent = trace.sends[message]
        for owner, end, phase, name in ((sender, sent, "s", f"to {message[4]}"),
                                        (file, record, "f", f"from {message[3]}")):
            add(owner, end, "X", name, dur=0.001, args={
                "bytes": int(end["value"]), "node": int(end["node"]), "tag": message[5]})
            add(owner, end, phase, "message", id=number, cat="message", bp="e")
    return {"displayTimeUnit": "ns", "traceEvents": events}


# ---- the report ------------------------------------------------------------------


def _epochs(trace: Trace) -> Dict[Tuple[int, int, str], Dict[int, Dict[int, Tuple[int, int]]]]:
    """By schedule and epoch: when each rank came to it, and when it ended there, of those
    epochs that all ranks of the schedule have come to and ended."""
    found: Dict[Any, Dict[int, Dict[int, Tuple[int, int]]]] = collections.defaultdict(
        lambda: collections.defaultdict(dict))
    sizes: Dict[Any, int] = {}
    for file in trace.files:
        came: Dict[int, Tuple[int, int]] = {}
        for record in file.records:
            schedule, epoch = int(record["schedule"]), int(record["epoch"])
            if record["what"] == _COME:
                came[schedule] = epoch, int(record["time_ns"])
            elif record["what"] == _END and came.get(schedule, (-1, 0))[0] == epoch:
                of = file.schedules[schedule - 1]
                key = int(of["key"]), int(of["incarnation"]), _name(file, schedule)
                sizes[key] = int(of["size"])
                found[key][epoch][int(of["rank"])] = came[schedule][1], int(record["time_ns"])
    return {key: {epoch: ranks for epoch, ranks in epochs.items() if len(ranks) == sizes[key]}
            for key, epochs in found.items() if sizes[key] > 1}


def report(trace: Trace, worst: int = 10) -> str:
    """Who came late to the epochs of each schedule, and who waited for whom, as text."""
    import numpy
    lines = []
    for file in trace.files:
        error = "unknown" if file.error_ns is None else f"{file.error_ns / 1000:.1f} us"
        if file.error_ns != 0.0:
            lines.append(f"clock of rank {file.ranks[0]}, host {file.host}: error {error}")
    for (_, _, name), epochs in sorted(_epochs(trace).items(), key=lambda item: item[0][2]):
        if len(epochs) == 0:
            continue
        numbers = sorted(epochs)
        came = numpy.array([[epochs[e][r][0] for r in sorted(epochs[e])] for e in numbers])
        ended = numpy.array([[epochs[e][r][1] for r in sorted(epochs[e])] for e in numbers])
        last, who = came.max(1), came.argmax(1)
        late = (came - came.min(1)[:, None]) / 1e6
        waited = numpy.clip(numpy.minimum(last[:, None], ended) - came, 0, None) / 1e6
        own = (ended.max(1) - last) / 1e6
        between = (came[1:] - ended[:-1]).clip(0) / 1e6
        lines.append(f"\n\"{name}\": {len(numbers)} epochs, {came.shape[1]} ranks; ms an epoch: "
                     f"{own.mean():.3f} after the last rank came, {waited.mean():.3f} waiting for "
                     f"it, {between.mean() if len(between) else 0:.3f} between two epochs")
        lines.append("\n  rank  came late by  came last  waited, by the rank that came last")
        for rank in range(came.shape[1]):
            by = " ".join(f"{other}: {waited[who == other, rank].sum() / len(numbers):.3f}"
                          for other in range(came.shape[1])
                          if other != rank and (who == other).any())
            lines.append(f"  {rank:4}  {late[:, rank].mean():9.3f} ms  "
                         f"{100 * (who == rank).mean():7.1f} %  {by}")
        lines.append("\n  worst epochs: " + ", ".join(
            f"{numbers[i]} (rank {who[i]}, {late[i].max():.3f} ms)"
            for i in numpy.argsort(-late.max(1), kind="stable")[:worst]))
    return "\n".join(lines).lstrip("\n") or "no epoch that all its ranks have come to and ended"


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m baton.trace", description="Reads the traces of a job's ranks: a report on who "
        "came late to which collective, or a timeline.")
    parser.add_argument("folder", help="the folder that BATON_TRACE named")
    parser.add_argument("-o", metavar="FILE", help="write a timeline for ui.perfetto.dev or "
                        "chrome://tracing to this file")
    given = parser.parse_args(arguments)
    try:
        trace = Trace(given.folder)
        if given.o is None:
            print(report(trace))
        else:
            with open(given.o, "w") as file:
                json.dump(timeline(trace), file)
    except (OSError, ValueError) as error:
        print(f"baton.trace: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
