"""Iterative feature extraction model."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import LearnerTags, RankOneLearner
from nearfar.base.progress import forward_progress
from nearfar.base.rank_one import deflate, flatten_atoms
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.notices import warn
from nearfar.parameters import integer, none, object_with
from nearfar.solvers.mode_subspaces import fix_column_signs
from nearfar.state import State, labels
from nearfar.tensors.lsstm import LSSTM


class IFEM(RankOneLearner):
    r"""Iterative feature extraction: features from tensor classifiers fitted to residuals.

    A tensor classifier finds a weight tensor of rank one,
    :math:`W = s\,u_1 \otimes \cdots \otimes u_M`. Its unit vectors form the atom :math:`A_r`. The
    feature of a sample and the residual are

    .. math:: \lambda_{ir} = \langle X_i^{(r)}, A_r \rangle, \qquad
        X_i^{(r+1)} = X_i^{(r)} - \lambda_{ir} A_r ,

    and the next classifier is fitted to the residuals. With more than two classes, or a rank above
    one, a classifier has several rank-one tensors. IFEM then selects the one whose scores have the
    largest fraction of their variance between classes. New tensors are transformed by solving a
    triangular system with the inner products of the atoms, as in :class:`TR1A`.

    The classifiers are fitted to residuals divided by the root mean square of X. The features
    therefore have the units of X, and their atoms do not depend on these units.

    Use it to examine what a tensor classifier finds beyond its first direction, or to represent
    tensors by few features before k-NN. :class:`TR1DA` extracts features by a criterion of all
    classes at once. With more than a few classes TR1DA is the better choice, since IFEM solves all
    two-class problems for each feature.

    Cost: one fit of the classifier per feature. Memory: one copy of X.

    Parameters
    ----------
    estimator : classifier of tensors or None, default=None
        Classifier that is cloned and fitted for each feature. It must set ``factors_``, as STM,
        NuSTM, LSSTM, TMPM and TFDA do. None uses ``LSSTM()``. Its regularization applies to X
        divided by the root mean square of X.
    n_components : int, default=10
        Dimension of the output: number of features R. If the residuals no longer separate the
        classes, ``fit`` finds fewer features and warns.
    tensor_shape : tuple of int or None, default=None
        Shape of one sample. Set it if X contains flattened tensors, in C order (the last mode
        varies fastest).
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    factors_ : list of ndarray of shape (d_k, n_components)
        One matrix per mode k, with the vectors :math:`u_{kr}` as columns.
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix for flat rows. It is computed on access from the flattened atoms and their
        inner products.
    n_components_ : tuple of int
        Number of features found, as a tuple (R,).
    tensor_shape_ : tuple of int
        Shape of a sample.
    classes_ : ndarray of shape (n_classes,)
        Class labels, sorted.

    See Also
    --------
    TR1DA, LSSTM

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 4.4,
       equations (4.60) to (4.62).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from nearfar import IFEM
    >>> images, y = load_digits(n_class=2).images, load_digits(n_class=2).target
    >>> ifem = IFEM(n_components=3).fit(images, y)
    >>> ifem.transform(images).shape
    (360, 3)
    """

    learner_tags = LearnerTags(reads="instances", input="tensors")
    state = State({"classes_": labels("c")}, rows=0)
    parameters: ClassVar = {
        "estimator": [none, object_with("fit", "decision_function", description="a classifier")],
        "n_components": [integer(1)],
        **TENSOR_PARAMETERS,
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_components: int = 10,
        tensor_shape: tuple[int, ...] | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_components = n_components
        self.tensor_shape = tensor_shape
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the classifier to the residuals of labeled tensors, once per feature.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk) or (n_samples, n_features)
            Tensors, or rows. Rows are flat tensors if ``tensor_shape`` is set, and vectors
            otherwise.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        object
            The learner itself.
        """
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(T))
        shape = T.shape[1:]
        residuals = np.array(T.reshape(len(T), -1), np.float64, order="C")
        scatter = float(np.sum((residuals - residuals.mean(axis=0)) ** 2))
        rounding_level = (1e-20 if T.dtype == np.float64 else 1e-11) * float(np.sum(residuals**2))
        if not scatter > rounding_level:
            raise ValueError("IFEM: all samples in X are equal. At least two must differ.")
        scale = float(np.sqrt(np.mean(residuals**2)))
        atoms: list[list[Vector]] = []
        interrupt: KeyboardInterrupt | None = None
        while interrupt is None and len(atoms) < self.n_components:
            learner = LSSTM() if self.estimator is None else clone(self.estimator)
            if "tensor_shape" in learner.get_params(deep=False):
                learner.set_params(tensor_shape=None)  # The residuals are not flat rows.
            try:
                with forward_progress(self, learner):
                    learner.fit(residuals.reshape(T.shape) / scale, codes)
            except KeyboardInterrupt as error:  # The classifier keeps its best result so far.
                interrupt = error
                if not hasattr(learner, "factors_"):
                    break
            atom = _select_best_atom(_collect_atoms(learner), residuals, codes, rounding_level)
            if atom is None:
                break
            deflate(residuals, flatten_atoms([u[:, None] for u in atom])[:, 0])
            atoms.append(atom)
        if interrupt is not None and not atoms:
            raise interrupt
        if not atoms:
            raise ValueError(
                "IFEM: all weights of the classifier are zero, so no feature was found. Pass "
                "another estimator, or change its regularization."
            )
        if len(atoms) < self.n_components and interrupt is None:
            warn(
                f"IFEM: only {len(atoms)} of {self.n_components} features were found, because the "
                "residuals do not separate the classes. Use a smaller n_components."
            )
        self.classes_ = classes
        factors = [np.column_stack([atom[k] for atom in atoms]) for k in range(len(shape))]
        self._keep_atoms(factors, None, T.dtype)
        if interrupt is not None:
            raise interrupt
        return self


