"""The backend "baton" of torch.distributed, on the ranks of one mpirun."""
import datetime
import os
import threading
import time
import types

import pytest

import baton
from baton import _handles
from baton._library import lib

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
baton_torch = pytest.importorskip("baton.torch")
backend = baton_torch.backend

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8,
         torch.uint8, torch.int16, torch.int32, torch.int64]


@pytest.fixture(scope="module", autouse=True)
def ranks():
    torch.set_num_threads(1)
    baton_torch.init_process_group()
    yield
    dist.barrier()
    dist.destroy_process_group()


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


@pytest.mark.parametrize("dtype", TYPES)
def test_allreduce(dtype):
    for op, expected in ((dist.ReduceOp.SUM, size() * (size() + 1) // 2),
                         (dist.ReduceOp.MAX, size()), (dist.ReduceOp.MIN, 1)):
        for _ in range(3):
            a = torch.full((3, 5), rank() + 1, dtype=dtype)
            assert dist.all_reduce(a, op) is None
            assert (a == expected).all()


@pytest.mark.filterwarnings("ignore:.*all_reduce_coalesced will be deprecated")
def test_allreduce_of_other_tensors():
    flags = torch.tensor([rank() == 0, True, False])
    dist.all_reduce(flags)
    assert flags.tolist() == [True, True, False]
    strided = torch.zeros(4, 4)[:, ::2].fill_(rank())
    dist.all_reduce(strided)
    assert (strided == sum(range(size()))).all()
    number = torch.tensor(2.0 + 1j * rank())
    dist.all_reduce(number)
    assert number == 2.0 * size() + 1j * sum(range(size()))
    mean = torch.full((2,), float(rank()))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    assert (mean == (size() - 1) / 2).all()
    dist.all_reduce(torch.empty(0))
    with pytest.raises(baton.Invalid, match="dense") as refused:
        dist.all_reduce(torch.eye(3).to_sparse())
    assert refused.value.__context__ is None
    for negated in (False, True):  # a tensor that torch negates when it is read
        a = torch._neg_view(torch.ones(9)) if negated else torch.ones(9)
        dist.all_reduce(a, dist.ReduceOp.MAX)
        assert (a == 1 - 2 * negated).all()
    both = [torch.ones(2), torch.ones(3, 1)]
    dist.all_reduce_coalesced(both)
    assert (both[0] == size()).all() and (both[1] == size()).all()


def test_other_collectives():
    me, all_ranks, last = rank(), size(), size() - 1
    a = torch.full((2, 3), float(me))
    dist.broadcast(a, last)
    assert (a == last).all()
    a = torch.full((3,), float(me))
    dist.reduce(a, last)
    assert (a == (sum(range(all_ranks)) if me == last else me)).all()
    outs = [torch.empty(2, 2) for _ in range(all_ranks)]
    dist.all_gather(outs, torch.full((2, 2), float(me)))
    assert [out[0, 0].item() for out in outs] == list(range(all_ranks))
    outs = [torch.empty(r + 1) for r in range(all_ranks)]
    dist.all_gather(outs, torch.full((me + 1,), float(me)))
    assert all((out == r).all() for r, out in enumerate(outs))
    out = torch.empty(all_ranks, 2)
    dist.all_gather_into_tensor(out, torch.full((2,), float(me)))
    assert out[:, 1].tolist() == list(range(all_ranks))
    outs = [torch.empty(2) for _ in range(all_ranks)] if me == last else None
    dist.gather(torch.full((2,), float(me)), outs, last)
    assert me != last or [out[1].item() for out in outs] == list(range(all_ranks))
    out = torch.empty(2)
    dist.scatter(out, [torch.full((2,), float(r)) for r in range(all_ranks)]
                 if me == last else None, last)
    assert (out == me).all()
    total = all_ranks * (all_ranks - 1) / 2
    dist.reduce_scatter(out, [torch.full((2,), float(me)) for _ in range(all_ranks)])
    assert (out == total).all()
    uneven = torch.empty(me + 1)
    dist.reduce_scatter(uneven, [torch.full((r + 1,), float(me)) for r in range(all_ranks)])
    assert (uneven == total).all()
    dist.reduce_scatter_tensor(out, torch.full((2 * all_ranks,), float(me)))
    assert (out == total).all()
    outs = [torch.empty(r + 1) for r in range(all_ranks)]
    dist.all_to_all(outs, [torch.full((me + 1,), 10.0 * me + r) for r in range(all_ranks)])
    assert all((out == 10 * r + me).all() for r, out in enumerate(outs))
    out = torch.empty(all_ranks, 2)
    dist.all_to_all_single(out, torch.arange(2.0 * all_ranks).view(-1, 2) + 100 * me)
    assert out[:, 0].tolist() == [100.0 * r + 2 * me for r in range(all_ranks)]
    out = torch.empty(all_ranks * (me + 1), 1)
    dist.all_to_all_single(out, torch.full((sum(range(all_ranks + 1)), 1), float(me)),
                           [me + 1] * all_ranks, [r + 1 for r in range(all_ranks)])
    assert out.view(all_ranks, -1).T[0].tolist() == list(range(all_ranks))
    dist.barrier()


def test_arrays_without_elements():
    """Such arrays have address 0, which must not be taken for a missing array."""
    group, none = baton.Group.world(), torch.empty(0)
    assert group.allreduce(none) is none and group.broadcast(none) is none
    first = rank() == 0  # only rank 0 sends
    got = group.alltoall(torch.arange(float(size())) if first else none,
                         counts=[int(first)] * size(),
                         target_counts=[1] + [0] * (size() - 1))
    assert got.tolist() == [rank()]
    schedule = group.prepare("allgather", none, torch.empty(size(), 0))
    schedule.run()
    schedule.rebind(torch.empty(0), torch.empty(size(), 0))
    schedule.run()
    for _ in range(2):  # the second call rebinds
        group.allreduce(torch.empty(0), out=torch.empty(0))
        dist.all_to_all_single(torch.empty(0), torch.empty(0))
        dist.all_to_all([torch.empty(0)] * size(), [torch.empty(0)] * size())
    dist.barrier()


def test_objects():
    objects = [None] * size()
    dist.all_gather_object(objects, {"rank": rank(), "text": "x" * rank()})
    assert [given["rank"] for given in objects] == list(range(size()))
    given = [rank(), "of"] if rank() == 0 else [None, None]
    dist.broadcast_object_list(given, 0)
    assert given == [0, "of"]


def test_wrong_sizes():
    with pytest.raises(ValueError, match="all_gather_into_tensor"):
        dist.all_gather_into_tensor(torch.empty(1), torch.empty(2))
    with pytest.raises(ValueError, match="reduce_scatter"):
        dist.reduce_scatter_tensor(torch.empty(7), torch.empty(size()))


def test_many_in_flight():
    works = [dist.all_reduce(torch.full((5,), float(i)), async_op=True) for i in range(40)]
    for i, work in reversed(list(enumerate(works))):
        assert work.wait() and work.is_completed() and work.is_success()
        assert (work.result()[0] == i * size()).all()
    kept = works[0]._kept
    assert not kept.works
    for i in range(40):  # nothing waits for these works, or refers to their tensors
        dist.all_reduce(torch.ones(5), async_op=True)
    a = torch.ones(5)
    dist.all_reduce(a)
    assert (a == size()).all() and not kept.works


@pytest.mark.skipif(backend._TORCH_2, reason="its C++ keeps the Python object of a work")
def test_works_to_which_python_does_not_refer():
    mine = dist.all_reduce(torch.ones(6), async_op=True)
    abandoned = mine._kept.state.abandoned
    abandoned.clear()
    dist.all_reduce(torch.ones(6), async_op=True)  # only C++ refers to this work
    dist.all_reduce(torch.ones(6))
    assert mine not in abandoned and len(abandoned) == 1


def test_a_step_makes_nothing_new():
    def step():
        for vector in [torch.ones(n) for n in (1, 100, 5000)]:
            dist.all_reduce(vector)
            dist.broadcast(vector, 0)
        return set(baton._handles._live)

    assert step() == step()


def test_more_shapes_than_are_kept(monkeypatch):
    monkeypatch.setattr(backend, "_KEPT", 8)
    for n in [*range(1, 30), *range(1, 30)]:
        a = torch.ones(n)
        work = dist.all_reduce(a, async_op=True)
        b = torch.ones(n)
        dist.all_reduce(b)
        work.wait()
        assert (a == size()).all() and (b == size()).all()


def test_futures():
    works = [dist.all_reduce(torch.full((n,), 1.0), async_op=True) for n in (3, 1000)]
    futures = [work.get_future() for work in works]
    doubled = futures[1].then(lambda future: future.value()[0] * 2)
    assert (doubled.wait() == 2 * size()).all()
    assert (futures[0].wait()[0] == size()).all()
    outs = [torch.empty(4) for _ in range(size())]
    future = dist.all_gather(outs, torch.full((4,), float(rank())), async_op=True).get_future()
    assert (future.wait()[-1] == size() - 1).all()


def test_callbacks_that_call_collectives():
    """They run in the order of the calls, though the second of these ends first."""
    order = []

    def again(future):
        order.append(future.value()[0].numel())
        return dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()[0]

    works = [dist.all_reduce(torch.ones(n), async_op=True) for n in (1 << 22, 1)]
    for future in [work.get_future().then(again) for work in works]:
        assert (future.wait() == size()).all()
    assert order == [1 << 22, 1]


@pytest.mark.parametrize("seen", ["wait", "is_completed"])
def test_results_are_copied_before_the_end_is_seen(seen):
    outs = [torch.zeros(4) for _ in range(size())]
    work = dist.all_gather(outs, torch.ones(4), async_op=True)
    copy, copying, go_on = work._after, threading.Event(), threading.Event()

    def slow():
        copying.set()
        go_on.wait(20)
        copy()

    work._after = slow
    thread = threading.Thread(target=lambda: work.get_future().wait())
    thread.start()
    copying.wait(20)
    threading.Timer(0.2, go_on.set).start()
    while not getattr(work, seen)():
        pass
    assert all((out == 1).all() for out in outs)
    thread.join()


@pytest.mark.parametrize("name", ["_start", "_rebind"])
def test_ctrl_c_right_after_a_call(monkeypatch, name):
    """Ctrl-C comes after the library's call, and before the package has noted its result."""
    def interrupt(*given):
        assert call(*given) == lib.BATON_OK
        raise KeyboardInterrupt

    group, a, call = dist.new_group(), torch.ones(3), getattr(backend, name)
    dist.all_reduce(a, group=group)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(backend, name, interrupt)
        dist.all_reduce(torch.zeros(3), group=group, async_op=True)
    a.fill_(1)
    work = dist.all_reduce(a, group=group, async_op=True)
    assert work._epoch == lib.baton_schedule_started(work._kept.handle)
    work.wait()
    assert (a == size()).all() and not work._kept.works


def test_ctrl_c_while_results_are_copied():
    def interrupt():
        work._after = copy
        raise KeyboardInterrupt

    outs = [torch.zeros(4) for _ in range(size())]
    work = dist.all_gather(outs, torch.ones(4), async_op=True)
    copy, work._after = work._after, interrupt
    with pytest.raises(KeyboardInterrupt):
        work.wait()
    assert work.wait() and all((out == 1).all() for out in outs)


def test_sub_groups():
    evens = dist.new_group(list(range(0, size(), 2)))
    alone = [dist.new_group([r]) for r in range(size())]
    a = torch.ones(3)
    dist.all_reduce(a, group=alone[rank()])
    assert (a == 1).all()
    if rank() % 2 == 0:
        dist.all_reduce(a, group=evens)
        assert (a == (size() + 1) // 2).all()
        dist.destroy_process_group(evens)
    dist.destroy_process_group(alone[rank()])


def test_messages():
    if size() == 1:
        return
    left, right = (rank() - 1) % size(), (rank() + 1) % size()
    for count in (0, 1, 100000):
        a, b = torch.full((count,), float(rank())), torch.empty(count)
        for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, a, right),
                                               dist.P2POp(dist.irecv, b, left)]):
            request.wait()
        assert (b == left).all()
    peer = rank() ^ 1  # both ranks send before they receive
    if peer < size():
        sent = [dist.isend(torch.full((50000,), float(i)), peer) for i in range(20)]
        for i in range(20):
            dist.recv(a := torch.empty(50000), peer)
            assert (a == i).all()
        for work in sent:
            work.wait()
    if rank() == 0:
        sent = [dist.isend(torch.full((3,), float(tag)), 1, tag=tag) for tag in range(12)]
        for work in sent:
            work.wait()
    elif rank() == 1:
        for tag in reversed(range(12)):
            got = torch.empty(4)[:3]
            dist.recv(got, 0, tag=tag)
            assert (got == tag).all()
    with pytest.raises(ValueError, match="this is rank"):
        dist.group.WORLD.send([torch.ones(1)], rank(), 0)
    with pytest.raises(NotImplementedError, match="src"):
        dist.recv(torch.ones(1))


