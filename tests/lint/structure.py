"""Checks of the tree as a whole: what leads back to itself, and what a room may not reach."""
import os
import re

import rules

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes_of(path, lines):
    """[(line, header)] of a C++ file."""
    if not rules.CPP.search(path):
        return []
    return [(number, match.group(2)) for number, line in enumerate(lines, 1)
            if (match := INCLUDE.match(line))]


def find_cycles(graph):
    """Sets of nodes that lead to each other (Tarjan, Depth-first search and linear graph algorithms), each sorted."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in sorted(graph.get(node, ())):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def unit_of(path):
    """foo.h and foo.cc are one unit."""
    return re.sub(r"\.\w+$", "", path)


def check_cycles(includes):
    """Yields (path, line, what) for units and for folders that lead back to themselves."""
    for what, name_of in (("units", unit_of), ("folders", os.path.dirname)):
        graph = {}
        for path, headers in includes.items():
            for _, header in headers:
                if header in includes and name_of(header) != name_of(path):
                    graph.setdefault(name_of(path), set()).add(name_of(header))
        for cycle in find_cycles(graph):
            path, line = next((path, line) for path, headers in sorted(includes.items()) if name_of(path) in cycle
                              for line, header in headers
                              if header in includes and name_of(header) in cycle and name_of(header) != name_of(path))
            yield path, line, f"{what} include each other: {', '.join(cycle)}"


def check_upward(includes):
    """Yields what in services/ includes a header of a folder above it."""
    for path, headers in includes.items():
        for line, header in headers if path.startswith("services/") else ():
            above = os.path.dirname(header)
            if header in includes and os.path.dirname(path).startswith(above + "/"):
                yield path, line, f"{header} stands above it: what both use goes down"


def check_without_grpc(includes):
    """Yields, for rooms without gRPC, each #include that leads to it, with the way."""
    ways = {}  # of a header: the headers through which it comes to gRPC, or None

    def way_of(header):
        if rules.GRPC_HEADER.search(header):
            return [header]
        if header not in ways:
            ways[header] = None  # while it is looked at
            for _, inner in includes.get(header, ()):
                if way := way_of(inner):
                    ways[header] = [header] + way
                    break
        return ways[header]

    for path, headers in includes.items():
        for line, header in headers if rules.WITHOUT_GRPC.match(path) else ():
            if way := way_of(header):
                yield path, line, f"gRPC does not come in here: {' -> '.join(way)}"


def check_folder_sizes(files):
    """Yields folders that hold more .cc and .h files than they may."""
    for folder, most in rules.MAX_FILES.items():
        held = [path for path in files if os.path.dirname(path) == folder and re.search(r"\.(cc|h)$", path)]
        if len(held) > most:
            yield folder, 1, f"{len(held)} .cc and .h files; {most} are the limit: the rest has a room"


def check(files, lines_of):
    """All violations of the tree as a whole. `lines_of`: path -> its lines."""
    includes = {path: includes_of(path, lines_of[path]) for path in files if rules.CPP.search(path)}
    for found in (check_cycles(includes), check_upward(includes), check_without_grpc(includes),
                  check_folder_sizes(files)):
        yield from found
