"""Runs PyTorch's own distributed_test, of torch.testing, on the ranks of one mpirun, with
gloo and with baton.

    mpirun -np 3 python3 python/tests/torchs_own.py [--ends FILE] [TEST...]

Each test has a process group of its own; all ranks say how it has ended there before the
next one. All that runs with gloo is tried with baton. The last line is a row of the table in
docs/torch.md, which `scripts/tables.sh torchs_own` makes. A rank that does not come back from
gloo ends the job: with the same file, which keeps how tests have ended, the next job goes on
with the test after that one.
"""
import argparse
import datetime
import os
import shutil
import signal
import sys
import traceback
import types
import unittest

import numpy
import torch
import torch.distributed as dist

import baton
import baton.torch

RESULTS = ("passed", "skipped", "failed")


def load(world):
    """Returns torch's module of tests and its class, which use baton in place of gloo."""
    folder = f"/tmp/torchs_own.{os.getuid()}"
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(world.size), RANK=str(world.rank),
                      LOCAL_RANK=str(world.rank), TEMP_DIR=folder)
    if world.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name))
    world.barrier()
    try:
        import expecttest  # noqa: F401
    except ImportError:  # torch imports it, but these tests do not use it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase,
                                                          ACCEPT=False)
    from torch.testing._internal.distributed import distributed_test

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        setUpClass = classmethod(lambda cls: None)

    return distributed_test, Tests


def run(test, name, module, backend, world):
    if getattr(getattr(type(test), name), "__unittest_skip__", False):
        raise unittest.SkipTest
    original = dist.init_process_group
    if backend != "baton":
        dist.init_process_group = lambda _, **options: original(backend, **options)
    baton.torch.init_process_group(timeout=datetime.timedelta(seconds=15))
    dist.init_process_group = original
    module.Barrier.barrier_id = 0
    world.barrier()
    if world.rank == 0:
        module.Barrier.init()
    world.barrier()
    torch.manual_seed(1)
    signal.alarm(60)
    getattr(test, name)()


def result_of(test, name, module, backend, world):
    """Returns the worst result that a test has on any rank."""
    result = 0
    try:
        run(test, name, module, backend, world)
    except (unittest.SkipTest, SystemExit):
        result = 1
    except BaseException:
        result = 2
        sys.stderr.write(f"rank {world.rank}: {name}, {backend}\n{traceback.format_exc()}\n")
    signal.alarm(0)
    worst = numpy.array([result], "i4")
    world.allreduce(worst, "max", timeout=120)
    if dist.is_initialized():
        dist.destroy_process_group()
    return RESULTS[worst[0]]


def too_late(*_):
    raise TimeoutError("the test has taken 60 s")


def main():
    world = baton.Group.world()
    torch.set_num_threads(1)
    module, tests = load(world)
    signal.signal(signal.SIGALRM, too_late)
    given = argparse.ArgumentParser()
    given.add_argument("--ends", default=os.devnull)
    given.add_argument("names", nargs="*")
    given = given.parse_args()
    with open(given.ends, "a+", encoding="utf-8") as file:
        file.seek(0)
        ends = {line.split()[0]: tuple(line.split()[1:]) for line in file}
        world.barrier()  # after this all ranks have read it
        for name in given.names or unittest.TestLoader().getTestCaseNames(tests):
            end = []
            for backend in ("gloo", "baton") if name not in ends else ():
                if world.rank == 0:  # the last line of a test counts
                    print(name, *end, "failed", file=file, flush=True)
                test = tests(name)
                test.rank, test.file_name = world.rank, ""
                end.append(result_of(test, name, module, backend, world))
                ends[name] = tuple(end)
                if world.rank == 0:
                    print(name, *end, file=file, flush=True)
                if end == ["skipped"]:
                    break
            if world.rank == 0:
                print(*ends[name], name, flush=True)
    if world.rank == 0:
        ends = list(ends.values())
        count = ends.count
        print(f"| {torch.__version__.split('+')[0]} | {world.size} | "
              f"{len(ends) - count(('skipped',))} | {count(('passed', 'passed'))} | "
              f"{count(('passed', 'failed')) + count(('passed', 'skipped'))} | "
              f"{count(('failed', 'failed'))} | {count(('failed', 'passed')) + count(('failed',))} |",
              flush=True)
    os._exit(0)  # since failed tests have left threads and handles


if __name__ == "__main__":
    main()
