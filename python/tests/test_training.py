"""Partial and sparse all-reduces, and sets of tensors."""
import gc
import types
import weakref

import numpy
import pytest

import baton
from baton import _arrays, _handles
from baton._library import ffi, lib


def test_partial_full_is_the_sum(group):
    with baton.Partial(group, 5, mode="full", dtype="f8") as partial:
        for step in range(1, 4):
            result = partial.step(numpy.full(5, float(group.rank + step)))
            total = sum(r + step for r in range(group.size))
            assert (result.data == total).all()
            assert (result.epoch, result.included, result.active, result.living) == (
                step, True, group.size, group.size)
        with pytest.raises(ValueError):
            result.data[0] = 1.0
        group.barrier()


@pytest.mark.parametrize("mode", ["solo", "majority", "quorum:1", "any:1", "all:1"])
def test_partial_conserves(group, mode):
    """The results and the pending contributions add up to all contributions. Results are equal."""
    partial = baton.Partial(group, 3, mode=mode, dtype="f8", seed=7)
    results = numpy.zeros(3)
    for step in range(20):
        partial.contribute(numpy.ones(3))
        partial.start()
        results += partial.wait(30).data
    group.barrier()
    pending = numpy.empty(3)
    partial.pending(pending)
    assert (group.allreduce(pending) + results == 20 * group.size).all()
    assert (group.allgather(results) == results).all()
    assert not partial.pending(pending) or pending[0] > 0
    partial.destroy()


def test_partial_of_tensors_and_out(group):
    partial = baton.Partial(group, mode="full", counts=[2, 3])
    for tensor, count in enumerate(partial.counts):
        partial.contribute(numpy.full(count, tensor + 1, "f4"), tensor)
    partial.start()
    out = numpy.empty(5, "f4")
    assert partial.wait(out=out).data is out
    arrays = [numpy.full(count, 3, "f4") for count in partial.counts]
    for tensor, a in enumerate(arrays):
        partial.contribute(a, tensor, lent=True)
    partial.start()
    assert partial.wait(out=arrays).data is arrays
    assert arrays[1][2] == 3 * group.size
    with pytest.raises(baton.Invalid, match="1 arrays"):
        partial.wait(out=arrays[:1])
    first, second = partial.split(out)
    assert (first == group.size).all() and (second == 2 * group.size).all()
    for wrong in (-1, 2):
        with pytest.raises(baton.Invalid, match="no tensor"):
            partial.contribute(numpy.ones(2, "f4"), wrong)
    with pytest.raises(baton.Invalid, match=r"f32\[5\] is needed"):
        partial.contribute(numpy.ones(4, "f4"))
    group.barrier()
    partial.destroy()
    with pytest.raises(baton.State):
        partial.start()


def test_what_is_lent_stays_after_an_interrupt(group):
    """The step continues, and reads the lent memory. The other ranks start later."""
    class Array(numpy.ndarray):  # an array that can have weak references
        pass

    if group.size == 1:
        return
    with baton.Partial(group, 1 << 19, mode="full") as partial:
        if group.rank > 0:
            group.barrier()
        a = numpy.ones(1 << 19, "f4").view(Array)
        partial.contribute(a, lent=True)
        partial.start()
        alive = weakref.ref(a)
        del a
        if group.rank == 0:
            lib.baton_engine_interrupt(_handles.engine())
            with pytest.raises(baton.Interrupted):
                partial.wait()
            assert alive() is not None
            group.barrier()
        assert (partial.wait().data == group.size).all()
        assert alive() is None
        group.barrier()


def test_what_a_start_reads_stays_after_ctrl_c(group, monkeypatch):
    class Array(numpy.ndarray):  # an array that can have weak references
        pass

    def interrupt(*given):
        assert start(*given) == lib.BATON_OK
        raise KeyboardInterrupt

    a, start = numpy.ones(3, "f4").view(Array), lib.baton_sparse_start
    with baton.Sparse(group, 3, k=3) as sparse:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(baton.sparse, "lib", types.SimpleNamespace(baton_sparse_start=interrupt))
            sparse.start(a)
        alive = weakref.ref(a)
        del a
        gc.collect()
        assert alive() is not None and (sparse.wait().values == group.size).all()
        assert alive() is None
        group.barrier()


def test_a_reduction_of_ones_own_lives_as_long_as_a_partial(group):
    freed = []
    op = ffi.gc(_arrays.operation("sum"), lambda _: freed.append(1))
    with baton.Partial(group, 3, mode="full", op=op) as partial:
        del op
        gc.collect()
        assert (partial.step(numpy.ones(3, "f4")).data == group.size).all() and not freed
        group.barrier()


def test_results_keep_their_owner(group):
    def step():
        return baton.Partial(group, 9, mode="full").step(numpy.ones(9, "f4")).data

    def sparse():
        owner = baton.Sparse(group, 9, k=2)
        owner.start(numpy.arange(9, dtype="f4"))
        return owner.wait()

    data, entries = step(), sparse()
    others = [numpy.full(9, 5.0, "f4") for _ in range(99)]
    assert (data == group.size).all()
    assert (entries.values == numpy.arange(9)[entries.indices if entries.indices is not None
                                              else slice(None)] * group.size).all()
    group.barrier()
    del data, entries, others


def test_partial_options(group):
    for options, match in (({"mode": "most"}, "no mode"), ({"keep": "some"}, "keep is"),
                           ({"mode": "quorum:99"}, "mode_ranks"), ({"op": "plus"}, "plus"),
                           ({"history": -1}, "option history")):
        with pytest.raises(baton.Invalid, match=match):
            baton.Partial(group, 4, **options)


