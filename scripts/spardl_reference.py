#!/usr/bin/env python3
"""Times a step of SparDL by its authors' own program beside Baton's.

    scripts/spardl_reference.py DIR [--ranks P] [--count N] [--density D]

DIR has the authors' allreducer.py (github.com/MachineLearningSystem/SparDL is
a copy). It imports torch, numpy, scipy and mpi4py. The two take turns: each is
started with P ranks, which take two steps that are not counted, then --steps
with another random gradient each. A step's time is that of its slowest rank,
with selection; the medians over a turn's steps are printed, and their ratio.

Without a GPU the authors' tensors stay where they are, so a step costs them no
transfers.
"""
import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import types

WARM_UP = 2
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", metavar="DIR")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--count", type=int, default=1 << 20, help="elements of f32")
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bench", default=ROOT + "/build/microbench/baton-bench")
    return parser.parse_args()


def load(directory):
    """The authors' module, which expects a GPU."""
    import torch
    if not torch.cuda.is_available():
        torch.Tensor.cuda = lambda tensor, *place, **how: tensor
        torch.cuda.synchronize = lambda *device: None
    sys.path.insert(0, directory)
    import allreducer
    import settings
    settings.logger.disabled = True
    return torch, allreducer


def reference(asked):
    """Runs on each rank of the authors' program. Prints the median in ms on rank 0."""
    import queue
    import threading
    from mpi4py import MPI
    torch, allreducer = load(asked.dir)
    world = MPI.COMM_WORLD
    torch.set_num_threads(1)
    orders, done = queue.Queue(), queue.Queue()
    weights = torch.nn.Parameter(torch.zeros(asked.count))
    with contextlib.redirect_stdout(sys.stderr):
        reducer = allreducer.AllReducer(
            [("weights", weights)], threading.Lock(), threading.Lock(),
            types.SimpleNamespace(name="spardl"), sparse=True,
            density=asked.density, msg_queue=orders, msg_queue2=done)
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(world.rank)
    times = []
    for _ in range(WARM_UP + asked.steps):
        gradient = torch.randn(asked.count).to(device)
        orders.put("weights")
        orders.put("STOP")
        reducer.add_tensor("weights", gradient)
        world.Barrier()
        began = time.perf_counter()
        reducer.run()
        done.get_nowait()
        times.append(world.allreduce(time.perf_counter() - began, MPI.MAX))
    if world.rank == 0:
        print(1e3 * sorted(times[WARM_UP:])[asked.steps // 2])


def run(asked, command):
    mpirun = ["mpirun", "-np", str(asked.ranks), "--oversubscribe",
              "--bind-to", "none"]
    return subprocess.run(mpirun + command, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def baton_ms(asked):
    with tempfile.NamedTemporaryFile("r") as file:
        run(asked, [asked.bench, "sparse", "--algorithm", "spardl",
                    "--bytes", str(4 * asked.count),
                    "--density", str(asked.density),
                    "--repetitions", str(asked.steps), "--json", file.name])
        return json.load(file)[0]["median_us"] / 1e3


def reference_ms(asked):
    text = run(asked, [sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
    return float(text)


def main():
    asked = options()
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        reference(asked)
        return
    for _ in range(asked.turns):
        baton, authors = baton_ms(asked), reference_ms(asked)
        print(f"{asked.ranks} ranks, {asked.count} elements, {asked.density}: "
              f"Baton {baton:.4g} ms, authors {authors:.4g} ms, "
              f"{authors / baton:.3g} times as long", flush=True)


if __name__ == "__main__":
    main()
