"""Motion in clips: dense optical flow, and histograms of its directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import ndimage

from nearfar.parameters import AllowedValues, boolean, check_parameter, integer, none, one_of, real
from nearfar.words import format_count

Floats32 = NDArray[np.float32]
Threshold = float | Literal["otsu", "mean"]

# Maximum number of pixels in one batch of frames. About ten arrays of this size are in memory at
# the same time.
_BATCH_PIXELS = 2_000_000
# Ridge of the flow equations, for intensities from 0 to 1. Regions with a mean squared gradient
# below the ridge have too little texture to estimate the flow.
_RIDGE = 3e-5
# Minimum side length of the coarsest image of the pyramid, in pixels.
_MIN_SIDE = 16


def motion_histograms(
    frames: ArrayLike,
    *,
    bins: int = 4,
    blocks: tuple[int, int] = (3, 3),
    threshold: Threshold = "otsu",
    magnitude: bool = False,
    normalize: Literal["frame"] | None = None,
) -> NDArray[np.float64]:
    r"""Compute histograms of motion directions, one vector per pair of consecutive frames.

    :func:`optical_flow` estimates the flow :math:`v` between each frame and the next. Flow vectors
    with a norm below a threshold are dropped as flicker and jitter. The frame is divided into
    :math:`h \times w` blocks, and the remaining flow vectors of each block are counted in m bins
    by direction. The result is one vector of :math:`p = mhw` counts per pair of frames.

    By default, only directions are counted, because the length of the flow also depends on the size
    and distance of the moving object. Therefore these vectors do not distinguish walking from
    running.

    Parameters
    ----------
    frames : array-like of shape (t, height, width) or (t, height, width, 3 or 4)
        At least two gray or color frames, with values in any range.
    bins : int, default=4
        Number m of direction bins of equal angle. The first bin is centered on the direction to the
        right. The other bins are ordered counterclockwise.
    blocks : (int, int), default=(3, 3)
        Number of rows h and number of columns w in the grid of blocks.
    threshold : {"otsu", "mean"} or float, default="otsu"
        Norm, in pixels per frame, below which flow vectors are dropped. "otsu" minimizes the
        variance of the norms within the two groups, below and above the threshold. "mean" is the
        mean of the norms plus one standard deviation.
    magnitude : bool, default=False
        If True, sum the norms of the flow vectors instead of counting them.
    normalize : {"frame"} or None, default=None
        "frame" divides each vector by its sum. The vector of a frame without motion stays zero.

    Returns
    -------
    ndarray of shape (t - 1, bins * h * w)
        Histograms with the blocks in row-major order. The bins of a block are adjacent.

    See Also
    --------
    nearfar.datasets.read_clips : Read a folder of clips as sets of such vectors.

    Notes
    -----
    [1]_ specifies the flow of Lucas and Kanade and "an adaptive threshold", but not the formula for
    the threshold, the position of the bins, or whether counts are normalized.

    Cost: O(t · height · width), about 8 ms per frame of 160×120 pixels.

    References
    ----------
    .. [1] Abou-Moustafa, K. T., "Metric Learning Revisited", 2011, section 6.4.1.

    Examples
    --------
    >>> from nearfar.datasets import make_moving_shapes, motion_histograms
    >>> clips, y = make_moving_shapes(1, motions=["left", "down"], random_state=0)
    >>> for clip, name in zip(clips, y):
    ...     vectors = motion_histograms(clip, blocks=(1, 1))
    ...     print(name, (vectors.sum(axis=0) / vectors.sum()).round(1))
    left [0. 0. 1. 0.]
    down [0. 0. 0. 1.]
    """
    _check_options(bins, blocks, threshold, magnitude, normalize)
    gray = convert_to_gray(frames)
    rows, columns = blocks
    t, height, width = gray.shape
    if height < rows or width < columns:
        raise ValueError(
            f"blocks={blocks} is more than one block per pixel for frames of {height}×{width} "
            "pixels. Pass fewer blocks."
        )
    # The threshold depends on the norms of the whole clip, so the norm and bin of each flow vector
    # are stored first.
    norms = np.empty((t - 1, height, width), np.float32)
    cells = np.empty((t - 1, height, width), np.int32)
    cells[:] = bins * _assign_blocks(height, width, rows, columns)
    for chunk, v in _iterate_flows(gray):
        norms[chunk] = np.hypot(v[0], v[1])
        # The vertical component changes sign, because row numbers increase downward but angles are
        # measured upward. The first bin is centered at 0.
        turns = np.arctan2(-v[0], v[1]) / (2 * np.pi)
        cells[chunk] += np.floor(turns * bins + 0.5).astype(np.int32) % bins
    min_norm = compute_threshold(norms, threshold)
    p = bins * rows * columns
    cells += p * np.arange(t - 1, dtype=np.int32)[:, None, None]
    moving = (norms >= min_norm) & (norms > 0)
    weights = norms[moving] if magnitude else None
    sums = np.bincount(cells[moving], weights, minlength=p * (t - 1)).reshape(t - 1, p)
    vectors = sums.astype(np.float64)
    if normalize is not None:
        totals = vectors.sum(axis=1, keepdims=True)
        vectors /= np.where(totals > 0, totals, 1)
    return vectors


def optical_flow(
    first: ArrayLike, second: ArrayLike, *, sigma: float = 2.0, n_levels: int = 3
) -> Floats32:
    r"""Estimate the dense optical flow from one image to the next (Lucas and Kanade).

    The sums run over a Gaussian window around each pixel. With the image gradients :math:`g`, the
    flow :math:`v_0` of the next coarser level, and the difference :math:`I_t` between the second
    image, warped by :math:`v_0`, and the first, the flow is

    .. math:: v = \left(\sum g g^T + \epsilon I\right)^{-1} \sum g (g^T v_0 - I_t) ,

    computed from the coarsest image of a pyramid to the finest. With the ridge :math:`\epsilon`,
    the flow is near 0 in regions without texture, and perpendicular to straight edges.

    Parameters
    ----------
    first, second : array-like of shape (height, width) or (n, height, width)
        Two consecutive images, or two stacks of n images each.
    sigma : float, default=2.0
        Standard deviation of the window, in pixels.
    n_levels : int, default=3
        Maximum number of pyramid levels. Each level has half the size of the previous level.
        Motions of up to about :math:`2^{n\_levels}` pixels are found. Small images have fewer
        levels.

    Returns
    -------
    ndarray of float32, shape (2, height, width) or (2, n, height, width)
        The motion along the rows (downward) and along the columns (to the right), in pixels.

    References
    ----------
    .. [1] B. Lucas, T. Kanade, "An iterative image registration technique with an application to
       stereo vision", IJCAI 1981.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.datasets import optical_flow
    >>> rows, columns = np.mgrid[:32, :32]
    >>> image = np.sin(rows / 3) + np.cos(columns / 4)
    >>> down, right = optical_flow(image[:, 1:], image[:, :-1])
    >>> print(f"{np.median(down):.1f} {np.median(right):.1f}")
    0.0 1.0
    """
    check_parameter("optical_flow", "sigma", sigma, [real(0, open_low=True)])
    check_parameter("optical_flow", "n_levels", n_levels, [integer(1)])
    a, b = np.asarray(first, np.float32), np.asarray(second, np.float32)
    if a.shape != b.shape or a.ndim not in (2, 3):
        raise ValueError(
            "first and second must have the same shape, (height, width) or (n, height, width); "
            f"got {a.shape} and {b.shape}."
        )
    is_single = a.ndim == 2
    images = _scale_to_unit_range(np.stack([a, b]).reshape(2, -1, *a.shape[-2:]))
    v = _estimate_flow(images[0], images[1], sigma, n_levels)
    return v[:, 0] if is_single else v


def convert_to_gray(frames: ArrayLike) -> Floats32:
    """Return the frames as float32 of shape (t, height, width), scaled to values from 0 to 1.

    Raises if there are fewer than two frames.
    """
    array = np.asarray(frames)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"frames must contain numbers; got an array of {array.dtype}.")
    if array.ndim == 4 and array.shape[-1] in (3, 4):
        # These are the luma weights of ITU-R BT.601.
        array = array[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)
    if array.ndim != 3:
        raise ValueError(
            "frames must have shape (t, height, width), or (t, height, width, 3) for color; got "
            f"{array.shape}."
        )
    if len(array) < 2 or min(array.shape[1:]) < 2:
        raise ValueError(
            "Motion needs at least two frames of 2×2 pixels; got "
            f"{format_count(len(array), 'frame')} of {array.shape[1]}×{array.shape[2]}."
        )
    gray = array.astype(np.float32)
    if not np.isfinite(gray).all():
        frame = int(np.argmin(np.isfinite(gray).all(axis=(1, 2))))
        raise ValueError(f"Frame {frame} contains NaN or infinity.")
    return _scale_to_unit_range(gray)


def compute_threshold(norms: Floats32, rule: Threshold) -> float:
    """Return the norm below which flow vectors are dropped."""
    if not isinstance(rule, str):
        return float(rule)
    if rule == "mean":
        return float(norms.mean(dtype=np.float64) + norms.std(dtype=np.float64))
    return compute_otsu_threshold(norms)


def compute_otsu_threshold(values: ArrayLike, n_bins: int = 256) -> float:
    """Return the threshold that splits the values into two groups with minimum variance (Otsu).

    >>> 2 < compute_otsu_threshold([1.0, 1.5, 2.0, 8.0, 9.0]) < 8
    True
    """
    heights, edges = np.histogram(values, n_bins)
    below = np.cumsum(heights)
    above = below[-1] - below
    sums = np.cumsum(heights * (edges[:-1] + edges[1:]) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = sums / below - (sums[-1] - sums) / above
        between = np.where((below > 0) & (above > 0), below * above * gap**2, -1.0)
    if not between.max() > 0:  # All values are equal.
        return float(np.max(values))
    # All thresholds between the two groups give the same variance. Return the middle of the gap.
    optimal = np.flatnonzero(between >= between.max() * (1 - 1e-12))
    return float((edges[optimal[0] + 1] + edges[optimal[-1] + 1]) / 2)


def _iterate_flows(gray: Floats32) -> Iterator[tuple[slice, Floats32]]:
    """Yield the flow between each frame and the next, for one batch of frames at a time."""
    t, height, width = gray.shape
    step = max(1, _BATCH_PIXELS // (height * width))
    for start in range(0, t - 1, step):
        chunk = slice(start, min(start + step, t - 1))
        yield chunk, _estimate_flow(gray[chunk], gray[chunk.start + 1 : chunk.stop + 1], 2.0, 3)


def _estimate_flow(a: Floats32, b: Floats32, sigma: float, n_levels: int) -> Floats32:
    pyramid = [(a, b)]
    while len(pyramid) < n_levels and min(pyramid[-1][0].shape[1:]) >= 2 * _MIN_SIDE:
        pyramid.append((_halve(pyramid[-1][0]), _halve(pyramid[-1][1])))
    v: Floats32 = np.zeros((2, *pyramid[-1][0].shape), np.float32)
    for level, (x, y) in enumerate(reversed(pyramid)):
        if level:
            v = 2 * _enlarge(v, x.shape[1:])
        v = _refine_flow(v, _smooth(x, 1.0), _warp(_smooth(y, 1.0), v), sigma)
    return v


def _refine_flow(v: Floats32, a: Floats32, b: Floats32, sigma: float) -> Floats32:
    """Return an improved estimate of the flow v. Image b has already been warped with v."""
    down, right = (np.gradient((a + b) / 2, axis=axis).astype(np.float32) for axis in (1, 2))
    change: Floats32 = b - a
    m00, m11 = _smooth(down * down, sigma), _smooth(right * right, sigma)
    m01 = _smooth(down * right, sigma)
    r0 = _smooth(down * change, sigma) - m00 * v[0] - m01 * v[1]
    r1 = _smooth(right * change, sigma) - m01 * v[0] - m11 * v[1]
    # The ridge applies to the whole flow, not to the increment. This way, a background at rest
    # stays at rest even if the coarser level assigned it the motion of a nearby object.
    m00, m11 = m00 + _RIDGE, m11 + _RIDGE
    refined = np.stack([m01 * r1 - m11 * r0, m01 * r0 - m00 * r1]) / (m00 * m11 - m01 * m01)
    # Gradients can only describe small motions. Larger steps are caused by noise.
    return np.asarray(np.clip(refined, np.minimum(v, 0) - 2, np.maximum(v, 0) + 2), np.float32)


def _warp(images: Floats32, v: Floats32) -> Floats32:
    """Return the image values at the pixel positions shifted by v."""
    if not v.any():
        return images
    n, height, width = images.shape
    grid = np.indices((n, height, width), dtype=np.float32)
    grid[1:] += v
    return ndimage.map_coordinates(images, grid, order=1, mode="nearest")


def _smooth(images: Floats32, sigma: float) -> Floats32:
    return ndimage.gaussian_filter(images, (0, sigma, sigma), mode="nearest", truncate=3)


def _halve(images: Floats32) -> Floats32:
    return _smooth(images, 1.0)[:, ::2, ::2]


def _enlarge(v: Floats32, shape: Sequence[int]) -> Floats32:
    """Double the resolution. Pixel i becomes pixel 2i."""
    indices = np.ix_(
        np.arange(v.shape[0]),
        np.arange(v.shape[1]),
        np.minimum(np.arange(shape[0]) // 2, v.shape[2] - 1),
        np.minimum(np.arange(shape[1]) // 2, v.shape[3] - 1),
    )
    return v[indices]


def _scale_to_unit_range(images: Floats32) -> Floats32:
    """Scale values to the range from 0 to 1, so that `_RIDGE` does not depend on their units."""
    low, high = images.min(), images.max()
    return np.asarray((images - low) / (high - low if high > low else 1), np.float32)


def _assign_blocks(height: int, width: int, rows: int, columns: int) -> NDArray[np.intp]:
    """Return the block number of each pixel.

    The heights of the blocks differ by at most one pixel, and so do their widths.
    """
    row = np.arange(height) * rows // height
    column = np.arange(width) * columns // width
    return row[:, None] * columns + column


_two_counts = AllowedValues(
    lambda value: (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(integer(1).accepts(part) for part in value)
    ),
    "two integers of at least 1, (rows, columns)",
)

MOTION_OPTIONS: dict[str, Sequence[Any]] = {
    "bins": [integer(2)],
    "blocks": [_two_counts],
    "threshold": [one_of("otsu", "mean"), real(0)],
    "magnitude": [boolean],
    "normalize": [none, one_of("frame")],
}


def _check_options(*values: Any) -> None:
    for (name, kinds), value in zip(MOTION_OPTIONS.items(), values, strict=True):
        check_parameter("motion_histograms", name, value, kinds)
