"""Collectives of your own: a schedule is a graph of the nodes of one rank."""
from typing import Any, Callable, Iterable, List, Optional, Union

import numpy

from baton import _arrays, draw, errors
from baton._library import answer, check, ffi, lib, options
from baton.schedule import Schedule


class View:
    """An operand of nodes: `count` elements of a buffer, from `first` on. The slice view[a:b] is
    a view of the elements from a up to, but not including, b."""

    def __init__(self, graph: "Graph", buffer: Any, first: int, count: int, dtype: int) -> None:
        self.graph, self.buffer = graph, buffer
        self.first, self.count, self.dtype = first, count, dtype

    def __getitem__(self, where: slice) -> "View":
        if not isinstance(where, slice) or where.step not in (None, 1):
            raise TypeError("a view is cut by a slice without a step, view[a:b]")
        begin, end, _ = where.indices(self.count)
        return View(self.graph, self.buffer, self.first + begin, max(end - begin, 0), self.dtype)


class Node:
    """A node of a graph. `a >> b`: b fires after a."""

    def __init__(self, graph: "Graph", entry: Any, label: str, exit: Any = None) -> None:
        self.graph, self.entry, self.label = graph, entry, label
        self.exit = entry if exit is None else exit

    def before(self, *nodes: "Node") -> "Node":
        """Makes other nodes fire only after this one has completed. Returns this node."""
        for node in nodes:
            self.graph.before(self, node)
        return self

    def __rshift__(self, other: "Node") -> "Node":
        self.before(other)
        return other

    def need(self, count: int) -> "Node":
        """Makes the node fire after `count` of the nodes before it; 0 stands for all of them."""
        lib.baton_set_need(self.graph._alive(), self.entry, count)
        return self

    def optional(self) -> "Node":
        """Lets epochs end without waiting for this node."""
        lib.baton_set_optional(self.graph._alive(), self.entry)
        return self


class Call:
    """The argument of a call node's function. It is valid until the function returns."""

    def __init__(self, call: Any, graph: "Graph") -> None:
        self._call, self._graph = call, graph

    @property
    def epoch(self) -> int:
        """The number of the epoch, from 1."""
        return lib.baton_call_epoch(self._call)

    def completed(self, node: Node) -> bool:
        """Returns whether a node has completed in this epoch."""
        return lib.baton_call_completed(self._call, node.exit)

    def array(self, view: Any) -> numpy.ndarray:
        """Returns the elements of a view, or of scratch, as an array that can be written.
        Unsupported: the elements are in a device's memory. If the graph has arrays on a device,
        its scratch may be there, too, so this call refuses scratch."""
        view, memories = self._graph._view(view, True), self._graph._memories
        if memories.get(view.buffer.index, max(memories.values(), default=0)):
            raise errors.Unsupported("the view is in a device's memory, or its scratch may be: "
                                     "use a tensor of yours, or bind memory of the CPU")
        address = lib.baton_call_address(self._call, self._graph._c(view))
        if address == ffi.NULL:
            raise errors.State("the view has no memory: the simulation is of costs only")
        return _arrays.vector(address, view.count, view.dtype)


SKIP = lib.BATON_SKIP  # returned by a call node's function to skip the nodes after the call


@ffi.callback("baton_status_t(void *, baton_call_t *)", error=lib.BATON_ERR_FAILED)
def _run_call(arg: Any, call: Any) -> int:
    graph, function = ffi.from_handle(arg)
    try:
        return lib.BATON_SKIP if function(Call(call, graph)) is SKIP else lib.BATON_OK
    except BaseException as raised:
        graph._raised = raised
        text = ffi.new("char[]", f"{type(raised).__name__}: {raised}".encode())
        return lib.baton_call_fail(call, lib.BATON_ERR_FAILED, b"%s", text)


_After = Union[None, Node, Iterable[Node]]
# The collectives that can be nodes, each with the NAME in the type of its arguments,
# baton_NAME_args_t. None: it has no arguments.
_ARGUMENTS: dict = {name: name for name in ("broadcast", "reduce", "allreduce", "reduce_scatter",
                                      "allgather", "alltoall", "scan")}
_ARGUMENTS.update(exscan="scan", scatter="rooted", gather="rooted", barrier=None)


