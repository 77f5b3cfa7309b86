"""Bytes on the wire: one d x d array a party and round each way, and nothing else that grows."""

import numpy as np
from cases import linear_case, split
from tables import print_table

from flwr_causal.simulations import simulate

# (d, n, K): d, rows and parties vary one at a time.
SETTINGS = ((10, 100, 5), (50, 100, 5), (100, 100, 5), (50, 1000, 5), (50, 100, 20))


def main(quick):
    rows = []
    for d, n, num_parties in SETTINGS:
        parties = split(linear_case(d, n, 0)[0], num_parties)
        for method, options in (
            ("notears-admm", {"max_rounds": 10}),
            ("notears-admm", {"max_rounds": 10, "precision": "float32"}),
            ("moments", {}),
        ):
            run = simulate(method, parties, **options)
            width = 4 if options.get("precision") == "float32" else 8
            array = width * d * d
            up, down = (
                sorted({record[key] / num_parties - array for record in run.history})
                for key in ("bytes_received", "bytes_sent")
            )
            if method == "moments":
                down = [value + array for value in down]  # nothing is broadcast
            rows.append(
                (
                    method,
                    options.get("precision", "float64"),
                    d,
                    n,
                    num_parties,
                    array,
                    spelled(up),
                    spelled(down),
                    f"{run.schema_bytes / num_parties:.0f}",
                )
            )
    print_table(
        "Bytes for each party and exchange",
        (
            "method",
            "precision",
            "d",
            "n",
            "K",
            "array",
            "beyond the array, up",
            "beyond the array, down",
            "schema exchange, once",
        ),
        rows,
    )


def spelled(values):
    return " or ".join(f"{value:g}" for value in np.unique(values))
