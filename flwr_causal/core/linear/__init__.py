"""Linear systems from second moments: solvers, sparsity, polish, refit."""
