"""Reads the files of a trace (include/baton/trace.h), and converts all times to one clock.

A file may be read while its process writes it, and after the process was killed. Two kinds
of records are left out: those that are being written, and those that the process wrote
before it last began at the first record again.
"""
import pathlib
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy

MAGIC, FORMATS = 0x6563617274617462, (1, 2)
(START, BEGIN, COME, SEND, SENT, RECEIVED, WORK, END, WAIT, SLEEP, LOST, SPAN,
 SPAN_END, STARTED) = range(1, 15)
ACTIVATION = 1 << 31  # the bit of a tag that marks activations
NEVER = numpy.iinfo("i8").min  # in place of a time that was not recorded
# The largest drift between two clocks: NTP changes the rate of a clock by no more.
_MOST_DRIFT = 500e-6

_HEAD = numpy.dtype([
    ("magic", "u8"), ("format", "u4"), ("schedules", "u4"), ("names", "u4"), ("records", "u4"),
    ("process", "i4"), ("reserved", "u4"), ("written", "u8"), ("monotonic", "u8"),
    ("realtime", "u8"), ("host", "S64"), ("boot", "S40"), ("pad", "S40")])
_SCHEDULE = numpy.dtype([
    ("key", "u8"), ("channel", "u8"), ("rank", "i4"), ("size", "i4"), ("incarnation", "u4"),
    ("nodes", "u4"), ("name", "S64"), ("pad", "S32")])
_NAME = numpy.dtype("S48")
_RECORD = numpy.dtype([
    ("time", "u8"), ("value", "u8"), ("epoch", "u4"), ("thread", "u4"), ("node", "u4"),
    ("tag", "u4"), ("peer", "i4"), ("schedule", "u2"), ("lap", "u1"), ("what", "u1")])
# The records of all files, with four more fields. `at` is the time in ns on the clock of the
# first host, `who` the index of the rank in the job, `of` the index of the schedule (-1: none),
# and `rank` the rank's number in that schedule's group.
_JOINED = numpy.dtype([*((name, _RECORD[name]) for name in _RECORD.names or () if name != "lap"),
                       ("at", "i8"), ("who", "i4"), ("of", "i4"), ("rank", "i4")])


class _File(NamedTuple):
    path: pathlib.Path
    head: numpy.ndarray
    schedules: numpy.ndarray
    names: List[str]
    records: numpy.ndarray
    whole: int  # the bytes of a complete file


class Rank(NamedTuple):
    """A rank of the job: a process, or one of the ranks that are threads of a process."""

    number: int  # its rank in the largest group that its file names
    name: str
    process: int
    host: str
    boot: bytes


class Clock(NamedTuple):
    """How the clock of a host relates to the first host's clock, in ns: it is ahead by
    offset + drift * (its time - since). `error` is the largest error of that; None: it is not
    known."""

    host: str
    offset: float = 0.0
    drift: float = 0.0
    since: int = 0
    error: Optional[float] = 0.0


class Schedule(NamedTuple):
    """A schedule on all of its ranks. Arrays of [epochs, ranks] have times, or NEVER."""

    name: str
    size: int
    who: numpy.ndarray  # [ranks]: the index of each rank in the job; -1: it has no file
    epochs: numpy.ndarray  # [epochs]: their numbers
    start: numpy.ndarray
    begin: numpy.ndarray
    come: numpy.ndarray
    end: numpy.ndarray
    asked: numpy.ndarray  # when the application began to wait
    waited: numpy.ndarray  # when its last wait returned
    activated: numpy.ndarray  # when the first activation was sent
    status: numpy.ndarray  # the status with which the epoch ended
    work: numpy.ndarray  # the time of reductions, copies and calls, in ns
    messages: numpy.ndarray  # the number of messages that the rank sent
    bytes: numpy.ndarray  # the bytes that the rank sent

    def whole(self) -> numpy.ndarray:
        """For each epoch: whether it has begun, and ended without an error, on all ranks."""
        return ((self.begin != NEVER) & (self.end != NEVER) & (self.status == 0)).all(axis=1)


class Trace(NamedTuple):
    ranks: List[Rank]
    schedules: List[Schedule]
    records: numpy.ndarray  # in the order of their times
    sends: numpy.ndarray  # for each message, the index of the record of its send
    receipts: numpy.ndarray  # for each message, the index of the record of its receipt
    names: List[List[str]]  # for each rank, the names of its spans
    clocks: List[Clock]
    backward: int  # the number of messages that, by these clocks, came before they were sent
    skipped: List[str]  # files that could not be read, and why


def _decoded(text: Any) -> str:
    return text.split(b"\0")[0].decode(errors="replace")


