"""Registry of the built-in datasets: small labeled sets that every command accepts by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearfar.datasets.table import Table


@dataclass(frozen=True)
class BuiltIn:
    """Description of one built-in dataset, and the function that loads it.

    Attributes
    ----------
    name : str
        Name that users type, for example ``nearfar compare wine``.
    description : str
        One-line description of the rows.
    n_rows, n_columns, n_classes : int
        Size of the dataset.
    task : str
        One-line description of the classification task.
    origin : str
        Authors and publication of the data.
    license : str
        Terms under which the data may be used.
    load : callable
        Function without arguments that returns the dataset as a new ``Table``.
    has_images : bool, default=False
        True if each row has an image. The columns are then pixels, or the dataset has thumbnails.
    sklearn_loader : str or None, default=None
        Name of the function in ``sklearn.datasets`` that returns the same rows in the same order.
        Python code that nearfar prints calls this function, or ``read_table`` if the name is None.
    """

    name: str
    description: str
    n_rows: int
    n_columns: int
    n_classes: int
    task: str
    origin: str
    license: str
    load: Callable[[], Table] = field(repr=False)
    has_images: bool = False
    sklearn_loader: str | None = None


def _load_from_sklearn(name: str) -> Table:
    """Return a dataset that is installed with scikit-learn. Nothing is downloaded."""
    from sklearn import datasets

    from nearfar.datasets.table import Table

    bunch = getattr(datasets, f"load_{name}")()
    images = getattr(bunch, "images", None)
    return Table(
        name,
        bunch.data,
        bunch.target,
        "class",
        feature_names=[str(column) for column in bunch.feature_names],
        class_names=[str(label) for label in bunch.target_names],
        tensor_shape=None if images is None else images.shape[1:],
    )


def _load_clothes() -> Table:
    """Return the image embeddings that ``tools/make_clothes.py`` wrote."""
    import numpy as np

    from nearfar.datasets.table import Table

    with np.load(Path(__file__).parent / "data" / "clothes.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    X = arrays["X"] * float(arrays["unit"])
    return Table(
        "clothes",
        X,
        arrays["y"].astype(np.int64),
        "class",
        feature_names=[f"component {i + 1}" for i in range(X.shape[1])],
        class_names=arrays["classes"].tolist(),
        images=arrays["images"] * np.uint8(255 // (int(arrays["levels"]) - 1)),
    )


#: License of the datasets below that come from the UCI Machine Learning Repository.
_UCI_LICENSE = "CC BY 4.0 (UCI Machine Learning Repository); shipped with scikit-learn"

#: Built-in datasets by name, in the order in which they are listed to users.
BUILT_IN: dict[str, BuiltIn] = {
    dataset.name: dataset
    for dataset in (
        BuiltIn(
            name="clothes",
            description="photos of clothes as image embeddings",
            n_rows=1200,
            n_columns=128,
            n_classes=10,
            task="recognize the type of garment",
            origin=(
                "H. Xiao, K. Rasul and R. Vollgraf (2017), Fashion-MNIST, arXiv 1708.07747: the "
                "first 120 images per class; 128 principal components of the embeddings"
            ),
            license="MIT, Copyright (c) 2017 Zalando SE",
            load=_load_clothes,
            has_images=True,
        ),
        BuiltIn(
            name="digits",
            description="handwritten digits, 8 × 8 pixels",
            n_rows=1797,
            n_columns=64,
            n_classes=10,
            task="recognize the digit from 0 to 9",
            origin=(
                "E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
                "UCI Machine Learning Repository (its test set)"
            ),
            license=_UCI_LICENSE,
            load=lambda: _load_from_sklearn("digits"),
            has_images=True,
            sklearn_loader="load_digits",
        ),
        BuiltIn(
            name="wine",
            description="chemical analyses of Italian wines",
            n_rows=178,
            n_columns=13,
            n_classes=3,
            task="recognize the grower",
            origin=("S. Aeberhard and M. Forina (1991), Wine, UCI Machine Learning Repository"),
            license=_UCI_LICENSE,
            load=lambda: _load_from_sklearn("wine"),
            sklearn_loader="load_wine",
        ),
        BuiltIn(
            name="iris",
            description="measurements of iris flowers",
            n_rows=150,
            n_columns=4,
            n_classes=3,
            task="recognize the species",
            origin=(
                "R. A. Fisher (1936), The use of multiple measurements in taxonomic problems, "
                "Annals of Eugenics 7; UCI Machine Learning Repository"
            ),
            license=_UCI_LICENSE,
            load=lambda: _load_from_sklearn("iris"),
            sklearn_loader="load_iris",
        ),
        BuiltIn(
            name="breast_cancer",
            description="cell nuclei in breast tissue samples",
            n_rows=569,
            n_columns=30,
            n_classes=2,
            task="distinguish malignant from benign tumors",
            origin=(
                "W. H. Wolberg, W. N. Street and O. L. Mangasarian (1993), Breast Cancer Wisconsin "
                "(Diagnostic), UCI Machine Learning Repository"
            ),
            license=_UCI_LICENSE,
            load=lambda: _load_from_sklearn("breast_cancer"),
            sklearn_loader="load_breast_cancer",
        ),
    )
}


def find_sklearn_loader(table: Table) -> str | None:
    """Return the name of the ``sklearn.datasets`` function that returns this table's X and y.

    None means that no such function exists: the table comes from a file or from memory, its
    labels were replaced (``--labels``), or scikit-learn does not have the dataset.
    """
    dataset = BUILT_IN.get(table.name)
    # A folder of images can have the same name as a built-in dataset, so the source is compared
    # too.
    source = table.source or ""
    if dataset is None or not source.startswith(f"read_table({dataset.name!r}"):
        return None
    return dataset.sklearn_loader if table.target == "class" else None
