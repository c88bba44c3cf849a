"""baton-trace, with synthetic files, whose answers are known, and with the files of a job."""
import json
import pathlib
import subprocess
import sys

import numpy
import pytest

import test_process
from baton import _trace_export, _trace_files as files, _trace_replay, _trace_report
from baton import trace as command
from baton._library import ffi

pytestmark = pytest.mark.one_rank
US = 1000
ZERO = 10**12  # the time at which the synthetic jobs begin


def test_layout():
    for dtype, name in ((files._HEAD, "head"), (files._SCHEDULE, "schedule"),
                        (files._NAME, "name"), (files._RECORD, "record")):
        struct = ffi.typeof(f"baton_trace_{name}_t")
        assert dtype.itemsize == ffi.sizeof(struct)
        if dtype.fields:
            assert [dtype.fields[of][1] for of in dtype.names] == [
                field.offset for _, field in struct.fields]


def record(time, what, **fields):
    made = numpy.zeros((), files._RECORD)
    made["time"], made["what"], made["peer"], made["schedule"] = time, what, -1, 1
    for name, value in fields.items():
        made[name] = value
    return made


def write(folder, rank, size, records, boot=b"boot", clock=lambda time: time, ring=4096, run=0,
          number=0):
    """Writes the trace file of a rank. A ring that is too small has only the last records.
    number: the rank's number in the job."""
    records = numpy.array(records, files._RECORD)
    records["time"] = clock(records["time"].astype("i8"))
    head = numpy.zeros((), files._HEAD)
    index = numpy.arange(len(records))
    records["lap"] = index // ring % 256
    kept = numpy.zeros(ring, files._RECORD)
    kept[index % ring] = records
    for name, value in dict(magic=files.MAGIC, format=files.FORMATS[-1], schedules=2, names=3,
                            records=ring, process=100 + rank, written=len(records),
                            monotonic=ZERO, realtime=1796023254528829170 + run, host=boot + b".host",
                            boot=boot).items():
        head[name] = value
    schedules = numpy.zeros(2, files._SCHEDULE)
    schedules[0] = (77 + run, 1, rank, size, 0, 9, b"gradients", b"")
    schedules[1] = (78 if number else 0, 1, number, 99, 0, 9, b"all", b"")
    path = pathlib.Path(folder) / f"host.{rank}{run or ''}.trace"
    path.write_bytes(head.tobytes() + schedules.tobytes()
                     + numpy.array([b"compute", b"", b"other"], files._NAME).tobytes()
                     + kept.tobytes())
    return path


def job(folder, arrivals, delay=20 * US, absent=(), clocks=None, **options):
    """Writes the files of a job. In each epoch each rank sends to all others when it arrives, at
    the time in `arrivals`. Returns the times at which the epochs end on each rank. Ranks in
    `absent` do not arrive in the last epoch, but their engines take part in it."""
    epochs, size = arrivals.shape
    random = numpy.random.default_rng(3)
    out = [[record(ZERO, files.SPAN, schedule=0)] for _ in range(size)]
    at, ends = numpy.full(size, ZERO), []
    for epoch in range(1, epochs + 1):
        come = at + arrivals[epoch - 1]
        there = [rank for rank in range(size) if epoch < epochs or rank not in absent]
        end = come.copy()
        for rank in range(size):
            out[rank] += [record(at[rank], files.BEGIN, epoch=epoch)] * (rank not in there)
        for rank in there:
            out[rank] += [record(come[rank], what, epoch=epoch) for what in (
                [files.START, files.BEGIN, files.COME] if rank % 2 else [files.STARTED])]
            out[rank] += [record(come[rank], files.SEND, epoch=epoch, peer=peer, value=400)
                          for peer in range(size) if peer != rank]
        for rank in there:
            took = random.integers(delay, 2 * delay, size)
            came = {peer: max(come[peer] + took[peer], come[rank] + US) for peer in there
                    if peer != rank}
            out[rank] += [record(time, files.RECEIVED, epoch=epoch, peer=peer, value=400)
                          for peer, time in sorted(came.items(), key=lambda each: each[1])]
            end[rank] = max(came.values()) + 3 * US
            if len(there) == size:
                out[rank] += [record(end[rank], files.WORK, epoch=epoch, value=2 * US),
                              record(end[rank], files.END, epoch=epoch, peer=0),
                              record(end[rank], files.WAIT, epoch=epoch, peer=0,
                                     value=end[rank] - come[rank])]
        at = end
        ends.append(end)
    for rank in range(size):
        boot, clock = (clocks or {}).get(rank, (b"boot", lambda time: time))
        write(folder, rank, size, out[rank], boot, clock, **options)
    return numpy.array(ends)


