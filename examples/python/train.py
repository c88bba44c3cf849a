"""Trains a small CNN on handwritten digits, on the ranks of torchrun or mpirun, without
waiting for late ones.

    scripts/digits.sh                                   # fetches the digits, once
    torchrun --nproc-per-node 4 examples/python/train.py --mode majority --late-ms 50
    mpirun -np 4 python3 examples/python/train.py --mode majority --late-ms 50

    rank 0    backward --> bucket 2, bucket 1, bucket 0 --+
    rank 1    backward --> ...                            +--> one epoch: the mean
    rank 2    late: its gradient goes into a later mean --+

In each step a different rank sleeps --late-ms. With `full` all ranks wait for it.

The rate rises over the first tenth of the steps, and falls to 0 over the others. Late
gradients are of older weights, and momentum keeps them for another ten steps. So the rate
is lower, and there are more steps, than `full` alone would need. Gradients that are still
pending after the last step are lost, but at a rate of nearly 0 they would change little.
"""
import argparse
import gzip
import pathlib
import time

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "build" / "digits.csv.gz"


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", default="full", help="full, solo, majority, quorum:2, "
                        "sparse:0.01, sparse:0.01:majority; gloo: without Baton")
    parser.add_argument("--late-ms", type=float, default=0, help="a different rank in each step")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, default=0.02, help="the highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--digits", default=DIGITS, help="file made by scripts/digits.sh")
    parser.add_argument("--csv", help="file to which each epoch's accuracy and time are appended")
    return parser.parse_args()


given = options()  # before the imports: -h needs none of these packages

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import baton.torch


def load(path):
    """Loads 1,797 images of 8 x 8 pixels. Every fifth is a test image."""
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


def accuracy(network, images, labels):
    with torch.no_grad():
        return 100 * (network(images).argmax(1) == labels).float().mean().item()


def main():
    torch.set_num_threads(1)
    baton.torch.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(given.seed)
    images, labels, test_images, test_labels = load(given.digits)

    hook, group = None, None
    if given.mode == "gloo":
        group = dist.new_group(backend="gloo")
    # A network with buffers, such as BatchNorm's, also needs forward_sync_buffers=False
    # (broadcast_buffers=False before torch 2.15): else all ranks wait for each other in each
    # forward pass.
    model = DistributedDataParallel(network(), process_group=group)
    if given.mode != "gloo":
        hook = baton.torch.DDPHook(mode=given.mode)
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=given.rate, momentum=0.9)
    of_epoch = len(images) // (16 * size)
    last = of_epoch * given.epochs
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(10 * (step + 1) / last, (last - step) / last / 0.9))

    steps = included = 0
    seconds, log = 0, []
    for _ in range(given.epochs):
        began = time.perf_counter()
        order = torch.randperm(len(images))  # the same on all ranks
        for batch in order[:of_epoch * 16 * size].view(-1, size, 16):
            if given.late_ms and steps % size == rank:
                time.sleep(given.late_ms / 1000)
            optimizer.zero_grad()
            mine = batch[rank]
            torch.nn.functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            rate.step()
            steps += 1
            included += hook is None or hook.step.included
        seconds += time.perf_counter() - began
        if given.csv and rank == 0:
            right = accuracy(model.module, test_images, test_labels)
            log.append(f"{given.mode},{given.seed},{steps},{seconds:.3f},{right:.2f}\n")

    right = accuracy(model.module, test_images, test_labels)
    weights = torch.cat([of.detach().view(-1) for of in model.parameters()])
    all_ranks = [torch.empty_like(weights) for _ in range(size)]
    dist.all_gather(all_ranks, weights)
    same = all(torch.equal(other, weights) for other in all_ranks)
    on_time = torch.tensor(included / steps)
    dist.all_reduce(on_time, dist.ReduceOp.AVG)
    if rank == 0:
        print(f"{given.mode}: {size} ranks, {1000 * seconds / steps:.1f} ms a step, "
              f"{100 * on_time:.0f} % of gradients on time, {right:.1f} % correct, "
              f"weights {'the same' if same else 'DIFFERENT'} on all ranks")
        if given.csv:
            with open(given.csv, "a") as file:
                file.writelines(log)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