class Graph(Schedule):
    """A schedule of nodes of your own: build it, commit it, run it as often as you like.

        dag = baton.Graph(group, "dag")
        left, right = dag.scratch(x), dag.scratch(x)
        twice = dag.reduce(left, x, x)
        square = dag.reduce(right, y, y, op="prod")
        add = dag.reduce(z, left, right, after=[twice, square])
        dag.call(lambda call: print(call.epoch, z), after=add)
        dag.commit()
        dag.run()

    Operands are arrays (bound when they are first used), scratch, or slices of either. Nodes
    without edges between them run in any order; `after=`, `before` and `>>` add edges. The k-th
    send from rank p to q meets the k-th receive of q from p. `commit` finds mistakes, and names
    the nodes.

    The function of a call node runs on the thread that drives the engine, and holds up all
    schedules meanwhile. If it raises an exception, the epoch fails on all ranks. On this rank
    `wait` then raises an exception whose `__cause__` is the function's.
    """

    def __init__(self, group: Any, name: str = "graph") -> None:
        super().__init__(group, answer("baton_schedule_t *", lib.baton_schedule_create,
                                       group._alive(), name.encode()))
        self._begin(self._handle)

    def _begin(self, pointer: Any) -> None:
        self.rank: int = lib.baton_schedule_rank(pointer)
        self.size: int = lib.baton_schedule_size(pointer)
        # The count, type and memory of the first input array, and of the first other array.
        self._bound = [None, None]
        self._views: dict = {}  # the views of arrays, by address, bytes and type
        self._memories: dict = {}  # the kinds of memory of arrays, by the number of the buffer
        self._alive_too: List[Any] = []  # arrays and handles of functions that nodes use
        self._nodes, self._edges = [], []  # type: list, list  # for draw

    @classmethod
    def _lent(cls, pointer: Any) -> "Graph":
        """Returns a graph that the simulator owns."""
        graph = cls.__new__(cls)
        graph._handle, graph._collected, graph._raised = pointer, False, None
        graph.group = graph.result = None
        graph._begin(pointer)
        return graph

    # ---- operands --------------------------------------------------------------

    def input(self, a: Any) -> View:
        """Binds an array that no node writes. `rebind(source=...)` replaces the first one."""
        return self._bind(_arrays.operand(a, False), 0)

    def bind(self, a: Any) -> View:
        """Binds an array that nodes read and write. `rebind(target=...)` replaces the first one."""
        return self._bind(_arrays.operand(a, True), 1)

    def _bind(self, operand: Any, which: int) -> View:
        bind = (lib.baton_buffer_bind_input, lib.baton_buffer_bind)[which]
        buffer = bind(self._alive(), operand.address, operand.bytes)
        if operand.memory:
            lib.baton_buffer_set_memory(self._handle, buffer, operand.memory)
        self._memories[buffer.index] = operand.memory
        view = View(self, buffer, 0, operand.count, operand.dtype)
        self._views[operand.address, operand.bytes, operand.dtype] = view
        self._alive_too.append(operand)
        self._bound[which] = self._bound[which] or operand.kind
        return view

    def scratch(self, like: Any, dtype: Any = None) -> View:
        """Returns a view of memory that belongs to the schedule. It has as many elements as
        `like`, an array or a view; or if `like` is a number, that many elements of `dtype`.
        Their values are undefined when an epoch begins."""
        if isinstance(like, int):
            count, number = like, _arrays.dtype_number(dtype)
        else:
            given: Any = like if isinstance(like, View) else _arrays.operand(like, False)
            count, number = given.count, given.dtype
        buffer = lib.baton_buffer_scratch(self._alive(), count * _arrays.SIZES[number])
        return View(self, buffer, 0, count, number)

    def _own(self, *parts: Any) -> None:
        if any(part.graph is not self for part in parts):
            raise errors.Invalid("this node or view belongs to another graph")

    def _view(self, a: Any, writes: bool) -> View:
        if isinstance(a, View):
            self._own(a)
            return a
        operand = _arrays.operand(a, writes)
        view = self._views.get((operand.address, operand.bytes, operand.dtype))
        if view is None:
            writable = getattr(getattr(operand.keep, "flags", None), "writeable", True)
            view = self._bind(operand, int(writable))
        return view

    def _c(self, a: Any, writes: bool = False) -> Any:
        """Returns the baton_view_t of an operand."""
        view = self._view(a, writes)
        size = _arrays.SIZES[view.dtype]
        return ffi.new("baton_view_t *", {"buffer": view.buffer, "offset": view.first * size,
                                          "bytes": view.count * size})[0]

    # ---- nodes -----------------------------------------------------------------

    def _add(self, kind: str, index: Any, after: _After, detail: str = "",
             peer: Optional[int] = None, exit: Any = None) -> Node:
        node = Node(self, index, f"{kind}#{index.index}", exit)
        self._nodes.append((node, kind, detail, peer))
        for earlier in ([after] if isinstance(after, Node) else after or ()):
            self.before(earlier, node)
        return node

    def send(self, peer: int, source: Any, after: _After = None) -> Node:
        """Sends a view to rank `peer`."""
        return self._add("send", lib.baton_add_send(
            self._alive(), peer, self._c(source)), after, f"to rank {peer}", peer)

    def recv(self, peer: int, target: Any, after: _After = None) -> Node:
        """Receives a message of rank `peer` into a view of the same size."""
        return self._add("recv", lib.baton_add_recv(
            self._alive(), peer, self._c(target, True)), after, f"from rank {peer}", peer)

    def reduce(self, target: Any, left: Any, right: Any, op: Any = "sum",
               after: _After = None) -> Node:
        """target = left (op) right; all have the same size. target may be left or right."""
        index = lib.baton_add_reduce_local(
            self._alive(), self._view(target, True).dtype, _arrays.operation(op),
            self._c(target, True), self._c(left), self._c(right))
        self._alive_too.append(op)
        return self._add("reduce", index, after, op if isinstance(op, str) else "")

    def copy(self, target: Any, source: Any, after: _After = None) -> Node:
        """target = source; both have the same size."""
        return self._add("copy", lib.baton_add_copy(
            self._alive(), self._c(target, True), self._c(source)), after)

    def nop(self, after: _After = None) -> Node:
        """Adds a node that does nothing. It joins edges: nodes after it wait for all before it."""
        return self._add("nop", lib.baton_add_nop(self._alive()), after)

    def call(self, function: Callable[[Call], Any], after: _After = None) -> Node:
        """Calls function(call) in each epoch. If it returns `baton.SKIP`, the nodes after it are
        skipped."""
        self._alive_too.append(ffi.new_handle((self, function)))
        return self._add("call", lib.baton_add_call(
            self._alive(), _run_call, self._alive_too[-1]), after,
            getattr(function, "__name__", ""))

    def collective(self, name: str, source: Any = None, target: Any = None, *,
                   op: Any = "sum", root: int = 0, algorithm: Optional[str] = None,
                   after: _After = None) -> Node:
        """Adds all nodes of a collective, as one node: broadcast (of target), reduce, allreduce,
        reduce_scatter, allgather, alltoall, scan, exscan, scatter, gather, barrier. In place:
        source and target are the same. An operand that only the root has is None on other
        ranks."""
        if name not in _ARGUMENTS:
            raise errors.Invalid(f'no collective "{name}" as a node; there are: '
                                 + ", ".join(_ARGUMENTS))
        handle, args = self._alive(), ()  # type: Any, tuple
        if name != "barrier":
            kind, given = f"baton_{_ARGUMENTS[name]}_args_t", dict[str, Any](algorithm=algorithm)
            fields = dict(ffi.typeof(kind).fields)
            for field, a in (("source", source), ("target", target)):
                if a is not None:
                    view = self._view(a, field == "target")
                    given[field if field in fields else "data"] = self._c(view)
            if len(given) == 1:
                raise errors.Invalid(f"{name}: an array is missing")
            if "op" in fields:
                given.update(dtype=view.dtype, op=_arrays.operation(op))
                self._alive_too.append(op)
            if "root" in fields:
                given["root"] = root
            args = options(kind, self._alive_too, given),
        entry, exit = lib.baton_add_nop(handle), lib.baton_add_nop(handle)
        begun = lib.baton_enclose_begin(handle)
        getattr(lib, f"baton_add_{name}")(handle, *args)
        lib.baton_enclose_end(handle, begun, entry, exit)
        return self._add(name, entry, after, algorithm or "", exit=exit)

    def before(self, a: Node, b: Node) -> None:
        """Makes node b fire only after node a has completed."""
        self._own(a, b)
        lib.baton_before(self._alive(), a.exit, b.entry)
        self._edges.append((a, b))

    # ---- life ------------------------------------------------------------------

    def set_depth(self, depth: int) -> None:
        """Sets the most epochs in flight. Call it before `commit`."""
        lib.baton_schedule_set_depth(self._alive(), depth)

    def commit(self) -> "Graph":
        """Checks the graph, and allocates what its epochs need. Does not wait for others.

        Cycle, Hazard (unordered accesses to the same bytes), Unreachable, Invalid, Limit,
        NoMemory: the message names the nodes. Returns the graph.
        """
        check(lib.baton_schedule_commit(self._alive()))
        return self

    def dot(self) -> str:
        """Returns the graph in the language of graphviz."""
        return draw.dot([self])

    def draw(self, path: Optional[str] = None) -> str:
        """Returns a picture: SVG, or graphviz's language if `path` ends in .dot. Also writes it to
        `path`, if there is one. A collective is one node."""
        return draw.draw([self], path)
