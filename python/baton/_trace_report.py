"""The report of baton-trace: which rank waited for which, where the time went, and how long
steps would have taken in the modes of a partial all-reduce."""
import html
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

import numpy

from baton import _trace_files as files
from baton._trace_files import NEVER, Schedule, Trace

_WORST, _COLUMNS, _MOST_SCHEDULES = 10, 12, 20
_LATEST = numpy.iinfo("i8").max
_FEWEST = 8  # late ranks are named only if at least this many epochs were recorded


class Waits(NamedTuple):
    """When ranks came to the epochs of a schedule, and how long they waited. It has only epochs
    that have ended on all ranks. Times are in ns. Arrays are [epochs, ranks], unless the comment
    says [epochs]."""

    of: Schedule
    rows: numpy.ndarray  # [epochs]: the epochs' rows in the schedule's arrays
    arrive: numpy.ndarray  # when each rank came
    last: numpy.ndarray  # [epochs]: when the last of the awaited ranks came
    blamed: numpy.ndarray  # [epochs]: the number of that rank
    wait: numpy.ndarray  # how long each rank waited for the blamed one
    late: numpy.ndarray  # how long after the first rank each came; NaN: it came after the end
    whole: numpy.ndarray  # [epochs]: the time from the first arrival to the last end
    own: numpy.ndarray  # [epochs]: the time from the last arrival to the last end


def waits_of(schedule: Schedule) -> Waits:
    arrive = numpy.where(schedule.come != NEVER, schedule.come, schedule.start)
    rows = numpy.flatnonzero(schedule.whole() & (arrive != NEVER).all(axis=1))
    arrive, begin, end = arrive[rows], schedule.begin[rows], schedule.end[rows]
    first = arrive.min(axis=1, initial=_LATEST)
    # An epoch that was activated does not wait for ranks that come after the activation, ...
    go = schedule.activated[rows]
    awaited = arrive <= numpy.where(go != NEVER, go, _LATEST)[:, None]
    came = numpy.where(awaited | ~awaited.any(axis=1)[:, None], arrive, NEVER)
    last, blamed = came.max(axis=1, initial=NEVER), came.argmax(axis=1)
    # ... unless a rank is so many epochs behind that it can't take part yet.
    joined = begin.max(axis=1, initial=NEVER)
    holds = (go != NEVER) & (joined - last > last - first)
    last, blamed = (numpy.where(holds, a, b) for a, b in ((joined, last),
                                                          (begin.argmax(axis=1), blamed)))
    # A rank whose epoch ended before the last rank came did not wait: a broadcast's root, say.
    wait = numpy.where((end >= last[:, None]) & (arrive <= last[:, None]),
                       last[:, None] - arrive, 0)
    late = numpy.where(schedule.come[rows] != NEVER, arrive - first[:, None], numpy.nan)
    done = end.max(axis=1, initial=NEVER)
    return Waits(schedule, rows, arrive, last, blamed, wait, late, done - first, done - last)


def own_time(waits: Waits) -> float:
    """How long an epoch takes after the last rank has come, in ns: the 10th percentile."""
    return float(numpy.quantile(waits.own, 0.1)) if len(waits.rows) else 0.0


def between(waits: Waits) -> numpy.ndarray:
    """How long each rank computed between an epoch and the next one, in ns: from the end of the
    first, or from the return of its wait if that is later, to the start of the second."""
    schedule, rows = waits.of, waits.rows
    back = numpy.maximum(schedule.end, schedule.waited)[rows[:-1]]
    start = numpy.where(schedule.start != NEVER, schedule.start, schedule.come)[rows[1:]]
    return numpy.maximum(start - back, 0)[(rows[1:] == rows[:-1] + 1)]