def _read(path: pathlib.Path) -> _File:
    """Reads one file. ValueError: the file is no trace, or has another format."""
    if path.stat().st_size < _HEAD.itemsize:
        raise ValueError("it is shorter than the head of a trace")
    raw = numpy.memmap(path, mode="r")
    head = raw[:_HEAD.itemsize].view(_HEAD)[0].copy()
    if head["magic"] != MAGIC or head["format"] not in FORMATS:
        raise ValueError("it is no trace of this format")
    at, tables = _HEAD.itemsize, []
    for kind, count in ((_SCHEDULE, head["schedules"]), (_NAME, head["names"]),
                        (_RECORD, head["records"])):
        here = raw[at:at + int(count) * kind.itemsize]  # shorter if the file was cut
        tables.append(numpy.array(here[:len(here) // kind.itemsize * kind.itemsize]).view(kind))
        at += int(count) * kind.itemsize
    schedules, names, records = tables
    written, count = int(head["written"]), int(head["records"])
    # The process may have begun records while they were copied; these have replaced older ones.
    since = max(0, int(raw[:_HEAD.itemsize].view(_HEAD)["written"][0]) - count)
    slot = numpy.arange(len(records))
    index = slot + (written - 1 - slot) // count * count
    whole = ((index >= since) & (records["what"] > 0) & (records["what"] <= STARTED)
             & (records["lap"] == index // count % 256)
             & (records["schedule"] <= len(schedules)))
    records, index = records[whole], index[whole]
    records = records[numpy.lexsort((index, records["time"]))]
    started = records["what"] == STARTED
    records = numpy.repeat(records, numpy.where(started, 3, 1))
    first = numpy.flatnonzero(started) + 2 * numpy.arange(started.sum())
    for i, what in enumerate((START, BEGIN, COME)):
        records["what"][first + i] = what
    return _File(path, head, schedules, [_decoded(name) for name in names.tolist()], records, at)


def _shared(file: _File) -> Set[Any]:
    """Keys that identify the schedules of a file. Files of the same job have keys in common. If
    the ranks of a schedule are threads of one process, its key is the file's path."""
    of, counts = numpy.unique(file.schedules[["key", "incarnation"]], return_counts=True)
    return {pair if n == 1 else file.path for pair, n in zip(of.tolist(), counts) if pair[0]}


def _last_job(files: List[_File]) -> Set[pathlib.Path]:
    """The files of the last job. These are: of the files with schedules, that of the process that
    began last; each file that has a schedule in common with one of them; and the files without
    schedules."""
    of = {file.path: _shared(file)
          for file in sorted(files, key=lambda file: -int(file.head["realtime"]))}
    known, job = next((keys for keys in of.values() if keys), set()), set()  # type: Set, Set
    while len(job) < len(job := {path for path in of if known & of[path] or not of[path]}):
        known = known.union(*(of[path] for path in job))
    return job


def _ranks_of(files: List[_File]) -> Tuple[List[Rank], List[numpy.ndarray]]:
    """The ranks of the job; and for each file, the index of the rank that belongs to each of its
    schedules. Schedules count from 1, and entry 0 belongs to the process."""
    found: List[Tuple[int, int]] = []
    of_files = []
    for number, file in enumerate(files):
        used = file.schedules[file.schedules["key"] != 0]
        pairs = used[["key", "incarnation"]]
        # If ranks are threads, the file has several entries of one schedule, with different ranks.
        threads = len(numpy.unique(pairs)) < len(used)
        largest = used["rank"][numpy.argmax(used["size"])] if len(used) else -1
        rank = numpy.where(threads, file.schedules["rank"], largest)
        of_files.append(numpy.concatenate([[largest], rank]))
        found += [(int(each), number) for each in numpy.unique([largest, *rank[:len(used)]])]
    found.sort()
    numbers = [number for number, _ in found]
    ranks = []
    for number, at in found:
        head = files[at].head
        name = f"rank {number}" if number >= 0 else "process"
        if number < 0 or numbers.count(number) > 1:
            name += f" ({_decoded(head['host'])}.{head['process']})"
        ranks.append(Rank(number, name, int(head["process"]), _decoded(head["host"]),
                          bytes(head["boot"])))
    index = {pair: i for i, pair in enumerate(found)}
    return ranks, [numpy.array([index[int(rank), number] if (int(rank), number) in index else -1
                                for rank in of]) for number, of in enumerate(of_files)]


def _match(records: numpy.ndarray) -> Tuple[numpy.ndarray, numpy.ndarray]:
    """The indices of the records of sends, and those of their receipts. The two records of a
    message have the same schedule, epoch, sender, receiver and tag."""
    at = numpy.flatnonzero(((records["what"] == SEND) | (records["what"] == RECEIVED))
                           & (records["of"] >= 0))
    ends = records[at]
    received = ends["what"] == RECEIVED
    sender = numpy.where(received, ends["peer"], ends["rank"])
    receiver = numpy.where(received, ends["rank"], ends["peer"])
    keys = (ends["tag"], receiver, sender, ends["epoch"], ends["of"])
    order = numpy.lexsort((received, *keys))
    same = ~received[order[:-1]] & received[order[1:]]
    for key in keys:
        same &= key[order[:-1]] == key[order[1:]]
    return at[order[:-1][same]], at[order[1:][same]]


def _offset(upper: numpy.ndarray, lower: numpy.ndarray, ends: Tuple[int, int], since: int
            ) -> Tuple[float, float, float]:
    """Finds a line below the points `upper` and above the points `lower`, which are arrays of
    [time, bound]: the line that is farthest from both. Returns its value at `since`, its slope,
    and the error: how far another line between the points may be from it between `ends`."""
    above, below = upper[:, 0] - since, lower[:, 0] - since

    def band(drift: float) -> Tuple[float, float]:
        return (numpy.max(lower[:, 1] - drift * below), numpy.min(upper[:, 1] - drift * above))

    low, high = -_MOST_DRIFT, _MOST_DRIFT
    for _ in range(60):  # The width is a concave function of the drift.
        left, right = low + (high - low) / 3, high - (high - low) / 3
        (a, b), (c, d) = band(left), band(right)
        low, high = (left, high) if b - a < d - c else (low, right)
    drift = (low + high) / 2
    offset, error = sum(band(drift)) / 2, 0.0
    for other in numpy.linspace(-_MOST_DRIFT, _MOST_DRIFT, 2001):
        for end in ends:
            at = (other - drift) * (end - since)
            a, b = band(other)
            if a <= b:
                error = max(error, abs(a + at - offset), abs(b + at - offset))
    a, b = band(drift)
    return offset, drift, max(error, abs(b - a) / 2)


def _clocks(files: List[_File], ranks: List[Rank], records: numpy.ndarray,
            sends: numpy.ndarray, receipts: numpy.ndarray) -> Dict[bytes, Clock]:
    """The clock of each host, by the host's boot id. The times of the trace are those of the
    first host's clock. The other clocks are found one after another from the messages with
    hosts whose clocks are known; the one with the smallest error comes next."""
    heads = {bytes(file.head["boot"]): file.head for file in reversed(files)}
    boots = list(dict.fromkeys(rank.boot for rank in ranks)) or list(heads)
    place = numpy.array([boots.index(rank.boot) for rank in ranks])
    source, target = place[records["who"][sends]], place[records["who"][receipts]]
    sent, came = records["time"][sends].astype("i8"), records["time"][receipts].astype("i8")
    times = [records["time"][place[records["who"]] == i].astype("i8") for i in range(len(boots))]
    known = {boots[0]: Clock(_decoded(heads[boots[0]]["host"]))}
    while len(known) < len(boots):
        best: Optional[Tuple[bytes, Clock]] = None
        for a, b in ((a, b) for a in range(len(boots)) for b in range(len(boots))):
            if boots[a] not in known or boots[b] in known:
                continue
            there, back = (source == a) & (target == b), (source == b) & (target == a)
            if not there.any() or not back.any():
                continue
            of, since = known[boots[a]], int(times[b][0])
            # b's clock shows what a's shows, plus the offset and the drift since `since`.
            offset, drift, error = _offset(
                numpy.stack([came[there], came[there] - aligned(sent[there], of)], 1),
                numpy.stack([sent[back], sent[back] - aligned(came[back], of)], 1),
                (since, int(times[b][-1])), since)
            error += of.error or 0.0
            if best is None or error < (best[1].error or 0.0):
                best = boots[b], Clock(_decoded(heads[boots[b]]["host"]), offset, drift, since,
                                       error)
        if best is None:
            boot = next(boot for boot in boots if boot not in known)
            mine, first = heads[boot], heads[boots[0]]
            best = boot, Clock(_decoded(mine["host"]),
                               float(int(mine["monotonic"]) - int(mine["realtime"])
                                     - int(first["monotonic"]) + int(first["realtime"])),
                               error=None)
        known[best[0]] = best[1]
    return known


def aligned(times: numpy.ndarray, clock: Clock) -> numpy.ndarray:
    """Converts times of a host, in ns, to the clock of the first host."""
    drift = numpy.rint(clock.drift * (times - clock.since)) if clock.drift else 0
    return times - numpy.int64(round(clock.offset)) - numpy.asarray(drift, "i8")


def _schedule(name: str, size: int, who: numpy.ndarray, records: numpy.ndarray) -> Schedule:
    epochs, row = numpy.unique(records["epoch"], return_inverse=True)
    place, shape = row * size + records["rank"], (len(epochs), size)

    def when(what: int, times: numpy.ndarray = records["at"], last: bool = False
             ) -> numpy.ndarray:
        """For each epoch and rank, the time of its first record (or last one) of kind `what`."""
        of = numpy.flatnonzero(records["what"] == what)[::1 if last else -1]
        out = numpy.full(shape[0] * size, NEVER)
        out[place[of]] = times[of]
        return out.reshape(shape)

    def total(what: int, values: numpy.ndarray) -> numpy.ndarray:
        of = records["what"] == what
        return numpy.bincount(place[of], values[of], shape[0] * size).reshape(shape)

    status = when(END, records["peer"].astype("i8"), True)
    activates = (records["what"] == SEND) & (records["tag"] >= ACTIVATION)
    activated = numpy.full(shape[0], numpy.iinfo("i8").max)
    numpy.minimum.at(activated, row[activates], records["at"][activates])
    activated[activated == numpy.iinfo("i8").max] = NEVER
    return Schedule(
        name, size, who, epochs, when(START), when(BEGIN), when(COME), when(END, last=True),
        when(WAIT, records["at"] - records["value"].astype("i8")), when(WAIT, last=True),
        activated, status, total(WORK, records["value"]),
        total(SEND, numpy.ones(len(records))), total(SEND, records["value"]))


def read(folder: str) -> Trace:
    """Reads those files of a folder that belong to the last job. ValueError: no file can be
    read."""
    files, skipped = [], []
    for path in sorted(pathlib.Path(folder).glob("*.trace")):
        try:
            files.append(_read(path))
        except (OSError, ValueError) as why:
            skipped.append(f"{path}: {why}")
    if not files:
        raise ValueError("\n".join([*skipped, f"{folder} has no trace (files *.trace)"]))
    skipped += [f"{of.path}: its end: cut" for of in files if of.path.stat().st_size < of.whole]
    job = _last_job(files)
    skipped += [f"{file.path}: it is of another job" for file in files if file.path not in job]
    files = [file for file in files if file.path in job]
    ranks, who_of = _ranks_of(files)
    known: Dict[Tuple[int, int], int] = {}  # schedules, by key and incarnation
    titles: List[Tuple[str, int, numpy.ndarray]] = []
    names: List[List[str]] = [[] for _ in ranks]
    joined = []
    for file, who in zip(files, who_of):
        of = numpy.full(len(file.schedules) + 1, -1)
        for i, entry in enumerate(file.schedules):
            if entry["key"] != 0 and 0 <= entry["rank"] < entry["size"]:
                pair = int(entry["key"]), int(entry["incarnation"])
                if pair not in known:
                    known[pair] = len(titles)
                    titles.append((_decoded(entry["name"]), int(entry["size"]),
                                   numpy.full(int(entry["size"]), -1)))
                of[i + 1] = known[pair]
                titles[known[pair]][2][entry["rank"]] = who[i + 1]
        more = numpy.zeros(len(file.records), _JOINED)
        for name in _RECORD.names or ():
            if name != "lap":
                more[name] = file.records[name]
        number = file.records["schedule"]
        more["of"], more["who"] = of[number], who[number]
        more["rank"] = numpy.concatenate([[-1], file.schedules["rank"]])[number]
        more = more[(number == 0) | (more["of"] >= 0)]
        joined.append(more)
        for each in numpy.unique(who[who >= 0]):
            names[each] = file.names
    records = numpy.concatenate(joined)
    sends, receipts = _match(records)
    clocks = _clocks(files, ranks, records, sends, receipts)
    for i, rank in enumerate(ranks):
        mine = records["who"] == i
        records["at"][mine] = aligned(records["time"][mine].astype("i8"), clocks[rank.boot])
    order = numpy.argsort(records["at"], kind="stable")
    moved = numpy.empty_like(order)
    moved[order] = numpy.arange(len(order))
    records, sends, receipts = records[order], moved[sends], moved[receipts]
    by_schedule = numpy.argsort(records["of"], kind="stable")
    edges = numpy.searchsorted(records["of"][by_schedule], range(len(titles) + 1))
    schedules = [_schedule(*title, records[by_schedule[edges[i]:edges[i + 1]]])
                 for i, title in enumerate(titles)]
    backward = int((records["at"][receipts] < records["at"][sends]).sum())
    return Trace(ranks, schedules, records, sends, receipts, names, list(clocks.values()),
                 backward, skipped)
