"""Pictures of the graph of one rank, or of several graphs with the messages between them."""
import collections
import contextlib
import graphlib
import html
from typing import Any, List, Optional, Tuple

_COLOURS = {"send": "#cfe3ff", "recv": "#d9f2d9", "reduce": "#ffe2c2", "call": "#f5d6eb"}
_WIDTH, _HEIGHT, _GAP = 116, 40, 28


def _name(node: Any) -> str:
    return f"r{node.graph.rank}_{node.entry.index}"


def _messages(graphs: List[Any]) -> List[Tuple[Any, Any]]:
    """Pairs of nodes that exchange a message: the k-th send from p to q, and the k-th receive of q
    from p."""
    ends: dict = {}
    for graph in graphs:
        for node, kind, _, peer in graph._nodes:
            if kind in ("send", "recv"):
                pair = (graph.rank, peer)[::1 if kind == "send" else -1]
                ends.setdefault(pair, ([], []))[kind == "recv"].append(node)
    return [pair for sends, receives in ends.values() for pair in zip(sends, receives)]


def dot(graphs: List[Any]) -> str:
    """Returns the graphs in the language of graphviz."""
    lines = ["digraph baton {", '    node [shape=box, style="rounded,filled", '
             'fontname="sans-serif", fontsize=11];']
    for graph in graphs:
        lines.append(f"    subgraph cluster_{graph.rank} {{")
        lines.append(f'        label="rank {graph.rank}"; color="#bbbbbb";')
        for node, kind, detail, _ in graph._nodes:
            label = (node.label + ("\\n" + detail if detail else "")).replace('"', r'\"')
            lines.append(f'        {_name(node)} [label="{label}", '
                         f'fillcolor="{_COLOURS.get(kind, "#eeeeee")}"];')
        lines += [f"        {_name(a)} -> {_name(b)};" for a, b in graph._edges]
        lines.append("    }")
    lines += [f"    {_name(a)} -> {_name(b)} [style=dashed, constraint=false];"
              for a, b in _messages(graphs)]
    return "\n".join([*lines, "}", ""])


def _place(graphs: List[Any]) -> Tuple[dict, float, float]:
    """Returns the places of the nodes, and the width and height of the picture. Each rank has a
    column. A node's row is the length of the longest path to it, on edges and messages."""
    before: dict = {node: [] for graph in graphs for node, *_ in graph._nodes}
    for a, b in [edge for graph in graphs for edge in graph._edges] + _messages(graphs):
        before[b].append(a)
    row = dict.fromkeys(before, 0)
    with contextlib.suppress(graphlib.CycleError):  # the nodes of a cycle stay in the first row
        for node in graphlib.TopologicalSorter(before).static_order():
            row[node] = max((row[earlier] + 1 for earlier in before[node]), default=0)
    places, left = {}, _GAP
    for graph in graphs:
        filled: collections.Counter = collections.Counter()
        for node, *_ in graph._nodes:
            places[node] = (left + filled[row[node]] * (_WIDTH + _GAP),
                            2 * _GAP + row[node] * (_HEIGHT + _GAP))
            filled[row[node]] += 1
        left += max([1, *filled.values()]) * (_WIDTH + _GAP) + _GAP
    below = max([0, *(y for _, y in places.values())]) + _HEIGHT + _GAP
    return places, left, below


def svg(graphs: List[Any]) -> str:
    """Returns the graphs as SVG: a column for each rank, and time goes down."""
    places, width, height = _place(graphs)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
             'font-family="sans-serif" font-size="11" text-anchor="middle">',
             '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="3" '
             'orient="auto"><path d="M0,0 L7,3 L0,6 z"/></marker></defs>',
             '<rect width="100%" height="100%" fill="white"/>']
    drawn = [(edge, "") for graph in graphs for edge in graph._edges]
    drawn += [(edge, ' stroke-dasharray="4"') for edge in _messages(graphs)]
    for (a, b), dash in drawn:
        (x, y), (to_x, to_y) = places[a], places[b]
        if y == to_y:
            x, y, to_x, to_y = x + _WIDTH / 2, y, to_x - _WIDTH / 2, to_y - _HEIGHT / 2
        lines.append(f'<line x1="{x + _WIDTH / 2}" y1="{y + _HEIGHT}" '
                     f'x2="{to_x + _WIDTH / 2}" y2="{to_y}" stroke="black" '
                     f'marker-end="url(#head)"{dash}/>')
    for graph in graphs:
        for i, (node, kind, detail, _) in enumerate(graph._nodes):
            x, y = places[node]
            if i == 0:
                lines.append(f'<text x="{x + _WIDTH / 2}" y="{_GAP}">rank {graph.rank}</text>')
            lines.append(f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
                         f'fill="{_COLOURS.get(kind, "#eeeeee")}" stroke="black"/>')
            for text, at in ((node.label, 17), (detail, 31)):
                lines.append(f'<text x="{x + _WIDTH / 2}" y="{y + at}">'
                             f'{html.escape(text)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def draw(graphs: List[Any], path: Optional[str] = None) -> str:
    """Returns SVG, or graphviz's language if `path` ends in .dot; also writes it to `path`."""
    text = dot(graphs) if path is not None and str(path).endswith(".dot") else svg(graphs)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return text
