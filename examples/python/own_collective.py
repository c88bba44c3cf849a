"""An all-reduce of your own, from nodes: proven, simulated on 4,096 ranks, drawn, run.

    mpirun -np 4 python3 own_collective.py

Partial sums go up the chain of ranks, and the total comes down again:

    rank 0            rank 1            rank 2

    send -----------> recv
                       |
                      sum --> send ---> recv
                                         |
                                        sum
                                         |
                      recv <----------- send
                       |
    recv <----------- send
"""
import sys

if {"-h", "--help"} & set(sys.argv):
    print(__doc__)
    sys.exit()

import numpy

import baton


def chain(s, source, target, op):
    """Adds the nodes of rank s.rank of s.size to the graph s."""
    partial, ready = source, None
    if s.rank > 0:
        incoming = s.scratch(source)
        recv = s.recv(s.rank - 1, incoming)
        ready = s.reduce(target, incoming, source, op, after=recv)
        partial = target
    if s.rank < s.size - 1:
        # The total overwrites the target, but not before the partial sum has left it.
        # Without this edge commit would report unordered conflicting accesses.
        sent = s.send(s.rank + 1, partial, after=ready)
        ready = s.recv(s.rank + 1, target, after=sent)
    if s.rank > 0:
        s.send(s.rank - 1, target, after=ready)
    if s.size == 1:
        s.copy(target, source)


group = baton.Group.world()
if group.rank == 0:
    baton.prove(chain, ranks=12)  # each element has each rank's data, once
    cost = baton.simulate(chain, ranks=4096, bytes=1000, alpha_us=1.5, gbit=100)
    print(f"on 4,096 ranks: {cost.us:.1f} us, {cost.messages} messages")
    baton.picture(chain, 4, "chain.svg", bytes=1000)

mine, total = numpy.arange(1000) + group.rank, numpy.empty(1000, int)
graph = baton.Graph(group, "chain")
chain(graph, graph.input(mine), graph.bind(total), "sum")
graph.commit()  # cycles, ranges, races: found here, by name
for epoch in range(3):
    graph.run()
print(f"rank {group.rank}: total[7] = {total[7]}, in epoch {graph.epoch}")
