"""Means of gradients by baton.torch, in DistributedDataParallel and without it."""
import contextlib
import datetime
import gc
import pathlib
import runpy
import sys
import tempfile
import time

import numpy
import pytest

import baton
from baton import _handles
from baton._library import lib

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
baton_torch = pytest.importorskip("baton.torch")
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

TREE = pathlib.Path(__file__).resolve().parents[2]
MODES = ["full", "solo", "majority", "quorum:1", "sparse:0.05", "sparse:0.05:majority"]


@pytest.fixture(scope="module", autouse=True)
def ranks():
    torch.set_num_threads(1)
    baton_torch.init_process_group()
    yield
    dist.barrier()
    dist.destroy_process_group()


def test_results_of_bf16_are_tensors():
    """numpy lacks the type of these gradients."""
    group = baton.Group.world()
    a = torch.full((9,), 1.5, dtype=torch.bfloat16)
    partial = baton.Partial(group, mode="full", counts=[4, 5], dtype=a.dtype)
    assert (partial.split(partial.step(a).data)[1] == 1.5 * group.size).all()
    sparse = baton.Sparse(group, 9, k=9, dtype=a.dtype)
    sparse.start(a)
    assert (sparse.wait().values == 1.5 * group.size).all()
    assert (sparse.dense() == 1.5 * group.size).all()
    group.barrier()
    partial.destroy()
    sparse.destroy()


def module(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(20, 100), torch.nn.ReLU(),
                               torch.nn.Linear(100, 30), torch.nn.Linear(30, 1))


def bits(model):
    return torch.cat([of.detach().reshape(-1) for of in model.parameters()])


def same_on_all_ranks(model):
    mine = bits(model)
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    return all(torch.equal(other, mine) for other in others)


def train(ddp, steps=6, accumulate=False, lowp=None, scaler=None):
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    random = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        if step % dist.get_world_size() == dist.get_rank():
            time.sleep(0.003)  # this rank is late
        x = torch.randn(16, 20, generator=random)
        optimizer.zero_grad()
        quiet = ddp.no_sync() if accumulate and step % 2 == 0 else contextlib.nullcontext()
        with quiet, torch.autocast("cpu", lowp, enabled=lowp is not None):
            loss = (ddp(x).float() - x.sum(1, keepdim=True)).square().mean()
            (scaler.scale(loss) if scaler else loss).backward()
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        elif not accumulate or step % 2:
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 10.0)
            optimizer.step()


def ddp_of(model, mode=None, **options):
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.008, **options)
    hook = None
    if mode is not None:
        hook = baton_torch.DDPHook(mode=mode)
        ddp.register_comm_hook(None, hook)
    return ddp, hook


@pytest.mark.parametrize("mode", MODES)
def test_weights_are_the_same_on_all_ranks(mode):
    model = module()
    before = bits(model)
    ddp, hook = ddp_of(model, mode)
    train(ddp)
    assert same_on_all_ranks(model) and not torch.equal(bits(model), before)
    assert hook.step.living == dist.get_world_size()


def test_full_has_the_bits_of_gloo():
    models = module(), module()
    train(ddp_of(models[0], "full")[0])
    train(ddp_of(models[1], process_group=dist.new_group(backend="gloo"))[0])
    if dist.get_world_size() in (1, 2):
        assert torch.equal(*map(bits, models))
    assert torch.allclose(*map(bits, models), atol=1e-6)


