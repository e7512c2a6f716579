"""Slabs and squared distances per feature, compared with all features at once."""

import numpy as np

from nearfar.summaries import feature_slabs
from nearfar.summaries.feature_slabs import FeatureColumns, count_in_slabs
from nearfar.summaries.local_rows import LocalRows


def test_feature_by_feature_is_as_all_features_at_once(monkeypatch):
    monkeypatch.setattr(feature_slabs, "_MAX_MASK_ENTRIES", 100)  # two queries at a time
    random = np.random.default_rng(0)
    X = random.integers(0, 6, size=(60, 3)) * [1.0, 0.1, 7.0]  # full of ties
    rows = LocalRows(X, random.integers(0, 4, 60), 4, X.std(axis=0))
    columns, given = FeatureColumns.from_rows(rows), X[:5]
    region = np.sort(random.permuted(np.tile(np.arange(60), (5, 1)), axis=1)[:, :20], axis=1)
    apart, weights = columns.compute_differences(given, region), random.random((5, 3))
    wanted = columns.compute_squares(apart, weights.T[:, :, None])
    np.testing.assert_array_equal(columns.compute_weighted_squares(given, region, weights), wanted)
    reach, counts = columns.find_slabs(given, region, [7, 8])
    for size, far, found in zip([7, 8], reach, counts, strict=True):
        np.testing.assert_array_equal(far.T, np.sort(np.abs(apart), axis=2)[:, :, size - 1])
        wanted = count_in_slabs(np.abs(apart), size, columns.indicators[region])
        np.testing.assert_array_equal(found, wanted)
    assert (counts.sum(axis=3) > 8).any()  # ties count
