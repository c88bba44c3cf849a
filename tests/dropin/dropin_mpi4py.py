"""mpi4py's own words, with libbaton_mpi in front of MPI: nonblocking and persistent
collectives against blocking ones of MPI, which are computed here by hand."""

from array import array

from mpi4py import MPI

TYPES = {
    "b": MPI.SIGNED_CHAR, "B": MPI.UNSIGNED_CHAR, "h": MPI.SHORT,
    "H": MPI.UNSIGNED_SHORT, "i": MPI.INT, "I": MPI.UNSIGNED, "l": MPI.LONG,
    "L": MPI.UNSIGNED_LONG, "q": MPI.LONG_LONG, "f": MPI.FLOAT, "d": MPI.DOUBLE,
}
COUNT = 19


def fold(operate, values):
    result = values[0]
    for value in values[1:]:
        result = operate(result, value)
    return result


# The operations that take floats come first.
OPS = [
    (MPI.SUM, lambda a, b: a + b), (MPI.PROD, lambda a, b: a * b),
    (MPI.MAX, max), (MPI.MIN, min),
    (MPI.LAND, lambda a, b: int(bool(a) and bool(b))),
    (MPI.LOR, lambda a, b: int(bool(a) or bool(b))),
    (MPI.LXOR, lambda a, b: int(bool(a) != bool(b))),
    (MPI.BAND, lambda a, b: a & b), (MPI.BOR, lambda a, b: a | b),
    (MPI.BXOR, lambda a, b: a ^ b),
]


def values(code, rank):
    return array(code, [(rank + i) % 2 for i in range(COUNT)])


def zeros(code, count=COUNT):
    return array(code, [0] * count)


def reductions(comm):
    rank, size = comm.rank, comm.size
    for code, kind in TYPES.items():
        for op, operate in OPS[:4] if code in "fd" else OPS:
            all_values = [values(code, r) for r in range(size)]
            columns = list(zip(*all_values))
            total = array(code, [fold(operate, c) for c in columns])
            mine = values(code, rank)
            result = zeros(code)
            comm.Iallreduce([mine, kind], [result, kind], op).Wait()
            assert result == total, code
            result = values(code, rank)
            comm.Iallreduce(MPI.IN_PLACE, [result, kind], op).Wait()
            assert result == total
            root = size - 1
            result = zeros(code)
            comm.Ireduce([mine, kind], [result, kind], op, root).Wait()
            assert rank != root or result == total
            prefix = [fold(operate, c[: rank + 1]) for c in columns]
            comm.Iscan([mine, kind], [result, kind], op).Wait()
            assert result == array(code, prefix), code
            result = zeros(code)
            comm.Iexscan([mine, kind], [result, kind], op).Wait()
            if rank > 0:
                prefix = [fold(operate, c[:rank]) for c in columns]
                assert result == array(code, prefix)


def movement(comm):
    rank, size = comm.rank, comm.size
    requests = []
    blocks = [values("i", r) for r in range(size)]
    every = sum(blocks[1:], blocks[0])
    gathered, scattered = zeros("i", COUNT * size), zeros("i")
    together, exchanged = zeros("i", COUNT * size), zeros("i", COUNT * size)
    cast = values("i", 0) if rank == 0 else zeros("i")
    requests.append(comm.Ibcast(cast, 0))
    requests.append(comm.Igather(blocks[rank], gathered, size // 2))
    requests.append(comm.Iscatter(every, scattered, size // 2))
    requests.append(comm.Iallgather(blocks[rank], together))
    requests.append(comm.Ialltoall(every, exchanged))
    counts = [1 + r % 3 for r in range(size)]
    ragged = zeros("i", sum(counts))
    mine = blocks[rank][: counts[rank]]  # mpi4py keeps no reference to buffers
    requests.append(comm.Iallgatherv(mine, [ragged, counts]))
    requests.append(comm.Ibarrier())
    MPI.Request.Waitall(requests)
    assert cast == values("i", 0) and together == every
    assert rank != size // 2 or gathered == every
    assert scattered == blocks[rank]
    assert exchanged == sum([blocks[rank]] * (size - 1), blocks[rank])
    assert ragged == array("i", [v for r in range(size) for v in blocks[r][: counts[r]]])


def communicators(comm):
    half = comm.Split(comm.rank % 2, -comm.rank)
    reductions(half)
    movement(half)
    copy, request = half.Idup()
    request.Wait()
    half.Free()
    copy.Free()


def main():
    comm = MPI.COMM_WORLD
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE  # as mpi4py asks for
    reductions(comm)
    movement(comm)
    communicators(comm)
    assert comm.allreduce(comm.rank) == comm.size * (comm.size - 1) // 2


if __name__ == "__main__":
    main()
