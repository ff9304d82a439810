"""Edges grouped by target and by source, by counting: five passes over them, and no comparison."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def group_edges(source, target, rowptr, col, edge, colptr, row, edge_transposed):
    """CSR and its transpose of an edge list; `rowptr` and `colptr` come as zeros.

    Slots of a row are sorted by source, equal sources by edge number, and likewise in the transpose: going
    through the edges in order of source, or of target, each next one of a row finds its place after the last.
    """
    for e in range(len(source)):
        rowptr[target[e] + 1] += 1
        colptr[source[e] + 1] += 1
    for i in range(len(rowptr) - 1):
        rowptr[i + 1] += rowptr[i]
    for j in range(len(colptr) - 1):
        colptr[j + 1] += colptr[j]
    place = colptr.copy()
    for e in range(len(source)):
        at = place[source[e]]
        edge_transposed[at] = e
        place[source[e]] = at + 1
    place = rowptr.copy()
    for n in range(len(source)):
        e = edge_transposed[n]
        at = place[target[e]]
        edge[at], col[at] = e, source[e]
        place[target[e]] = at + 1
    place = colptr.copy()
    for i in range(len(rowptr) - 1):
        for s in range(rowptr[i], rowptr[i + 1]):
            at = place[col[s]]
            row[at], edge_transposed[at] = i, edge[s]
            place[col[s]] = at + 1
