"""Recognition of people by their gait."""

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
from nearfar.blocks import row_blocks
from nearfar.parameters import boolean, having, integer, none, one_of
from nearfar.state import Sizes, State, Word, check_state, floats, indices, labels, need, optional
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.sets import Sets, as_sets
from nearfar.summaries.whitening import whitened_means
from nearfar.tensors.gabor_features import GaborFeatures
from nearfar.tensors.gait import averaged_gait_images, mean_of_nearest, median_of_nearest

Representation = Literal["agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"]

_GABOR = {"gabor": "full", "gabor_d": "D", "gabor_s": "S", "gabor_sd": "SD"}
_MATCHING = {"median_min": median_of_nearest, "symmetric_mean_min": mean_of_nearest}
# Share of the mean variance that is mixed into the covariance of LDA.
_SHRINKAGE = 0.1


class GaitRecognizer(ClassifierMixin, TensorInput, Estimator):
    r"""Who walks there: the subject whose gait cycles are nearest to those of a sequence.

    Silhouettes of a sequence are averaged over each gait cycle
    (:func:`~nearfar.tensors.averaged_gait_images`), these images become tensors of Gabor features
    if one wants, go through a tensor subspace, then through LDA, and a sequence P is as far from a
    subject G as

    .. math:: d(P, G) = \mathrm{median}_i \min_j \|P_i - G_j\|

    over the cycles :math:`P_i` of the sequence and all cycles :math:`G_j` of the subject. Subspace
    and LDA learn from the cycles of the training sequences, the gallery. LDA is shrunk: its
    within-class covariance has 10 % of its mean variance mixed in, since there are few cycles of
    anybody.

    Use it for silhouettes from the side, of one size and with the walker in the middle. For any
    other sets of vectors see :class:`SetKNeighborsClassifier`. With ``subspace=None`` and many
    pixels LDA works in the span of all averaged images, which is fine for some hundred of them.

    Cost: that of the subspace and of LDA for m cycles; then m distances for each cycle.

    Parameters
    ----------
    representation : {"agi", "gabor", "gabor_d", "gabor_s", "gabor_sd"}, default="agi"
        Averaged gait images as they are, or what :class:`GaborFeatures` makes of them: of all
        kernels, or of those summed over directions, scales or both.
    subspace : learner of tensors or None, default=None
        Fitted to the features with the subjects for labels; None takes them as they are.
    lda : bool, default=True
        Whether a shrunk LDA follows.
    matching : {"median_min", "symmetric_mean_min"}, default="median_min"
        How distances of cycles become those of sequences: the median of the nearest, as above, or
        the mean of the nearest, from the sequence to the subject and back.
    metric : {"euclidean", "angle"}, default="euclidean"
        How far cycles are from one another: the length of their difference, or the angle between
        them as seen from the mean of the gallery.
    period : int or None, default=None
        Frames of a gait cycle; None asks :func:`~nearfar.tensors.gait_period` for each sequence.
    tensor_shape : tuple of int or None, default=None
        Shape of a sample, where X comes as flat rows, the last mode fastest: that of a frame.

    Attributes
    ----------
    classes_ : ndarray of shape (n_subjects,)
        Who is in the gallery.
    subspace_ : object or None
        The fitted subspace.
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
            having("fit", "transform", description="a learner of tensors with fit and transform"),
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
            "subspace_": Word(
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
        """Learn from the gallery, and keep its cycles.

        Parameters
        ----------
        sequences : list of arrays (n_frames_i, height, width), array of such, or Sets
            Silhouettes of one walk each, in the order of time; of Sets each vector is a frame.
        ids : array-like of shape (n_sequences,)
            Whose walk each is.

        Returns
        -------
        GaitRecognizer
            Itself.
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
        """How far sequences are from the subjects of the gallery.

        Parameters
        ----------
        sequences : as in ``fit``
            New walks.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Subjects in the order of ``classes_``.
        """
        check_is_fitted(self)
        walks, shape = _read(sequences, self.tensor_shape_)
        if shape != self.tensor_shape_:
            raise ValueError(
                f"GaitRecognizer: sequences has frames of shape {shape}, {prod(shape)} features; "
                f"those of fit had shape {self.tensor_shape_}."
            )
        images, sizes = self._averages(walks)
        points = np.concatenate(list(self._mapped(images)))
        gallery = np.append(self._starts, len(self._cycles))
        match, offsets = _MATCHING[self.matching], np.concatenate([[0], np.cumsum(sizes)])
        D = np.empty((len(walks), len(self.classes_)))
        # A block has whole sequences.
        per_walk = 16 * int(sizes.max()) * len(self._cycles)
        for block in row_blocks(len(walks), per_walk):
            bounds = offsets[block.start : block.stop + 1]
            apart = self._apart(points[bounds[0] : bounds[-1]])
            D[block] = match(apart, bounds - bounds[0], gallery)
        return D

    def rank(self, sequences: Any) -> NDArray[Any]:
        """The subjects of the gallery, nearest first.

        Parameters
        ----------
        sequences : as in ``fit``
            New walks.

        Returns
        -------
        ndarray of shape (n_sequences, n_subjects)
            Of subjects equally far the first in ``classes_`` comes first.
        """
        order = np.argsort(self.distances(sequences), axis=1, kind="stable")
        return np.asarray(self.classes_[order])

    def predict(self, sequences: Any) -> NDArray[Any]:
        """The nearest subject.

        Parameters
        ----------
        sequences : as in ``fit``
            New walks.

        Returns
        -------
        ndarray of shape (n_sequences,)
        """
        nearest = self.distances(sequences).argmin(axis=1)
        return np.asarray(self.classes_[nearest])

    # ------------------------------------------------------------------ from frames to points

    def _averages(self, walks: list[NDArray[Any]]) -> tuple[Floats, Indices]:
        """Averaged images of all sequences as rows, and how many each has."""
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
                f"but those of sequences have shape {shape}. For flat frames give tensor_shape."
            )
        # Forty numbers for each pixel; single precision is enough for what is averaged of bits.
        gabor = GaborFeatures(_GABOR[self.representation], flatten=False)  # type: ignore[arg-type]
        return gabor.fit_transform(tensors.astype(np.float32))

    def _mapped(self, images: Floats) -> Iterator[Matrix]:
        """Points of new images, in blocks."""
        per_image = images.shape[1] * (8 if self.representation == "agi" else 8 * 40)
        for block in row_blocks(len(images), per_image):
            features = self._features(images[block], self.tensor_shape_)
            points = _rows(self.subspace_, features) - self._mean
            yield self._scaled(points @ self._axes if hasattr(self, "_axes") else points)

    def _scaled(self, points: Matrix) -> Matrix:
        if self.metric == "euclidean":
            return points
        lengths = np.sqrt(np.einsum("ij,ij->i", points, points))[:, None]
        return np.asarray(points / np.where(lengths > 0, lengths, 1))

    def _apart(self, points: Matrix) -> Matrix:
        """Distances, or angles, of cycles to those of the gallery."""
        D = np.asarray(cdist(points, self._cycles))
        return D if self.metric == "euclidean" else 2 * np.arcsin(np.minimum(D / 2, 1))

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        starts, n = self._starts, len(self._cycles)
        need(
            starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < n,
            f"_starts must ascend from 0 to below {n}",
        )
        need(hasattr(self, "_axes") or sizes["q"] == sizes["r"], "_cycles must be as long as _mean")
        if self.subspace_ is None:
            return
        made = check_state(self.subspace_).get("q", sizes["q"])
        need(made == sizes["q"], f"subspace_ must give {sizes['q']} features; it gives {made}")


