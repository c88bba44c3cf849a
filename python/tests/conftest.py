"""Each rank of one mpirun runs the same tests. A test that fails ends the job at once, since
the other ranks would wait for its rank."""
import os
import sys

import pytest

import baton

world = baton.Group.world()


@pytest.fixture(scope="session")
def group():
    return world


def pytest_runtest_logreport(report):
    if report.failed and world.size > 1:
        sys.stderr.write(f"rank {world.rank}: {report.nodeid}\n{report.longreprtext}\n"
                         f"{report.capstdout}{report.capstderr}\n")
        sys.stderr.flush()
        os._exit(1)


def pytest_collection_modifyitems(items):
    for item in items:
        one = item.get_closest_marker("one_rank")
        if one is not None and world.size > 1:
            item.add_marker(pytest.mark.skip(reason="one rank is enough"))