def _collect_atoms(learner: Any) -> list[list[Vector]]:
    """Return the rank-one tensors in the weights of a fitted classifier, as unit vectors."""
    factors = getattr(learner, "factors_", None)
    if factors is None:
        raise ValueError(
            f"IFEM: estimator {type(learner).__name__} has no factors_. Pass a tensor classifier, "
            "for example LSSTM()."
        )
    problems = factors if isinstance(factors[0], list | tuple) else [factors]
    atoms = []
    for problem in problems:
        columns: list[Matrix] = [np.asarray(U, float).reshape(len(U), -1) for U in problem]
        for r in range(columns[0].shape[1]):
            vectors = [U[:, r] for U in columns]
            lengths = [float(np.linalg.norm(u)) for u in vectors]
            if min(lengths) > 0:
                atoms.append(
                    [
                        fix_column_signs((u / s)[:, None])[:, 0]
                        for u, s in zip(vectors, lengths, strict=True)
                    ]
                )
    return atoms


def _select_best_atom(
    atoms: list[list[Vector]], residuals: Floats, codes: Indices, rounding_level: float
) -> list[Vector] | None:
    """Return the atom whose scores have the largest ratio of between-class to total variance.

    Return None if the scores of all atoms are constant.
    """
    if not atoms:
        return None
    flat_candidates = np.column_stack([flatten_atoms([u[:, None] for u in atom]) for atom in atoms])
    scores = residuals @ flat_candidates
    scores -= scores.mean(axis=0)
    total = np.sum(scores**2, axis=0)
    counts = np.bincount(codes)
    means = np.stack([scores[codes == c].mean(axis=0) for c in range(len(counts))])
    is_varying = total > rounding_level
    if not is_varying.any():
        return None
    between_fraction = np.where(
        is_varying, counts @ means**2 / np.where(is_varying, total, 1.0), -1.0
    )
    return atoms[int(np.argmax(between_fraction))]