def test_timeout_names_the_rank_and_the_operation_goes_on():
    if size() == 1:
        return
    group = dist.new_group()
    group._state.timeout = 0.3  # set only now, since new_group also waits for late ranks
    store = dist.distributed_c10d._get_default_store()
    a = torch.ones(3)
    if rank() == 0:
        store.wait([f"timed out {r}" for r in range(1, size())])
        dist.all_reduce(a, group=group, async_op=True).wait(datetime.timedelta(seconds=60))
    else:
        work, text = dist.all_reduce(a, group=group, async_op=True), ""
        while "rank 0" not in text:  # rank 0 answers within 100 ms, unless the machine is busy
            with pytest.raises(baton.TimedOut) as late:
                work.wait()
            text = str(late.value)
            assert "gave up after" not in text  # That text names only the last slice of the wait.
        store.set(f"timed out {rank()}", "")
        work.wait(datetime.timedelta(seconds=60))
    assert (a == size()).all()


def before_others(act):
    """Rank 0 starts an all-reduce and calls act before the other ranks start it."""
    group, out = dist.new_group(), torch.ones(2, 2)
    if rank() == 0 and size() > 1:
        work = dist.all_reduce(out[:, 0], group=group, async_op=True)
        act(work)
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.all_reduce(out[:, 0], group=group)
    assert out.tolist() == [[size(), 1], [size(), 1]]


