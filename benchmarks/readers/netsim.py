"""Reader of NetSim: simulated fMRI of small brain networks.

Smith et al. (2011, NeuroImage 54:875) simulated 50 subjects with 200 time points each, for
networks of 5 (sim1), 10 (sim2), 15 (sim3) and more regions. All subjects of a simulation have the
same edges, which are acyclic, with different weights. A time step is much longer than the neuronal
delays, so that most effects are instantaneous.

The data are not part of this package; users provide the files. The originals are on the pages of
FMRIB in Oxford.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray


#: The subjects of Chen, Ma & Yue (2024), section 5, by number of variables; counted from 1.
PAPER_SUBJECTS = {5: (3, 6, 9, 12, 15), 10: (2, 4, 6, 8, 10), 15: (1, 3, 5, 7, 9)}


class NetSim(NamedTuple):
    """One simulation.

    Attributes
    ----------
    subjects : list of float64 arrays of shape (T, d)
        The series of each chosen subject.
    truth : CausalGraph
        The edges that all subjects have; weights are means over the chosen subjects.
    """

    subjects: list[FloatArray]
    truth: CausalGraph


def read_netsim(path: str | Path, subjects: Sequence[int] | None = None) -> NetSim:
    """Read one simulation.

    Parameters
    ----------
    path : str or Path
        The original ``sim1.mat``, with ``ts``, the concatenated series of all subjects, and
        ``net``, a matrix for each subject (row causes column); or an NPZ archive with
        ``series (subjects, T, d)`` and ``net``.
    subjects : sequence of int, optional
        Numbers of the subjects, from 1 as in the literature, such as ``PAPER_SUBJECTS[5]``.
        Default: all, in order.

    Returns
    -------
    NetSim
        The series and the true graph.

    Raises
    ------
    ConfigError
        If there is no such subject.
    DataError
        If the file is missing or has another form.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(
            f"no NetSim file {path}: check the path; the data are not part of this package"
        )
    values, nets = _from_mat(path) if path.suffix.lower() == ".mat" else _from_npz(path)
    if values.ndim != 3 or nets.shape != (len(values), *[values.shape[-1]] * 2):
        raise DataError(
            f"{path} holds series of shape {values.shape} and networks of shape {nets.shape}: "
            "expected (subjects, T, d) and (subjects, d, d)"
        )
    numbers = range(1, len(values) + 1) if subjects is None else subjects
    absent = [number for number in numbers if not 1 <= number <= len(values)]
    if absent or not len(numbers):
        raise ConfigError(
            f"subjects are {list(numbers)}: give numbers from 1 to {len(values)} (the first "
            "subject is 1, not 0)"
        )
    chosen = np.array(numbers) - 1
    # The original matrices have the decay of each region, -1, on the diagonal.
    effects = nets[chosen].mean(axis=0) * ~np.eye(nets.shape[-1], dtype=bool)
    return NetSim([values[k].copy() for k in chosen], CausalGraph.from_array(effects))


def cut_series(series: FloatArray, num_parties: int = 5) -> list[FloatArray]:
    """Split one series into consecutive parts, one for each party, of about equal lengths.

    Five parties with 40 steps each is the setting of Chen, Ma & Yue (2024), section 5. Each split
    loses p rows of the lagged design.

    Raises
    ------
    DataError
        If there are fewer steps than parties.
    """
    if not 1 <= num_parties <= len(series):
        raise DataError(f"{num_parties} parties for a series of {len(series)} steps: ask for fewer")
    return [stretch.copy() for stretch in np.array_split(series, num_parties)]


def _from_mat(path: Path) -> tuple[FloatArray, FloatArray]:
    """Read the original file."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content: dict[str, Any] = loadmat(path)
        nets = np.asarray(content["net"], dtype=np.float64)
        steps = np.asarray(content["ts"], dtype=np.float64)
        return steps.reshape(len(nets), -1, steps.shape[1]), nets
    except (MatReadError, OSError, ValueError, KeyError, NotImplementedError) as error:
        raise DataError(f"{path} is not a NetSim file with ts and net ({error})") from None


def _from_npz(path: Path) -> tuple[FloatArray, FloatArray]:
    """Read an NPZ archive."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return archive["series"].astype(np.float64), archive["net"].astype(np.float64)
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not an NPZ archive with series and net ({error})") from None