def _read(
    sequences: Any, wanted: tuple[int, ...] | None
) -> tuple[list[NDArray[Any]], tuple[int, ...]]:
    """Frames of each sequence, (n_frames, ...), and the shape of one; flat ones get that wanted."""
    if isinstance(sequences, Sets | str | bytes) or not isinstance(sequences, Iterable):
        walks = list(as_sets(sequences))  # who says what would do
    elif hasattr(sequences, "columns"):
        walks = list(as_sets(sequences))
    else:
        walks = [_plain(frames) for frames in sequences]
        flat = [f.reshape(len(f), prod(f.shape[1:])) if f.ndim > 2 else f for f in walks]
        if not walks or not all(_is_sound(frames, flat[0]) for frames in flat):
            walks = list(as_sets(flat))  # names what is wrong
    shape: tuple[int, ...] = walks[0].shape[1:]
    for k, frames in enumerate(walks):
        if frames.shape[1:] != shape:
            raise ValueError(
                f"Sequence {k} has frames of shape {frames.shape[1:]}, but those of sequence 0 "
                f"have shape {shape}; all need the same."
            )
    if wanted is None or tuple(wanted) == shape:
        return walks, tuple(int(n) for n in shape)
    if len(shape) > 1 or prod(wanted) != shape[0]:
        raise ValueError(
            f"GaitRecognizer: frames of sequences have shape {shape}, {prod(shape)} features; "
            f"frames of shape {tuple(wanted)} have {prod(wanted)}."
        )
    wanted = tuple(int(n) for n in wanted)
    return [frames.reshape(len(frames), *wanted) for frames in walks], wanted


def _plain(frames: Any) -> NDArray[Any]:
    try:
        return np.asarray(frames)
    except (TypeError, ValueError):  # of unequal lengths
        return np.array(frames, dtype=object)


def _is_sound(frames: NDArray[Any], first: NDArray[Any]) -> bool:
    """Whether frames can be averaged as they are; a copy of them all in floats may be large."""
    if frames.ndim != 2 or not frames.size or frames.shape[1:] != first.shape[1:]:
        return False
    if frames.dtype.kind == "f":
        return frames.dtype.itemsize >= 4 and bool(np.isfinite(frames).all())
    return frames.dtype.kind in "biu"


def _rows(subspace: Any, features: Floats) -> Matrix:
    """Features after the subspace, as flat rows of float64."""
    mapped = features if subspace is None else np.asarray(subspace.transform(features))
    return mapped.reshape(len(mapped), -1).astype(np.float64)


def _shrunk_lda(points: Matrix, owners: Indices) -> Matrix:
    """Axes (q, r) that tell subjects apart, each of unit variance within subjects."""
    if (points == points[np.searchsorted(owners, owners)]).all():
        raise ValueError(
            "Every subject of ids has one gait cycle only, or equal ones: there is nothing from "
            "which LDA could learn how one gait varies. Use lda=False, a shorter period or more "
            "sequences."
        )
    statistics = ClassStatistics(pooled=True).partial_fit(points, owners)
    return whitened_means(statistics, _SHRINKAGE)[0]
