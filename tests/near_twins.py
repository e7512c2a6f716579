"""Estimators that differ from another in what they compute, and in nothing that scikit-learn sees.

They inherit the same ``fit`` and the same way to be used, and write one function: the learners that
solve from class statistics, for instance, or the embeddings of a graph.
"""

from functools import cache

from nearfar import all_estimators

SEEN = (
    *("__sklearn_tags__", "__sklearn_is_fitted__", "_check_X"),
    *("fit", "partial_fit", "transform", "fit_transform", "predict"),
)


@cache
def near_twins():
    """By name, the first of the family of each; those who are first, or alone, are left out."""
    first, twins = {}, {}
    for name, kind in all_estimators().items():
        family = kind.learner_tags, *(getattr(kind, method, None) for method in SEEN)
        if first.setdefault(family, name) != name:
            twins[name] = first[family]
    return twins


# Checks of scikit-learn that see only what twins inherit: input that is refused before anything is
# computed, attributes and tags. They run for the first of each family.
INHERITED = {
    f"check_{name}"
    for name in (
        *("all_zero_sample_weights_error", "array_api_input", "complex_data", "dict_unchanged"),
        *("dont_overwrite_parameters", "dtype_object", "estimator_cloneable", "estimator_repr"),
        *("estimator_sparse_array", "estimator_sparse_matrix", "estimator_sparse_tag"),
        *("estimator_tags_renamed", "estimators_empty_data_messages", "estimators_nan_inf"),
        *("estimators_fit_returns_self", "estimators_pickle", "estimators_unfitted"),
        *("f_contiguous_array_estimator", "fit1d", "fit2d_predict1d", "fit_check_is_fitted"),
        *("fit_score_takes_y", "mixin_order", "n_features_in", "n_features_in_after_fitting"),
        *("pipeline_consistency", "positive_only_tag_during_fit", "readonly_memmap_input"),
        *("requires_y_none", "sample_weights_list", "sample_weights_not_an_array"),
        *("sample_weights_not_overwritten", "sample_weights_pandas_series"),
        *("sample_weights_shape", "transformer_data_not_an_array", "transformers_unfitted"),
        "valid_tag_types",
    )
}

# Checks of our own of which the same is true: how labels are read, models searched and copied, rows
# sliced. For twins they run in the slow lane.
INHERITED_OF_OURS = {
    *("clone_and_pickle", "missing_class", "frames", "inputs_unchanged"),
    *("label_types", "model_selection", "names_and_frames", "not_fitted", "slices"),
}