class Unused(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.other = torch.nn.Linear(20, 1), torch.nn.Linear(20, 1)

    def forward(self, x):
        return self.used(x) if dist.get_rank() % 2 else self.used(x) + self.other(x)


@pytest.mark.parametrize("mode", ["full", "majority", "sparse:0.05"])
def test_what_ddp_has(mode):
    model = module()
    train(ddp_of(model, mode)[0], accumulate=True)
    assert same_on_all_ranks(model)
    model = Unused()
    train(ddp_of(model, mode, find_unused_parameters=True)[0])
    assert same_on_all_ranks(model)
    model = module()
    train(ddp_of(model, mode, gradient_as_bucket_view=True)[0], lowp=torch.bfloat16)
    assert same_on_all_ranks(model)


@pytest.mark.skipif(not hasattr(torch.amp, "GradScaler"), reason="torch 2.3 has it")
@pytest.mark.parametrize("mode", ["full", "solo"])
def test_a_gradient_scaler(mode):
    model, scaler = module(), torch.amp.GradScaler("cpu", init_scale=2.0 ** 24)
    train(ddp_of(model, mode)[0], 20, lowp=torch.float16, scaler=scaler)
    assert same_on_all_ranks(model) and bits(model).isfinite().all()
    assert scaler.get_scale() < 2.0 ** 24


@pytest.mark.parametrize("mode", ["full", "majority"])
def test_join(mode):
    model = module()
    ddp, _ = ddp_of(model, mode)
    with ddp.join():
        train(ddp, steps=3 + dist.get_rank())
    assert same_on_all_ranks(model)


@pytest.mark.parametrize("mode", ["full", "solo"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types(mode, dtype):
    model = torch.nn.Linear(4, 3).to(dtype)
    size = dist.get_world_size()
    for _ in range(3):
        for of in model.parameters():
            of.grad = torch.full_like(of, 40000.0 if dtype is torch.float16 else 1.0)
        step = baton_torch.average_gradients(model, mode)
        if mode == "full":
            assert (model.weight.grad == model.weight.grad.new_tensor(
                40000.0 if dtype is torch.float16 else 1.0)).all()
    assert 1 <= step.active <= size


@pytest.mark.parametrize("views", [False, True])
def test_long_gradients_are_the_mean(views):
    """Long gradients are lent. All ranks are in time. Steps after the first have two buckets."""
    size, rank = dist.get_world_size(), dist.get_rank()
    model = torch.nn.Sequential(*map(torch.nn.Linear, (600, 500, 600), (500, 600, 3)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=1, gradient_as_bucket_view=views)
    hook = baton_torch.DDPHook(f"quorum:{size}")
    ddp.register_comm_hook(None, hook)
    for step in range(3):
        ddp.zero_grad()
        x = torch.full((2, 600), float(rank + step))
        ddp(x).sum().backward()
        local = module_gradients(model, size, step)
        assert hook.step.active == size
        for of, mean in zip(model.parameters(), local):
            assert torch.allclose(of.grad, mean, rtol=1e-4, atol=1e-4)


def module_gradients(model, size, step):
    """Returns the mean of the gradients of all ranks, computed on this rank alone."""
    x = torch.cat([torch.full((2, 600), float(rank + step)) for rank in range(size)])
    grads = torch.autograd.grad(model(x).sum() / size, list(model.parameters()))
    return [grad.detach() for grad in grads]


def test_long_gradients_are_conserved():
    model, size, steps = torch.nn.Linear(600, 500), dist.get_world_size(), 6
    averager, total = baton_torch.GradientAverager(model, "solo"), 0.0
    for step in range(steps):
        if step % size == dist.get_rank():
            time.sleep(0.01)
        for of in model.parameters():
            of.grad = torch.ones_like(of)
        averager.average()
        assert (model.weight.grad == model.weight.grad[0, 0]).all()
        total += model.weight.grad[0, 0].item() * size
    pending = averager.state_dict()["state"]["pending"]
    left = torch.zeros(1) if pending is None else pending[:1].clone()
    dist.all_reduce(left)
    assert total + left.item() == pytest.approx(steps * size)
    averager.destroy()


class Bucket:
    """A bucket with the methods of DDP's buckets."""

    def __init__(self, at, last, parameters, values):
        self.buffer = lambda: self.values
        self.index, self.is_last = lambda: at, lambda: last
        self.parameters = lambda: parameters
        self.values = torch.cat([torch.full((of.numel(),), value)
                                 for of, value in zip(parameters, values)])


def test_nothing_is_lost_when_buckets_are_cut_anew():
    a, b, c = (torch.nn.Parameter(torch.zeros(n)) for n in (3, 5, 2))
    hook, size = baton_torch.DDPHook(mode="solo"), dist.get_world_size()
    cuts = [[[c, b], [a]], [[b], [a, c]], [[a, b, c]], [[c], [b], [a]]]
    worth = {a: 1.0, b: 10.0, c: 100.0}
    sums = {of: 0.0 for of in worth}
    for step in range(8):
        if step % size == dist.get_rank():
            time.sleep(0.003)
        cut = cuts[step % len(cuts)]
        buckets = [Bucket(i, i == len(cut) - 1, part, [worth[of] for of in part])
                   for i, part in enumerate(cut)]
        futures = [hook(None, bucket) for bucket in buckets]
        for part, future in zip(cut, futures):
            mean = future.wait()
            for of in part:
                sums[of] += mean[:of.numel()][0].item() * size
                assert (mean[:of.numel()] == mean[0]).all()
                mean = mean[of.numel():]
    pending = hook.state_dict()["state"]["pending"]
    left = torch.zeros(10) if pending is None else pending
    dist.all_reduce(left)
    for at, of in ((0, c), (2, b), (7, a)):
        assert sums[of] + left[at].item() == pytest.approx(8 * size * worth[of])


@pytest.mark.parametrize("mode", ["sparse:1", "sparse:1:full"])
def test_sparse_takes_buckets_of_any_cut(mode):
    a, b, c = (torch.nn.Parameter(torch.zeros(n)) for n in (3, 5, 2))
    hook, worth = baton_torch.DDPHook(mode), {a: 1.0, b: 10.0, c: 100.0}
    for cut in [[[c, b], [a]], [[b], [a, c]], [[a, b, c]], [[c], [b], [a]]] * 2:
        buckets = [Bucket(i, i == len(cut) - 1, part, [worth[of] for of in part])
                   for i, part in enumerate(cut)]
        buckets[-1].values = buckets[-1].values.bfloat16()
        if len(cut) > 1:
            hook(None, buckets[0])  # then the backward pass is interrupted
        for part, future in zip(cut, [hook(None, bucket) for bucket in buckets]):
            expected = [worth[of] for of in part for _ in range(of.numel())]
            assert future.wait().tolist() == expected


@pytest.mark.parametrize("mode", ["solo", "sparse:0.3", "sparse:0.3:full"])
def test_states(mode):
    model = torch.nn.Linear(400, 30)

    def step(averager):
        for i, of in enumerate(model.parameters()):
            of.grad = torch.arange(of.numel(), dtype=torch.float32).view_as(of) + i
        averager.average()
        return torch.cat([of.grad.view(-1) for of in model.parameters()])

    options = {} if mode == "solo" else {"algorithm": "spardl"}
    first = baton_torch.GradientAverager(model, mode=mode, **options)
    for _ in range(3):
        step(first)
    state = first.state_dict()
    second = baton_torch.GradientAverager(model, mode=mode, **options)
    second.load_state_dict(state)
    if mode != "solo":
        assert torch.equal(step(first), step(second))
    else:
        assert second.state_dict()["state"] is state["state"]
        step(second)
    with pytest.raises(baton.Invalid, match="mode"):
        second.load_state_dict({"mode": "full", "state": None})


@pytest.mark.parametrize("mode", ["full", "majority"])
def test_layers_that_are_unfrozen_or_replaced(mode):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))
    averager = baton_torch.GradientAverager(model, mode)

    def step():
        for of in model.parameters():
            of.grad = torch.full_like(of, float(dist.get_rank()))
        baton_torch.average_gradients(model, "full")
        return {of.grad.mean().item() for of in model.parameters() if of.requires_grad}

    mean = (dist.get_world_size() - 1) / 2
    model[1].requires_grad_(False)
    assert step() == {mean}
    model[1].requires_grad_(True)
    assert step() == {mean}
    averager.average()
    model[0] = torch.nn.Linear(3, 2)
    assert step() == {mean}
    with pytest.raises(baton.Invalid, match="trains other parameters"):
        averager.average()


@pytest.mark.parametrize("mode", ["full", "all:1", "sparse:0.5", "sparse:0.5:full"])
def test_a_step_that_timed_out(mode):
    """Rank 0 starts after all others have given up. Their next backward pass waits for this
    step, and DDP continues, although its hook has failed."""
    if dist.get_world_size() == 1:
        return
    group = baton.Group.world().sub(range(dist.get_world_size()), f"late {mode}")
    model, late = torch.nn.Linear(3, 2), dist.get_rank() == 0
    options = {"algorithm": "spardl"} if mode == "sparse:0.5" else {}
    if mode == "all:1":
        options["sync_every"] = 1
    hook = baton_torch.DDPHook(mode, group=group, timeout=None if late else 20, **options)
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, hook)

    def step(value):
        ddp.zero_grad()
        (value * ddp(torch.zeros(1, 3)).sum()).backward()
        return model.bias.grad[0].item()

    for _ in range(3):  # in the second step DDP cuts its buckets anew, collectively
        step(1.0)
    dist.barrier()
    if not late:
        hook._exchange._timeout = 0.2
        with pytest.raises(RuntimeError, match="TimedOut: .* (no progress|engine is busy)"):
            step(8.0)
    dist.barrier()
    if late:
        step(8.0)
    hook._exchange._timeout = 30
    assert step(2.0) == pytest.approx(2.0) or "sparse" in mode
    assert step(4.0) == pytest.approx(4.0) or "sparse" in mode
    hook.destroy()
    group.destroy()


def test_a_timeout_is_that_of_a_whole_step(monkeypatch):
    waited, wait = [], baton.Schedule.wait
    averager = baton_torch.GradientAverager(module(), timeout=20)
    with monkeypatch.context() as patch:
        patch.setattr(baton.Schedule, "wait", lambda schedule, timeout:
                      waited.append(timeout) or wait(schedule, timeout))
        averager.average()
    assert len(waited) == 6 and sorted(set(waited), reverse=True) == waited
    averager.destroy()


@pytest.mark.parametrize("mode", ["full", "all:1", "sparse:0.3"])
def test_a_step_that_was_interrupted_goes_on(mode):
    """The averager stays usable, too."""
    if dist.get_world_size() == 1:
        return
    model = torch.nn.Linear(600, 500)
    for of in model.parameters():
        of.grad = torch.ones_like(of)
    options = {"full": {}, "all:1": {"sync_every": 1}, "sparse:0.3": {"algorithm": "spardl"}}
    averager = baton_torch.GradientAverager(model, mode, **options[mode])
    averager.average()
    dist.barrier()
    if dist.get_rank() == 0:
        lib.baton_engine_interrupt(_handles.engine())
        with pytest.raises(baton.Interrupted):
            averager.average()
        assert not averager._is_over
    dist.barrier()
    if dist.get_rank() > 0:
        averager.average()
    assert averager.average().living == dist.get_world_size()
    dist.barrier()
    averager.destroy()


@pytest.mark.parametrize("mode", ["full", "solo", "sparse:0.3"])
def test_a_step_that_failed_says_what_to_do(mode):
    """Rank 0 has a different model from the others."""
    if dist.get_world_size() == 1:
        return
    hook = baton_torch.DDPHook(mode)
    model = torch.nn.Parameter(torch.zeros(3 if dist.get_rank() else 4))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="new DDPHook on all ranks") as failed:
            hook(None, Bucket(0, True, [model], [1.0])).wait()
        assert "recover" not in str(failed.value)
    model = torch.nn.Linear(3 if dist.get_rank() else 4, 1)
    with pytest.raises(baton.Mismatch, match="new GradientAverager on all ranks"):
        baton_torch.average_gradients(model, mode)
    model = torch.nn.Linear(3, 1)
    assert baton_torch.average_gradients(model, mode).included in (True, False)


