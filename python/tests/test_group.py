"""Groups and their collectives, on the ranks of one mpirun."""
import array
import datetime
import gc
import sys
import threading
import time
import types
import weakref

import numpy
import pytest

import baton
from baton import _arrays
from baton._library import ffi, lib

INTEGERS = [name for name in _arrays.NUMBERS if name[0] in "iu" and "_" not in name]
FLOATS = ["f32", "f64"]


def given(group, dtype, count, rank):
    """Returns a rank's contribution: numbers whose sum fits in every type."""
    return ((numpy.arange(count) + rank) % 5).astype(dtype)


@pytest.mark.parametrize("count", [0, 1, 7, 5000])
@pytest.mark.parametrize("name", INTEGERS + FLOATS + ["f16", "c64", "c128", "bool"])
def test_allreduce_of_every_type(group, name, count):
    dtype = _arrays.NUMPY[name]
    op, numpys = ("lor", numpy.logical_or) if name == "bool" else ("sum", numpy.add)
    expected = numpys.reduce([given(group, dtype, count, r) for r in range(group.size)])
    a = given(group, dtype, count, group.rank)
    out = numpy.empty(count, dtype)
    assert group.allreduce(a, op, out) is out
    assert (out == expected.astype(dtype)).all()
    assert (a == given(group, dtype, count, group.rank)).all()
    assert group.allreduce(a, op) is a
    assert (a == expected.astype(dtype)).all()
    group.allreduce(out, op)  # the second call of this shape uses the kept schedule
    assert (out == numpys.reduce([expected.astype(dtype)] * group.size)).all()


@pytest.mark.parametrize("op, numpys", [
    ("prod", numpy.multiply), ("min", numpy.minimum), ("max", numpy.maximum),
    ("band", numpy.bitwise_and), ("bor", numpy.bitwise_or), ("bxor", numpy.bitwise_xor)])
def test_allreduce_by_every_operation(group, op, numpys):
    a = given(group, "i4", 9, group.rank)
    group.allreduce(a, op)
    assert (a == numpys.reduce([given(group, "i4", 9, r) for r in range(group.size)])).all()


def test_allreduce_of_pairs_and_means(group):
    pair = numpy.array([(1.5, group.rank), (float(group.rank), group.rank)],
                       _arrays.NUMPY["f32_i32"])
    group.allreduce(pair, "maxloc")
    assert pair[0].tolist() == (1.5, 0)
    assert pair[1].tolist() == (group.size - 1, group.size - 1)
    mean = numpy.full(3, group.rank, "f8")
    group.allreduce(mean, "avg")
    assert mean == pytest.approx((group.size - 1) / 2)


