"""Compiled passes of circuits: over the layers of a circuit, and over trees of categories.

The first call of a compiled function takes a process up to seconds. Densities of a few thousand
rows are therefore computed with numpy (`layers`, `chow_liu_tree`), of more rows here.

Exponentials and logarithms are computed by numpy between the steps of a layer, as it vectorises
them. The functions here gather, compare and add whole rows of the arrays while these are in the
cache. The nodes of a layer are the rows of ``values`` from ``first`` on; the children of its k-th
node are ``children[starts[k] : starts[k + 1]]``.

A tree of m variables is passed as flat arrays. Variable j has ``sizes[j]`` states and the parent
``parents[j]`` (-1: none). Its table (states of the parent, states) begins at ``starts[j]`` in
``tables``, its part of an array over all states at ``places[j]``. ``order`` has parents before
children. Codes are indices of states, -1 where missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray


@compiled
def multiply(values: FloatArray, first: int, starts: IntArray, children: IntArray) -> None:
    """Add the log densities of the factors of products."""
    for k in range(len(starts) - 1):
        own = values[first + k]
        own[:] = values[children[starts[k]]]
        for edge in range(starts[k] + 1, starts[k + 1]):
            child = values[children[edge]]
            for i in range(len(own)):
                own[i] += child[i]


@compiled
def compare(
    values: FloatArray,
    first: int,
    starts: IntArray,
    children: IntArray,
    log_weights: FloatArray,
    lowest: float,
    terms: FloatArray,
) -> None:
    """Write the largest term of each sum into ``values``, and the terms minus it into ``terms``.

    The terms are the log weights plus the children's log densities. ``lowest`` replaces minus
    infinity, which cannot be subtracted from itself.
    """
    for k in range(len(starts) - 1):
        peak = values[first + k]
        peak[:] = lowest
        for edge in range(starts[k], starts[k + 1]):
            child, term, weight = values[children[edge]], terms[edge], log_weights[edge]
            for i in range(len(peak)):
                term[i] = child[i] + weight
                peak[i] = max(peak[i], term[i])
        for edge in range(starts[k], starts[k + 1]):
            term = terms[edge]
            for i in range(len(peak)):
                term[i] -= peak[i]


@compiled
def total(starts: IntArray, terms: FloatArray, totals: FloatArray) -> None:
    """Add the terms of each sum."""
    for k in range(len(starts) - 1):
        own = totals[k]
        own[:] = terms[starts[k]]
        for edge in range(starts[k] + 1, starts[k + 1]):
            term = terms[edge]
            for i in range(len(own)):
                own[i] += term[i]


@compiled
def shares(
    values: FloatArray,
    first: int,
    starts: IntArray,
    children: IntArray,
    log_weights: FloatArray,
    lowest: float,
    terms: FloatArray,
) -> None:
    """Write the log posterior probability of each child of each sum into ``terms``."""
    for k in range(len(starts) - 1):
        own = values[first + k]
        for edge in range(starts[k], starts[k + 1]):
            child, term, weight = values[children[edge]], terms[edge], log_weights[edge]
            for i in range(len(own)):
                term[i] = child[i] + weight - max(own[i], lowest)


@compiled
def spread(
    flows: FloatArray, first: int, starts: IntArray, children: IntArray, terms: FloatArray
) -> None:
    """Add the flow of each node to its children.

    For sums ``terms`` holds the children's shares on input and their flows on output. For products
    it is empty, and each child gets the whole flow.
    """
    for k in range(len(starts) - 1):
        own = flows[first + k]
        for edge in range(starts[k], starts[k + 1]):
            child = flows[children[edge]]
            if len(terms) > 0:
                term = terms[edge]
                for i in range(len(own)):
                    term[i] *= own[i]
                    child[i] += term[i]
            else:
                for i in range(len(own)):
                    child[i] += own[i]


Codes = NDArray[np.int32]

#: A smaller probability is moved into the logarithm before further factors let it underflow.
SMALL = 1e-150
#: Rows that `incomplete_rows` evaluates together.
ROWS = 128
#: The same bound in `incomplete_rows`, where several factors are multiplied between two tests.
SMALL_BELIEF = 1e-50


@compiled
def tree_upward(
    codes: Codes,
    order: IntArray,
    parents: IntArray,
    sizes: IntArray,
    starts: IntArray,
    places: IntArray,
    tables: FloatArray,
    maximise: bool,
    beliefs: FloatArray,
) -> FloatArray:
    """Log probability of each row, missing values summed (or maximised) out, shape (n,).

    ``beliefs`` of shape (n, states of all variables) is filled: for each state of a variable the
    probability of the known values below it, up to a factor.
    """
    num_rows, num_variables = codes.shape
    result = np.zeros(num_rows)
    for i in range(num_rows):
        belief = beliefs[i]
        belief[:] = 1.0
        probability = 1.0
        for position in range(num_variables - 1, -1, -1):
            j = order[position]
            size, place, parent, state = sizes[j], places[j], parents[j], codes[i, j]
            if state >= 0:
                for s in range(size):
                    if s != state:
                        belief[place + s] = 0.0
            if parent < 0 or codes[i, parent] >= 0:
                row = 0 if parent < 0 else codes[i, parent]
                start = starts[j] + row * size
                if state >= 0:
                    message = tables[start + state] * belief[place + state]
                else:
                    message = 0.0
                    for s in range(size):
                        term = tables[start + s] * belief[place + s]
                        message = max(message, term) if maximise else message + term
                factor = message
            else:
                above = places[parent]
                largest = 0.0
                for r in range(sizes[parent]):
                    start = starts[j] + r * size
                    if state >= 0:
                        message = tables[start + state] * belief[place + state]
                    else:
                        message = 0.0
                        for s in range(size):
                            term = tables[start + s] * belief[place + s]
                            message = max(message, term) if maximise else message + term
                    belief[above + r] *= message
                    largest = max(largest, belief[above + r])
                # Beliefs are divided by the largest one, which becomes a factor of the probability.
                if largest > 0.0:
                    for r in range(sizes[parent]):
                        belief[above + r] /= largest
                factor = largest
            if factor < SMALL or probability < SMALL:
                result[i] += np.log(probability)
                result[i] += np.log(factor) if factor > 0.0 else -np.inf
                probability = 1.0
            else:
                probability *= factor
        result[i] += np.log(probability)
    return result


@compiled
def tree_fill(
    codes: Codes,
    order: IntArray,
    parents: IntArray,
    sizes: IntArray,
    starts: IntArray,
    places: IntArray,
    tables: FloatArray,
    beliefs: FloatArray,
    uniforms: FloatArray,
) -> None:
    """Replace missing codes given the beliefs, by draws or by the most probable states.

    ``uniforms``, of the shape of ``codes``, are the random numbers of the draws. If it is empty the
    most probable states are taken.
    """
    num_rows, num_variables = codes.shape
    drawing = uniforms.size > 0
    for i in range(num_rows):
        for position in range(num_variables):
            j = order[position]
            if codes[i, j] >= 0:
                continue
            row = codes[i, parents[j]] if parents[j] >= 0 else 0
            start = starts[j] + row * sizes[j]
            total, best, chosen = 0.0, -1.0, 0
            for s in range(sizes[j]):
                term = tables[start + s] * beliefs[i, places[j] + s]
                total += term
                if term > best:
                    best, chosen = term, s
            if drawing:
                left = uniforms[i, j] * total
                for s in range(sizes[j]):
                    term = tables[start + s] * beliefs[i, places[j] + s]
                    left -= term
                    if term > 0.0:
                        chosen = s  # by rounding ``left`` may not become negative
                        if left < 0.0:
                            break
            codes[i, j] = chosen


@compiled
def complete_rows(
    codes: Codes,
    first: IntArray,
    columns: IntArray,
    parent_columns: IntArray,
    sizes: IntArray,
    starts: IntArray,
    log_tables: FloatArray,
) -> FloatArray:
    """Return the log probabilities of rows without missing values under many trees, (trees, n).

    ``codes`` has one row for each *column* of the data. Tree t has the entries from ``first[t]`` to
    ``first[t + 1]`` of the arrays over variables.
    """
    num_rows = codes.shape[1]
    result = np.zeros((len(first) - 1, num_rows))
    for t in range(len(first) - 1):
        total = result[t]
        for v in range(first[t], first[t + 1]):
            own, start, size = codes[columns[v]], starts[v], sizes[v]
            if parent_columns[v] < 0:
                for i in range(num_rows):
                    total[i] += log_tables[start + own[i]]
            else:
                above = codes[parent_columns[v]]
                for i in range(num_rows):
                    total[i] += log_tables[start + above[i] * size + own[i]]
    return result


@compiled
def incomplete_rows(
    codes: Codes,
    columns: IntArray,
    order: IntArray,
    parents: IntArray,
    sizes: IntArray,
    starts: IntArray,
    places: IntArray,
    tables: FloatArray,
) -> FloatArray:
    """Return the log probabilities of rows under a tree, missing values summed out, shape (n,).

    Faster than `tree_upward`, as it evaluates several rows together; it does not return beliefs.
    ``codes`` has one row for each *column* of the data; ``columns`` holds the column of each
    variable, -1 for a hidden one.
    """
    num_rows = codes.shape[1]
    result = np.zeros(num_rows)
    beliefs = np.empty((sizes.sum(), ROWS))
    message, largest, factor = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
    for begin in range(0, num_rows, ROWS):
        count = min(ROWS, num_rows - begin)
        for j in range(len(order)):
            for s in range(sizes[j]):
                belief = beliefs[places[j] + s]
                if columns[j] < 0:
                    belief[:] = 1.0
                else:
                    own = codes[columns[j], begin : begin + count]
                    for i in range(count):
                        belief[i] = (own[i] < 0) | (own[i] == s)
        factor[:] = 1.0
        for position in range(len(order) - 1, -1, -1):
            j = order[position]
            size, place, parent = sizes[j], places[j], parents[j]
            num_above = 1 if parent < 0 else sizes[parent]
            largest[:] = 0.0
            for r in range(num_above):
                start = starts[j] + r * size
                message[:] = 0.0
                for s in range(size):
                    belief, probability = beliefs[place + s], tables[start + s]
                    for i in range(count):
                        message[i] += probability * belief[i]
                above = factor if parent < 0 else beliefs[places[parent] + r]
                for i in range(count):
                    above[i] *= message[i]
                    largest[i] = max(largest[i], above[i])
            low = 0
            for i in range(count):
                low += largest[i] < SMALL_BELIEF
            if low == 0:
                continue
            for i in range(count):
                if 0.0 < largest[i] < SMALL_BELIEF:
                    result[begin + i] += np.log(largest[i])
                    for r in range(num_above):
                        above = factor if parent < 0 else beliefs[places[parent] + r]
                        above[i] /= largest[i]
        for i in range(count):
            result[begin + i] += np.log(factor[i])
    return result