def test_short_timeouts_are_kept(monkeypatch):
    def act(work):
        with monkeypatch.context() as patch, pytest.raises(baton.TimedOut):
            patch.setattr(backend, "_wait_epoch", lambda *given: waited.append(given[-1])
                          or wait(*given))
            work.wait(datetime.timedelta(milliseconds=2))

    waited, wait = [0], backend._wait_epoch
    before_others(act)
    assert max(waited) <= 2


def test_an_interrupted_wait_goes_on():
    def act(work):
        lib.baton_engine_interrupt(_handles.engine())
        with pytest.raises(baton.Interrupted):
            work.wait()

    before_others(act)


@pytest.mark.parametrize("late", [False, True])
def test_works_outlive_their_process_group(monkeypatch, late):
    """The works have ended, or have failed if the other ranks never start them (late)."""
    monkeypatch.setattr(backend, "_LEAVING_S", 0.1)
    group, out, works = dist.new_group(), torch.ones(2, 2), []
    if rank() == 0 or not late:
        works = [dist.all_reduce(out[:, i], group=group, async_op=True) for i in range(2)]
        future = works[0].get_future()
        if not late:
            works[0].wait()
    dist.barrier()
    time.sleep(0.3 if late and rank() else 0)  # meanwhile rank 0 gives up
    group.shutdown()  # torch 2 calls shutdown
    dist.destroy_process_group(group)
    with pytest.raises(baton.State, match="was destroyed"):
        group.allreduce([torch.ones(2)])
    if late and size() > 1:
        for wait in [work.wait for work in works] + ([future.wait] if works else []):
            with pytest.raises(RuntimeError, match="destroyed"):
                wait()
    else:
        works[1].wait()
        assert (out == size()).all()
    dist.barrier()


