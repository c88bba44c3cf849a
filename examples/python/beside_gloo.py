"""Prints what dist.all_reduce takes by the backend baton and by gloo, in turn.

    mpirun -np 4 --bind-to none python3 examples/python/beside_gloo.py

Medians of the slowest rank's time, in microseconds; ranks begin together.
"""
import statistics
import time

import torch
import torch.distributed as dist

import baton.torch


def median(group, elements, repeats):
    tensor, times = torch.ones(elements), []
    for _ in range(repeats):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        times.append(time.perf_counter() - began)
        tensor.fill_(1)
    slowest = torch.tensor(times)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return 1e6 * statistics.median(slowest.tolist())


def main():
    torch.set_num_threads(1)
    baton.torch.init_process_group()
    gloo = dist.new_group(backend="gloo")
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} ranks, torch {torch.__version__}\n\n"
              "| bytes | gloo | baton | times as fast |\n|---|---|---|---|")
    for size in (64, 4096, 65536, 4 << 20):
        repeats = 100 if size <= 65536 else 20
        rounds = [(median(gloo, size // 4, repeats), median(None, size // 4, repeats))
                  for _ in range(5)]
        of_gloo, of_baton = map(statistics.median, zip(*rounds))
        if dist.get_rank() == 0:
            print(f"| {size} | {of_gloo:.1f} | {of_baton:.1f} | {of_gloo / of_baton:.1f} |",
                  flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
