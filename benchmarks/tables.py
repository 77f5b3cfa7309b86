"""Markdown tables, and means with their standard errors."""

import numpy as np


def print_table(title, header, rows):
    """Print a table at once, so that a long run shows what it has."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    print(f"\n### {title}\n", lines[0], rule, *lines[1:], sep="\n", flush=True)


def mean_and_error(values):
    """Mean over the seeds and its standard error (0 for a single seed)."""
    values = np.asarray(values, dtype=float)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()), float(error)


def with_error(mean, error, digits=1):
    return f"{mean:.{digits}f} ± {error:.{digits}f}"


def verdict(holds):
    return "yes" if holds else "**no**"
