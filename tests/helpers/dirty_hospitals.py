"""Tables of three hospitals that each writes in its own way, and the graph behind them."""

import numpy as np
import pandas as pd

#: Cause and effect.
TRUTH = {
    ("age", "weight"),
    ("sex", "weight"),
    ("age", "pressure"),
    ("weight", "pressure"),
    ("pressure", "stage"),
}
ROWS = {"north": 300, "south": 250, "west": 200}
STAGES = ("none", "mild", "moderate", "severe")


def patients(rows, seed):
    """Clean rows: age in years, sex, weight in kg, pressure in mmHg, its stage, smoking."""
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 90, rows).round(1)
    male = rng.integers(0, 2, rows)
    weight = (45 + 14 * male + 0.4 * age + rng.uniform(-12, 12, rows)).round(2)
    pressure = (40 + 0.6 * weight + 0.5 * age + rng.uniform(-12, 12, rows)).round(1)
    stage = np.digitize(pressure + rng.uniform(-10, 10, rows), [100, 120, 140])
    smoker = rng.integers(0, 2, rows)
    columns = {"age": age, "sex": male, "weight": weight, "pressure": pressure}
    return pd.DataFrame({**columns, "stage": np.array(STAGES)[stage], "smoker": smoker})


def write_hospitals(directory):
    """Write north.csv, south.csv and west.csv: other codes, units, names, columns and mistakes."""
    north, south, west = (patients(rows, seed) for seed, rows in enumerate(ROWS.values(), start=1))
    north.insert(0, "patient", [f"N{k:05d}" for k in range(len(north))])
    north["sex"] = 1 - north.sex  # 0 is male
    north["smoker"] = np.where(north.smoker, "yes", "no")
    north.loc[[4, 77], "pressure"] = -999
    north["note"] = [f"stable, seen by nurse {k}" for k in range(len(north))]
    south.insert(0, "pid", range(9000, 9000 + len(south)))
    south["sex"] = 2 - south.sex  # 1 is male
    south["smoker"] = np.where(south.smoker, "Y", "N")
    south["w_g"] = (south.pop("weight") * 1000).round(0)
    west.insert(0, "patient", [f"W-{k}" for k in range(len(west))])
    west.insert(1, "admitted", pd.date_range("2024-01-01", periods=len(west)).strftime("%Y-%m-%d"))
    west["sex"] = np.where(west.sex, "male", "female")
    west["stage"] = west.stage.replace("none", "None")
    west = west.drop(columns="smoker")
    west["weight"] = west.weight.astype(object)
    west.loc[33, "weight"] = "71,5"
    west.loc[50, "age"] = 412
    for name, table in (("north", north), ("south", south), ("west", west)):
        table.to_csv(directory / f"{name}.csv", index=False)
