"""Runs PyTorch's own distributed_test, of torch.testing, on the ranks of one mpirun.

    mpirun -np 3 python3 python/tests/torchs_own.py baton [TEST...]
    mpirun -np 3 python3 python/tests/torchs_own.py gloo

Each test has a process group of its own; all ranks say how it has ended there before the
next one. Tests that torch has for gloo alone are tried with baton, too, when they are named.
"""
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


def load(backend, world):
    """The class of torch's tests, prepared for a backend that torch does not know."""
    folder = f"/tmp/torchs_own.{backend}.{os.getuid()}"
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(world.size), RANK=str(world.rank),
                      LOCAL_RANK=str(world.rank), TEMP_DIR=folder)
    if world.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("barrier", "test_dir", "init_dir"):
            os.makedirs(os.path.join(folder, name))
    world.barrier()
    try:
        import expecttest  # noqa: F401
    except ImportError:  # what these tests do not use of it
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase,
                                                          ACCEPT=False)
    from torch.testing._internal import common_distributed
    features = common_distributed.DistTestCases.backend_feature
    features["ddp"].add("baton")
    features["subgroup"].add("baton")
    from torch.testing._internal.distributed import distributed_test

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        setUpClass = classmethod(lambda cls: None)

    return distributed_test, Tests


def run(test, name, module, backend, named, world):
    if not named and getattr(getattr(type(test), name), "__unittest_skip__", False):
        raise unittest.SkipTest
    if named:
        module.BACKEND = "gloo"  # what the tests do then is of the CPU
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
    signal.alarm(60)
    getattr(test, name)()


def too_late(*_):
    raise TimeoutError("the test has taken 60 s")


def main():
    backend, named = sys.argv[1], sys.argv[2:]
    world, counts = baton.Group.world(), dict.fromkeys(RESULTS, 0)
    torch.set_num_threads(1)
    module, tests = load(backend, world)
    signal.signal(signal.SIGALRM, too_late)
    for name in named or unittest.TestLoader().getTestCaseNames(tests):
        test, result = tests(name), 0
        test.rank, test.file_name = world.rank, ""
        try:
            run(test, name, module, backend, named, world)
        except (unittest.SkipTest, SystemExit):
            result = 1
        except BaseException:
            result = 2
            sys.stderr.write(f"rank {world.rank}: {name}\n{traceback.format_exc()}\n")
        signal.alarm(0)
        worst = numpy.array([result], "i4")
        world.allreduce(worst, "max", timeout=120)
        if dist.is_initialized():
            dist.destroy_process_group()
        counts[RESULTS[worst[0]]] += 1
        if world.rank == 0:
            print(RESULTS[worst[0]], name, flush=True)
    if world.rank == 0:
        print(f"{backend}, {world.size} ranks:", counts, flush=True)
    os._exit(0)  # tests that failed have left threads and handles


if __name__ == "__main__":
    main()
