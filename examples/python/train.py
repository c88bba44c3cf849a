"""Trains a small CNN on handwritten digits, on the ranks of mpirun, without waiting for
late ones.

    scripts/digits.sh                                   # fetches the digits, once
    mpirun -np 4 python3 examples/python/train.py --mode majority --late-ms 20

    rank 0    backward --> bucket 2, bucket 1, bucket 0 --+
    rank 1    backward --> ...                            +--> one epoch: the mean
    rank 2    late: its gradient goes into a later mean --+

In each step another rank sleeps --late-ms. With `full` all wait for it.
"""
import argparse
import gzip
import pathlib
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import baton.torch

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "build" / "digits.csv.gz"


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="full", help="full, solo, majority, quorum:2, "
                        "sparse:0.01, sparse:0.01:majority; gloo: without Baton")
    parser.add_argument("--late-ms", type=float, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", default=DIGITS, help="what scripts/digits.sh fetched")
    return parser.parse_args()


def load(path):
    """1,797 images of 8 x 8 pixels, of which every fifth is for the test."""
    with gzip.open(path) as file:
        rows = torch.from_numpy(numpy.loadtxt(file, delimiter=",", dtype="f4"))
    images, labels = rows[:, :64].view(-1, 1, 8, 8) / 16, rows[:, 64].long()
    test = torch.arange(len(rows)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 16, 64), torch.nn.ReLU(),
        torch.nn.Linear(64, 10))


def main():
    given = options()
    torch.set_num_threads(1)
    baton.torch.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(given.seed)
    images, labels, test_images, test_labels = load(given.digits)

    hook, group = None, None
    if given.mode == "gloo":
        group = dist.new_group(backend="gloo")
    # Buffers that DDP sends before each forward pass would make all ranks wait.
    model = DistributedDataParallel(network(), process_group=group, broadcast_buffers=False)
    if given.mode != "gloo":
        hook = baton.torch.DDPHook(mode=given.mode)
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    steps = included = 0
    began = time.perf_counter()
    for _ in range(given.epochs):
        order = torch.randperm(len(images))  # the same on all ranks
        for batch in order[:len(order) // (16 * size) * 16 * size].view(-1, size, 16):
            if given.late_ms and steps % size == rank:
                time.sleep(given.late_ms / 1000)
            optimizer.zero_grad()
            mine = batch[rank]
            torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            steps += 1
            included += hook is None or hook.step.included
    seconds = time.perf_counter() - began

    with torch.no_grad():
        right = (model.module(test_images).argmax(1) == test_labels).float().mean().item()
    weights = torch.cat([of.detach().view(-1) for of in model.parameters()])
    all_ranks = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(all_ranks, weights)
    same = all(torch.equal(other, weights) for other in all_ranks)
    on_time = torch.tensor(included / steps)
    dist.all_reduce(on_time, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"{given.mode}: {size} ranks, {1000 * seconds / steps:.1f} ms a step, "
              f"{100 * on_time:.0f} % of gradients on time, {100 * right:.1f} % right, "
              f"weights {'the same' if same else 'DIFFERENT'} on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
