"""Schedules that the user builds: graphs, the simulator, proofs and pictures."""
import numpy
import pytest

import baton


def chain(s, source, target, op):
    """An all-reduce: partial sums go up the chain of ranks, and the total comes down."""
    partial, ready = source, None
    if s.rank > 0:
        incoming = s.scratch(source)
        recv = s.recv(s.rank - 1, incoming)
        ready = s.reduce(target, incoming, source, op, after=recv)
        partial = target
    if s.rank < s.size - 1:
        sent = s.send(s.rank + 1, partial, after=ready)
        ready = s.recv(s.rank + 1, target, after=sent)
    if s.rank > 0:
        s.send(s.rank - 1, target, after=ready)
    if s.size == 1:
        s.copy(target, source)


def forgets_a_rank(s, source, target, op):
    s.copy(target, source)


def waits_in_a_circle(s):
    view = s.scratch(4, "f4")
    recv = s.recv((s.rank + 1) % s.size, view)
    s.send((s.rank - 1) % s.size, view, after=recv)


def dag(group, seen):
    """Builds the graph of README.md: z = 2x + y * y."""
    x, y, z = (numpy.array(v, "f4") for v in ([1, 2], [3, 4], [0, 0]))
    graph = baton.Graph(group, "dag")
    left, right = graph.scratch(x), graph.scratch(x)
    twice = graph.reduce(left, x, x)
    square = graph.reduce(right, y, y, op="prod")
    add = graph.reduce(z, left, right, after=[twice, square])
    graph.call(lambda call: seen.append((call.epoch, z.tolist())), after=add)
    return graph


def test_dag_runs(group):
    seen = []
    graph = dag(group, seen).commit()
    graph.run()
    graph.run()
    assert seen == [(1, [11.0, 20.0]), (2, [11.0, 20.0])]
    assert "r%d_0 -> r%d_2" % (group.rank, group.rank) in graph.dot()
    graph.destroy()


def test_own_allreduce(group):
    mine, total = numpy.arange(100) + group.rank, numpy.empty(100, "i8")
    with baton.Graph(group, "chain") as graph:
        chain(graph, graph.input(mine), graph.bind(total), "sum")
        graph.commit()
        for _ in range(3):
            graph.run()
            expected = group.size * numpy.arange(100) + sum(range(group.size))
            assert (total == expected).all()
        other = numpy.empty(100, "i8")
        graph.rebind(source=mine, target=other)
        graph.run()
        assert (other == total).all()
        group.barrier()


def test_collectives_as_nodes(group):
    a, out = numpy.full(4, 1.0), numpy.empty((group.size, 4))
    with baton.Graph(group, "both") as graph:
        add = graph.collective("allreduce", a, a)
        double = graph.reduce(a, a, a, after=add)
        graph.collective("allgather", a, out, after=double)
        graph.commit().run()
        assert (out == 2 * group.size).all()
        group.barrier()


def test_nodes_after_a_wrong_collective(group):
    """A collective that is refused adds no nodes."""
    a = numpy.ones(2)
    with baton.Graph(group) as graph:
        for wrong in ({"source": numpy.ones((2, 2))[:, 0], "target": a}, {},
                      {"source": a, "target": a, "op": "plus"}):
            with pytest.raises(baton.Invalid):
                graph.collective("allreduce", **wrong)
        assert graph.nop().label == "nop#0"


def test_views_are_slices(group):
    a, b = numpy.arange(6.0), numpy.zeros(6)
    with baton.Graph(group) as graph:
        whole = graph.bind(b)
        graph.copy(whole[0:3], graph.input(a)[3:6])
        graph.copy(b[3:], a[:3])  # a slice of an array names memory of the array
        graph.commit().run()
        assert b.tolist() == [3, 4, 5, 0, 1, 2]
        with pytest.raises(TypeError, match="slice"):
            whole[::2]
    with baton.Graph(group) as graph:
        graph.copy(b, memoryview(bytes(48)).cast("d"))
        graph.commit().run()
        assert not b.any()


def test_calls_skip_and_see(group):
    a, ran = numpy.zeros(2), []
    with baton.Graph(group) as graph:
        view = graph.scratch(2, "f8")
        first = graph.call(lambda call: call.array(view).fill(7.0))
        fork = graph.call(lambda call: baton.SKIP if call.epoch == 1 else None, after=first)
        graph.copy(a, view, after=fork).optional()
        seen = graph.call(lambda call: ran.append(call.completed(fork)), after=fork)
        seen.optional()
        graph.commit().run()
        assert (a.tolist(), ran) == ([0, 0], [])
        graph.run()
        assert (a.tolist(), ran) == ([7, 7], [True])


def test_call_that_raises_fails_the_epoch(group):
    def fail(call):
        if group.rank == 0:
            raise KeyError("no key")

    with baton.Graph(group, "bad") as graph:
        graph.collective("barrier", after=graph.call(fail))
        graph.commit()
        # The other ranks may hear that rank 0 recovers before they hear of the failure.
        with pytest.raises(baton.Failed if group.rank == 0 else baton.Error) as caught:
            graph.start()
            graph.wait()
        assert (group.rank == 0) == isinstance(caught.value.__cause__, KeyError)
        if group.rank == 0:
            assert "KeyError: 'no key'" in str(caught.value)
            assert graph.failure.rank == 0 and "KeyError" in graph.failure.message
        group.recover(30)