def late_ranks(waits: Waits) -> numpy.ndarray:
    """The ranks that are late by the rule of baton-top (docs/observe.md)."""
    if len(waits.rows) < _FEWEST or waits.of.size < 2:
        return numpy.array([], int)
    late = numpy.nan_to_num(waits.late)
    quarter, three = numpy.quantile(late, [0.25, 0.75], axis=0)
    middle = numpy.argsort(numpy.median(late, axis=0))[(waits.of.size - 1) // 2]
    elapsed = waits.arrive[-1, middle] - waits.arrive[0, middle] + waits.whole[-1]
    if waits.wait[:, middle].sum() < 0.01 * elapsed:
        return numpy.array([], int)
    return numpy.flatnonzero(quarter > three[middle] + 2 * own_time(waits) + 32000)


# ---- the critical path -----------------------------------------------------------


class Step(NamedTuple):
    """A part of a critical path: the work of a rank; or, if there is a `sender`, a message from
    that rank to `rank`."""

    begin: int
    end: int
    rank: int
    sender: Optional[int] = None


def critical_path(trace: Trace, of: int, epoch: int) -> List[Step]:
    """The critical path of an epoch: the steps that led to its last end. It is found from the
    end: a rank could go on when the last message came to it, and the path goes back to the
    sender of that message. It begins with the arrival of a rank to which no message came that
    was sent after the arrival. The steps follow each other without gaps."""
    schedule = trace.schedules[of]
    row = int(numpy.flatnonzero(schedule.epochs == epoch)[0])
    senders = trace.records[trace.sends]
    pairs = numpy.flatnonzero((senders["of"] == of) & (senders["epoch"] == epoch))
    receipts, senders = trace.records[trace.receipts[pairs]], senders[pairs]
    left = numpy.ones(len(pairs), bool)
    rank = int(schedule.end[row].argmax())
    at, steps = int(schedule.end[row, rank]), []  # type: int, List[Step]
    while True:
        come = int(schedule.come[row, rank])
        mine = left & (receipts["rank"] == rank) & (receipts["at"] <= at)
        if NEVER < come <= at:
            mine &= (senders["at"] >= come)
        if not mine.any():
            begun = come if NEVER < come <= at else int(schedule.begin[row, rank])
            steps.append(Step(min(begun, at) if begun != NEVER else at, at, rank))
            return steps[::-1]
        used = numpy.flatnonzero(mine)[receipts["at"][mine].argmax()]
        left[used] = False
        came, sent, peer = (int(of) for of in (receipts["at"][used], senders["at"][used],
                                               senders["rank"][used]))
        steps += [Step(came, at, rank), Step(sent, came, rank, peer)]
        rank, at = peer, sent


# ---- the text --------------------------------------------------------------------


def table(rows: List[List[Any]]) -> Iterable[str]:
    """The rows as lines of text, in aligned columns."""
    cells = [[f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row]
             for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    for row in cells:
        yield "  ".join([row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]).rstrip()


def _who_waited(trace: Trace, all_waits: List[Waits]) -> Iterable[str]:
    count = len(trace.ranks)
    matrix = numpy.zeros((count, count))
    for waits in all_waits:
        who = waits.of.who
        for rank, player in enumerate(who):
            numpy.add.at(matrix[player], who[waits.blamed], waits.wait[:, rank] / 1e6)
    columns = numpy.argsort(-matrix.sum(axis=0), kind="stable")[:_COLUMNS]
    columns = numpy.sort(columns[matrix.sum(axis=0)[columns] > 0])
    yield "who waited for whom, in ms"
    names = [rank.name for rank in trace.ranks]
    yield from table([["", *(f"for {names[i]}" for i in columns), "for all"]] + [
        [name, *map(float, matrix[i, columns]), float(matrix[i].sum())]
        for i, name in enumerate(names)])


def _where_it_went(all_waits: List[Waits]) -> Iterable[str]:
    rows: List[List[Any]] = [["schedule", "epochs", "bytes sent", "whole", "skew", "transfer",
                              "work", "between"]]
    for waits in all_waits[:_MOST_SCHEDULES]:
        end, work = waits.of.end[waits.rows], waits.of.work[waits.rows]
        whole = numpy.maximum(end - waits.arrive, 0)
        rest = whole - waits.wait
        work = numpy.minimum(work, rest)
        idle = between(waits)
        rows.append([waits.of.name, len(waits.rows), round(waits.of.bytes[waits.rows].mean()),
                     *(float(each.mean() / 1e6) for each in (
                         whole, waits.wait, rest - work, work)),
                     float(idle.mean() / 1e6) if idle.size else "-"])
    yield "where the time went, in ms an epoch, on average over the ranks"
    yield from table(rows)


def _worst(all_waits: List[Waits], trace: Trace) -> Tuple[List[str], Optional[Tuple[int, int]]]:
    found = sorted(((int(waits.whole[i]), waits, i) for waits in all_waits for i in numpy.argsort(
        -waits.whole, kind="stable")[:_WORST]), key=lambda each: -each[0])[:_WORST]
    rows: List[List[Any]] = [["epoch", "ms", "last rank", "behind ms"]]
    for whole, waits, i in found:
        behind = numpy.diff(numpy.sort(waits.arrive[i]))[-1:] / 1e6
        rows.append([f'{waits.of.epochs[waits.rows[i]]} of "{waits.of.name}"', whole / 1e6,
                     trace.ranks[waits.of.who[waits.blamed[i]]].name,
                     float(behind[0]) if len(behind) else 0.0])
    at = found[0] if found else None
    return (["the worst epochs, from the first arrival to the last end", *table(rows)],
            at and (next(i for i, of in enumerate(trace.schedules) if of is at[1].of),
                    int(at[1].of.epochs[at[1].rows[at[2]]])))


def _path(trace: Trace, of: int, epoch: int) -> Iterable[str]:
    schedule, steps = trace.schedules[of], critical_path(trace, of, epoch)
    names = _names(trace, schedule)
    yield (f'critical path of epoch {epoch} of "{schedule.name}", '
           f"{(steps[-1].end - steps[0].begin) / 1e6:.3f} ms")
    yield from table([["from ms", "for ms", ""]] + [
        [f"{(step.begin - steps[0].begin) / 1e6:.3f}", (step.end - step.begin) / 1e6,
         names[step.rank] if step.sender is None
         else f"message of {names[step.sender]} to {names[step.rank]}"]
        for step in steps if step.end > step.begin])


def _names(trace: Trace, schedule: Schedule) -> List[str]:
    return [trace.ranks[who].name if who >= 0 else f"rank {i} of it (no file)"
            for i, who in enumerate(schedule.who)]


def _unended(trace: Trace) -> Iterable[str]:
    """For each schedule whose last epoch has not ended on some ranks: the ranks that are absent."""
    for schedule in trace.schedules:
        names = _names(trace, schedule)
        for epoch, *times in zip(*(of[-1:] for of in (schedule.epochs, schedule.come,
                                                      schedule.start, schedule.end))):
            absent = (times[0] == NEVER) & (times[1] == NEVER)
            waiting = ~absent & (times[2] == NEVER)
            if waiting.any():
                yield (f'epoch {epoch} of "{schedule.name}": {waiting.sum()} of its ranks wait; '
                       + ("not there: " + ", ".join(names[i] for i in numpy.flatnonzero(absent))
                          if absent.any() else "all have come"))


def _verdict(trace: Trace, all_waits: List[Waits]) -> List[str]:
    lines = list(_unended(trace))
    for waits in all_waits:
        late = late_ranks(waits)
        others = numpy.setdiff1d(numpy.arange(waits.of.size), late)
        if len(late):
            spans = (waits.of.end[waits.rows[-1]] - waits.arrive[0])[others]
            lines.append(" and ".join(
                f"{trace.ranks[waits.of.who[rank]].name} is late by "
                f"{numpy.nanmean(waits.late[:, rank]) / 1e6:.3g} ms and comes last to "
                f"{100 * (waits.blamed == rank).mean():.0f} % of epochs" for rank in late)
                + f' of "{waits.of.name}"; the others wait {waits.wait[:, others].mean() / 1e6:.3g} '
                f"ms an epoch for {'it' if len(late) == 1 else 'them'}, "
                f"{100 * waits.wait[:, others].sum() / max(1, spans.sum()):.0f} % of the time")
        missed = numpy.isnan(waits.late).mean(axis=0) if len(waits.rows) >= _FEWEST else []
        lines += [f"{trace.ranks[waits.of.who[rank]].name} comes too late to {100 * share:.0f} % "
                  f'of epochs of "{waits.of.name}"; the others wait '
                  f"{waits.wait[waits.blamed == rank].sum() / 1e6 / waits.wait.size:.3g} ms an epoch "
                  "for it" for rank, share in enumerate(missed) if share > 0.5]
    return lines or ["no rank is late" if all_waits else
                     "no epoch has been recorded from begin to end on all of its ranks"]


def _clock_lines(trace: Trace) -> Iterable[str]:
    for clock in trace.clocks[1:]:
        error = "unknown: realtime clocks were compared" if clock.error is None \
            else f"at most {clock.error / 1e3:.1f} us"
        yield (f"the clock of {clock.host} is ahead of {trace.clocks[0].host}'s by "
               f"{clock.offset / 1e6:.6f} ms, and gains {clock.drift * 1e6:.2f} us a second; "
               f"error: {error}")
    if trace.backward:
        yield (f"{trace.backward} of {len(trace.sends)} messages go backward in time by these "
               "clocks")


def all_waits_of(trace: Trace) -> List[Waits]:
    """The waits of all schedules. Schedules in which ranks waited longest come first."""
    return sorted((waits for waits in map(waits_of, trace.schedules)
                   if len(waits.rows) and (waits.of.who >= 0).all()),
                  key=lambda waits: -waits.wait.sum())


def text(trace: Trace, replayed: Iterable[str] = ()) -> str:
    """The report. The lines `replayed` are put before its verdict."""
    all_waits = all_waits_of(trace)
    times, hosts = trace.records["at"], {rank.boot for rank in trace.ranks}
    parts: List[Iterable[str]] = [[
        f"{len(trace.ranks)} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)}, "
        f"{(int(times.max()) - int(times.min())) / 1e9:.3f} s, {len(trace.records)} records"
        if len(times) else "no records", *_clock_lines(trace)]]
    if all_waits:
        worst, at = _worst(all_waits, trace)
        parts += [_who_waited(trace, all_waits), _where_it_went(all_waits), worst]
        parts += [_path(trace, *at)] if at else []
    return "\n\n".join("\n".join(part) for part in (*parts, list(replayed),
                                                    _verdict(trace, all_waits)) if part) + "\n"


# ---- the picture -----------------------------------------------------------------

_COLOURS = "#d1495b", "#2a7fba", "#d98e04", "#3c9d5d", "#8d6bc0", "#1ba3a3"
_WIDE, _HIGH, _LEFT, _POINTS = 720, 260, 64, 180


def picture(trace: Trace, waits: Waits) -> str:
    """A diagram, in SVG, of how long after the first rank the others came to each epoch. It is
    readable on light and on dark pages. Late ranks have colours; if there is none, the three
    that came latest. The others are grey."""
    parts = numpy.array_split((waits.arrive - waits.arrive.min(axis=1, keepdims=True)) / 1e6,
                              min(_POINTS, len(waits.late)))
    late = numpy.array([part.mean(axis=0) for part in parts])
    # The highest half percent of the values are cut off.
    most = max(1e-6, 1.1 * float(numpy.quantile(late, 0.995)))
    named = list(late_ranks(waits)) or list(numpy.argsort(-late.mean(axis=0))[:3])
    colour = dict(zip(named, _COLOURS))
    x = _LEFT + (numpy.arange(len(late)) + 0.5) * (_WIDE - _LEFT - 120) / len(late)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDE} {_HIGH + 60}" '
           'width="100%" font-family="sans-serif" font-size="12" fill="currentColor">'
           "<style>@media (prefers-color-scheme:dark){svg{color:#ddd}}</style>",
           f'<text x="{_LEFT}" y="16">{html.escape(waits.of.name)}: ms after the first rank, '
           "by epoch</text>"]
    for i in range(5):
        y = 30 + _HIGH * (1 - i / 4)
        out.append(f'<path d="M{_LEFT} {y:.0f}H{_WIDE - 120}" stroke="currentColor" '
                   f'stroke-opacity="{0.6 if i == 0 else 0.15}"/><text x="{_LEFT - 6}" '
                   f'y="{y + 4:.0f}" text-anchor="end">{most * i / 4:.3g}</text>')
    numbers = waits.of.epochs[waits.rows]
    out += [f'<text x="{place:.0f}" y="{_HIGH + 48}" text-anchor="middle">{number}</text>'
            for place, number in ((x[0], numbers[0]), (x[-1], numbers[-1]))]
    for rank in sorted(range(waits.of.size), key=lambda rank: rank in colour):
        points = " ".join(f"{a:.0f},{30 + _HIGH * (1 - b / most):.1f}"
                          for a, b in zip(x, numpy.minimum(late[:, rank], most)))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour.get(rank, "#888")}" '
                   f'stroke-width="{2 if rank in colour else 1}"/>')
    for i, (rank, of) in enumerate([*colour.items(), (-1, "#888")]):
        name = "other ranks" if rank < 0 else trace.ranks[waits.of.who[rank]].name
        out.append(f'<text x="{_WIDE - 112}" y="{44 + 18 * i}" fill="{of}">{html.escape(name)}'
                   "</text>")
    return "\n".join([*out, "</svg>"])


def write_page(trace: Trace, said: str, path: str) -> None:
    """Writes the report and the picture as a page of HTML, without scripts."""
    all_waits = all_waits_of(trace)
    with open(path, "w", encoding="utf-8") as out:
        out.write('<!DOCTYPE html><html lang="en"><meta charset="utf-8">'
                  "<title>Where the time went</title><style>:root{color-scheme:light dark}"
                  "body{max-width:60em;margin:2em auto;padding:0 1em;font-family:sans-serif}"
                  "pre{overflow-x:auto}</style><h1>Where the time went</h1>\n"
                  + (picture(trace, all_waits[0]) if all_waits else "")
                  + f"\n<pre>{html.escape(said)}</pre></html>\n")
