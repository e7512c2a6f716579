"""Gait recognition."""

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
from nearfar.base.tensor_input import TENSOR_PARAMETERS, TensorInput
from nearfar.blocks import split_rows
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
from nearfar.tensors.gait import averaged_gait_images, mean_of_nearest, median_of_nearest

Representation = Literal["agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"]

_GABOR = {"gabor": "full", "gabor_d": "D", "gabor_s": "S", "gabor_sd": "SD"}
_MATCHING = {"median_min": median_of_nearest, "symmetric_mean_min": mean_of_nearest}
# Shrinkage of the within-class covariance of LDA toward its mean variance.
_SHRINKAGE = 0.1


class GaitRecognizer(ClassifierMixin, TensorInput, Estimator):
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

    Cost: that of the subspace and of LDA for m cycles, then m distances per cycle of a sequence.

    Parameters
    ----------
    representation : {"agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"}, default="agi"
        Features: the averaged gait images, or their :class:`GaborFeatures` with all kernels or
        with kernels summed over directions ("gabor_d"), scales ("gabor_s") or both ("gabor_sd").
    subspace : learner of tensors or None, default=None
        Transformer that is cloned and fitted to the features, with the subjects as labels. None
        uses the features unchanged.
    lda : bool, default=True
        Whether to apply LDA with shrinkage.
    matching : {"median_min", "symmetric_mean_min"}, default="median_min"
        Distance between sequences: the formula above, or the mean of the nearest distances,
        averaged over both directions.
    metric : {"euclidean", "angle"}, default="euclidean"
        Distance between cycles: Euclidean, or the angle between them about the mean of the gallery.
    period : int or None, default=None
        Number of frames per gait cycle. None estimates it for each sequence with
        :func:`~nearfar.tensors.gait_period`.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample if X contains flat rows, in C order (the last mode varies fastest). Here,
        a sample is a frame.

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
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, sections 3.7 and
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
        "representation": [one_of("agi", *_GABOR)],
        "subspace": [
            none,
            object_with(
                "fit", "transform", description="a learner of tensors with fit and transform"
            ),
        ],
        "lda": [boolean],
        "matching": [one_of(*_MATCHING)],
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
        """Fit the subspace and LDA to the gallery, and store its transformed cycles.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), array of such, or Sets
            Silhouettes of one sequence each, in temporal order. Each vector of Sets is a frame.
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
        walks, shape = _read(sequences, self.tensor_shape)
        classes, codes = self._check_labels(ids, len(walks), min_classes=1)
        images, sizes = self._averages(walks)
        owners = np.repeat(codes, sizes)
        order = np.argsort(owners, kind="stable")
        owners = owners[order]
        features = self._features(images[order], shape)
        subspace = None
        if self.subspace is not None:
            subspace = clone(self.subspace).fit(features, owners)
        rows = _rows(subspace, features)
        mean = rows.mean(axis=0)
        points = rows - mean
        if self.lda and len(classes) > 1:
            self._axes = _shrunk_lda(points, owners)
            points = points @ self._axes
        self.subspace_, self.tensor_shape_ = subspace, shape
        self.n_features_in_ = prod(shape)
        self._mean, self._cycles = mean, self._scaled(points)
        self._starts = np.searchsorted(owners, np.arange(len(classes)))
        self.classes_ = classes
        return self

    def distances(self, sequences: Any) -> Matrix:
        """Return the distances of sequences from the subjects of the gallery.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), array of such, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Distances, with the subjects in the order of ``classes_``.
        """
        check_is_fitted(self)
        walks, shape = _read(sequences, self.tensor_shape_)
        if shape != self.tensor_shape_:
            raise ValueError(
                f"GaitRecognizer: the frames of sequences have shape {shape}, {prod(shape)} "
                f"features, but those in fit had shape {self.tensor_shape_}."
            )
        images, sizes = self._averages(walks)
        points = np.concatenate(list(self._mapped(images)))
        gallery = np.append(self._starts, len(self._cycles))
        match, offsets = _MATCHING[self.matching], np.concatenate([[0], np.cumsum(sizes)])
        D = np.empty((len(walks), len(self.classes_)))
        # Blocks consist of complete sequences.
        per_walk = 16 * int(sizes.max()) * len(self._cycles)
        for block in split_rows(len(walks), per_walk):
            bounds = offsets[block.start : block.stop + 1]
            apart = self._apart(points[bounds[0] : bounds[-1]])
            D[block] = match(apart, bounds - bounds[0], gallery)
        return D

    def rank(self, sequences: Any) -> NDArray[Any]:
        """Return the subjects of the gallery for each sequence, nearest first.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), array of such, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Subjects by increasing distance. Ties are in the order of ``classes_``.
        """
        order = np.argsort(self.distances(sequences), axis=1, kind="stable")
        return np.asarray(self.classes_[order])

    def predict(self, sequences: Any) -> NDArray[Any]:
        """Return the nearest subject for each sequence.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), array of such, or Sets
            New sequences, in the same form as in ``fit``.

        Returns
        -------
        ndarray of shape (n_sequences,)
            Predicted subjects.
        """
        nearest = self.distances(sequences).argmin(axis=1)
        return np.asarray(self.classes_[nearest])

    # ------------------------------------------------------------------ from frames to points

    def _averages(self, walks: list[NDArray[Any]]) -> tuple[Floats, Indices]:
        """Return the averaged images of all sequences as rows, and their number per sequence."""
        averages = []
        for k, frames in enumerate(walks):
            try:
                averages.append(averaged_gait_images(frames, self.period))
            except ValueError as error:
                raise ValueError(f"Sequence {k}: {error}") from None
        sizes = np.array([len(part) for part in averages], dtype=np.intp)
        stacked = np.concatenate(averages)
        return stacked.reshape(len(stacked), -1), sizes

    def _features(self, images: Floats, shape: tuple[int, ...]) -> Floats:
        tensors = images.reshape(len(images), *shape)
        if self.representation == "agi":
            return tensors
        if len(shape) != 2:
            raise ValueError(
                f"representation={self.representation!r} needs frames of shape (height, width), "
                f"but those of sequences have shape {shape}. If frames are flat rows, set "
                "tensor_shape."
            )
        # There are 40 numbers per pixel. float32 is precise enough for averages of binary images.
        gabor = GaborFeatures(_GABOR[self.representation], flatten=False)  # type: ignore[arg-type]
        return gabor.fit_transform(tensors.astype(np.float32))

    def _mapped(self, images: Floats) -> Iterator[Matrix]:
        """Yield the transformed cycles of new images in blocks."""
        per_image = images.shape[1] * (8 if self.representation == "agi" else 8 * 40)
        for block in split_rows(len(images), per_image):
            features = self._features(images[block], self.tensor_shape_)
            points = _rows(self.subspace_, features) - self._mean
            yield self._scaled(points @ self._axes if hasattr(self, "_axes") else points)

    def _scaled(self, points: Matrix) -> Matrix:
        if self.metric == "euclidean":
            return points
        lengths = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
        return np.asarray(points / np.where(lengths > 0, lengths, 1))

    def _apart(self, points: Matrix) -> Matrix:
        """Return the distances or angles between cycles and those of the gallery."""
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
        made = check_state(self.subspace_).get("q", sizes["q"])
        check_that(
            made == sizes["q"], f"subspace_ must return {sizes['q']} features; it returns {made}"
        )


def _read(
    sequences: Any, wanted: tuple[int, ...] | None
) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
    """Return the frames (n_frames, ...) of each sequence, and the shape of a frame.

    Flat frames are reshaped to the wanted shape.
    """
    if isinstance(sequences, Sets | str | bytes) or not isinstance(sequences, Iterable):
        walks = list(as_sets(sequences))  # Raises for other types, with a list of valid ones.
    elif hasattr(sequences, "columns"):
        walks = list(as_sets(sequences))
    else:
        walks = [_plain(frames) for frames in sequences]
        flat = [f.reshape(len(f), prod(f.shape[1:])) if f.ndim > 2 else f for f in walks]
        if not walks or not all(_is_sound(frames, flat[0]) for frames in flat):
            walks = list(as_sets(flat))  # Raises with a message that names the invalid sequence.
    shape: tuple[int, ...] = walks[0].shape[1:]
    for k, frames in enumerate(walks):
        if frames.shape[1:] != shape:
            raise ValueError(
                f"Sequence {k} has frames of shape {frames.shape[1:]}, but those of sequence 0 "
                f"have shape {shape}. All frames must have the same shape."
            )
    if wanted is None or tuple(wanted) == shape:
        return walks, tuple(int(n) for n in shape)
    if len(shape) > 1 or prod(wanted) != shape[0]:
        raise ValueError(
            f"GaitRecognizer: the frames of sequences have shape {shape}, {prod(shape)} features, "
            f"but tensor_shape {tuple(wanted)} needs {prod(wanted)}."
        )
    wanted = tuple(int(n) for n in wanted)
    return [frames.reshape(len(frames), *wanted) for frames in walks], wanted


def _plain(frames: Any) -> NDArray[Any]:
    try:
        return np.asarray(frames)
    except (TypeError, ValueError):  # The frames have unequal lengths.
        return np.array(frames, dtype=object)


def _is_sound(frames: NDArray[Any], first: NDArray[Any]) -> bool:
    """Return True if frames can be averaged without a copy in floats, which may be large."""
    if frames.ndim != 2 or not frames.size or frames.shape[1:] != first.shape[1:]:
        return False
    if frames.dtype.kind == "f":
        return frames.dtype.itemsize >= 4 and bool(np.isfinite(frames).all())
    return frames.dtype.kind in "biu"


def _rows(subspace: Any, features: Floats) -> Matrix:
    """Return the features after the subspace as flat rows of float64."""
    mapped = features if subspace is None else np.asarray(subspace.transform(features))
    return mapped.reshape(len(mapped), -1).astype(np.float64)


def _shrunk_lda(points: Matrix, owners: Indices) -> Matrix:
    """Return discriminant axes (q, r) with unit variance within subjects."""
    if (points == points[np.searchsorted(owners, owners)]).all():
        raise ValueError(
            "Every subject of ids has one gait cycle only, or equal cycles, so LDA cannot estimate "
            "the variance within subjects. Use lda=False, a shorter period or more sequences."
        )
    statistics = ClassStatistics(pooled=True).partial_fit(points, owners)
    return whiten_means(statistics, _SHRINKAGE)[0]