@pytest.mark.parametrize("algorithm", ["auto", "spardl", "topka", "dense"])
def test_sparse_conserves(group, algorithm):
    n, rng = 1000, numpy.random.default_rng(group.rank)
    sparse = baton.Sparse(group, n, density=0.02, algorithm=algorithm, dtype="f8")
    given, got = numpy.zeros(n), numpy.zeros(n)
    for step in range(5):
        gradient = rng.integers(-9, 9, n).astype("f8")
        given += gradient
        if step % 2:
            sparse.contribute(0, gradient[:10])
            sparse.discard()
            sparse.contribute(400, gradient[400:])
            with pytest.raises(baton.State, match="element 0"):
                sparse.start()
            sparse.contribute(0, gradient[:400])
        sparse.start(None if step % 2 else gradient)
        result = sparse.wait(30)
        dense = numpy.zeros(n)
        dense[slice(None) if result.indices is None else result.indices] = result.values
        assert (sparse.dense() == dense).all()
        assert (sparse.dense(first=300, count=50) == dense[300:350]).all()
        assert (sparse.dense(numpy.empty(70), 930) == dense[930:]).all()
        got += dense
    given -= sparse.residual()
    assert group.allreduce(given) == pytest.approx(got)
    assert sparse.stats().steps == 5 and sparse.stats().k == 20
    group.barrier()
    sparse.destroy()


def test_sparse_goes_on_from_a_state(group):
    rng = numpy.random.default_rng(group.rank)
    gradients = rng.standard_normal((6, 400)).astype("f4")

    def run(sparse, some):
        for gradient in some:
            sparse.start(gradient)
            sparse.wait()
        return sparse.dense()

    with baton.Sparse(group, 400, k=9, momentum=0.9) as one:
        run(one, gradients[:3])
        state = one.state()
        expected = run(one, gradients[3:])
        group.barrier()
    with baton.Sparse(group, 400, k=9, momentum=0.9) as other:
        other.load_state(state)
        assert (run(other, gradients[3:]) == expected).all()
        with pytest.raises(baton.Invalid):
            other.load_state(state[:-1])
        other.set_residual(numpy.zeros(400, "f4"), numpy.zeros(400, "f4"))
        assert not other.residual().any() and not other.velocity().any()
        other.set_density(0.01)
        assert other.stats().k == 4
        other.flush()
        assert other.wait().indices is None
        group.barrier()


@pytest.mark.parametrize("on_loss", ["fail", "continue"])
def test_sparse_partial(group, on_loss):
    with baton.Sparse(group, 100, k=10, mode="solo", dtype="f8", on_loss=on_loss) as sparse:
        assert sparse.lives(group.size - 1)
        for _ in range(4):
            sparse.start(numpy.ones(100))
            assert sparse.wait(30).count <= 100
        state = sparse.state()
        group.barrier()
        with baton.Sparse(group, 100, k=10, mode="majority", dtype="f8") as other:
            other.load_state(state)
            assert other.state() == state
            assert (other.residual() == sparse.residual()).all()
            group.barrier()
            for of in (sparse, other):
                of.start(numpy.ones(100))
                of.wait(30)
                assert of.stats().steps == 5
                group.barrier()
        if on_loss == "fail":
            return
        sparse.load_state(state)
        group.barrier()
        sparse.start(numpy.ones(100))
        sparse.wait(30)
        assert sparse.stats().steps == 5
        group.barrier()


def test_sparse_options_that_differ(group):
    with pytest.raises(baton.Invalid, match="algorithm is"):
        baton.Sparse(group, 10, k=1, algorithm="best")
    if group.size > 1:
        # A rank that has noticed it destroys its object. The others may hear of that first.
        with pytest.raises((baton.Mismatch, baton.State), match="k|destroyed"):
            baton.Sparse(group, 10, k=1 + group.rank)
    with pytest.raises(baton.Invalid):
        baton.Sparse(group, 10, k=11)


def test_bare_tensors_are_refused(group):
    for wrong in (numpy.ones((3, 3)), [numpy.ones(3)], [("w", "dense")]):
        with pytest.raises(baton.Invalid, match="name, role, elements"):
            baton.Tensors(group, wrong, density=0.1)


def test_one_timeout_is_of_all_parts(group, monkeypatch):
    waited, wait = [], _handles.wait
    monkeypatch.setattr(_handles, "wait", lambda call, timeout, *cancel:
                        waited.append(timeout) or wait(call, timeout, *cancel))
    with group.sub([group.rank]) as alone:
        baton.Tensors(alone, [("w", "dense", 5)], density=0.1, timeout=20)
    assert waited == [20]


def test_tensors(group):
    sizes = [("w", "dense", 50000), ("b", "bias_or_norm", 10), ("c", "output", 20)]
    with baton.Tensors(group, sizes, density=0.01, always_sparse=True,
                       small_bytes=1000) as model:
        gradients = [numpy.full(count, i + 1, "f4") for i, (_, _, count) in enumerate(sizes)]
        for i in reversed(range(3)):
            model.ready(i, gradients[i])
        for i in range(3):
            result = model.wait(i, 30)
            assert (result.values == (i + 1) * group.size).all()
            assert (result.indices is None) == (i != 0)
            dense = model.dense(i)
            assert dense[slice(None) if i else result.indices].tolist() == result.values.tolist()
        assert model.plan(0).form == "sparse" and model.plan(1).form == "packed"
        with pytest.raises(baton.Invalid, match="no tensor 3"):
            model.plan(3)
        group.barrier()