@pytest.mark.parametrize("mode, options", [("majority", {}), ("majority", {"on_loss": "continue"}),
                                           ("sparse:0.3", {}), ("sparse:0.3:solo", {})])
def test_modes_that_differ(mode, options):
    if dist.get_world_size() == 1:
        return
    first, model = dist.get_rank() == 0, torch.nn.Parameter(torch.zeros(3))
    hook = baton_torch.DDPHook("full" if first else mode, timeout=20,
                               **({} if first else options))
    # A rank that has noticed it destroys its schedule. The others may hear of that first.
    with pytest.raises(RuntimeError, match="(differ|destroyed).* one mode .here "
                       + ("full" if first else mode)):
        hook(None, Bucket(0, True, [model], [1.0])).wait()


@pytest.mark.parametrize("mode", ["solo", "sparse:0.3"])
def test_a_first_step_that_failed(mode):
    a, b = (torch.nn.Parameter(torch.zeros(n)) for n in (3, 5))
    hook = baton_torch.DDPHook(mode)
    hook(None, Bucket(0, False, [a], [7.0]))  # then the backward pass is interrupted
    bad = Bucket(0, False, [b], [1.0])
    bad.values = bad.values.to_sparse()
    with pytest.raises(baton.Invalid):
        hook(None, bad)
    for value in (1.0, 2.0):
        hook(None, Bucket(0, False, [b], [value]))
        hook(None, Bucket(1, True, [a], [value])).wait()
    assert hook._exchange._count == 8
    with pytest.raises(RuntimeError, match="one model"):
        hook(None, Bucket(0, True, [torch.nn.Parameter(torch.zeros(8))], [1.0])).wait()
    with pytest.raises(baton.Invalid, match="rank 99"):
        hook.load_state_dict({"mode": mode, "state": {"count": 8, "rank": 99, "size": 1}})


