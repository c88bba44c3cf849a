"""Processes that use the library and are interrupted, fork, or end. Each program is a job of
its own, with a time limit, since none may hang."""
import os
import shutil
import socket
import subprocess
import sys
import textwrap

import pytest

from baton import _library

pytestmark = [
    pytest.mark.one_rank,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun"),
]
START = """
import gc, os, signal, sys, threading, time
import numpy
import baton

def say(*words):  # with one write, since all ranks write to one pipe
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def told(word, kind, function, *given, **options):
    try:
        function(*given, **options)
    except kind as error:
        say(word, error)
        return error
"""
OPEN_MPI = "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True,
                                        text=True).stdout if shutil.which("mpirun") else False


def job(ranks, program, *options, limit=60):
    """Runs a program on ranks. Returns its exit status, and the text that it printed."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "MPI_"))}
    kept.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    options = [*(("--oversubscribe", "--bind-to", "none") if OPEN_MPI else ()), *options]
    done = subprocess.run(
        ["timeout", "-k", "2", str(limit), "mpirun", *options, "-np", str(ranks),
         sys.executable, "-c", START + textwrap.dedent(program)],
        env=kept, capture_output=True, text=True)
    assert done.returncode not in (124, 137), "it hung:\n" + done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


WAITS = {
    "schedule": "a = group.prepare('allreduce', numpy.ones(4))\na.start()\na.wait()",
    "now": "group.allreduce(numpy.ones(4))",
    "timeout": "group.allreduce(numpy.ones(4), timeout=100)",
    "graph": """g = baton.Graph(group)
g.collective('barrier')
g.commit().run()""",
    "partial": """p = baton.Partial(group, 4, mode='full')
p.contribute(numpy.ones(4, 'f4'))
p.start()
p.wait()""",
    "sparse": "s = baton.Sparse(group, 4, k=1)\ns.start(numpy.ones(4, 'f4'))\ns.wait()",
    "recover": "group.recover()",
    "shrink": "group.shrink()",
}


def test_ctrl_c_ends_any_wait():
    """Rank 1 never starts. Other threads wait, too, and one of them drives the engine."""
    program = f"""
world = baton.Group.world()
if world.rank == 1:
    kept = baton.Sparse(world.sub([0, 1], "sparse"), 4, k=1)
    time.sleep(100)
for i in range(3):
    total = world.sub([0, 1], str(i)).prepare("allreduce", numpy.ones(4))
    threading.Thread(target=total.run, daemon=True).start()
for wait, code in {WAITS!r}.items():
    group = world.sub([0, 1], wait)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        exec(code)
    except KeyboardInterrupt:
        say("interrupted", wait)
