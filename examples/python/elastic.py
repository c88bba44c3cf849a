"""Elastic training without mpirun: a rank dies, the others go on, and a new one takes its place.

    python3 examples/python/elastic.py            starts 4 processes, and later one more

    step      1 ...            20              21 ...           later                 ... 200
    rank 0    gradient --+     gradient --+    gradient --+     +--weights      gradient --+
    rank 1    gradient --+     gradient --+    gradient --+     |  gradient     gradient --+
    rank 2    gradient --+     kill -9    x                     +->new process  gradient --+
    rank 3    gradient --+     gradient --+    gradient --+        gradient     gradient --+
                         v                v               v                                v
                   mean of 4        mean of 3       mean of 3                        mean of 4

The process that joins leaves a note in the folder in which all meet. Each gradient has an
element that says whether its rank has seen the note, so all ranks learn it in the same step.
The lowest rank that has not joined, and so has the weights, sends them to all.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time

if {"-h", "--help"} & set(sys.argv):
    print(__doc__)
    sys.exit()

import numpy

import baton

STEPS, LAST_STEP, RANKS, WEIGHTS = 200, 20, 4, 16


def train(folder, rank):
    """Ranks below RANKS make the first group; any other process joins."""
    note = os.path.join(folder, "note")
    weights, step = numpy.zeros(WEIGHTS), numpy.ones(1, "i8")
    random = numpy.random.default_rng(rank)
    if rank < RANKS:
        group = baton.Group.from_store(folder, rank, RANKS)
    else:
        open(note, "w").close()
        group = baton.Group.join(folder)
        share(group, weights, step)
    while step[0] <= STEPS or group.size < RANKS:
        if rank == 2 and step[0] == LAST_STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)  # as if a step took this long
        x = random.standard_normal((64, WEIGHTS))
        error = x @ (weights - numpy.arange(WEIGHTS))
        seen = group.size < RANKS and os.path.exists(note)
        mean = numpy.append(2 * x.T @ error / len(x), [error @ error / len(x), seen])
        try:
            group.allreduce(mean, "avg")
        except baton.PeerLost:
            group = change(group, group.shrink(timeout=60))
            continue  # with the gradient of the same step
        weights -= 0.02 * mean[:WEIGHTS]
        step += 1
        if group.rank == 0 and step[0] % 20 == 0:
            print(f"step {step[0]}: {group.size} ranks, loss {mean[WEIGHTS]:.3g}", flush=True)
        if mean[-1] > 0:
            group = change(group, group.reconfigure(folder, RANKS))
            share(group, weights, step)
    group.destroy()


def change(old, new):
    old.destroy()
    return new


def share(group, *state):
    root = next(rank for rank in range(group.size) if group.origin(rank) >= 0)
    for each in state:
        group.broadcast(each, root=root)


if len(sys.argv) > 2:
    sys.exit(train(sys.argv[1], int(sys.argv[2])))
with tempfile.TemporaryDirectory() as folder:
    start = [sys.executable, sys.argv[0], folder]
    ranks = [subprocess.Popen([*start, str(rank)]) for rank in range(RANKS)]
    ranks[2].wait()
    ranks[2] = subprocess.Popen([*start, str(RANKS)])
    sys.exit(max(rank.wait() for rank in ranks))
