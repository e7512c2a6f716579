"""
What LMNN looks at in a face
============================

A row of the map L, carried back through the principal components, is a picture: the coordinate of a
face is its inner product with that picture. For PCA these are the well-known eigenfaces. After
figure 2.6 of Weinberger's thesis on metric learning, which calls them columns of L; with
:math:`z = Lx` they are rows.
"""

# %%
# The faces, 400 of 40 people, are not part of scikit-learn. With the environment variable
# ``NEARFAR_DATA`` set to a folder that has ``olivetti_64x64.npz`` in it, with arrays ``X`` and
# ``y``, they are used. Without it the faces are left out and handwritten digits take their place.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from nearfar import LMNN, PCA, KNNClassifier

faces = Path(os.environ.get("NEARFAR_DATA", "")) / "olivetti_64x64.npz"
if faces.is_file():
    with np.load(faces) as file:
        X, y, side, n_principal = file["X"].astype(float), file["y"], 64, 50
else:
    print("NEARFAR_DATA names no folder with olivetti_64x64.npz: digits instead of faces.")
    (X, y), side, n_principal = load_digits(return_X_y=True), 8, 30

X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=0)
pca = PCA(n_components=n_principal).fit(X_train)
train, test = pca.transform(X_train), pca.transform(X_test)

# %%
# L is known up to a rotation. The eigenvectors of M, by falling eigenvalue and scaled by its root,
# are a canonical choice; ``reduction="truncate"`` gives the leading ones.

n_shown = 8
# The problem of the thesis: all impostors count, one pass, to the end.
published = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
lmnn = LMNN(n_components=n_shown, reduction="truncate", **published).fit(train, y_train)
learned = lmnn.components_ @ pca.components_

figure, axes = plt.subplots(2, n_shown, figsize=(10.4, 3.2), layout="constrained")
for row, (name, pictures) in enumerate(
    (("PCA", pca.components_[:n_shown]), ("LMNN", learned)),
):
    for ax, picture in zip(axes[row], pictures, strict=True):
        limit = np.abs(picture).max()
        ax.imshow(picture.reshape(side, side), cmap="gray", vmin=-limit, vmax=limit)
        ax.set(xticks=[], yticks=[])
    axes[row, 0].set_ylabel(name, rotation=0, ha="right", va="center", labelpad=8)
plt.show()

# %%
# The leading principal components are light and shade, in which the images vary most. The leading
# rows of LMNN are finer: what tells classes apart where neighbours are mixed up. Grey is zero.
# For errors the whole map is used, not the few rows shown.

square = LMNN(**published).fit(train, y_train)
for name, points, others in (
    ("principal components", train, test),
    ("LMNN", square.transform(train), square.transform(test)),
):
    knn = KNNClassifier(n_neighbors=3).fit(points, y_train)
    print(f"3-NN error, {name}: {1 - knn.score(others, y_test):.1%} of {len(y_test)}")