def late_third(epochs=40, size=4):
    arrivals = numpy.random.default_rng(1).integers(100 * US, 120 * US, (epochs, size))
    arrivals[:, 2] += 900 * US
    return arrivals


def test_report(tmp_path):
    ends = job(tmp_path, late_third())
    trace = files.read(tmp_path)
    waits = _trace_report.waits_of(trace.schedules[0])
    come = waits.arrive
    assert len(waits.rows) == 40 and (trace.schedules[0].end == ends).all()
    assert (waits.blamed == 2).all() and (waits.wait == come[:, 2:3] - come).all()
    assert list(_trace_report.late_ranks(waits)) == [2]
    assert (_trace_report.between(waits) == late_third()[1:]).all()
    said = _trace_report.text(trace)
    assert "rank 2 is late by 0.88 ms" in said and "comes last to 100 % of epochs" in said
    assert "4 ranks on 1 host, 0.04" in said
    row = next(line for line in said.splitlines() if line.startswith("gradients")).split()
    assert row[1:3] == ["40", "1200"] and row[4] == f"{waits.wait.mean() / 1e6:.3f}"
    assert "rank 0" in said.split("for all\n")[1].split("\n")[0]
    page = tmp_path / "page.html"
    assert command.main([str(tmp_path), "--html", str(page)]) == 0
    assert "<svg" in page.read_text() and "rank 2 is late" in page.read_text()
    (tmp_path / "host.1.trace").unlink()
    assert _trace_report.text(files.read(tmp_path)).endswith("on all of its ranks\n")


def test_no_rank_is_late(tmp_path):
    job(tmp_path, numpy.random.default_rng(5).integers(100 * US, 900 * US, (60, 4)))
    assert _trace_report.text(files.read(tmp_path)).endswith("\nno rank is late\n")


def test_critical_path(tmp_path):
    ends = job(tmp_path, late_third())
    trace = files.read(tmp_path)
    for epoch in range(1, 41):
        steps = _trace_report.critical_path(trace, 0, epoch)
        # The late rank's message is the last one on the rank that ends last.
        assert steps[0].begin == trace.schedules[0].come[epoch - 1, 2] and steps[0].rank == 2
        assert steps[-1].end == ends[epoch - 1].max()
        assert [step.sender for step in steps] in ([None, 2, None], [None])
        assert all(a.end == b.begin for a, b in zip(steps, steps[1:]))


def test_critical_path_begins_with_a_late_receiver(tmp_path):
    """The job is a broadcast. Its message was sent long before the receiver arrived."""
    for rank, what, peer, came in (0, files.SEND, 1, 0), (1, files.RECEIVED, 0, 500):
        write(tmp_path, rank, 2, [
            record(ZERO + came * US, of, epoch=1) for of in (files.START, files.BEGIN, files.COME)
        ] + [record(ZERO + (came + 1) * US, what, epoch=1, peer=peer, value=8),
             record(ZERO + (came + 10) * US, files.END, epoch=1, peer=0)])
    trace = files.read(tmp_path)
    assert _trace_report.critical_path(trace, 0, 1) == [
        _trace_report.Step(ZERO + 500 * US, ZERO + 510 * US, 1)]
    assert not _trace_report.waits_of(trace.schedules[0]).wait.any()  # The root did not wait.


