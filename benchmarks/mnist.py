"""MNIST as the benchmarks use it: deskewed, centred, on its principal components, float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Floats = NDArray[np.float32]


def deskew(image: NDArray[np.floating]) -> NDArray[np.floating]:
    """Sheared along its rows to a mixed second moment of zero, centre of mass in the middle."""
    mass = image.sum()
    if mass == 0:
        return image
    rows, columns = np.indices(image.shape)
    center = np.array([(rows * image).sum(), (columns * image).sum()]) / mass
    rows, columns = rows - center[0], columns - center[1]
    vertical = (rows**2 * image).sum()
    shear = (rows * columns * image).sum() / vertical if vertical > 0 else 0.0
    matrix = np.array([[1.0, 0.0], [shear, 1.0]])  # from places of the result to places of image
    middle = (np.array(image.shape) - 1) / 2
    return ndimage.affine_transform(image, matrix, center - matrix @ middle, order=1)


def load(data: str | Path, n_components: int = 164) -> tuple[Floats, NDArray, Floats, NDArray]:
    """X and y to train, then to test; the components are those of the training images."""
    with np.load(Path(data) / "mnist.npz") as arrays:
        X, y, n_train = arrays["X"], arrays["y"].astype(int), int(arrays["n_train"])
    images = X.reshape(-1, 28, 28).astype(np.float32) / 255
    upright = np.stack([deskew(image) for image in images]).reshape(len(X), -1).astype(np.float32)
    upright -= upright[:n_train].mean(axis=0)
    _, axes = np.linalg.eigh(upright[:n_train].T.astype(float) @ upright[:n_train])
    Z = (upright @ axes[:, ::-1][:, :n_components]).astype(np.float32)
    return Z[:n_train], y[:n_train], Z[n_train:], y[n_train:]