def test_other_collectives(group):
    rank, size = group.rank, group.size
    assert (group.allgather(numpy.full((2, 3), rank)) ==
            numpy.arange(size).reshape(size, 1, 1)).all()
    counts = [r + 1 for r in range(size)]
    blocks = numpy.repeat(numpy.arange(size), counts)
    assert (group.allgather(numpy.full(rank + 1, rank), counts=counts) == blocks).all()
    root = size - 1
    got = group.gather(numpy.array([rank]), root)
    assert got is None if rank != root else got.ravel().tolist() == list(range(size))
    got = group.gather(numpy.full(rank + 1, rank), root, counts=counts)
    assert got is None if rank != root else (got == blocks).all()
    out = numpy.empty(2, "i8")
    group.scatter(numpy.arange(2 * size) if rank == root else None, root, out)
    assert out.tolist() == [2 * rank, 2 * rank + 1]
    out = numpy.empty(rank + 1, "i8")
    group.scatter(blocks if rank == root else None, root, out, counts)
    assert (out == rank).all()
    got = group.scatter(blocks, root, counts=counts) if rank == root else group.scatter(
        None, root, out, counts)
    assert (got == rank).all()
    a = numpy.full(2, rank if rank == root else -1)
    assert (group.broadcast(a, root) == root).all()
    assert group.alltoall(numpy.arange(size) * 10 + rank).tolist() == [
        rank * 10 + r for r in range(size)]
    sent = numpy.repeat(numpy.arange(size), [(rank + r) % 3 for r in range(size)])
    came = group.alltoall(sent, counts=[(rank + r) % 3 for r in range(size)],
                          target_counts=[(rank + r) % 3 for r in range(size)])
    assert (came == rank).all()
    total = size * (size - 1) // 2
    assert group.reduce_scatter(numpy.arange(2 * size)).tolist() == [
        size * 2 * rank, size * (2 * rank + 1)]
    assert (group.reduce_scatter(numpy.full(sum(counts), rank), counts=counts) ==
            total).all()
    a = numpy.full(2, rank)
    got = group.reduce(a, root=root)
    assert got is a and (a == total).all() if rank == root else (
        got is None and (a == rank).all())
    assert (group.scan(numpy.full(2, rank)) == rank * (rank + 1) // 2).all()
    assert (group.exscan(numpy.full(2, rank)) == max(rank * (rank - 1) // 2, 0)).all()
    group.barrier()


def test_lateness(group):
    schedule = group.prepare("allreduce", numpy.ones(4))
    for _ in range(5):
        schedule.start()
        schedule.wait()
    of = schedule.lateness(group.rank)
    assert of.epochs == 5 and of.started == 5 and of.failed == 0
    assert sum(of.late_bins) == of.timed
    with pytest.raises(baton.Invalid, match="allowed: 0 to"):
        schedule.lateness(group.size)
    schedule.destroy()


def test_more_shapes_than_are_kept(group):
    for count in [*range(1, 80), *range(1, 80)]:
        a = numpy.ones(count, "i4")
        assert (group.allreduce(a) == group.size).all()


def test_schedule_runs_and_rebinds(group):
    a, b = numpy.ones(4), numpy.full(4, 2.0)
    with group.prepare("allreduce", a, name="sum") as total:
        total.start()
        total.wait()
        total.run(timeout=10)
        assert (a == group.size ** 2).all() and total.result is a
        total.rebind(target=b)
        total.run()
        assert (b == 2 * group.size).all() and total.result is b
        assert (total.name, total.epoch, total.started) == ("sum", 3, 3)
        assert total.test() and total.failure is None
        group.barrier()  # if a peer destroyed `total` now, it would fail here
        for wrong in (numpy.ones(3), numpy.ones(4, "i8"), numpy.ones(8, "f4")):
            with pytest.raises(baton.Invalid, match=r"prepared is f64\[4\]"):
                total.rebind(target=wrong)
    with pytest.raises(baton.State, match="destroyed"):
        total.start()
    with pytest.raises(baton.State):
        total.wait()


def test_starts_ahead(group):
    vectors = [numpy.full(3, float(i)) for i in range(4)]
    total = group.prepare("allreduce", vectors[0], depth=4)
    for vector in vectors:
        total.rebind(target=vector)
        total.start()
    total.wait()
    assert [vector[0] for vector in vectors] == [i * group.size for i in range(4)]
    total.destroy()


def test_arrays_live_as_long_as_an_epoch_or_the_next_one_uses_them(group):
    class Array(numpy.ndarray):  # an array that can have weak references
        pass

    arrays = [numpy.full(3, float(i)).view(Array) for i in range(7)]
    alive = [weakref.ref(a) for a in arrays]
    total = group.prepare("allreduce", arrays[0], depth=2)
    total.rebind(target=arrays[1])
    total.start()
    for a in arrays[2:]:
        total.rebind(target=a)
    del arrays, a
    gc.collect()
    assert [i for i in range(7) if alive[i]() is not None] == [1, 6]
    total.run()
    assert alive[1]()[0] == group.size and alive[6]()[0] == 6 * group.size
    group.barrier()
    total.destroy()


def test_two_threads_destroy_a_schedule(group, monkeypatch):
    destroyed, destroy = [], baton.Schedule._destroyer
    monkeypatch.setattr(baton.Schedule, "_destroyer", lambda handle: (
        destroyed.append(handle), time.sleep(0.2), destroy(handle))[-1])
    schedule = group.prepare("barrier")
    thread = threading.Thread(target=schedule.destroy)
    thread.start()
    schedule.destroy()
    thread.join()
    assert len(destroyed) == 1


def test_a_group_forgets_what_was_destroyed(group):
    before, ones = len(group._made), [1] * group.size
    for _ in range(3):
        group.alltoall(numpy.ones(group.size), counts=ones, target_counts=ones)
    assert len(group._made) <= before


def test_sub_groups(group):
    evens = [r for r in range(group.size) if r % 2 == 0]
    if group.rank in evens:
        with group.sub(evens, "evens") as sub:
            assert (sub.size, sub.origin(sub.rank)) == (len(evens), group.rank)
            assert sub.allreduce(numpy.ones(2))[0] == len(evens)
    with pytest.raises(baton.Invalid, match="Group.sub: size is 0"):
        group.sub([])


def test_kinds_of_arrays(group, monkeypatch):
    class Interface:
        def __init__(self, a):
            self.kept, self.__array_interface__ = a, a.__array_interface__

    class Dlpack:
        def __init__(self, a):
            self.kept, self.__dlpack__ = a, a.__dlpack__

    a = numpy.ones(3, "f4")
    for kind in (Interface, Dlpack, lambda a: memoryview(a)):
        a[:] = 1
        group.allreduce(kind(a))
        assert (a == group.size).all()
    class ReadOnly(bytes):
        __dlpack__ = numpy.ones(3, "f4").__dlpack__

    class OfJax(Dlpack):  # DLPack gives its memory, and nothing says that it is read-only
        pass

    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=OfJax))
    for read_only in (ReadOnly(), OfJax(a)):
        with pytest.raises(baton.Invalid, match="is read-only"):
            group.allreduce(read_only)
    with pytest.raises(baton.Invalid, match="a ReadOnly is read-only"):
        group.allreduce(a, out=ReadOnly())
    group.allreduce(ReadOnly(), out=a)
    assert (a == group.size).all()
    a = array.array("d", [1, 2])
    group.allreduce(a)
    assert list(a) == [group.size, 2 * group.size]


@pytest.mark.parametrize("wrong, match", [
    (numpy.ones((4, 4))[:, 0], "not contiguous"), (numpy.array([None]), "object"),
    (numpy.ones(2, ">f4"), "byte order"), (numpy.array(["a"]), "can't be sent"),
    (numpy.ones((3, 4), order="F"), "not contiguous"),
    (numpy.ma.masked_array([1.0, 2.0], mask=[0, 1]), "the mask of a masked array")])
def test_wrong_arrays(group, wrong, match):
    with pytest.raises(baton.Invalid, match=match):
        group.allreduce(wrong)


def test_wrong_arrays_of_a_shape_that_is_kept(group):
    group.allreduce(numpy.ones((2, 4)))
    group.allreduce(numpy.ones((2, 4)))
    for wrong in (numpy.ones((2, 8))[:, ::2], numpy.ones((4, 2)).T):
        with pytest.raises(baton.Invalid, match="not contiguous"):
            group.allreduce(wrong)
    wrong = numpy.ones((2, 4))
    wrong.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        group.allreduce(wrong)


@pytest.mark.parametrize("warm", [0, 1])
def test_interrupt_between_start_and_wait(group, monkeypatch, warm):
    def interrupt(*_):
        raise KeyboardInterrupt

    with group.sub([group.rank]) as alone:
        for _ in range(warm):
            alone.allreduce(numpy.ones(5))
        with monkeypatch.context() as patch:
            patch.setattr(baton.schedule, "_wait", interrupt)
            for module in (baton.group, baton.schedule):
                patch.setattr(module, "_run",
                              lambda handle, _: baton.schedule._start(handle) or interrupt())
            with pytest.raises(KeyboardInterrupt):
                alone.allreduce(numpy.ones(5))
        assert (alone.allreduce(numpy.ones(5)) == 1).all()


@pytest.mark.parametrize("quick", [False, True])
def test_interrupt_after_a_rebind(group, monkeypatch, quick):
    def interrupt(*given):
        assert rebind(*given) == lib.BATON_OK
        raise KeyboardInterrupt

    a, rebind = numpy.ones(4), baton.group._rebind
    group.allreduce(a)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(baton.group, "_rebind", interrupt)
        group.allreduce(numpy.ones(4), timeout=None if quick else 20)
    a[:] = 1
    assert (group.allreduce(a) == group.size).all()


def test_what_numpy_copies_is_not_written(group):
    class Copied:
        @property
        def __array_interface__(self):
            self.kept = getattr(self, "kept", []) + [numpy.ones(1000)]
            return self.kept[-1].__array_interface__

    out = numpy.empty(1, "f4")
    for wrong, match in ((numpy.float32(1), "numpy scalar"), (Copied(), "Copied")):
        with pytest.raises(baton.Invalid, match=match):
            group.allreduce(wrong)
    group.allreduce(numpy.float32(1), out=out)
    assert out[0] == group.size


class OnDevice:
    """An array in main memory that claims to be in a GPU's memory."""

    def __init__(self, a):
        self.kept = a

    def __dlpack__(self):
        capsule = self.kept.__dlpack__()
        address = _arrays._capsule_pointer(capsule, b"dltensor")
        ffi.cast("dlpack_tensor_t *", address).device = 2
        return capsule


def test_the_cpu_does_not_touch_device_memory(group):
    """The library refuses a device array, since no GPU is attached."""
    a, out = numpy.ones(3, "f4"), numpy.zeros(3, "f4")
    with group.sub([group.rank]) as alone:
        with pytest.raises(baton.Unsupported, match="device"):
            alone.reduce(OnDevice(a), out=OnDevice(out))
        assert not out.any()
        graph = baton.Graph(alone)
        scratch, call = graph.scratch(a), baton.Call(None, graph)
        view = graph.bind(OnDevice(a))
        for of in (view, view[1:], scratch):
            with pytest.raises(baton.Unsupported, match="a device's memory"):
                call.array(of)
        with pytest.raises(baton.Unsupported, match="device"):
            graph.reduce(view, view, view)
            graph.commit()
        with baton.Partial(alone, 3) as partial, baton.Sparse(alone, 3, k=3) as sparse:
            for use in (partial.contribute, partial.pending, sparse.start, sparse.dense,
                        sparse.set_residual, lambda a: sparse.contribute(0, a)):
                with pytest.raises(baton.Invalid, match="of a device was given"):
                    use(OnDevice(a))


def test_timeouts(group):
    for timeout in (None, 30, 30.5, float("inf"), datetime.timedelta(seconds=30)):
        group.barrier(timeout=timeout)
    with pytest.raises(baton.Invalid, match="timeout of -1"):
        group.barrier(timeout=-1)
    group.barrier()


def test_wrong_use(group):
    a = numpy.ones(2)
    a.flags.writeable = False
    with pytest.raises(baton.Invalid, match="read-only"):
        group.allreduce(a)
    group.allreduce(a, out=numpy.ones(2))
    with pytest.raises(TypeError, match="numpy.array"):
        group.allreduce([1, 2])
    with pytest.raises(baton.Invalid, match="sum"):
        group.allreduce(numpy.ones(2), "average")
    with pytest.raises(ValueError, match="types"):
        group.allreduce(a, out=numpy.ones(2, "f4"))
    with pytest.raises(baton.Invalid, match="needs 2"):
        group.allreduce(a, out=numpy.ones(3))
    if group.size > 1:  # `out` needs room for the blocks of all ranks
        for call in (group.allgather, lambda a, out: group.gather(a, group.rank, out)):
            with pytest.raises(baton.Invalid, match="out has 3 elements .* needs"):
                call(b := numpy.ones(3), out=b)
    with pytest.raises(baton.Invalid, match="root is 99"):
        group.broadcast(numpy.ones(2), 99)
    with pytest.raises(baton.Invalid, match="no collective"):
        group.prepare("alreduce", numpy.ones(2))
    assert lib.BATON_OK == 0