@pytest.mark.parametrize("offset, drift", [(0, 0), (7 * 10**9, 40e-6), (-8 * 10**11, -90e-6)])
def test_clocks(tmp_path, offset, drift):
    def clock(time):
        return time + offset + numpy.rint((time - ZERO) * drift).astype("i8")

    job(tmp_path, 50 * late_third(200), ring=8192,
        clocks={2: (b"second", clock), 3: (b"second", clock)})
    trace = files.read(tmp_path)
    assert len(trace.clocks) == 2 and trace.clocks[1].host == "second.host"
    assert len(trace.sends) == 200 * 12 and trace.backward == 0
    records = trace.records[trace.records["who"] >= 2]
    true = numpy.array([record["at"] for record in records])
    time = numpy.rint((records["time"].astype("i8") - ZERO - offset) / (1 + drift)) + ZERO
    # In both directions messages take 20 to 40 us.
    assert numpy.abs(true - time).max() < trace.clocks[1].error + 2 < 30 * US
    assert "the clock of second.host is ahead of boot.host's by" in _trace_report.text(trace)


def test_clocks_without_messages(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, 2, [record(ZERO + 5, files.START, epoch=1)], b"%d" % rank)
    trace = files.read(tmp_path)
    assert trace.clocks[1].error is None and (trace.records["at"] == ZERO + 5).all()


def test_torn_records(tmp_path):
    path = write(tmp_path, 0, 1, [record(ZERO + i, files.SLEEP) for i in range(100)], ring=64)
    assert list(files.read(tmp_path).records["time"] - ZERO) == list(range(36, 100))
    raw = numpy.fromfile(path, "u1")
    records = raw[files._HEAD.itemsize + 2 * 128 + 3 * 48:].view(files._RECORD)
    records["what"][98 % 64] = 0  # this record is being written
    records["lap"][97 % 64] = 7  # this record was overwritten
    raw[:files._HEAD.itemsize].view(files._HEAD)["written"] = 102  # two more are being written
    raw.tofile(path)
    left = [*range(38, 97), 99]
    assert list(files.read(tmp_path).records["time"] - ZERO) == left
    path.write_bytes(raw.tobytes()[:-40 * 20 - 7])
    assert list(files.read(tmp_path).records["time"] - ZERO) == [
        i for i in left if i % 64 < 43]
    (tmp_path / "other.trace").write_bytes(b"x" * 1000)
    other, cut = files.read(tmp_path).skipped
    assert "host.0.trace: its end" in cut and "other.trace: it is no trace" in other
    path.write_bytes(b"")
    assert command.main([str(tmp_path)]) == 1
    with pytest.raises(ValueError, match="has no trace"):
        files.read(tmp_path)