def test_ctrl_c_in_a_call(group):
    with group.sub([group.rank]) as alone, baton.Graph(alone) as graph:
        graph.call(lambda call: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            graph.commit().run()
        alone.recover()


def test_mistakes_are_named(group):
    a = numpy.zeros(4)
    graph = baton.Graph(group)
    one, two = graph.nop(), graph.nop()
    one >> two >> one
    with pytest.raises(baton.Cycle, match="nop#0"):
        graph.commit()
    graph.destroy()
    graph = baton.Graph(group)
    graph.copy(a[:2], a[2:])
    graph.copy(a[2:], a[:2])
    with pytest.raises(baton.Hazard, match="copy#1"):
        graph.commit()
    graph.destroy()
    graph = baton.Graph(group)
    graph.reduce(a, a[:2], a[2:])
    with pytest.raises(baton.Invalid):
        graph.commit()
    graph.destroy()
    graph, other = baton.Graph(group), baton.Graph(group)
    for foreign in (lambda: graph.nop(after=other.nop()),
                    lambda: graph.copy(a, other.scratch(a))):
        with pytest.raises(baton.Invalid, match="another graph"):
            foreign()
    other.destroy()
    with pytest.raises(baton.Invalid, match="as a node"):
        graph.collective("allreduced", a, a)
    with pytest.raises(baton.State):
        graph.start()
    graph.destroy()


@pytest.mark.parametrize("ranks", [1, 2, 3, 12])
def test_proofs(ranks):
    baton.prove(chain, ranks)
    baton.prove(lambda s, source, target, op: s.collective(
        "allreduce", source, target, op=op, algorithm="ring"), ranks)
    baton.prove(lambda s, source, target, op: s.collective(
        "reduce", source, target if s.rank == ranks - 1 else None, op=op, root=ranks - 1),
        ranks, root=ranks - 1)
    baton.prove(lambda s, source, target, op: s.collective(
        "broadcast", None, target, after=s.copy(target, source) if s.rank == 0 else None),
        ranks, sources=[0])
    if ranks > 1:
        with pytest.raises(baton.Mismatch, match="rank 0, which does not belong there"):
            baton.prove(chain, ranks, sources=[1])
        with pytest.raises(baton.Mismatch, match="on rank 0: .* lacks rank 1"):
            baton.prove(forgets_a_rank, ranks)


@pytest.mark.one_rank
def test_simulations():
    alpha_us, count = 1.5, 1 << 20
    result = baton.simulate(chain, 4096, bytes=count, alpha_us=alpha_us, gbit=100)
    assert result.us == pytest.approx(2 * 4095 * (alpha_us + count * 0.08 / 1e3))
    assert result.messages == 2 * 4095 and result.bytes == 2 * 4095 * count
    with pytest.raises(baton.Deadlock, match="ranks wait in a cycle"):
        baton.simulate(waits_in_a_circle, 3)
    with pytest.raises(baton.Mismatch):
        baton.simulate(lambda s: s.send(0, s.scratch(s.rank + 1, "f4")), 2)
    with pytest.raises(ZeroDivisionError):
        baton.simulate(lambda s: 1 / 0, 3)
    with pytest.raises(baton.Invalid):
        baton.simulate(chain, 0)


@pytest.mark.one_rank
def test_graphs_end_with_their_simulator():
    kept = []
    baton.simulate(lambda s: kept.append(s) or s.nop(), 2)
    for use in (kept[0].nop, kept[1].start, lambda: kept[0].name):
        with pytest.raises(baton.State, match="was destroyed"):
            use()


@pytest.mark.one_rank
def test_simulator_in_detail():
    events, done = [], []
    with baton.Simulator(3, alpha_us=2.0, beta_ns=1.0, skew="uniform:0:5", seed=3) as sim:
        sim.trace(events.append)
        sim.build(lambda s: chain(s, s.scratch(8, "f4"), s.scratch(8, "f4"), "sum"), "c")
        first = sim.epoch()
        sim.trace(None)
        assert {event.what for event in events} == {"send", "recv", "reduce", "epoch"}
        assert first >= 4 * 2.0 and sim.totals.messages == 4
        sim.at(sim.now_us + 10, lambda: done.append(sim.now_us))
        sim.run()
        assert len(done) == 1
        sim.at(0, lambda: {}["no"])
        with pytest.raises(KeyError):
            sim.run()
        sim.kill(2)
        with pytest.raises(baton.PeerLost):
            sim.epoch()
    with pytest.raises(baton.Invalid, match="distribution"):
        baton.Simulator(3, lag="often")


@pytest.mark.one_rank
def test_pictures(group, tmp_path):
    graph = dag(group, [])
    assert graph.draw(tmp_path / "dag.dot") == graph.dot()
    assert graph.draw(tmp_path / "dag.svg").rstrip().endswith("</svg>")
    drawn = (tmp_path / "dag.svg").read_text()
    assert "<svg" in drawn and "reduce#2" in drawn
    graph.destroy()
    text = baton.picture(chain, 3, tmp_path / "chain.dot", bytes=64)
    assert text.count("style=dashed") == 4
    assert "cluster_2" in text
