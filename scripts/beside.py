"""Compares times of Baton with those of others, in turn; prints microseconds as CSV.

    mpirun -np 4 --bind-to none python3 scripts/beside.py gloo

    gloo      dist.all_reduce with the backends baton and gloo
    mpi4py    Group.allreduce of numpy arrays, and mpi4py's Allreduce
    ddp       a training step of DistributedDataParallel, of three sizes
    late      such a step with 2 M parameters, while one rank in turn is 100 ms late
    sparse    such a step with 2 M parameters, which sends the largest 1 %
    run       start and wait of 8 B, to compare with baton-bench

Ranks begin together. A turn counts with its slowest rank; the output has medians over
the turns. scripts/tables.sh makes the tables of docs/ from the output.
"""
import statistics
import sys
import time

if {"-h", "--help"} & set(sys.argv):
    print(__doc__)
    sys.exit()

import numpy

import baton


def median(turns, **systems):
    """Calls the functions in turn. Returns the medians of their times on the slowest rank."""
    world = baton.Group.world()
    times = {name: [] for name in systems}
    for _ in range(turns):
        for name, turn in systems.items():
            world.barrier()
            times[name].append(world.allreduce(numpy.array(turn(), "f8"), "max"))
    return {name: 1e6 * numpy.median(numpy.stack(of)) for name, of in times.items()}


def of_each(calls, call, begin):
    """Returns a turn in which each call begins after all ranks have arrived."""
    def turn():
        times = []
        for _ in range(calls):
            begin()
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return times
    return turn


def of_all(calls, call):
    """Returns a turn of consecutive calls."""
    def turn():
        began = time.perf_counter()
        for _ in range(calls):
            call()
        return [(time.perf_counter() - began) / calls]
    return turn


def show(point, times):
    world = baton.Group.world()
    if world.rank == 0:
        for system, us in times.items():
            print(f"{world.size},{point},{system},{us:.3g}" if us < 1000 else
                  f"{world.size},{point},{system},{us:.0f}", flush=True)


def gloo():
    dist, torch, of_gloo = with_torch()
    for size in (64, 4096, 65536, 4 << 20):
        tensor = torch.zeros(size // 4)
        calls = 4 if size > 65536 or dist.get_world_size() > 4 else 20
        show(size, median(
            9, gloo=of_each(calls, lambda: dist.all_reduce(tensor, group=of_gloo),
                            dist.barrier),
            baton=of_each(calls, lambda: dist.all_reduce(tensor), dist.barrier)))


def mpi4py():
    from mpi4py import MPI
    world = baton.Group.world()
    for size, calls in ((64, 1000), (4096, 1000), (65536, 100), (4 << 20, 5)):
        a = numpy.zeros(size // 4, "f4")
        show(size, median(41, mpi4py=of_all(calls, lambda: MPI.COMM_WORLD.Allreduce(
            MPI.IN_PLACE, a)), baton=of_all(calls, lambda: world.allreduce(a))))


def run():
    schedule = baton.Group.world().prepare("allreduce", numpy.zeros(2, "f4"))
    show(8, median(41, baton=of_all(1000, schedule.run)))


def with_torch():
    import torch
    import torch.distributed as dist
    import baton.torch
    torch.set_num_threads(1)
    baton.torch.init_process_group()
    return dist, torch, dist.new_group(backend="gloo")


def steps_of(dist, torch, width, group=None, mode=None, late_s=0):
    """Returns a function that makes a number of steps with 3 width^2 parameters."""
    from torch.nn.parallel import DistributedDataParallel
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(3)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    if mode is not None:
        model.register_comm_hook(None, baton.torch.DDPHook(mode))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.ones(16, width)

    def steps(count):
        for step in range(count):
            if step % dist.get_world_size() == dist.get_rank():
                time.sleep(late_s)
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    steps(2)  # DDP rebuilds its buckets after the first step
    return of_all(1, lambda: steps(1)) if late_s == 0 else lambda: [
        of_all(1, lambda: steps(24))()[0] / 24]


def ddp():
    dist, torch, of_gloo = with_torch()
    for name, width, turns in (("0.1 M", 183, 41), ("2 M", 816, 15), ("25 M", 2887, 7)):
        show(name, median(turns, gloo=steps_of(dist, torch, width, of_gloo),
                          baton=steps_of(dist, torch, width, mode="full")))


def late():
    dist, torch, of_gloo = with_torch()
    systems = {mode: steps_of(dist, torch, 816, mode=mode, late_s=0.1)
               for mode in ("full", "majority", "quorum:2", "solo")}
    show("2 M", median(5, gloo=steps_of(dist, torch, 816, of_gloo, late_s=0.1), **systems))


def sparse():
    dist, torch, of_gloo = with_torch()
    show("2 M", median(9, gloo=steps_of(dist, torch, 816, of_gloo),
                       baton=steps_of(dist, torch, 816, mode="sparse:0.01")))


if __name__ == "__main__":
    known = {of.__name__: of for of in (gloo, mpi4py, ddp, late, sparse, run)}
    if sys.argv[1:] == [] or sys.argv[1] not in known:
        sys.exit(__doc__)
    if baton.Group.world().rank == 0:
        print("ranks,point,system,us")
    known[sys.argv[1]]()
