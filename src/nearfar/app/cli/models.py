"""``nearfar fit``, ``predict``, ``transform``, ``neighbors`` and ``show``: models in files."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import (
    check_ending,
    check_place,
    write_columns,
    write_coordinates,
    write_csv,
)
from nearfar.app.cli.options import (
    DATA_HELP,
    DATA_NOTES,
    add_force,
    add_hidden,
    add_images,
    add_pairs,
    add_parameters,
    add_quiet,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    add_then,
    add_time,
    number,
    read_data,
)
from nearfar.app.cli.output import print_message, print_outcome

_MODEL_HELP = "model file, written by nearfar fit, compare or embed with --save"
_TABLES = (".csv", ".tsv", ".parquet")
_FIT_COMMON = (
    *("--target", "--method", "--save", "--id", "--drop", "--groups", "--time-column"),
    *("--components", "--set", "--scale", "-k", "--force"),
)
_FIT_EXAMPLES = (
    ("fit wine --method lda --save model.nf", "Tune and fit LDA, and save the model."),
    (
        "fit table.csv --target kind --method lmnn -k 5 --save model.nf",
        "Fit LMNN to your own table, with 5 neighbors.",
    ),
    (
        "fit table.csv --target kind --method reference --save model.nf",
        "Fit the best standard distance.",
    ),
)


def add_model_commands(commands: Any) -> None:
    """Add the commands ``fit``, ``predict``, ``transform``, ``neighbors`` and ``show``."""
    _add_fit(commands)
    predict = commands.add_parser(
        "predict",
        help="predict labels or values of new rows",
        description="Predict the label (with the fraction of votes per class) or the value of each "
        "row, and list the training rows that decided, nearest first. With --pairs, predict for "
        "each pair of rows whether they are the same or different.",
        common=("--id", "--pairs", "--out", "--force", "--quiet"),
        examples=(
            ("predict model.nf new.csv", "Print the predictions as CSV."),
            ("predict model.nf new.csv --out labels.csv", "Write them to a file."),
            (
                "predict model.nf new.csv --pairs pairs.csv",
                "Predict same or different, with a model of fit --pairs.",
            ),
        ),
        guide="model-files.rst",
    )
    predict.set_defaults(run=_predict)
    data = add_model_and_data(predict, "rows to predict; extra columns are ignored")
    data.add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs of these rows to predict, for a model of fit --pairs: two columns of row "
        "numbers (from 0) or, with --id, of IDs",
    )
    _add_table(predict)

    transform = commands.add_parser(
        "transform",
        help="map rows with a saved model",
        description="Map rows to the space in which the learned distance is Euclidean.",
        common=("--id", "--out", "--force", "--quiet"),
        examples=(
            ("transform model.nf new.csv --out mapped.csv", "Write the mapped rows as a table."),
            ("transform model.nf new.csv --out mapped.npy", "Write them as a NumPy array."),
            (
                "transform model.nf new.csv --id name --out mapped.csv",
                "Write the ID of each row, too.",
            ),
        ),
        guide="model-files.rst",
    )
    transform.set_defaults(run=_transform)
    add_model_and_data(transform, "rows to map")
    _add_table(transform, "mapped rows: .parquet, .csv, .tsv or .npy", required=True)

    neighbors = commands.add_parser(
        "neighbors",
        help="find the nearest rows by the learned distance",
        description="Find the nearest neighbors of each row by the learned distance, among the "
        "training rows or the rows of --index.",
        common=("-k", "--index", "--id", "--out", "--force", "--quiet"),
        examples=(
            ("neighbors model.nf new.csv -k 3", "Print the 3 nearest training rows of each row."),
            (
                "neighbors model.nf new.csv --index table.csv",
                "Find the nearest rows of another table.",
            ),
            (
                "neighbors model.nf new.csv --id name --out neighbors.csv",
                "Write IDs instead of row numbers, to a file.",
            ),
        ),
        guide="model-files.rst",
    )
    neighbors.set_defaults(run=_neighbors)
    data = add_model_and_data(neighbors, "rows whose neighbors to find")
    data.add_argument(
        "--index", metavar="FILE", help="find rows of this file instead of the training rows"
    )
    data.add_argument(
        "-k", type=number(int, 1), default=5, metavar="N", help="number of neighbors (default 5)"
    )
    _add_table(neighbors)

    show = commands.add_parser(
        "show",
        help="show what a model file contains",
        description="Show the steps, parameters, training data, features, classes and versions of "
        "a model file.",
        examples=(
            ("show model.nf", "Describe a model file."),
            ("show model.nf --json", "The same as JSON."),
            ("fit wine --method lda --save model.nf", "Create a model file."),
        ),
        guide="model-files.rst",
    )
    show.set_defaults(run=_show)
    show.add_argument("model", type=Path, metavar="MODEL", help=_MODEL_HELP)
    show.add_argument("--json", action="store_true", help="print the facts as JSON")


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="fit one method to all rows, and save the model",
        description="Tune a method and its number of neighbors by cross-validation, fit it to all "
        "rows, and save the model. With --pairs, the model predicts same or different.",
        common=_FIT_COMMON,
        examples=_FIT_EXAMPLES,
        guide="model-files.rst",
        notes=DATA_NOTES,
    )
    fit.set_defaults(run=_fit)
    data = fit.add_argument_group("data")
    data.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_target(data)
    add_pairs(data)
    data.add_argument(
        "--groups",
        metavar="COL",
        help="group column: all rows of a group are in the same fold; not used as a feature",
    )
    add_time(
        data,
        "time column: tuning trains on earlier rows and tests on later ones",
    )
    add_sets(data)
    add_rows(data)
    add_images(data)
    method = fit.add_argument_group("method")
    method.add_argument(
        "--method",
        required=True,
        metavar="NAME",
        help="method, such as lda or lmnn, or a standard distance: raw, standardized, cosine, "
        "whitened, or reference (the best of these); list them with: nearfar methods",
    )
    add_scale(method, "auto")
    add_then(method)
    method.add_argument(
        "--components",
        type=number(int, 1),
        metavar="N",
        help="number of dimensions to reduce the data to, for methods that can",
    )
    add_parameters(method, "n_neighbors=5; then only the scaling and k are tuned")
    method.add_argument(
        "-k", type=number(int, 1), metavar="N", help="number of neighbors (default: tuned, 1 to 15)"
    )
    output = fit.add_argument_group("output")
    output.add_argument(
        "--save", type=Path, required=True, metavar="MODEL", help="model file to write"
    )
    add_quiet(output)
    add_force(output)


def add_model_and_data(command: argparse.ArgumentParser, what: str) -> Any:
    """Add a model file and the data to use it on."""
    data = command.add_argument_group("data")
    data.add_argument("model", type=Path, metavar="MODEL", help=_MODEL_HELP)
    data.add_argument("data", metavar="DATA", help=f"{what} (a file as for nearfar fit)")
    add_sets(data)
    add_rows(data)
    add_images(data)
    return data


def _add_table(
    command: argparse.ArgumentParser,
    what: str = "table to write: .csv, .tsv or .parquet (default: CSV on standard output)",
    *,
    required: bool = False,
) -> None:
    output = command.add_argument_group("output")
    add_hidden(
        output, "--csv", "-o", "--out", type=Path, required=required, metavar="FILE", help=what
    )
    add_quiet(output)
    add_force(output)


def _fit(options: argparse.Namespace) -> int:
    from nearfar.app.compare.chain import Chosen
    from nearfar.app.compare.kinds.choice import kind_of
    from nearfar.app.compare.kinds.rows import RowKind
    from nearfar.app.compare.question import Question
    from nearfar.app.compare.use import choose_named
    from nearfar.app.embed.methods import read_settings
    from nearfar.datasets.tables import DataFile
    from nearfar.extras import import_optional

    # Checked before the work starts.
    check_place(options.save, "--save", options.force)
    import_optional("skops.io", "app")
    given = read_settings(options.settings, ("n_components",))
    if options.components is not None:
        given["n_components"] = options.components
    kind = kind_of(Question.of(vars(options), X=DataFile(options.data)))
    assert isinstance(kind, RowKind)  # fit has no --unlabeled
    kind.read()
    kind.prepare()
    method = kind.named(options.method)
    first = method.settings[0]
    some_k = 1 if kind.problem.tunes_k and first.votes else None
    check_kept(kind.chain(Chosen(method, first, some_k)).pipeline(), method.label)
    chosen, words = choose_named(kind, method, given, options.k)
    for line in [*kind.table.messages, *kind.left_out(), words]:
        print_message(options, line)
    save_chain(options, kind, chosen)
    return 0


def check_kept(chain: Any, label: str) -> None:
    """Raise before the work if a model file cannot hold a step of the pipeline."""
    from nearfar.persistence import ModelFileError, check_savable

    try:
        check_savable(chain)
    except ModelFileError as error:
        part = re.search(r" is an? ([\w.]+\w)", str(error))
        what = f" {part[1].rpartition('.')[2]}" if part else ""
        raise ValueError(
            f"{label} has a step{what} that a model file cannot hold. Choose another method."
        ) from error


def save_chain(options: argparse.Namespace, kind: Any, chosen: Any) -> None:
    """Fit the pipeline to all rows, write it to the file of ``--save``, and print its name."""
    from nearfar.app.compare.use import fit_chain, model_notes
    from nearfar.persistence import describe, save

    chain = fit_chain(kind, chosen)
    notes = model_notes(kind, chosen)
    finds = hasattr(chain[-1], "kneighbors") or hasattr(chain[-1], "embedding_")
    too_many = finds and "ids" not in notes and kind.ids()[1] is not None
    if not finds:  # the model does not return training rows
        notes = {key: value for key, value in notes.items() if key not in ("ids", "id_name")}
    save(chain, options.save, force=True, metadata=notes)
    says = describe(options.save)
    held = []
    if says["holds_training_rows"]:
        held.append(f"the training {kind.table.noun}s")
    if "ids" in notes:
        held.append(f"their IDs from '{notes['id_name']}'")
    if too_many:
        print_message(
            options,
            f"The model file stores row numbers: '{kind.ids()[0]}' has too many IDs to store.",
        )
    if "pairs" in chain.named_steps:
        print_outcome(options, _threshold_words(kind, chosen, chain[-1].threshold_))
    contents = f" (it contains {' and '.join(held)})" if held else ""
    print_outcome(options, f"Saved: {options.save}{contents}")


def _threshold_words(kind: Any, chosen: Any, threshold: float) -> str:
    """Return the threshold and its error rates on held-out pairs in words."""
    from nearfar.words import format_percent

    text = f"Threshold: pairs up to a distance of {threshold:.4g} are predicted as same."
    rates = kind.held_out_rates(chosen)
    if rates is None:
        return f"{text} There are too few pairs to estimate its error rates."
    missed, false_alike = rates
    return (
        f"{text} On held-out pairs, {format_percent(missed)} of the same pairs were predicted as "
        f"different, and {format_percent(false_alike)} of the different pairs as same."
    )


# Models and their data


def load_chain(path: Path) -> Any:
    """Load the pipeline of a model file."""
    from sklearn.pipeline import Pipeline

    from nearfar.persistence import load

    chain = load(path)
    steps = {"knn", "learner", "pairs"}
    if not isinstance(chain, Pipeline) or not steps & set(chain.named_steps):
        raise ValueError(
            f"{path} holds a {type(chain).__name__}, not a pipeline of nearfar fit, compare "
            "or embed. Load it in Python with nearfar.load."
        )
    return chain


def notes_of(path: Path) -> dict[str, Any]:
    """Return the metadata of a model file, without entries of an unexpected type."""
    from nearfar.persistence import describe

    said = describe(path)["metadata"]
    notes: dict[str, Any] = {}
    for names, fits in (
        (_TEXTS, lambda value: isinstance(value, str)),
        (_LISTS, lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value)),
        (("n_rows",), lambda value: isinstance(value, int)),
        (("shape",), _is_shape),
    ):
        notes |= {name: said[name] for name in names if name in said and fits(said[name])}
    return notes


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(n, int) and n > 0 for n in value)


_TEXTS = ("method", "label", "setting", "data", "unit", "target", "id_name")
_LISTS = ("classes", "features", "ids")


def opened(options: argparse.Namespace, chain: Any, source: str) -> tuple[Any, Any, Any]:
    """Return the kind of data in a file, its table, and the input of the pipeline."""
    from nearfar.app.embed.kinds.choice import kind_of
    from nearfar.app.tables.reading import noun_of_file
    from nearfar.datasets.tables import DataFile

    data = DataFile(source)
    kind = kind_of(noun_of_file(data, options.set_id))
    if kind.input != _input_of(chain):
        raise ValueError(f"{options.model} {kind.refused.format(source)}")
    notes = notes_of(options.model)
    # Sets of a long table need the features that the model was fitted on.
    features = notes.get("features") if options.set_id else None
    more: dict[str, Any] = {}
    if data.has_images and options.images is None and "shape" in notes:
        more["images"] = tuple(notes["shape"])
    table = read_data(options, data, need_target=False, features=features, **more)
    if len(table.X) == 0:
        raise ValueError(f"{source} has no rows.")
    _know_labels(table, notes.get("target"))
    _know_shape(options.model, table, notes, source)
    return kind, table, kind.inputs(chain, table, source)


def _know_shape(path: Path, table: Any, notes: dict[str, Any], source: str) -> None:
    """Give the rows the tensor shape of the model. Raises if they have another shape."""
    from nearfar.datasets.picture_tables import set_tensor_shape

    if "shape" not in notes:
        return
    shape = tuple(notes["shape"])
    if table.tensor_shape is not None:
        if table.tensor_shape != shape:
            found, wanted = ("×".join(map(str, one)) for one in (table.tensor_shape, shape))
            raise ValueError(f"{source} has rows of shape {found}; {path} needs {wanted}.")
    elif set(notes.get("features", "-")) <= set(map(str, getattr(table.X, "columns", ()))):
        # Selected by name, because a file may have further columns between them.
        set_tensor_shape(
            table, shape, [c for c in table.X.columns if str(c) not in notes["features"]]
        )
        table.X = table.X[:, [table.feature_names.index(name) for name in notes["features"]]]


def _input_of(chain: Any) -> str:
    """Return the input of the pipeline: "vectors" (also flat tensors) or "sets"."""
    from sklearn.pipeline import Pipeline

    learner = chain.named_steps.get("learner")  # None for pairs, which are pairs of rows
    while isinstance(learner, Pipeline):
        learner = learner[0]
    found = str(getattr(getattr(learner, "learner_tags", None), "input", "vectors"))
    return "vectors" if found == "tensors" else found


def _mapped(path: Path, chain: Any, X: Any) -> Any:
    """Return the rows after all steps of the pipeline except a final k-NN vote."""
    import numpy as np
    from sklearn.pipeline import Pipeline

    from nearfar.app.compare.through import map_through

    if "pairs" in chain.named_steps:
        learner = chain[-1].estimator_
        own = [] if learner is None else [("learner", learner)]
        chain = Pipeline([*chain.steps[:-1], *own])
    steps = chain[:-1] if "knn" in chain.named_steps else chain
    if len(steps.steps) and not hasattr(steps[-1], "transform"):
        finds = ", or nearfar neighbors without --index" * hasattr(steps[-1], "kneighbors")
        raise ValueError(
            f"{path} holds a {type(steps[-1]).__name__}, which cannot transform rows. Use nearfar "
            f"predict{finds}."
        )
    return np.asarray(map_through(steps, X))


def _predict(options: argparse.Namespace) -> int:
    import numpy as np

    from nearfar.app.compare.through import map_through
    from nearfar.words import join_names

    _check_table(options)
    chain = load_chain(options.model)
    last = chain[-1]
    if "pairs" in chain.named_steps or options.pairs is not None:
        return _predict_pairs(options, chain)
    if not hasattr(last, "predict"):
        raise ValueError(
            f"{options.model} holds a {type(last).__name__}, which cannot predict labels. Use "
            "nearfar transform, or write a model that predicts with nearfar fit."
        )
    notes = notes_of(options.model)
    kind, table, X = opened(options, chain, options.data)
    points = map_through(chain[:-1], X)
    labels = last.predict(points)
    columns: dict[str, Any] = kind.names(table) or {kind.noun: np.arange(len(labels))}
    own = notes.get("id_name", "")
    if own in getattr(table.X, "columns", ()):
        columns = columns | {own: table.X[own].to_numpy()}
    numbers = not hasattr(last, "classes_")
    if numbers:
        columns["value"] = labels
    else:
        names = class_names(last.classes_, notes)
        columns["label"] = np.array(names)[np.searchsorted(last.classes_, labels)]
    if hasattr(last, "predict_proba"):
        shares = last.predict_proba(points)
        columns |= {f"share {name}": shares[:, i] for i, name in enumerate(names)}
    if hasattr(last, "kneighbors"):
        ids = ids_of(notes, last._n_training)
        rows = last.kneighbors(points)[1]
        texts = [" ".join(ids[row] if ids else str(row) for row in line) for line in rows.tolist()]
        columns["neighbors"] = np.array(texts)
    if options.out is None:
        write_csv(sys.stdout, columns, ",")
        return 0
    write_columns(columns, options.out)
    what = "values" if numbers else "labels"
    print_outcome(options, f"Wrote the {what} of {len(labels):,} {kind.noun}s to {options.out}")
    unused = _unused(table, chain, notes)
    if unused:
        print_message(options, f"Columns that the model does not use: {join_names(unused)}.")
    (_print_rmse if numbers else _print_errors)(table, notes.get("target"), labels)
    return 0


def _predict_pairs(options: argparse.Namespace, chain: Any) -> int:
    """Predict same or different for each pair of a file, in its order."""
    import numpy as np

    from nearfar.app.compare.through import map_through
    from nearfar.app.tables.reading import read_pairs_to_judge
    from nearfar.words import format_count

    if "pairs" not in chain.named_steps:
        raise ValueError(
            f"--pairs: {options.model} was not fitted to pairs. Fit such a model with nearfar fit "
            "--pairs."
        )
    if options.pairs is None:
        raise ValueError(
            f"{options.model} was fitted to pairs. Name the pairs of {options.data} to predict "
            "with --pairs FILE."
        )
    last = chain[-1]
    _, table, X = opened(options, chain, options.data)
    ends, alike = read_pairs_to_judge(options.pairs, table)
    points = np.asarray(map_through(chain[:-1], X))
    distances = -last.decision_function(points[ends])
    same = distances <= last.threshold_
    named = ends if table.ids is None else np.asarray(table.ids)[ends]
    columns: dict[str, Any] = {
        "left": named[:, 0],
        "right": named[:, 1],
        "answer": np.where(same, "same", "different"),
        "distance": distances,
        "threshold": np.full(len(ends), last.threshold_),
    }
    if options.out is None or options.out.suffix.lower() != ".parquet":
        for name in ("distance", "threshold"):
            columns[name] = np.array([f"{value:.6g}" for value in columns[name]])
    if options.out is None:
        write_csv(sys.stdout, columns, ",")
        return 0
    write_columns(columns, options.out)
    print_outcome(
        options, f"Wrote the predictions of {format_count(len(ends), 'pair')} to {options.out}"
    )
    if alike is not None:
        print(_pair_errors(distances, alike, last.threshold_))
    return 0


def _pair_errors(distances: Any, alike: Any, threshold: float) -> str:
    """Return the error rates on pairs with known labels in words."""
    from nearfar.app.compare.pair_folds import error_rates, ranking_error
    from nearfar.words import format_percent

    codes = alike.astype(int)
    rates = error_rates(distances, codes, threshold)
    wrong = int(((distances <= threshold) != alike).sum())
    parts = [
        f"{format_percent(rate)} of the {true} pairs are predicted as {other}"
        for rate, true, other in (
            (rates["missed"], "same", "different"),
            (rates["false_alike"], "different", "same"),
        )
        if rate is not None
    ]
    area = ""
    if len(parts) == 2:
        area = f" AUC {format_percent(1.0 - ranking_error(codes, distances))}."
    return (
        f"{wrong:,} of {len(codes):,} predictions differ from the file: "
        f"{' and '.join(parts)}.{area}"
    )


def class_names(classes: Any, notes: dict[str, Any]) -> list[str]:
    """Return the names of the classes, as in the data."""
    known: list[str] = notes.get("classes", [])
    return known if len(known) == len(classes) else [str(name) for name in classes.tolist()]


def ids_of(notes: dict[str, Any], n_rows: int) -> list[str]:
    """Return the IDs of the training rows, or an empty list if some are missing."""
    found: list[str] = notes.get("ids", [])
    return found if len(found) == n_rows else []


def _unused(table: Any, chain: Any, notes: dict[str, Any]) -> list[str]:
    """Return the columns that the model does not use, without labels and IDs."""
    known = [*getattr(chain, "feature_names_in_", ()), notes.get("target"), notes.get("id_name")]
    return [str(name) for name in getattr(table.X, "columns", ()) if str(name) not in known]


def known_target(table: Any, target: str | None) -> Any:
    """Return the target of each row, or None if the file does not have it."""
    if table.y is None and target is not None and target in getattr(table.X, "columns", ()):
        return table.X[target].to_numpy()
    return table.y


def _print_rmse(table: Any, target: str | None, values: Any) -> None:
    """Print the RMSE on rows with a known target."""
    import numpy as np

    from nearfar.app.tables.numeric_target import check_numbers
    from nearfar.datasets.table import find_missing
    from nearfar.evaluation.measures import RelativeRMSE
    from nearfar.words import format_count, format_percent

    true = known_target(table, target)
    if true is None:
        return
    known, name = ~find_missing(true), str(target or table.target)
    try:
        numbers = check_numbers(np.asarray(true)[known], name)[0] if known.sum() > 1 else None
    except ValueError:  # the column does not hold numbers that vary
        return
    if numbers is None:
        return
    measure = RelativeRMSE.from_targets(numbers)
    error = float(measure.compute_relative_error(numbers, np.asarray(values)[known]))
    print(
        f"RMSE with respect to '{name}' in the file: {error * measure.unit:.4g}, "
        f"{format_percent(error)} of its standard deviation ({format_count(len(numbers), 'row')})."
    )


def _print_errors(table: Any, target: str | None, labels: Any) -> None:
    """Print the error rate on rows with a known label."""
    import numpy as np

    from nearfar.datasets.table import find_missing, tidy_labels
    from nearfar.words import format_percent

    true = known_target(table, target)
    if true is None:
        return
    known = ~find_missing(true)
    if known.any():
        wrong = tidy_labels(np.asarray(true[known])).astype(str) != labels[known].astype(str)
        print(
            f"{int(wrong.sum()):,} of {int(known.sum()):,} labels differ from "
            f"'{target or table.target}' in the file: {format_percent(float(wrong.mean()))}."
        )


def _know_labels(table: Any, target: str | None) -> None:
    """Store the labels of rows with IDs, if the file has the target column of the model."""
    if table.ids is None or table.y is not None or target is None:
        return
    beside = table.X if hasattr(table.X, "columns") else table.unused
    if target in beside:
        table.y, table.target = beside[target], target


def _transform(options: argparse.Namespace) -> int:
    endings = (".parquet", ".csv", ".tsv", *([] if options.ids is not None else [".npy"]))
    check_ending(options.out, endings, "--out ")
    check_place(options.out, "--out", options.force)
    chain = load_chain(options.model)
    kind, table, X = opened(options, chain, options.data)
    points = _mapped(options.model, chain, X)
    write_coordinates(points, options.out, kind.names(table))
    n, p = points.shape
    print_outcome(options, f"Wrote {n:,} {kind.noun}s with {p:,} components to {options.out}")
    return 0


def _neighbors(options: argparse.Namespace) -> int:
    import numpy as np

    _check_table(options)
    chain = load_chain(options.model)
    kind, asked, X = opened(options, chain, options.data)
    distances, rows, known = _nearest(options, chain, kind, X)
    n, k = rows.shape
    from_, to = np.repeat(np.arange(n), k), rows.ravel()
    columns: dict[str, Any] = {
        "query": from_ if asked.ids is None else asked.ids[from_],
        "rank": np.tile(np.arange(1, k + 1), n),
        "row": to if getattr(known, "ids", None) is None else known.ids[to],
    }
    ids = ids_of(notes_of(options.model), known) if isinstance(known, int) else []
    if ids:
        columns["id"] = np.array(ids)[to]
    columns["distance"] = distances.ravel()
    for name, table, numbers in (("query_label", asked, from_), ("row_label", known, to)):
        if not isinstance(table, int) and table.ids is not None and table.y is not None:
            columns[name] = np.asarray(table.y)[numbers]
    if ids and hasattr(chain[-1], "classes_"):
        names = class_names(chain[-1].classes_, notes_of(options.model))
        columns["row_label"] = np.array(names)[chain[-1]._codes[to]]
    if options.out is None or options.out.suffix.lower() != ".parquet":
        columns["distance"] = np.array([f"{distance:.6g}" for distance in distances.ravel()])
    if options.out is None:
        write_csv(sys.stdout, columns, ",")
        return 0
    write_columns(columns, options.out)
    print_outcome(options, f"Wrote the neighbors of {n:,} {kind.noun}s to {options.out}")
    return 0


def _nearest(options: argparse.Namespace, chain: Any, kind: Any, X: Any) -> tuple[Any, Any, Any]:
    """Return distances and numbers of the nearest rows, and their table or their count."""
    from nearfar.app.compare.through import map_through
    from nearfar.search.exact_search import kneighbors

    last = chain[-1]
    known: Any = None
    if options.index is not None:
        where = "index"
        _, known, others = opened(options, chain, options.index)
        index = _mapped(options.model, chain, others)
    elif hasattr(last, "kneighbors"):
        _check_k(options.k, last._n_training, kind.noun, "model")
        return *last.kneighbors(map_through(chain[:-1], X), options.k), last._n_training
    elif getattr(last, "embedding_", None) is not None:
        where, index = "model", last.embedding_
    else:
        _mapped(options.model, chain, X)  # raises if the model cannot transform rows
        raise ValueError(
            f"{options.model} does not contain its training {kind.noun}s. Name the file with the "
            f"{kind.noun}s to find with --index FILE."
        )
    _check_k(options.k, len(index), kind.noun, where)
    queries = _mapped(options.model, chain, X)
    found = kneighbors(index, queries, n_neighbors=options.k)
    return *found, len(index) if known is None else known


def _check_k(k: int, n: int, noun: str, where: str) -> None:
    if k > n:
        raise ValueError(f"-k {k}: must be at most {n}, the number of {noun}s of the {where}.")


def _check_table(options: argparse.Namespace) -> None:
    if options.out is not None:
        check_ending(options.out, _TABLES, "--out ")
        check_place(options.out, "--out", options.force)


# The contents of a model file


def _show(options: argparse.Namespace) -> int:
    import json

    from nearfar.persistence import describe, load

    facts = model_facts(
        options.model, describe(options.model), notes_of(options.model), load(options.model)
    )
    if options.json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return 0
    for head, text in _fact_lines(facts):
        print(f"{head + ':':<15} {text}")
    return 0


def model_facts(
    path: Path, says: dict[str, Any], notes: dict[str, Any], model: Any
) -> dict[str, Any]:
    """Return what a model file holds, under the keys of ``nearfar show --json``.

    Parameters
    ----------
    path : Path
        The model file.
    says : dict
        Result of :func:`nearfar.persistence.describe`.
    notes : dict
        Metadata that nearfar fit, compare or embed wrote into the file.
    model : estimator
        The model that the file holds.
    """
    from sklearn.pipeline import Pipeline

    from nearfar.app.compare.kernel_shares import kernel_words, kernels_in, over_folds

    steps = model.steps if isinstance(model, Pipeline) else [("model", model)]
    last = steps[-1][1]
    kernels = [kernels_in(step) for _, step in steps]
    features = notes.get("features")
    if not isinstance(features, list):
        features = [str(name) for name in getattr(model, "feature_names_in_", ())]
    threshold = getattr(last, "threshold_", None)
    classes = getattr(last, "classes_", None) if threshold is None else None
    n_rows, ids = notes.get("n_rows"), notes.get("ids")
    return {
        "file": str(path),
        "bytes": says["bytes"],
        "created": says["created"],
        "method": notes.get("label") or notes.get("method"),
        "setting": notes.get("setting") or None,
        "steps": [{"name": name, "estimator": _step_words(step)} for name, step in steps],
        "kernels": [kernel_words(over_folds([found])) for found in kernels if found],
        "data": notes.get("data"),
        "unit": notes.get("unit", "row"),
        "n_rows": n_rows if isinstance(n_rows, int) else None,
        "training_rows_stored": says["n_training_rows"] if says["holds_training_rows"] else 0,
        "id_column": notes.get("id_name", "id") if ids else None,
        "n_ids": len(ids) if ids else 0,
        "n_features": len(features) or getattr(model, "n_features_in_", None),
        "features": features,
        "shape": list(notes["shape"]) if "shape" in notes else None,
        "target": notes.get("target"),
        "classes": None if classes is None else class_names(classes, notes),
        "predicts": _prediction(last),
        "threshold": None if threshold is None else float(threshold),
        "versions": dict(says["versions"]),
    }


def _prediction(last: Any) -> str | None:
    """Return what the last step predicts: "same or different", "class", "number" or None."""
    if getattr(last, "threshold_", None) is not None:
        return "same or different"
    if not hasattr(last, "predict"):
        return None
    return "class" if hasattr(last, "classes_") else "number"


def _fact_lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts about a model as headings and texts."""
    from nearfar.words import format_count, join_names

    yield "File", f"{facts['file']} ({facts['bytes']:,} bytes)"
    yield "Created", facts["created"]
    if facts["method"]:
        yield "Method", facts["method"] + (f" ({facts['setting']})" if facts["setting"] else "")
    for step in facts["steps"]:
        yield f"  {step['name']}", step["estimator"]
    for kernels in facts["kernels"]:
        yield "Kernels", kernels
    noun = facts["unit"]
    if facts["data"]:
        size = "" if facts["n_rows"] is None else f", {format_count(facts['n_rows'], noun)}"
        yield "Training data", f"{facts['data']}{size}"
    stored = facts["training_rows_stored"]
    yield (
        f"Stored {noun}s",
        f"at least {stored:,} training {noun}s are in the file, raw or transformed"
        if stored
        else f"none: the file does not contain training {noun}s",
    )
    if facts["n_ids"]:
        yield "Stored IDs", f"{facts['n_ids']:,}, from the column '{facts['id_column']}'"
    features, shape = facts["features"], facts["shape"]
    named = f": {join_names(features, 12, quoted=False)}" if features else ""
    if shape is not None:  # The names of pixels carry no information.
        named = f": {' × '.join(map(str, shape))}"
    yield "Features", f"{facts['n_features']}{named}"
    target, classes = facts["target"], facts["classes"]
    if classes is not None:
        column = f" of '{target}'" if target else ""
        yield "Classes", f"{len(classes)}{column}: {join_names(classes, 12, quoted=False)}"
    elif facts["predicts"] == "number" and target:
        yield "Predicts", f"a number: '{target}'"
    if facts["threshold"] is not None:
        yield "Predicts", "whether two rows are the same or different"
        yield "Threshold", f"pairs with a distance of at most {facts['threshold']:.4g} are the same"
    yield "Versions", ", ".join(f"{name} {number}" for name, number in facts["versions"].items())


def _step_words(step: Any) -> str:
    """Return a step of a pipeline as text: its class with parameters, or the columns it takes."""
    from sklearn.compose import ColumnTransformer

    from nearfar.app.compare.lines import code_of

    if hasattr(step, "learner_tags"):  # with all parameters
        given = step.get_params(deep=False).items()
        return f"{type(step).__name__}({', '.join(f'{k}={code_of(v)}' for k, v in given)})"
    if not isinstance(step, ColumnTransformer):
        return code_of(step)
    parts = [f"{len(columns)} {name}" for name, _, columns in step.transformers_ if len(columns)]
    return f"conversion of columns to numbers ({', '.join(parts)})"
