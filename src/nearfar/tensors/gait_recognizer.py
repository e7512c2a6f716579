"""Gait recognition by nearest neighbors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import Estimator, LearnerTags
from nearfar.base.tensor_input import TENSOR_PARAMETERS, TensorEstimator
from nearfar.blocks import MAX_MAGNITUDE, split_rows
from nearfar.parameters import boolean, integer, none, object_with, one_of
from nearfar.state import (
    Condition,
    Sizes,
    State,
    check_state,
    check_that,
    floats,
    indices,
    labels,
    optional,
)
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.sets import Sets, as_sets
from nearfar.summaries.whitening import whiten_means
from nearfar.tensors.gabor_features import GaborFeatures
from nearfar.tensors.gait import (
    averaged_gait_images,
    compute_median_distances,
    compute_symmetric_distances,
)

Representation = Literal["agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"]

_GABOR_KINDS = {"gabor": "none", "gabor_d": "orientations", "gabor_s": "scales", "gabor_sd": "both"}
_MATCHING_FUNCTIONS = {
    "median_min": compute_median_distances,
    "symmetric_mean_min": compute_symmetric_distances,
}
# Shrinkage of the within-class covariance for LDA.
_SHRINKAGE = 0.1


class GaitRecognizer(ClassifierMixin, TensorEstimator, Estimator):
    r"""Nearest-neighbor classifier that recognizes people by their gait.

    Each sequence of silhouettes is processed in these steps:

    1. The silhouettes are averaged over each gait cycle
       (:func:`~nearfar.tensors.averaged_gait_images`).
    2. Optionally, the averaged images are converted to Gabor features.
    3. Optionally, the features are transformed by a tensor subspace.
    4. The result is transformed by LDA. Because there are few cycles per subject, LDA shrinks its
       within-class covariance: 10% of the mean variance is mixed in.

    The distance of a sequence P from a subject G is

    .. math:: d(P, G) = \mathrm{median}_i \min_j \|P_i - G_j\|

    over the cycles :math:`P_i` of the sequence and all cycles :math:`G_j` of the subject. The
    subspace and LDA are fitted to the cycles of the training sequences, the gallery.

    Use it for silhouettes from the side, all of the same size, with the person in the center. For
    other sets of vectors see :class:`SetKNeighborsClassifier`. With ``subspace=None`` and many
    pixels, LDA works in the span of all averaged images, which is feasible for some hundred images.

    Cost: the cost of fitting the subspace and LDA to the m cycles of the gallery. Prediction
    computes m distances per cycle of a new sequence.

    Parameters
    ----------
    representation : {"agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"}, default="agi"
        Features: "agi" uses averaged gait images. The other values use :class:`GaborFeatures` of
        these images, with all kernels ("gabor"), or with kernels summed over orientations
        ("gabor_d"), scales ("gabor_s") or both ("gabor_sd").
    subspace : learner of tensors or None, default=None
        Transformer that is cloned and fitted to the features, with the subjects as labels. None
        uses the features unchanged.
    lda : bool, default=True
        Whether to apply LDA with shrinkage.
    matching : {"median_min", "symmetric_mean_min"}, default="median_min"
        Distance between sequences: "median_min" is the formula above. "symmetric_mean_min" is the
        mean distance from a cycle to the nearest cycle of the other sequence, averaged over both
        directions.
    metric : {"euclidean", "angle"}, default="euclidean"
        Distance between cycles: the Euclidean distance, or the angle between cycles after
        subtraction of the gallery's mean.
    period : int or None, default=None
        Number of frames per gait cycle. None estimates it for each sequence with
        :func:`~nearfar.tensors.gait_period`.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest). Here, a sample is a frame.

    Attributes
    ----------
    classes_ : ndarray of shape (n_subjects,)
        Subjects of the gallery, sorted.
    subspace_ : object or None
        Fitted clone of ``subspace``.
    tensor_shape_ : tuple of int
        Shape of a frame.

    See Also
    --------
    GaborFeatures, SetKNeighborsClassifier

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section
       3.8.

    Examples
    --------
    >>> from nearfar import GaitRecognizer
    >>> from nearfar.datasets import make_walkers
    >>> sequences, ids, _ = make_walkers(6, 2, shape=(32, 22), random_state=0)
    >>> gallery, probes = sequences[::2], sequences[1::2]
    >>> recognizer = GaitRecognizer().fit(gallery, ids[::2])
    >>> recognizer.predict(probes).tolist()
    [0, 1, 2, 3, 4, 5]
    >>> recognizer.rank(probes)[0].shape, recognizer.distances(probes).shape
    ((6,), (6, 6))
    """

    learner_tags = LearnerTags(reads="instances", role="classifier", input="sets")
    parameters: ClassVar = {
        "representation": [one_of("agi", *_GABOR_KINDS)],
        "subspace": [
            none,
            object_with(
                "fit", "transform", description="a learner of tensors with fit and transform"
            ),
        ],
        "lda": [boolean],
        "matching": [one_of(*_MATCHING_FUNCTIONS)],
        "metric": [one_of("euclidean", "angle")],
        "period": [none, integer(1)],
        **TENSOR_PARAMETERS,
    }
    state = State(
        {
            "classes_": labels("c"),
            "subspace_": Condition(
                lambda value, _: value is None or hasattr(type(value), "transform"),
                "a learner of tensors, or None",
            ),
            "_mean": floats("q"),
            "_axes": optional(floats("q", "r")),
            "_cycles": floats("n", "r"),
            "_starts": indices("c"),
        },
        fitted="classes_",
        rows="_cycles",
    )

    classes_: NDArray[Any]
    subspace_: Any
    _mean: Vector
    _axes: Matrix
    _cycles: Matrix
    _starts: Indices

    def __init__(
        self,
        representation: Representation = "agi",
        *,
        subspace: Any = None,
        lda: bool = True,
        matching: Literal["median_min", "symmetric_mean_min"] = "median_min",
        metric: Literal["euclidean", "angle"] = "euclidean",
        period: int | None = None,
        tensor_shape: tuple[int, ...] | None = None,
    ) -> None:
        self.representation = representation
        self.subspace = subspace
        self.lda = lda
        self.matching = matching
        self.metric = metric
        self.period = period
        self.tensor_shape = tensor_shape

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def fit(self, sequences: Any, ids: ArrayLike) -> Self:
        """Fit the subspace and LDA to the gallery, and store the transformed gait cycles.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), stacked array, or Sets
            Sequences of silhouettes in temporal order. If Sets are passed, each of their vectors is
            a frame.
        ids : array-like of shape (n_sequences,)
            Subject of each sequence.

        Returns
        -------
        GaitRecognizer
            The recognizer itself.
        """
        self._forget()
        self.__dict__.pop("_axes", None)
        self._check_parameters()
        silhouettes, shape = _read_sequences(sequences, self.tensor_shape)
        classes, codes = self._check_labels(ids, len(silhouettes), min_classes=1)
        images, sizes = self._average_cycles(silhouettes)
        cycle_codes = np.repeat(codes, sizes)
        order = np.argsort(cycle_codes, kind="stable")
        cycle_codes = cycle_codes[order]
        features = self._compute_features(images[order], shape)
        subspace = None
        if self.subspace is not None:
            subspace = clone(self.subspace).fit(features, cycle_codes)
        features_in_rows = _transform_to_rows(subspace, features)
        mean = features_in_rows.mean(axis=0)
        points = features_in_rows - mean
        if self.lda and len(classes) > 1:
            self._axes = _fit_shrunk_lda(points, cycle_codes)
            points = points @ self._axes
        self.subspace_, self.tensor_shape_ = subspace, shape
        self.n_features_in_ = prod(shape)
        self._mean, self._cycles = mean, self._scale_to_metric(points)
        self._starts = np.searchsorted(cycle_codes, np.arange(len(classes)))
        self.classes_ = classes
        return self

    def distances(self, sequences: Any) -> Matrix:
        """Return the distances of sequences from the subjects of the gallery.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), stacked array, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Distances, with the subjects in the order of ``classes_``.
        """
        check_is_fitted(self)
        silhouettes, shape = _read_sequences(sequences, self.tensor_shape_)
        if shape != self.tensor_shape_:
            raise ValueError(
                f"GaitRecognizer: the frames of sequences have shape {shape} with "
                f"{prod(shape)} features, but the frames in fit had shape {self.tensor_shape_}."
            )
        images, sizes = self._average_cycles(silhouettes)
        points = np.concatenate(list(self._transform_images(images)))
        gallery = np.append(self._starts, len(self._cycles))
        match, offsets = _MATCHING_FUNCTIONS[self.matching], np.concatenate([[0], np.cumsum(sizes)])
        D = np.empty((len(silhouettes), len(self.classes_)))
        # A block contains complete sequences, since a distance needs all cycles of a sequence.
        bytes_per_sequence = 16 * int(sizes.max()) * len(self._cycles)
        for block in split_rows(len(silhouettes), bytes_per_sequence):
            bounds = offsets[block.start : block.stop + 1]
            cycle_distances = self._compute_cycle_distances(points[bounds[0] : bounds[-1]])
            D[block] = match(cycle_distances, bounds - bounds[0], gallery)
        return D

    def rank(self, sequences: Any) -> NDArray[Any]:
        """Return the subjects of the gallery for each sequence, nearest first.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), stacked array, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Subjects by increasing distance. Subjects at equal distance are in the order of
            ``classes_``.
        """
        order = np.argsort(self.distances(sequences), axis=1, kind="stable")
        return np.asarray(self.classes_[order])

    def predict(self, sequences: Any) -> NDArray[Any]:
        """Return the nearest subject for each sequence.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), stacked array, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences,)
            Predicted subjects.
        """
        nearest = self.distances(sequences).argmin(axis=1)
        return np.asarray(self.classes_[nearest])

    # ------------------------------------------------------------------ computation of features

    def _average_cycles(self, silhouettes: list[NDArray[Any]]) -> tuple[Floats, Indices]:
        """Return averaged gait images as rows, and the number of images per sequence."""
        averages = []
        for k, frames in enumerate(silhouettes):
            try:
                averages.append(averaged_gait_images(frames, self.period))
            except ValueError as error:
                raise ValueError(f"Sequence {k}: {error}") from None
        sizes = np.array([len(images) for images in averages], dtype=np.intp)
        stacked = np.concatenate(averages)
        return stacked.reshape(len(stacked), -1), sizes

    def _compute_features(self, images: Floats, shape: tuple[int, ...]) -> Floats:
        tensors = images.reshape(len(images), *shape)
        if self.representation == "agi":
            return tensors
        if len(shape) != 2:
            raise ValueError(
                f"representation={self.representation!r} needs frames of shape (height, width), "
                f"but the frames of sequences have shape {shape}. If frames are flat rows, set "
                "tensor_shape."
            )
        # "gabor" has 40 features per pixel, so memory matters. float32 is precise enough for
        # averages of binary images.
        gabor = GaborFeatures(_GABOR_KINDS[self.representation], flatten=False)  # type: ignore[arg-type]
        return gabor.fit_transform(tensors.astype(np.float32))

    def _transform_images(self, images: Floats) -> Iterator[Matrix]:
        """Transform averaged gait images, and yield the results in blocks."""
        per_image = images.shape[1] * (8 if self.representation == "agi" else 8 * 40)
        for block in split_rows(len(images), per_image):
            features = self._compute_features(images[block], self.tensor_shape_)
            points = _transform_to_rows(self.subspace_, features) - self._mean
            yield self._scale_to_metric(points @ self._axes if hasattr(self, "_axes") else points)

    def _scale_to_metric(self, points: Matrix) -> Matrix:
        if self.metric == "euclidean":
            return points
        lengths = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
        return np.asarray(points / np.where(lengths > 0, lengths, 1))

    def _compute_cycle_distances(self, points: Matrix) -> Matrix:
        """Return the distances or angles between new cycles and the cycles of the gallery."""
        D = np.asarray(cdist(points, self._cycles))
        return D if self.metric == "euclidean" else 2 * np.arcsin(np.minimum(D / 2, 1))

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        starts, n = self._starts, len(self._cycles)
        check_that(
            starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < n,
            f"_starts must ascend from 0 to below {n}",
        )
        check_that(
            hasattr(self, "_axes") or sizes["q"] == sizes["r"],
            "_cycles must have as many columns as _mean has elements",
        )
        if self.subspace_ is None:
            return
        n_outputs = check_state(self.subspace_).get("q", sizes["q"])
        check_that(
            n_outputs == sizes["q"],
            f"subspace_ must return {sizes['q']} features; it returns {n_outputs}",
        )


def _read_sequences(
    sequences: Any, requested_shape: tuple[int, ...] | None
) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
    """Return the frames of each sequence as an array, and the shape of one frame.

    Flat frames are reshaped to the requested shape.
    """
    if isinstance(sequences, Sets | str | bytes) or not isinstance(sequences, Iterable):
        # For an invalid type, as_sets raises an error that lists the valid types.
        silhouettes = list(as_sets(sequences))
    elif hasattr(sequences, "columns"):
        silhouettes = list(as_sets(sequences))
    else:
        silhouettes = [_convert_to_array(frames) for frames in sequences]
        flat = [f.reshape(len(f), prod(f.shape[1:])) if f.ndim > 2 else f for f in silhouettes]
        if not silhouettes or not all(_can_average_in_place(frames, flat[0]) for frames in flat):
            # If a sequence is invalid, as_sets raises an error that names the sequence.
            silhouettes = list(as_sets(flat))
    shape: tuple[int, ...] = silhouettes[0].shape[1:]
    for k, frames in enumerate(silhouettes):
        if frames.shape[1:] != shape:
            raise ValueError(
                f"Sequence {k} has frames of shape {frames.shape[1:]}, but the frames of sequence "
                f"0 have shape {shape}. All frames must have the same shape."
            )
    if requested_shape is None or tuple(requested_shape) == shape:
        return silhouettes, tuple(int(n) for n in shape)
    if len(shape) > 1 or prod(requested_shape) != shape[0]:
        raise ValueError(
            f"GaitRecognizer: the frames of sequences have shape {shape} with {prod(shape)} "
            f"features, but tensor_shape={tuple(requested_shape)} needs {prod(requested_shape)}."
        )
    requested_shape = tuple(int(n) for n in requested_shape)
    return [
        frames.reshape(len(frames), *requested_shape) for frames in silhouettes
    ], requested_shape


def _convert_to_array(frames: Any) -> NDArray[Any]:
    try:
        return np.asarray(frames)
    except (TypeError, ValueError):  # The frames have unequal lengths.
        return np.array(frames, dtype=object)


def _can_average_in_place(frames: NDArray[Any], first: NDArray[Any]) -> bool:
    """Return True if frames are valid numbers that need no conversion to floats."""
    if frames.ndim != 2 or not frames.size or frames.shape[1:] != first.shape[1:]:
        return False
    if frames.dtype.kind == "f":
        return frames.dtype.itemsize >= 4 and float(np.abs(frames).max()) <= MAX_MAGNITUDE
    return frames.dtype.kind in "biu"


def _transform_to_rows(subspace: Any, features: Floats) -> Matrix:
    """Apply the subspace to features, and return flat rows of float64."""
    transformed = features if subspace is None else np.asarray(subspace.transform(features))
    return transformed.reshape(len(transformed), -1).astype(np.float64)


def _fit_shrunk_lda(points: Matrix, cycle_codes: Indices) -> Matrix:
    """Return LDA axes (q, r), scaled to unit variance within subjects."""
    if (points == points[np.searchsorted(cycle_codes, cycle_codes)]).all():
        raise ValueError(
            "Every subject in ids has only one gait cycle, or all its cycles are equal, so LDA "
            "cannot estimate the variance within subjects. Use lda=False, a shorter "
            "period or more sequences."
        )
    statistics = ClassStatistics(pooled=True).partial_fit(points, cycle_codes)
    return whiten_means(statistics, _SHRINKAGE)[0]
