"""Greedy search on pooled tables of categories, next to the programs that others use.

Every program runs in a process of its own, one after the other, and learns from the same rows with
BDeu and an equivalent sample size of 1. Programs that are not installed are left out; one that is
still busy at the time limit is ended, and not tried on larger tables. CPU seconds of the learning
alone, after a first call on a small table; the graph that comes out is scored by this package.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from discrete_cases import small_case
from memory import status_megabytes
from public_code import POOLED_DISCRETE
from tables import print_table

OURS = "flwr-causal"
# hc of bnlearn; its arcs are written as positions, counted from 1.
R_PROGRAM = """
if (!requireNamespace("bnlearn", quietly = TRUE)) quit(status = 3)
files <- commandArgs(trailingOnly = TRUE)
rows <- read.csv(files[1], colClasses = "factor")
start <- proc.time()
found <- bnlearn::hc(rows, score = "bde", iss = 1)
spent <- sum((proc.time() - start)[c("user.self", "sys.self")])
arcs <- bnlearn::arcs(found)
arcs <- cbind(match(arcs[, 1], names(rows)), match(arcs[, 2], names(rows)))
writeLines(as.character(spent), files[2])
write.table(arcs, files[2], append = TRUE, row.names = FALSE, col.names = FALSE)
"""


def main(cases, time_limit):
    from flwr_causal.core.discrete.scores import score_graph
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.metrics import compare

    out, left_out, too_large = [], {}, {}
    for case in cases:
        reports = {}
        for peer in PEERS:
            if case.rows.size > too_large.get(peer, np.inf):
                reports[peer] = {"problem": "too slow on a smaller table"}
                continue
            reports[peer] = measured(peer, case.rows, time_limit)
            if reports[peer].get("problem") == over(time_limit):
                too_large[peer] = case.rows.size
        base = reports[OURS]["seconds"]
        for peer, report in reports.items():
            if "missing" in report:
                left_out[peer] = report["missing"]
                continue
            if "problem" in report:
                out.append((case.network, case.sample, peer, report["problem"], *[""] * 6))
                continue
            marks = np.zeros_like(case.marks)
            for i, j in report["edges"]:
                marks[i, j] = True
            both = (marks & marks.T).any()
            graph = CausalGraph.from_array(marks, case.truth.names, kind="cpdag" if both else "dag")
            found = compare(case.truth, graph)
            out.append(
                (
                    case.network,
                    case.sample,
                    peer,
                    f"{report['seconds']:.3f}",
                    f"{report['seconds'] / base:.1f}",
                    f"{score_graph(graph, case.rows, 'bdeu', 1.0):.1f}",
                    found["smhd"],
                    graph.num_edges,
                    f"{report['peak'] - report['before']:.0f}" if "peak" in report else "",
                    f"{report['peak']:.0f}" if "peak" in report else "",
                )
            )
        if case.sample == "file":
            out += beforehand(case.network)
        print(f"({case.network}, {case.sample}: done)", file=sys.stderr, flush=True)
    print_table(
        f"Greedy search on the pooled rows, BDeu with an equivalent sample size of 1, "
        f"{time_limit:.0f} s at most",
        (
            "network",
            "rows",
            "program",
            "CPU s",
            "times ours",
            "BDeu of the result",
            "SMHD",
            "edges",
            "MB above imports and table",
            "peak MB",
        ),
        out,
    )
    for peer, reason in left_out.items():
        print(f"\nleft out: {peer} ({reason})")


def beforehand(network):
    """Rows of programs that were measured on another day: no ratio of times."""
    return [
        (
            network,
            "file",
            f"{program}, measured beforehand",
            f"{figure.cpu_seconds:.3f}",
            "",
            f"{figure.bdeu:.1f}",
            figure.smhd,
            figure.edges,
            "",
            "",
        )
        for (measured_on, program), figure in POOLED_DISCRETE.items()
        if measured_on == network
    ]


def measured(peer, rows, time_limit):
    """What a fresh process reports of one program on these rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.npy")
        np.save(file, rows)
        command = [sys.executable, str(Path(__file__)), peer, str(file)]
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # R runs as a child of the child: a session of their own lets both be ended at once.
            start_new_session=True,
        )
        try:
            output, complaint = child.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            end_session(child)
            return {"problem": over(time_limit)}
    if child.returncode != 0:
        return {"problem": f"failed: {(complaint.splitlines() or ['no message'])[-1][:80]}"}
    return json.loads(output.splitlines()[-1])


