"""Write one CSV for each of three hospitals, and the graph that made them.

Usage: python make_data.py DIRECTORY
"""

import sys
from pathlib import Path

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.synthetic.linear import federated_linear
from flwr_causal.reports.graph_files import write_edge_csv

PARTIES = ("north", "centre", "south")


def main(directory: Path) -> None:
    """Simulate 8 variables and 900 rows, dealt unevenly."""
    tables, weights = federated_linear(8, 900, len(PARTIES), seed=1, partition="uneven")
    directory.mkdir(parents=True, exist_ok=True)
    for name, table in zip(PARTIES, tables, strict=True):
        path = directory / f"{name}.csv"
        table.to_csv(path, index=False)
        print(f"{path}: {len(table)} rows")
    write_edge_csv(CausalGraph.from_array(weights, list(tables[0].columns)), directory / "true.csv")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