def test_ranks_that_differ_and_recovery():
    if size() == 1:
        return
    group = dist.new_group()
    a = torch.ones(3 if rank() else 4)
    with pytest.raises(baton.Mismatch):
        dist.all_reduce(a, group=group)
    with pytest.raises(baton.Error):
        dist.all_reduce(a, group=group)
    if rank() == 0:  # so rank 0 makes one schedule more than the others
        dist.all_reduce(torch.ones(5), group=group, async_op=True)
    # Rank 0 sends a message that is not received. Rank 1 waits for one that does not come.
    works = [dist.isend(torch.ones(3), 1, group=group) if rank() == 0 else
             dist.irecv(torch.ones(4), 0, group=group)] if rank() < 2 else []
    group.recover(20)
    if rank() == 1:
        with pytest.raises(baton.Cancelled, match="recovered"):
            works[0].wait()
    a = torch.full((3,), 2.0)
    if rank() == 0:
        dist.send(a, 1, group=group)
    elif rank() == 1:
        dist.recv(a.zero_(), 0, group=group)
        assert (a == 2).all()
    a = torch.ones(3)
    dist.all_reduce(a, group=group)
    assert (a == size()).all()


def test_hosts_are_told_by_their_names(monkeypatch):
    """Host "a" has ranks 0 and 2, and "b" the others. Open MPI's variables are out of date."""
    with pytest.raises(baton.State, match="destroy_process_group"):
        baton_torch.init_process_group()
    made = {}
    monkeypatch.setattr(backend.dist, "is_initialized", lambda: False)
    monkeypatch.setattr(backend.dist, "init_process_group", lambda *_, **given: made.update(given))
    monkeypatch.setattr(backend.dist, "TCPStore",
                        lambda host, port, *_, **__: made.update(host=host) or
                        types.SimpleNamespace(port=port))
    monkeypatch.setattr(backend.socket, "gethostname",
                        lambda: "b" if rank() % 2 else "a")
    monkeypatch.setattr(backend, "_base", backend._base)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "9")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "")
    baton_torch.init_process_group()
    assert made["host"] == ("127.0.0.1" if size() == 1 else "a")
    assert os.environ["LOCAL_RANK"] == str(rank() // 2)
    assert os.environ["LOCAL_WORLD_SIZE"] == str(len(range(rank() % 2, size(), 2)))
    made.clear()
    baton_torch.init_process_group(init_method="env://")  # torch refuses a store with this argument
    assert "store" not in made and os.environ["RANK"] == str(made["rank"])


of_torch_2 = pytest.mark.skipif(not backend._TORCH_2, reason="torch 2 has it")


@of_torch_2
@pytest.mark.parametrize("name", ["baton", "cpu:baton", "cpu:baton,cuda:gloo"])
def test_what_cpp_calls(name):
    """Functional collectives, which DTensor uses, are called from torch's C++ code."""
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    group, all_ranks, total = dist.new_group(backend=name), size(), sum(range(size()))
    assert isinstance(group, baton_torch.ProcessGroup) == ("cuda" not in name)
    mine, last = torch.full((2 * all_ranks,), float(rank())), all_ranks - 1
    assert (functional.all_reduce(mine, "sum", group) == total).all()
    gathered = functional.all_gather_tensor(mine, 0, group)
    assert gathered.view(all_ranks, -1)[:, 0].tolist() == list(range(all_ranks))
    assert (functional.reduce_scatter_tensor(mine, "sum", 0, group) == total).all()
    splits = [2] * all_ranks
    swapped = functional.all_to_all_single(mine, splits, splits, group)
    assert swapped[::2].tolist() == list(range(all_ranks))
    assert (functional.broadcast(mine, last, group) == last).all()
    pair = [mine, mine + 1]
    assert torch.cat(functional.all_reduce_coalesced(pair, "sum", group))[-1] == total + size()
    assert torch.cat(functional.all_gather_into_tensor_coalesced(pair, group))[-1] == size()
    assert torch.cat(functional.reduce_scatter_tensor_coalesced(
        pair, "sum", [0, 0], group))[-1] == total + size()
    work = dist.all_reduce(mine, group=group, async_op=True)
    assert (work.get_future().wait()[0] == total).all()
    objects = [None] * all_ranks
    dist.all_gather_object(objects, rank(), group=group)
    assert objects == list(range(all_ranks))
    baton_torch.DDPHook(group=group).destroy()
    dist.barrier(group)
    dist.destroy_process_group(group)


@of_torch_2
def test_split_and_coalesced():
    parts = [list(range(of, size(), 2)) for of in range(min(2, size()))]
    a = torch.ones(3)
    dist.all_reduce(a, group=dist.split_group(None, parts))
    assert (a == len(parts[rank() % 2])).all()
    if size() > 1:
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as works:
            dist.isend(torch.full((3,), float(rank())), (rank() + 1) % size())
            dist.irecv(a, (rank() - 1) % size())
        works.wait()
        assert (a == (rank() - 1) % size()).all()
    both = torch.ones(2), torch.ones(4)
    with dist._coalescing_manager():
        for tensor in both:
            dist.all_reduce(tensor)
    assert (torch.cat(both) == size()).all()


def test_monitored_barrier():
    group, seconds = dist.group.WORLD, datetime.timedelta(seconds=20)
    if rank() == size() - 1:
        time.sleep(0.3)  # the others wait up to the timeout of the group
    group.monitored_barrier()
    if size() > 1:
        if rank() == 1:
            dist.distributed_c10d._get_default_store().wait(["rank 1 was missed"])
        with pytest.raises(baton.TimedOut, match="Rank 1 failed to pass"):
            group.monitored_barrier(seconds if rank() else datetime.timedelta(0))
        if rank() == 0:
            dist.distributed_c10d._get_default_store().set("rank 1 was missed", "")
    group.monitored_barrier(seconds, wait_all_ranks=True)


@of_torch_2
def test_fully_sharded():
    fully_shard, losses = pytest.importorskip("torch.distributed.fsdp").fully_shard, []
    for name in ("baton", "gloo"):
        mesh = dist.device_mesh.DeviceMesh.from_group(dist.new_group(backend=name), "cpu")
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.Linear(30, 1))
        for layer in (*model, model):
            fully_shard(layer, mesh=mesh)
        loss = model(torch.full((4, 8), float(rank()))).square().mean()
        loss.backward()
        losses.append([loss] + [of.grad.full_tensor().sum() for of in model.parameters()])
    mine, others = map(torch.tensor, losses)
    assert torch.equal(mine, others) if size() < 3 else torch.allclose(mine, others, 1e-6)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=of_torch_2)])
def test_ddp(compiled):
    torch.manual_seed(rank())  # DDP sends rank 0's weights to all
    model = torch.nn.Sequential(torch.nn.Linear(10, 300), torch.nn.BatchNorm1d(300),
                                torch.nn.Linear(300, 3))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    ddp = torch.compile(ddp, backend="eager") if compiled else ddp
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        ddp(torch.randn(5, 10)).square().sum().backward()
        optimizer.step()
    for parameter in model.parameters():
        all_ranks = [torch.empty_like(parameter) for _ in range(size())]
        dist.all_gather(all_ranks, parameter.detach())
        assert all(torch.equal(other, parameter) for other in all_ranks)
