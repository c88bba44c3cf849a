"""The reader of traces, on files whose contents are known."""
import json
import subprocess
import sys

import numpy
import pytest

from baton import trace

pytestmark = pytest.mark.one_rank

EPOCHS = 200
OFFSET, DRIFT = 7_000_000, 5e-5


def clock(rank, ns):
    """What the host of rank 1 shows; its clock is ahead of rank 0's, and runs faster."""
    return int(ns if rank == 0 else ns + OFFSET + DRIFT * ns)


def write(folder, rank, records, laps=0):
    """A file of rank `rank` of 2, on a host of its own."""
    head = numpy.zeros(1, trace._HEAD)
    schedule = numpy.zeros(1, trace._SCHEDULE)
    ring = numpy.zeros(len(records), trace._RECORD)
    for field, value in dict(magic=trace._MAGIC, format=trace._FORMAT, schedules=1, names=1,
                             records=len(ring), process=100 + rank, host=f"h{rank}".encode(),
                             written=len(ring) * (laps + 1), boot=f"boot{rank}".encode()).items():
        head[field] = value
    for field, value in dict(key=9, rank=rank, size=2, name=b"sum").items():
        schedule[field] = value
    for i, record in enumerate(records):
        ring[i] = (clock(rank, record[0]), *record[1:8], laps, record[8])
    names = numpy.zeros(1, [("name", "S48")])
    (folder / f"h{rank}.{100 + rank}.trace").write_bytes(
        b"".join(part.tobytes() for part in (head, schedule, names, ring)))


def exchange(rank):
    """A millisecond's computation, on rank 1 of 5 in epochs divisible by 4, and a message
    each way, which takes from 20 to 60 us."""
    records = []
    random = numpy.random.default_rng(1)
    for epoch in range(1, EPOCHS + 1):
        base = epoch * 10_000_000
        begin = [base + 1_000_000, base + (5_000_000 if epoch % 4 == 0 else 1_000_000)]
        arrival = [begin[0] + int(random.integers(20_000, 60_000)),
                   begin[1] + int(random.integers(20_000, 60_000))]
        end = max(arrival)
        for at, value, peer, what in ((begin[rank], 0, -1, trace._BEGIN),
                                      (begin[rank], 0, -1, trace._COME),
                                      (begin[rank], 8, 1 - rank, trace._SEND),
                                      (max(arrival[1 - rank], begin[rank]), 8, 1 - rank,
                                       trace._RECEIVED),
                                      (end, 0, 0, trace._END)):
            records.append((at, value, epoch, 7, 0, 0, peer, 1, what))
    return records


@pytest.fixture
def job(tmp_path):
    for rank in range(2):
        write(tmp_path, rank, exchange(rank))
    return tmp_path


def test_clocks_of_hosts_are_aligned(job):
    read = trace.Trace(job)
    assert len(read.arrivals) == 2 * EPOCHS
    for message, file, record in read.arrivals:
        assert record["time_ns"] >= read.sends[message][1]["time_ns"]
    error = read.files[1].error_ns
    assert 0 < error < 50_000
    truth = numpy.array([record[0] for record in exchange(1)])
    assert numpy.abs(read.files[1].records["time_ns"].astype("i8") - truth).max() <= error + 1


def test_the_report_names_who_was_late(job):
    text = trace.report(trace.Trace(job))
    assert "clock of rank 1, host h1: error" in text
    assert f'"sum": {EPOCHS} epochs, 2 ranks' in text
    late = [line.split() for line in text.splitlines() if line.startswith("     1 ")]
    assert float(late[0][1]) == pytest.approx(1, abs=0.05)  # a quarter of 4 ms
    assert "worst epochs: " in text and "(rank 1, 4.0" in text


def test_a_timeline_has_an_arrow_for_each_message(job, tmp_path):
    file = tmp_path / "job.json"
    out = subprocess.run([sys.executable, "-m", "baton.trace", str(job), "-o", str(file)],
                         capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    events = json.loads(file.read_text())["traceEvents"]
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert begins.keys() == ends.keys() and len(begins) == 2 * EPOCHS
    assert all(ends[i]["ts"] >= begins[i]["ts"] for i in begins)
    assert {e["pid"] for e in events} == {0, 1}
    assert sum(e["ph"] == "X" and e["name"].startswith("sum ") for e in events) == 2 * EPOCHS


def test_records_that_are_not_whole_are_left_out(tmp_path):
    records = exchange(0)[:20]
    records[3] = records[3][:8] + (trace._NONE,)
    write(tmp_path, 0, records, laps=3)
    file = next(tmp_path.glob("*.trace"))
    assert len(trace.File(file).records) == 19
    ring = numpy.zeros(1, trace._RECORD).itemsize
    raw = bytearray(file.read_bytes())
    raw[-2] = 2  # the last record is of the lap before
    file.write_bytes(raw)
    assert ring == 40 and len(trace.File(file).records) == 18


@pytest.mark.parametrize("raw", [b"", b"x" * 5000])
def test_other_files_are_refused(tmp_path, raw):
    (tmp_path / "a.trace").write_bytes(raw)
    with pytest.raises(ValueError, match="is no trace"):
        trace.Trace(tmp_path)
    with pytest.raises(ValueError, match="there is no file"):
        trace.Trace(tmp_path / "elsewhere")
    assert trace.main([str(tmp_path)]) == 1