def test_killed_rank(tmp_path, capsys):
    job(tmp_path, late_third(), absent=[1])
    assert command.main([str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert 'epoch 40 of "gradients": 3 of its ranks wait; not there: rank 1' in said
    (tmp_path / "host.1.trace").unlink()  # this file is lost, too
    assert command.main([str(tmp_path)]) == 0
    assert "not there: rank 1 of it (no file)" in capsys.readouterr().out


def test_hang(tmp_path):
    """The ranks of the schedule have different numbers in the job."""
    come = [record(ZERO, what, epoch=1) for what in (files.START, files.COME)]
    for rank, records in (0, come), (1, []):
        write(tmp_path, rank, 2, records, number=5 + rank)
    said = 'epoch 1 of "gradients": %d of its ranks wait; '
    assert _trace_report.text(files.read(tmp_path)).endswith(said % 1 + "not there: rank 6\n")
    write(tmp_path, 1, 2, come, number=6)
    assert _trace_report.text(files.read(tmp_path)).endswith(said % 2 + "all have come\n")


def test_earlier_job(tmp_path):
    """Two jobs have recorded into a folder, the second with fewer ranks."""
    for run in 0, 1:
        job(tmp_path, late_third(20 + run, 4 - run), run=run)
    trace = files.read(tmp_path)
    assert [len(trace.ranks), len(trace.skipped), len(trace.schedules[0].epochs)] == [3, 4, 21]
    assert "host.0.trace: it is of another job" in trace.skipped[0]


def test_timeline(tmp_path):
    job(tmp_path, late_third(), absent=[1])
    path = tmp_path / "job.json"
    assert command.main([str(tmp_path), "-o", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    by_phase = {phase: [event for event in events if event["ph"] == phase] for phase in "XsfMi"}
    assert sum(map(len, by_phase.values())) == len(events)
    assert {event["args"]["name"] for event in by_phase["M"] if event["name"] == "process_name"
            } == {f"rank {rank} (boot.host, {100 + rank})" for rank in range(4)}
    slices = by_phase["X"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in slices)
    names = [event["name"] for event in slices]
    assert names.count("gradients 1") == 4 and names.count("gradients 40") == 4
    assert names.count("compute") == 4 and names.count("wait gradients") == 39 * 4
    assert len(by_phase["s"]) == len(by_phase["f"]) == 39 * 12 + 6
    ends = {event["id"]: event for event in by_phase["f"]}
    for sent in by_phase["s"]:
        came = ends[sent["id"]]
        assert came["ts"] >= sent["ts"] and came["tid"] == sent["tid"] and came["bp"] == "e"
    epochs = {}
    for event in slices:
        epochs.setdefault((event["pid"], event["tid"]), []).append(
            (event["ts"], event["ts"] + event["dur"]))
    for event in by_phase["s"] + by_phase["f"]:  # Each end of an arrow must lie in a slice.
        assert any(begin <= event["ts"] <= end
                   for begin, end in epochs[event["pid"], event["tid"]])


def test_flight_recorder(tmp_path):
    builder = pytest.importorskip("torch.distributed.flight_recorder.components.builder")
    from torch.distributed.flight_recorder.components import config_manager, loader
    job(tmp_path, late_third(), absent=[1])
    dumps = tmp_path / "dumps"
    dumps.mkdir()
    assert command.main([str(tmp_path), "--flight-recorder", f"{dumps}/job_"]) == 0
    given = config_manager.JobConfig().parse_args([str(dumps), "-p", "job_"])
    built = builder.build_db(*loader.read_dir(given)[:1], given, "2.4")
    assert [group.desc for group in built.groups] == ["gradients"]
    assert len(built.collectives) == 40 and built.collectives[-1].missing_ranks == {1}


def test_replay(tmp_path):
    """In each epoch one random rank is late. Modes differ in how many ranks they wait for."""
    arrivals = numpy.full((80, 4), 200 * US)
    arrivals[numpy.arange(80), numpy.random.default_rng(2).integers(0, 4, 80)] = 1000 * US
    job(tmp_path, arrivals)
    trace = files.read(tmp_path)
    waits = _trace_report.waits_of(trace.schedules[0])
    steps, recorded_ms = _trace_replay.recorded(waits)
    count, link = _trace_replay.link_of(trace, waits)
    assert (steps.compute == arrivals[1:] / US).all() and not steps.overlap.any()
    took = {mode: _trace_replay.replay(steps, count, link, mode=mode)
            for mode in ("full", "quorum:3", "solo")}
    assert took["full"].slowest_ms == pytest.approx(recorded_ms, rel=0.02)
    # The work of rank r alone takes the sum of its arrivals.
    least = arrivals[1:].sum(axis=0).max() / 79e6
    assert least <= took["solo"].slowest_ms < took["quorum:3"].slowest_ms < 0.75
    assert took["full"].in_time == 4 and took["full"].staleness == 0 < took["solo"].staleness
    assert took["quorum:3"].in_time >= 3
    said = _trace_replay.lines(trace)
    assert said[2].split() == ["recorded"] + 2 * [f"{recorded_ms:.3f}"]
    path = tmp_path / "job.json"
    assert command.main([str(tmp_path), "-o", str(path), "--simulate", "solo"]) == 0
    slices = [event for event in json.loads(path.read_text())["traceEvents"]
              if event["ph"] == "X" and event["pid"] > 4]
    assert len([event for event in slices if event["name"] == "wait"]) == 4 * 79
    ends = [max(event["ts"] + event["dur"] for event in slices if event["pid"] == 5 + rank)
            for rank in range(4)]
    began = (steps.began - trace.records["at"].min()) / 1e3
    assert max(ends) - began == pytest.approx(took["solo"].slowest_ms * 79e3, rel=0.001)
    assert command.main([str(tmp_path), "-o", str(path), "--simulate", "sole"]) == 1
    with pytest.raises(SystemExit):
        command.main([str(tmp_path), "--simulate", "solo"])


def test_two_timelines(tmp_path):
    """The other timeline has the name of its file, and begins when the last rank has come."""
    job(tmp_path, late_third())
    waits = _trace_report.waits_of(files.read(tmp_path).schedules[0])
    begins = (waits.last - ZERO) / 1e3
    path, both = tmp_path / "simulated.json", tmp_path / "both.json"
    other = [{"ph": "X", "pid": rank, "tid": 0, "name": "send", "ts": 3 + rank, "dur": 5}
             for rank in range(4)]
    title = {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "rank 0"}}
    for written in other, {"traceEvents": [title, *other]}:
        path.write_text(json.dumps(written))
        for epoch, at in ((7, begins[6]), (None, begins[numpy.argsort(waits.own)[20]])):
            options = ["--epoch", str(epoch)] if epoch else []
            assert command.main([str(tmp_path), "-o", str(both), "--with", str(path)]
                                + options) == 0
            made = json.loads(both.read_text())["traceEvents"]
            names = {event["pid"]: event["args"]["name"] for event in made
                     if event["name"] == "process_name"}
            moved = [event for event in made if names[event["pid"]].startswith("simulated: ")]
            assert sorted(names.values())[0] == "run: rank 0 (boot.host, 100)"
            assert sorted(names.values())[4:] == [f"simulated: rank {rank}" for rank in range(4)]
            assert [(event["ts"], event["dur"]) for event in moved if event["ph"] == "X"] == [
                (pytest.approx(at + rank), 5) for rank in range(4)]
    to = ["-o", str(both), "--with", str(path)]
    assert command.main([str(tmp_path), *to, "--epoch", "41"]) == 1
    for wrong in "", "{}", "[]", '[{"ph": "X"}]':
        path.write_text(wrong)
        assert command.main([str(tmp_path), *to]) == 1
    with pytest.raises(SystemExit):
        command.main([str(tmp_path), "--with", str(path)])


@pytest.mark.skipif(test_process.OPEN_MPI is False, reason="there is no Open MPI")
def test_job(tmp_path):
    """The trace of a job with a late rank names the rank, and has each message that was counted."""
    status, said = test_process.job(4, f"""
        baton.trace_start("{tmp_path}")
        group = baton.Group.world()
        gradients = group.prepare("allreduce", numpy.ones(1000, "f4"), name="gradients")
        for step in range(60):
            with baton.span("compute"):
                time.sleep(0.02 if group.rank == 2 else 0.002)
            gradients.start()
            gradients.wait()
        say("sent", group.rank, *gradients.sent)
        """)
    assert status == 0, said
    done = subprocess.run([sys.executable, "-m", "baton.trace", str(tmp_path)], text=True,
                          capture_output=True)
    assert done.returncode == 0 and "rank 2 is late by" in done.stdout, done.stdout + done.stderr
    trace = files.read(tmp_path)
    schedule = next(of for of in trace.schedules if of.name == "gradients")
    for rank in range(4):
        sent = f"sent {rank} {int(schedule.messages[:, rank].sum())} " \
               f"{int(schedule.bytes[:, rank].sum())}"
        assert sent in said
    assert trace.backward == 0 and len(trace.sends) == (trace.records["what"] == files.SEND).sum()
    names = [event["name"] for event in _trace_export._Timeline(trace).threads()]
    assert names.count("compute") == 240
