"""Functions for gait recognition: gait cycles, sequence distances and recognition rates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft
from scipy.spatial.distance import cdist

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.labels import encode_labels
from nearfar.parameters import check_parameter, integer, none
from nearfar.words import join_names

# Minimum autocorrelation at a lag that is accepted as the duration of a step.
_MIN_AUTOCORRELATION = 0.2


def gait_period(silhouettes: ArrayLike) -> int:
    r"""Return the number of frames in one gait cycle (two steps).

    Legs cover more pixels when they are apart, so the mean of the lower half of the frames
    oscillates with each step. Let :math:`s_t` be this mean after removal of a linear trend. Its
    autocorrelation at lag l,

    .. math:: r(l) = \frac{\sum_t s_t s_{t+l}}{\sqrt{\sum_t s_t^2 \sum_t s_{t+l}^2}}

    has its first high peak at the length of one step. A cycle is about twice as long. Its length
    is refined with the autocorrelation at lags near this value.

    Parameters
    ----------
    silhouettes : array-like of shape (n_frames, height, width)
        Silhouettes in temporal order. The foreground has larger values than the background.

    Returns
    -------
    int
        Period in frames, at most n_frames. If the signal is not periodic or has fewer than 4
        frames, all frames count as one cycle, and the result is n_frames.

    References
    ----------
    .. [1] S. Sarkar et al., "The HumanID Gait Challenge Problem", PAMI 2005, section 3.2, which
       uses the distances between minima of the same signal instead of the autocorrelation.

    Examples
    --------
    >>> from nearfar.datasets import make_walkers
    >>> from nearfar.tensors import gait_period
    >>> sequences, _, periods = make_walkers(3, 1, random_state=0)
    >>> [gait_period(frames) for frames in sequences], periods.tolist()
    ([28, 28, 29], [28, 28, 29])
    """
    frames = _check_frames(silhouettes, "silhouettes")
    n = len(frames)
    legs = frames[:, frames.shape[1] // 2 :].reshape(n, -1).mean(axis=1, dtype=np.float64)
    time = np.arange(n) - (n - 1) / 2
    signal = legs - legs.mean()
    signal -= time * (time @ signal) / max(time @ time, 1.0)
    energy = signal @ signal
    if n < 4 or energy <= 1e-20 * n * np.square(legs).max():
        return n
    # A power of two does not change the autocorrelation, and prevents overflow.
    signal = np.ldexp(signal, -int(np.frexp(np.abs(signal).max())[1]))
    # A step takes at most half of the frames.
    max_lag = n // 2
    padded = fft.rfft(signal, 2 * n)
    products = fft.irfft(padded * padded.conj(), 2 * n)[: max_lag + 2]
    energy_before, energy_after = np.cumsum(signal**2), np.cumsum(signal[::-1] ** 2)
    lags = np.arange(len(products))
    overlap = np.sqrt(energy_before[n - 1 - lags] * energy_after[n - 1 - lags])
    autocorrelation = products / np.maximum(overlap, 1e-300)
    peaks = [
        lag
        for lag in range(2, max_lag + 1)
        if autocorrelation[lag - 1] <= autocorrelation[lag] >= autocorrelation[lag + 1]
        and autocorrelation[lag] > _MIN_AUTOCORRELATION
    ]
    if not peaks:
        return n
    # The autocorrelation also has peaks at multiples of a step. Peaks at complete cycles are higher
    # if left and right steps differ. So use the first peak that is at least half as high as the
    # highest peak.
    step = next(lag for lag in peaks if autocorrelation[lag] >= 0.5 * autocorrelation[peaks].max())
    # A cycle need not be exactly twice as long as the first step, so search for the best lag
    # nearby.
    cycle = 2 * step + _compute_double_peak_offset(autocorrelation, step)
    nearby_lags = np.arange(max(2, round(cycle) - 2), round(cycle) + 3)
    nearby_lags = nearby_lags[nearby_lags < len(autocorrelation)]
    if len(nearby_lags) == 5:
        return int(min(nearby_lags[np.argmax(autocorrelation[nearby_lags])], n))
    return int(np.clip(round(cycle), 2, n))


def averaged_gait_images(silhouettes: ArrayLike, period: int | None = None) -> Floats:
    r"""Return the mean of the frames of each gait cycle.

    .. math:: A_i = \frac1N \sum_{t = iN}^{(i+1)N - 1} S_t, \qquad 0 \le i < \lfloor T/N\rfloor

    for T frames S and a period N. Frames after the last complete cycle are ignored.

    Parameters
    ----------
    silhouettes : array-like of shape (n_frames, height, width)
        Silhouettes in temporal order.
    period : int or None, default=None
        Number of frames per cycle. None estimates it with :func:`gait_period`.

    Returns
    -------
    ndarray of shape (n_frames // period, height, width)
        Averaged images, in float32 if the silhouettes are float32, otherwise in float64.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, equation (3.47).
       The index i starts at 1 there, which would skip the first cycle and exceed the last frame.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import averaged_gait_images
    >>> averaged_gait_images(np.ones((10, 4, 3)), period=4).shape
    (2, 4, 3)
    """
    frames = _check_frames(silhouettes, "silhouettes")
    check_parameter("averaged_gait_images", "period", period, [none, integer(1)])
    length = gait_period(frames) if period is None else int(period)
    n_cycles = len(frames) // length
    if n_cycles < 1:
        raise ValueError(
            f"silhouettes has {len(frames)} frames, fewer than a period of {length}. At least one "
            "complete cycle is needed. Use a smaller period, or None."
        )
    dtype = frames.dtype if frames.dtype == np.float32 else np.dtype(np.float64)
    cycles = frames[: n_cycles * length].reshape(n_cycles, length, *frames.shape[1:])
    return np.asarray(cycles.mean(axis=1, dtype=np.float64).astype(dtype, copy=False))


def sequence_distance(P: ArrayLike, G: ArrayLike) -> float:
    r"""Return the distance of a probe sequence from a gallery subject.

    .. math:: d(P, G) = \mathrm{median}_i \min_j \|P_i - G_j\|

    The distance is not symmetric: in general, :math:`d(P, G) \ne d(G, P)`.

    Parameters
    ----------
    P : array-like of shape (n_cycles, ...)
        Features of the gait cycles of the probe, one row or tensor per cycle.
    G : array-like of shape (n_gallery_cycles, ...)
        Features of the gait cycles of one subject of the gallery.

    Returns
    -------
    float
        Median over the cycles of P of the distance to the nearest cycle of G.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       equation (3.48).

    Examples
    --------
    >>> from nearfar.tensors import sequence_distance
    >>> sequence_distance([[0.0], [1.0], [5.0]], [[0.0], [2.0]])
    1.0
    >>> sequence_distance([[0.0], [2.0]], [[0.0], [1.0], [5.0]])
    0.5
    """
    rows = []
    for name, cycles in (("P", P), ("G", G)):
        features = np.asarray(cycles, dtype=np.float64)
        if features.ndim < 2 or not features.size:
            raise ValueError(
                f"{name} must have shape (n_cycles, ...), with one row or tensor per cycle; got "
                f"shape {features.shape}."
            )
        if not np.isfinite(features).all():
            raise ValueError(f"{name} contains NaN or infinity.")
        rows.append(features.reshape(len(features), -1))
    if rows[0].shape[1] != rows[1].shape[1]:
        raise ValueError(
            f"P has {rows[0].shape[1]} features per cycle, but G has {rows[1].shape[1]}. Both must "
            "be transformed in the same way."
        )
    bounds = [np.array([0, len(cycles)]) for cycles in rows]
    return float(compute_median_distances(cdist(*rows), *bounds)[0, 0])


def compute_median_distances(
    D: Matrix, probes: NDArray[np.intp], gallery: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return the distances between sequences, given the distances D between their gait cycles.

    Probe i has the rows ``probes[i] : probes[i + 1]`` of D, and subject j of the gallery has the
    columns ``gallery[j] : gallery[j + 1]``.
    """
    nearest = np.minimum.reduceat(D, gallery[:-1], axis=1)
    ranges = pairwise(probes)
    return np.array([np.median(nearest[start:stop], axis=0) for start, stop in ranges])


def compute_symmetric_distances(
    D: Matrix, probes: NDArray[np.intp], gallery: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return symmetric distances between sequences, given the distances D between their cycles.

    Each distance is the mean distance of a cycle to the nearest cycle of the other sequence,
    averaged over both directions. For ``probes`` and ``gallery`` see
    :func:`compute_median_distances`.
    """
    to_gallery = np.minimum.reduceat(D, gallery[:-1], axis=1)
    to_probes = np.minimum.reduceat(D, probes[:-1], axis=0)
    to_gallery = np.add.reduceat(to_gallery, probes[:-1], axis=0) / np.diff(probes)[:, None]
    to_probes = np.add.reduceat(to_probes, gallery[:-1], axis=1) / np.diff(gallery)
    return np.asarray((to_gallery + to_probes) / 2)


def rank_k_rates(
    distances: ArrayLike,
    probe_ids: ArrayLike,
    gallery_ids: ArrayLike,
    ranks: Sequence[int] = (1, 5),
) -> Vector:
    """Return the fraction of probes whose subject is among the k nearest gallery subjects.

    If a subject has several columns, the smallest distance counts. Ties count against the correct
    subject: subjects at the same distance are ranked before it. If all distances are equal, the
    rate is therefore 0 for every k below the number of subjects.

    Parameters
    ----------
    distances : array-like of shape (n_probes, n_gallery)
        Distances from the probes to the gallery.
    probe_ids : array-like of shape (n_probes,)
        Subject of each probe, which must be in the gallery.
    gallery_ids : array-like of shape (n_gallery,)
        Subject of each column of ``distances``.
    ranks : sequence of int, default=(1, 5)
        Values of k for which the rate is returned.

    Returns
    -------
    ndarray of shape (n_ranks,)
        Recognition rates, from 0 to 1.

    Examples
    --------
    >>> from nearfar.tensors import rank_k_rates
    >>> D = [[0.1, 0.5, 0.9], [0.3, 0.2, 0.4], [0.2, 0.1, 0.3]]
    >>> rank_k_rates(D, ["ann", "bob", "ann"], ["ann", "bob", "eve"], ranks=(1, 2)).round(2)
    array([0.67, 1.  ])
    """
    D = np.asarray(distances, dtype=np.float64)
    subjects, gallery = encode_labels(gallery_ids)
    probes = np.asarray(probe_ids)
    if D.ndim != 2 or D.shape != (len(probes), len(gallery)) or not len(probes):
        raise ValueError(
            f"distances must have a row for each of {len(probes)} probe_ids and a column for each "
            f"of {len(gallery)} gallery_ids; got shape {D.shape}."
        )
    if np.isnan(D).any():
        raise ValueError("distances contains NaN.")
    for k in ranks:
        check_parameter("rank_k_rates", "ranks", k, [integer(1)])
    codes = {subject: code for code, subject in enumerate(subjects.tolist())}
    unknown_subjects = sorted({probe for probe in probes.tolist() if probe not in codes}, key=str)
    if unknown_subjects:
        raise ValueError(
            f"probe_ids contains {join_names(unknown_subjects, 3)}, which gallery_ids does not "
            "contain. Remove these probes, or add their subjects to the gallery."
        )
    order = np.argsort(gallery, kind="stable")
    starts = np.searchsorted(gallery[order], np.arange(len(subjects)))
    nearest = np.minimum.reduceat(D[:, order], starts, axis=1)
    true_codes = np.array([codes[probe] for probe in probes.tolist()])
    true_distances = nearest[np.arange(len(true_codes)), true_codes]
    true_ranks = (nearest <= true_distances[:, None]).sum(axis=1)
    return np.array([np.mean(true_ranks <= k) for k in ranks])


def weighted_average_rate(rates: ArrayLike, sizes: ArrayLike) -> Any:
    """Return the mean of the rates of several probe sets, weighted by their sizes.

    Parameters
    ----------
    rates : array-like of shape (..., n_sets)
        Rates of one method, or one row per method, in any unit.
    sizes : array-like of shape (n_sets,)
        Number of probes in each set.

    Returns
    -------
    float, or ndarray of shape (...)
        Weighted mean rate of each method.

    Examples
    --------
    >>> from nearfar.tensors import weighted_average_rate
    >>> weighted_average_rate([100.0, 50.0], [10, 30])
    62.5
    """
    rate_values, weights = np.asarray(rates, dtype=np.float64), np.asarray(sizes, dtype=np.float64)
    if weights.ndim != 1 or not rate_values.ndim or rate_values.shape[-1] != len(weights):
        raise ValueError(
            "sizes must be one-dimensional, with the same length as the last axis of rates; got "
            f"shapes {weights.shape} and {rate_values.shape}."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ValueError("sizes must be nonnegative, finite numbers with a positive sum.")
    if not np.isfinite(rate_values).all():
        raise ValueError("rates contains NaN or infinity. Remove probe sets without a rate.")
    averages = rate_values @ weights / weights.sum()
    return float(averages) if averages.ndim == 0 else averages


def _compute_double_peak_offset(values: Vector, index: int) -> float:
    """Return twice the offset from the peak at ``index`` to the maximum of a parabola.

    The parabola passes through the peak and its two neighbors.
    """
    before_peak, peak, after_peak = values[index - 1 : index + 2]
    curvature = before_peak - 2 * peak + after_peak
    return float((before_peak - after_peak) / curvature) if curvature < 0 else 0.0


def _check_frames(silhouettes: ArrayLike, name: str) -> NDArray[Any]:
    frames = np.asarray(silhouettes)
    if frames.dtype.kind not in "biuf" or frames.ndim < 2 or not frames.size:
        raise ValueError(
            f"{name} must be numbers in an array of shape (n_frames, height, width); got "
            f"{frames.dtype} of shape {frames.shape}."
        )
    if frames.dtype.kind == "f" and not np.isfinite(frames).all():
        raise ValueError(f"{name} contains NaN or infinity.")
    return frames