def test_f16_is_the_mean_of_those_that_live(monkeypatch):
    model, size = torch.nn.Linear(2, 2).half(), dist.get_world_size()
    averager = baton_torch.GradientAverager(model, "sparse:1:full", on_loss="continue")
    monkeypatch.setattr(baton.Sparse, "lives", lambda self, rank: rank > 0 or size == 1)
    for of in model.parameters():
        of.grad = torch.ones_like(of)
    monkeypatch.setattr(baton._handles, "lost", False)
    assert averager.average().living == max(size - 1, 1)
    assert model.bias.grad[0].item() == pytest.approx(size / max(size - 1, 1), rel=1e-3)


def test_an_averager_in_a_cycle_is_collected():
    before = set(baton._handles._live)
    averager = baton_torch.GradientAverager(torch.nn.Linear(2, 2))
    averager.average()
    averager.cycle = averager
    del averager
    gc.collect()
    assert set(baton._handles._live) <= before


def test_sparse_gradients_are_refused():
    model = torch.nn.Embedding(5, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    for mode in ("full", "solo"):
        with pytest.raises(baton.Invalid, match="sparse=False"):
            baton_torch.average_gradients(model, mode)


def test_wrong_modes():
    for mode in ("fall", "sparse", "sparse:x", "quorum:x"):
        with pytest.raises(baton.Invalid):
            baton_torch.average_gradients(torch.nn.Linear(2, 2), mode)
    gloo = dist.new_group([0], backend="gloo")
    for group in ("majority", 3, *([gloo] * (dist.get_rank() == 0))):
        with pytest.raises(TypeError, match="group"):
            baton_torch.DDPHook(group=group)
    for group in (dist.group.WORLD, baton.Group.world()):
        with pytest.raises(TypeError, match="mode is text"):
            baton_torch.DDPHook(group)
        baton_torch.DDPHook(group=group).destroy()
    for mode, options, match in (
            ("full", {"history": 3}, "history"), ("solo", {"histry": 3}, "histry"),
            ("solo", {"name": "a"}, "name"), ("sparse:0.1", {"name": "a"}, "name"),
            ("solo", {"history": -1}, "history"), ("solo", {"on_loss": "go"}, "on_loss"),
            ("solo", {"count": 3}, "count"), ("sparse:0.1", {"dtype": "f4"}, "dtype"),
            ("sparse:0.1", {"algorithm": "best"}, "algorithm"), ("sparse:1.5", {}, "0.01"),
            ("sparse:0.1", {"momentun": 1}, "momentun"), ("sparse:0", {}, "0.01"),
            ("solo", {"timeout": -1}, "timeout")):
        with pytest.raises(baton.Invalid, match=match):
            baton_torch.DDPHook(mode, **options)


def test_a_mode_and_a_timeout():
    hook = baton_torch.DDPHook("majority", timeout=datetime.timedelta(seconds=20))
    assert hook.mode == "majority"
    baton.Group.world().barrier(timeout=datetime.timedelta(seconds=20))
    ddp = DistributedDataParallel(module())
    ddp.register_comm_hook(None, hook)
    train(ddp, steps=1)
    assert hook.step.living == dist.get_world_size()


def test_example(monkeypatch, capsys):
    """Runs examples/python/train.py. The label of an image is the place of its bright pixel."""
    random = numpy.random.default_rng(0)
    labels = random.integers(0, 10, 400)
    rows = numpy.concatenate([16 * numpy.eye(64)[labels * 6], labels[:, None]], 1)
    dist.destroy_process_group()
    with tempfile.NamedTemporaryFile(suffix=".gz") as file:
        numpy.savetxt(file.name, rows, "%d", ",")
        monkeypatch.setattr(sys, "argv", ["train.py", "--mode", "solo", "--epochs", "1",
                                          "--digits", file.name])
        runpy.run_path(str(TREE / "examples" / "python" / "train.py"), run_name="__main__")
    baton_torch.init_process_group()
    if dist.get_rank() == 0:
        assert "weights the same on all ranks" in capsys.readouterr().out