def over(time_limit):
    return f"more than {time_limit:.0f}"


def end_session(child):
    import os
    import signal

    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def frame_of(rows):
    """Texts in columns x0, x1, ...: what every program understands."""
    import pandas as pd

    texts = rows.astype(str).astype(object)
    return pd.DataFrame(texts, columns=[f"x{i}" for i in range(rows.shape[1])])


# Each of these takes rows (n, d) and returns CPU seconds and the pairs (cause, effect) it found; an
# undirected edge as both pairs.


def ours(rows, score="bdeu"):
    from flwr_causal.core.ges.ges import ges

    before = time.process_time()
    graph = ges(rows, score=score)
    return time.process_time() - before, np.argwhere(graph.adjacency).tolist()


def pyagrum_learner(rows):
    import pyagrum

    pyagrum.setNumberOfThreads(1)
    frame = frame_of(rows)
    before = time.process_time()
    learner = pyagrum.BNLearner(frame)
    learner.useScoreBDeu()
    return learner, before


def pyagrum_climb(rows):
    learner, before = pyagrum_learner(rows)
    learner.useGreedyHillClimbing()
    found = learner.learnDAG()
    return time.process_time() - before, [list(arc) for arc in found.arcs()]


def pyagrum_tabu(rows):
    learner, before = pyagrum_learner(rows)
    learner.useLocalSearchWithTabuList()
    found = learner.learnDAG()
    return time.process_time() - before, [list(arc) for arc in found.arcs()]


def bnlearn_climb(rows):
    with tempfile.TemporaryDirectory() as folder:
        program, table, result = (Path(folder, name) for name in ("hc.R", "rows.csv", "result.txt"))
        program.write_text(R_PROGRAM)
        frame_of(rows).to_csv(table, index=False)
        try:
            done = subprocess.run(
                ["Rscript", program, table, result], check=False, capture_output=True
            )
        except FileNotFoundError:
            raise ModuleNotFoundError("R is not installed") from None
        if done.returncode == 3:
            raise ModuleNotFoundError("bnlearn is not installed")
        done.check_returncode()
        seconds, *arcs = result.read_text().splitlines()
    return float(seconds), [[int(end) - 1 for end in arc.split()] for arc in arcs]


def pgmpy_climb(rows):
    import logging

    from pgmpy.estimators import BDeu, HillClimbSearch

    logging.disable(logging.INFO)
    frame = frame_of(rows).astype("category")
    before = time.process_time()
    score = BDeu(frame, equivalent_sample_size=1)
    found = HillClimbSearch(frame).estimate(scoring_method=score, show_progress=False)
    pairs = [[int(end[1:]) for end in edge] for edge in found.edges()]
    return time.process_time() - before, pairs


def causal_learn_ges(rows):
    from causallearn.search.ScoreBased.GES import ges

    before = time.process_time()
    # Its default: equivalent sample size 1, and a prior that expects one parent a variable.
    graph = ges(rows.astype(int), score_func="local_score_BDeu")["G"].graph
    spent = time.process_time() - before
    # graph[i, j] = -1 is a tail at i.
    return spent, [[int(i), int(j)] for i, j in np.argwhere(graph == -1)]


PEERS = {
    OURS: ours,
    "pyAgrum, hill climbing": pyagrum_climb,
    "pyAgrum, tabu": pyagrum_tabu,
    "bnlearn, hc": bnlearn_climb,
    "pgmpy, hill climbing": pgmpy_climb,
    "causal-learn, GES": causal_learn_ges,
}


def run_and_report(peer, file):
    """Run one program; the last line of the output is its report."""
    rows = np.load(file)
    learn = PEERS[peer]
    try:
        learn(small_case().rows)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    report = {"before": status_megabytes("VmHWM")}
    report["seconds"], report["edges"] = learn(rows)
    if peer == OURS:
        report["peak"] = status_megabytes("VmHWM")
    print(json.dumps(report))


if __name__ == "__main__":
    import os
    import warnings

    warnings.simplefilter("ignore")
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    run_and_report(*sys.argv[1:])
