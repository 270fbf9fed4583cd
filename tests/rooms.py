#!/usr/bin/env python3
"""Rooms and circles: which room of which folder may include which, and no circles, neither between rooms nor between the
modules of one. A module is a header with the sources of its family: problem_fill.c belongs to problem.h while there is no
problem_fill.h; NAME_impl.h and NAME_parts.h are of the family too. rooms.py FOLDER: exit status 1 and what is wrong, or nothing.
rooms.py --arrows: modules, and arrows between rooms, of all folders."""
import os
import re
import sys

# Of each room, the rooms of the same folder that it may include. "": the folder's own files, on top.
ROOMS = {
    'common': {
        'base': '', 'cli': 'base', 'text': 'base', 'kernels': 'base', 'model': 'base kernels', 'ops': 'base kernels model',
        'hwdb': 'base kernels', 'plan': 'base kernels model accel ops',
        'pack': 'base kernels model plan',
        'accel': 'base kernels model', 'opencl': 'base kernels model accel', 'engines': 'base kernels model accel opencl',
        'offline': 'base cli kernels model ops plan pack hwdb',
    },
    'planner': {
        'inputs': '', 'predict': 'inputs', 'replay': 'inputs predict', 'describe': 'inputs replay',
        'terms': '', 'cost': 'inputs predict replay terms', 'solve': 'terms', 'space': 'inputs predict replay cost solve terms',
        'search': 'inputs predict replay cost solve space terms',
        'planning': 'inputs predict replay cost solve space search terms',
        'check': 'inputs predict replay cost solve space search planning terms',
        'report': 'inputs predict replay cost solve space search planning check terms',
        '': 'inputs predict replay describe cost solve space search planning check report terms',
    },
    'profiler': {'trace': '', 'predictors': 'trace', 'probe': '', 'show': 'predictors',
                 '': 'trace predictors probe show'},
    'runtime': {'io': '', 'pipeline': 'io', 'engine': 'io pipeline', 'session': 'io pipeline engine',
                'chat': '', 'mask': '', '': 'io pipeline engine session chat mask'},
    'packer': {'': ''},
    'server': {'': ''},
    'quantizer': {'': ''},
    'driver': {'': ''},
}


def sources(folder):
    for at, _, names in os.walk(folder):
        yield from (os.path.join(at, n) for n in sorted(names) if n.endswith(('.c', '.h')))


def includes(path):
    with open(path, encoding='utf-8') as f:
        return re.findall(r'^\s*#\s*include\s*"([^"]+)"', f.read(), re.M)


def module(path):
    stem = re.sub(r'_(impl|parts)$', '', os.path.splitext(path)[0])
    own = stem
    while not os.path.exists(stem + '.h') and '_' in os.path.basename(stem):
        stem = stem.rsplit('_', 1)[0]
    return stem if os.path.exists(stem + '.h') else own


def room(folder, path):
    parts = path[len(folder) + 1:].split('/')
    return parts[0] if len(parts) > 1 else ''


def graph(folder):
    """{module: {modules it includes: a file that does}} within the folder."""
    edges = {}
    for path in sources(folder):
        to = edges.setdefault(module(path), {})
        for name in includes(path):
            if name.startswith(folder + '/') and os.path.exists(name) and module(name) != module(path):
                to.setdefault(module(name), path)
    return edges


def circles(edges):
    """Strongly connected components of more than one (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in edges.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            part = []
            while not part or part[-1] != v:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for v in sorted(edges):
        if v not in index:
            visit(v)
    return found


def check(folder):
    bad, edges, rules = [], graph(folder), ROOMS[folder]
    for a, to in sorted(edges.items()):
        here = room(folder, a + '.h')
        if here not in rules:
            bad.append(f'{a}: no rule for the room {here!r}: tests/rooms.py')
            continue
        for b, by in sorted(to.items()):
            there = room(folder, b + '.h')
            if there != here and there not in rules[here].split():
                bad.append(f'{by} includes {b}.h: {folder}/{here} may include {rules[here] or "no other room"}')
    bad += ['a circle: ' + ', '.join(part) for part in circles(edges)]
    between = {r: {x: '' for x in allowed.split()} for r, allowed in rules.items()}
    bad += ['a circle of rooms: ' + ', '.join(part) for part in circles(between)]
    return bad


def arrows():
    for folder, rules in ROOMS.items():
        edges, seen = graph(folder), {}
        for a, to in edges.items():
            for b in to:
                key = room(folder, a + '.h'), room(folder, b + '.h')
                if key[0] != key[1]:
                    seen[key] = seen.get(key, 0) + 1
        print(f'{folder}: {sum(1 for _ in sources(folder))} files, {len(edges)} modules, {len(rules)} rooms, '
              f'{len(seen)} arrows between rooms, {len(circles(edges))} circles')
        for (a, b), n in sorted(seen.items()):
            print(f'  {a or "(top)"} -> {b}: {n}')


if __name__ == '__main__':
    if sys.argv[1:] == ['--arrows']:
        arrows()
        sys.exit(0)
    problems = check(sys.argv[1])
    print('\n'.join(problems))
    sys.exit(1 if problems else 0)