os._exit(0)
"""
    text = job(2, program)[1]
    assert text.count("interrupted") == len(WAITS), text


def test_ctrl_c_cancels(tmp_path):
    program = f"""
        group, cancelled = baton.Group.world(), "{tmp_path}/cancelled"
        a = group.prepare("allreduce", numpy.ones(4))
        if group.rank == 0:
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            a.start()
            told("interrupted", KeyboardInterrupt, a.wait)
            say(a.failure.status)
            open(cancelled, "x").close()
        else:
            while not os.path.exists(cancelled):
                time.sleep(0.01)
            told("told:", (baton.Cancelled, baton.Failed), a.run)
        group.recover(20)
        a.run()
        say("goes on", a.epoch)
    """
    code, text = job(2, program)
    assert code == 0 and text.count("goes on 1") == 2, text
    assert "interrupted" in text and "-12" in text and "told: " in text


def test_exit_without_destroy():
    program = """
        group = baton.Group.world()
        kept = [group.prepare("allreduce", numpy.ones(4)) for _ in range(3)]
        partial = baton.Partial(group, 4, mode="full")
        sparse = baton.Sparse(group, 100, k=3)
        sub = group.sub(range(group.size))
        sub.allreduce(numpy.ones(3))
        graph = baton.Graph(sub)
        graph.call(lambda call: None)
        graph.commit().run()
        for a in kept:
            a.run()
        group.sub(range(group.size)).allreduce(numpy.ones(3))
        gc.collect()  # collects the group, to which nothing refers
        say("done")
    """
    for ranks in (1, 3):
        code, text = job(ranks, program)
        assert code == 0 and text.count("done") == ranks, text
        assert "destroy" not in text and "Error" not in text, text


def test_exit_while_an_epoch_runs():
    program = """
        group = baton.Group.world()
        a = group.prepare("allreduce", numpy.ones(4))
        a.start()
        say("started")
    """
    code, text = job(2, program)
    assert code == 0 and text.count("started") == 2, text


def test_an_exception_on_one_rank_ends_the_job():
    program = """
        group = baton.Group.world()
        group.barrier()
        if group.rank == 1:
            raise LookupError("nobody catches this")
        group.allreduce(numpy.ones(4))
    """
    code, text = job(3, program)
    assert code != 0 and "nobody catches this" in text


def test_sys_exit_of_one_rank():
    program = """
        group = baton.Group.world()
        group.barrier()
        if group.rank == 1:
            sys.exit(3)
        told("told:", baton.Error, group.allreduce, numpy.ones(4))
    """
    code, text = job(2, program, limit=100)
    assert code != 0 and "told:" in text, text


def test_fork():
    program = """
        group = baton.Group.world()
        group.barrier()
        child = os.fork()
        if child == 0:
            told("child:", baton.State, group.allreduce, numpy.ones(4))
            del group
            gc.collect()
            sys.exit(0)  # runs the functions that are registered with atexit
        say("status", os.waitpid(child, 0)[1])
        say("sum", group.allreduce(numpy.ones(1))[0])
    """
    code, text = job(2, program)
    assert code == 0, text
    assert text.count("child:") == text.count("status 0") == text.count("sum 2.0") == 2, text


def test_fork_before_the_first_group():
    program = """
        child = os.fork()
        if child == 0:
            say("child", baton.Group.alone().allreduce(numpy.ones(1))[0])
            sys.exit(0)
        say("status", os.waitpid(child, 0)[1])
        say("parent", baton.allreduce(numpy.ones(1))[0])
    """
    code, text = job(1, program)
    assert code == 0 and all(each in text for each in ("child 1", "status 0", "parent 1"))


def test_fork_while_another_thread_makes_the_first_group():
    program = """
        from baton import _handles
        initialise, makes = _handles.initialise_mpi, threading.Event()

        def slowly():
            makes.set()
            time.sleep(0.2)
            initialise()

        _handles.initialise_mpi = slowly
        threading.Thread(target=baton.Group.world).start()
        makes.wait()
        child = os.fork()
        if child == 0:
            told("child:", baton.State, baton.allreduce, numpy.ones(1))
            sys.exit(0)
        say("status", os.waitpid(child, 0)[1])
        say("sum", baton.allreduce(numpy.ones(1))[0])
    """
    code, text = job(2, program)
    assert code == 0, text
    assert text.count("child:") == text.count("status 0") == text.count("sum 2.0") == 2, text


def test_two_threads_make_the_first_group():
    """Both threads get the same engine and the same world."""
    program = """
        from baton import _handles
        lib, opened = _handles.lib, []

        class Slow:
            def __getattr__(self, name):
                return getattr(lib, name)

            def baton_engine_open(self, *given):
                opened.append(1)
                time.sleep(0.2)
                return lib.baton_engine_open(*given)

        def twice(make):
            made = []
            threads = [threading.Thread(target=lambda: made.append(make())) for _ in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            return made

        _handles.lib = Slow()
        twice(baton.Group.alone)
        first, second = twice(baton.Group.world)
        say("engines", len(opened), "one world", first is second)
    """
    code, text = job(1, program)
    assert code == 0 and "engines 1 one world True" in text, text


def test_calls_may_not_wait():
    program = """
        group = baton.Group.alone()
        graph = baton.Graph(group)
        graph.call(lambda call: group.allreduce(numpy.ones(1)))
        graph.commit()
        say("cause", type(told("failed:", baton.Failed, graph.run).__cause__).__name__)
        group.recover()
        graph.destroy()
        say("sum", group.allreduce(numpy.ones(1))[0])
    """
    code, text = job(1, program)
    assert code == 0 and "cause State" in text and "sum 1" in text, text


def test_world_again():
    program = """
        for _ in range(3):
            with baton.Group.world() as group:
                a = group.prepare("allreduce", numpy.ones(1))
                a.run()
        told("first:", baton.State, group.allreduce, numpy.ones(1))
        told("too:", baton.State, a.start)
        told("late:", (baton.TimedOut, baton.Cancelled), baton.allreduce, numpy.ones(1),
             timeout=0.3 if baton.Group.world().rank else 60)
    """
    code, text = job(2, program)
    assert code == 0 and text.count("first:") == text.count("too:") == 2, text


def test_different_calls_time_out():
    program = """
        group = baton.Group.world()
        vectors = numpy.ones(1), numpy.ones(2)
        for vector in vectors:
            group.allreduce(vector)
        # The rank that gives up first may end the call of the other rank.
        told("late:", (baton.TimedOut, baton.State), group.allreduce, vectors[group.rank],
             timeout=0.05)
        group.recover()
        for vector in vectors:
            vector[:] = 1
            say("sum", *group.allreduce(vector))
    """
    code, text = job(2, program)
    assert code == 0 and "Group.recover on all ranks" in text, text
    assert text.count("late: ") == 2, text
    assert text.count("sum 2.0") == 4 and text.count("sum 2.0 2.0") == 2, text


def test_collected_in_flight():
    program = """
        group = baton.Group.world()
        for i in range(50):
            a = group.prepare("allreduce", numpy.ones(100000), name="a%d" % i)
            a.start()
            a = None
            gc.collect()
        graph = baton.Graph(group)
        def call(_, self=graph):
            gc.collect()
        graph.call(call)
        graph.commit().start()
        graph = call = None
        gc.collect()
        say("sum", group.allreduce(numpy.ones(1))[0])
    """
    code, text = job(2, program)
    assert code == 0 and text.count("sum 2.0") == 2, text


def test_collected_in_a_call():
    program = """
        group = baton.Group.world()
        kept = [group.prepare("allreduce", numpy.ones(4))]
        graph = baton.Graph(group)
        graph.call(lambda call: kept.clear())
        graph.commit().run()
        say("sum", group.allreduce(numpy.ones(1))[0])
    """
    code, text = job(2, program)
    assert code == 0 and text.count("sum 2.0") == 2 and "Error" not in text, text


def test_arrays_that_are_in_use_after_a_destroy_stay(monkeypatch):
    monkeypatch.setenv("BATON_DESTROY_MS", "200")
    program = """
        import weakref
        from baton._library import ffi, lib

        class Array(numpy.ndarray):
            pass

        @ffi.callback("baton_status_t(void *, baton_call_t *, baton_async_t)")
        def begin_what_never_ends(*_):
            return lib.BATON_OK

        a = numpy.ones(4).view(Array)
        alive = weakref.ref(a)
        graph = baton.Graph(baton.Group.alone())
        graph.bind(a)
        work = ffi.new("baton_async_ops_t *", {"start": begin_what_never_ends})
        lib.baton_add_async(graph._handle, work, ffi.NULL)
        graph.commit().start()
        told("in use:", baton.TimedOut, graph.destroy)
        del a, graph
        gc.collect()
        say("kept", alive() is not None)
    """
    code, text = job(1, program)
    assert code == 0 and "in use:" in text and "kept True" in text, text


def test_threads():
    program = """
        group = baton.Group.world()
        groups = [group.sub(range(group.size), "t%d" % i) for i in range(3)]
        bad = []
        def work(sub, i):
            a = numpy.empty(100 * (i + 1))
            for _ in range(200):
                a[:] = 1
                sub.allreduce(a)
                if (a != sub.size).any():
                    bad.append(i)
        threads = [threading.Thread(target=work, args=each)
                   for each in zip(groups, range(3))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        say("bad", bad)
    """
    code, text = job(2, program)
    assert code == 0 and text.count("bad []") == 2, text


def test_waits_hold_no_gil(tmp_path):
    """Rank 1 starts only after another thread of rank 0 has run during rank 0's wait."""
    program = f"""
        group, counted = baton.Group.world(), "{tmp_path}/counted"
        group.barrier()
        if group.rank == 0:
            def loop():
                time.sleep(0.5)  # then rank 0 waits
                for _ in range(1000):
                    pass
                open(counted, "x").close()
            threading.Thread(target=loop).start()
        else:
            while not os.path.exists(counted):
                time.sleep(0.01)
        say("sum", group.allreduce(numpy.ones(4))[0])
    """
    code, text = job(2, program)
    assert code == 0 and text.count("sum 2.0") == 2, text


def test_beside_mpi4py():
    pytest.importorskip("mpi4py")
    program = """
        from mpi4py import MPI
        half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
        group = baton.Group.from_mpi(half)
        say("sum", group.allreduce(numpy.full(1, MPI.COMM_WORLD.rank))[0])
        world = baton.Group.world()
        assert world.size == MPI.COMM_WORLD.size
        told("refused:", TypeError, baton.Group.from_mpi, 3)
        told("null:", baton.Invalid, baton.Group.from_mpi, MPI.COMM_NULL)
    """
    code, text = job(4, program)
    assert code == 0 and text.count("sum 2") == text.count("sum 4") == 2, text
    assert text.count("refused:") == text.count("null:") == 4
    code, text = job(2, "baton.allreduce(numpy.ones(2))\n"
                        "from mpi4py import MPI\nMPI.COMM_WORLD.Barrier()\nprint('ok')")
    assert code == 0 and text.count("ok") == 2, text


def test_mistakes_of_one_rank_are_told():
    program = """
        group = baton.Group.world()
        for wrong in ({"count": 4 + group.rank}, {"dtype": "f4" if group.rank else "i4"},
                      {"op": "max" if group.rank else "sum"}):
            a = numpy.ones(wrong.get("count", 4), wrong.get("dtype", "f8"))
            told("mismatch:", baton.Mismatch, group.allreduce, a, wrong.get("op", "sum"),
                 timeout=20)
        group.recover(20)
        say("sum", group.allreduce(numpy.ones(1))[0])
    """
    code, text = job(2, program)
    assert code == 0 and text.count("mismatch:") == 6 and text.count("sum 2.0") == 2, text


@pytest.mark.skipif(not OPEN_MPI, reason="other MPIs end the job with a rank")
def test_a_killed_rank_is_an_exception():
    program = """
        group = baton.Group.world()
        sum = group.prepare("allreduce", numpy.ones(4))
        partial = baton.Partial(group, 4, mode="full")
        sparse = baton.Sparse(group, 4, k=4)
        group.barrier()
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if group.rank == 2:
            time.sleep(1)  # so that rank 2 learns of the loss before it starts
        for step in (sum.run, lambda: partial.step(numpy.ones(4, numpy.float32))):
            told("lost:", ConnectionError, step)
        left = group.shrink(30)
        say("sum", left.allreduce(numpy.ones(1))[0])
        sparse.shrink(left, 30)
        group.destroy()  # the sparse all-reduce has left this group
        sparse.start(numpy.ones(4, numpy.float32))
        sparse.wait(30)
        say("sparse", sparse.dense().tolist())
    """
    code, text = job(3, program, "--enable-recovery")
    assert text.count("sum 2.0") == 2 and text.count("lost: ") == 4, text
    assert text.count("sparse [2.0, 2.0, 2.0, 2.0]") == 2, text


def test_exit_with_a_future_that_is_not_complete(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("BATON_DESTROY_MS", "300")
    program = """
        import torch, baton.torch
        import torch.distributed as dist
        baton.torch.init_process_group()
        torch.ones(3)
        if dist.get_rank() == 0:
            futures = [dist.all_reduce(torch.ones(n), async_op=True).get_future()
                       for n in range(1, 9)]
        dist.barrier()
        say("done")
    """
    code, text = job(2, program)
    assert code == 0 and text.count("done") == 2 and "Error" not in text, text


@pytest.mark.parametrize("named", ["/no/such/libbaton.so", None])
def test_a_library_that_is_not_found(tmp_path, named):
    package = shutil.copytree(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
                              + "/baton", tmp_path / "baton")
    kept = {name: value for name, value in os.environ.items() if name != "BATON_LIBRARY"}
    if named:
        kept["BATON_LIBRARY"] = named
    kept["PYTHONPATH"] = str(package.parent if hasattr(package, "parent") else tmp_path)
    done = subprocess.run([sys.executable, "-c", "import baton"], env=kept,
                          capture_output=True, text=True, cwd=tmp_path)
    assert "cmake --install build" in done.stderr and "libbaton.so.0." in done.stderr


def test_mpirun_and_a_library_without_mpi(tmp_path):
    alone = shutil.copy(_library._place, tmp_path / "libbaton.so")
    kept = dict(os.environ, BATON_LIBRARY=str(alone), OMPI_COMM_WORLD_SIZE="2")
    done = subprocess.run([sys.executable, "-c", "import baton; baton.Group.world()"], env=kept,
                          capture_output=True, text=True, check=False)
    assert "Unsupported" in done.stderr and "-DBATON_MPI=ON" in done.stderr, done.stderr


def test_a_gpu_that_is_not_there():
    program = """
        if not told("unsupported:", baton.Unsupported, baton.attach_cuda):
            say("unsupported: no, there is one")
        group = baton.Group.alone()
        told("refused:", baton.Error, baton.attach_cuda)
        say(group.allreduce(numpy.ones(1)))
    """
    code, text = job(1, program)
    assert code == 0 and "unsupported: " in text and "refused: " in text, text


def without_mpi(program, *given, ranks=3):
    """Runs a program on ranks without mpirun. Returns the text that they printed."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDRA_", "MPI_"))}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    children = [subprocess.Popen(
        ["timeout", "-k", "2", "60", sys.executable, "-c", START + textwrap.dedent(program),
         *map(str, given)],
        env=dict(kept, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1",
                 MASTER_PORT=str(port)),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(ranks)]
    texts = [child.communicate()[0] for child in children]
    assert all(child.returncode == 0 for child in children), "\n".join(texts)
    return "".join(texts)


def test_ranks_meet_in_a_folder(tmp_path):
    program = """
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        for _ in range(2):
            with baton.Group.from_store(sys.argv[1], rank, size, "pair", timeout=30) as group:
                say("sum", group.allreduce(numpy.full(1000, rank + 1.0))[999])
        told("refused:", baton.Invalid, baton.Group.from_store, sys.argv[1], rank, size, "a/b")
        told("late:", baton.TimedOut, baton.Group.from_store, sys.argv[1], rank, size + 1, "late",
             timeout=2)
        told("no folder:", FileNotFoundError, baton.Group.from_store, "/nowhere", rank, size)
        told("no store:", TypeError, baton.Group.from_store, 5, rank, size)
        del os.environ["MASTER_ADDR"]  # so that torch's store is not used
        say("world", baton.allreduce(numpy.ones(2))[1], "torch" in sys.modules)
        say("MPI is loaded", "libmpi" in open("/proc/self/maps").read())
    """
    text = without_mpi(program, tmp_path)
    assert text.count("sum 6.0") == 6 and text.count("refused: ") == 3, text
    assert text.count("Group.from_store: the name") == text.count("for rank 3") == 3, text
    assert "directory: '/nowhere'" in text, text
    assert text.count("no store: a store is the path of a folder") == 3, text
    assert text.count("world 3.0 False") == text.count("MPI is loaded False") == 3, text


def test_a_process_joins(tmp_path):
    program = """
        rank = int(os.environ["RANK"])
        if rank < 3:
            old = baton.Group.from_store(sys.argv[1], rank, 3, "w", timeout=30)
            old.barrier()
            if rank == 1:
                os._exit(0)
            told("lost:", baton.PeerLost, old.allreduce, numpy.ones(1))
            told("late:", baton.TimedOut, old.reconfigure, sys.argv[1], 4, "v", timeout=0.2)
            group = old.reconfigure(sys.argv[1], 3, "w", timeout=30)
        else:
            group = baton.Group.join(sys.argv[1], "w", timeout=30)
        say("rank", group.rank, [group.origin(each) for each in range(3)],
            group.allreduce(numpy.ones(1)))
    """
    text = without_mpi(program, tmp_path, ranks=4)
    assert all(f"rank {rank} [0, -1, 2] [3.]" in text for rank in range(3)), text
    assert text.count("late: ") == text.count("lost: ") == 2, text


def test_ranks_meet_in_a_store_of_torch():
    pytest.importorskip("torch")
    program = """
        import gc
        import weakref
        import torch
        import torch.distributed as dist
        import baton.torch
        gc.disable()
        dist.init_process_group("baton")
        a = torch.full((1000,), dist.get_rank() + 1.0)
        dist.all_reduce(a)
        say("sums", a[0].item(), baton.allreduce(numpy.ones(3))[2])
        store = dist.HashStore()
        store.set("alone.1.all", "an earlier group's answer")
        say("alone", baton.Group.from_store(store, 0, 1, "alone").size)
        alive = weakref.ref(store)
        del store  # If the server lived on, it would keep its port.
        say("ended", alive() is None)
    """
    text = without_mpi(program)
    assert text.count("sums 6.0 3.0") == 3 and text.count("alone 1") == 3, text
    assert text.count("ended True") == 3, text


def test_a_process_group_waits_for_its_timeout(tmp_path):
    pytest.importorskip("torch")
    program = """
        import datetime
        import torch.distributed as dist
        import baton.torch
        rank = int(os.environ["RANK"])
        del os.environ["MASTER_ADDR"]
        if rank != 1:
            told("late:", baton.TimedOut, dist.init_process_group, "baton", rank=rank, world_size=3,
                 store=dist.FileStore(sys.argv[1], 3), timeout=datetime.timedelta(seconds=2))
    """
    text = without_mpi(program, tmp_path / "store")
    assert text.count("has waited 2.0 s for rank") == 2, text


def test_process_groups_with_other_ranks_than_the_environment(tmp_path):
    pytest.importorskip("torch")
    program = """
        import torch
        import torch.distributed as dist
        import baton.torch
        for turn in range(3):
            rank = (int(os.environ["RANK"]) + turn) % 3
            dist.init_process_group("baton", store=dist.FileStore(f"{sys.argv[1]}/{turn}", 3),
                                    rank=rank, world_size=3)
            outs = [torch.empty(1) for _ in range(3)]
            dist.all_gather(outs, torch.full((1,), float(rank)))
            say("ranks", torch.cat(outs).tolist())
            dist.destroy_process_group()
    """
    assert without_mpi(program, tmp_path).count("ranks [0.0, 1.0, 2.0]") == 9


def test_a_rank_that_ddp_loses():
    pytest.importorskip("torch")
    program = """
        import torch
        import baton.torch
        torch.distributed.init_process_group("baton")
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        loss = model(torch.ones(1, 2)).sum()
        if torch.distributed.get_rank() == 1:
            time.sleep(1)  # meanwhile the others wait in torch's C++
            os._exit(0)
        told("lost:", RuntimeError, loss.backward)
        os._exit(0)
    """
    assert without_mpi(program).count("lost: ") == 2


def test_ctrl_c_while_ranks_are_awaited(tmp_path):
    program = """
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        begin = time.monotonic()
        try:
            baton.Group.from_store(sys.argv[1], int(os.environ["RANK"]), 4, timeout=50)
        except KeyboardInterrupt:
            say("interrupted", time.monotonic() - begin < 10)
    """
    text = without_mpi(program, tmp_path)
    assert text.count("interrupted True") == 3, text


def test_trace(tmp_path):
    status, said = job(2, f"""
        baton.trace_start("{tmp_path}")
        with baton.span("computes"):
            baton.Group.world().barrier()
        baton.trace_stop()
        with baton.span("unseen"):
            told("refused:", baton.Invalid, baton.trace_start, "/elsewhere")
        """)
    files = [file.read_bytes() for file in tmp_path.glob("*.trace")]
    assert status == 0 and said.count("refused: baton_trace_start: folder is") == 2
    assert len(files) == 2
    assert all(b"computes\0" in file and b"unseen" not in file for file in files)
