"""The solvers of Moments: from products of the rows to a graph, a file each."""
