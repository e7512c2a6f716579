"""The command line: ``nearfar compare``, ``embed``, ``fit``, ``transform``, ``neighbors``, ..."""

from __future__ import annotations

import argparse
import csv
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

_EPILOG = """\
examples:
  nearfar compare wine                      which distance for an embedded set?
  nearfar compare table.csv --target kind   ... for your own table
  nearfar embed table.csv --method mvu      what does it look like, unfolded?
  nearfar compare table.csv --unlabelled    which embedding, when there are no labels?
  nearfar fit table.csv --target kind --method lmnn --save model.nf
  nearfar neighbors model.nf --index table.csv --query new.csv -k 5
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for what cannot be done, 130 when interrupted."""
    began = monotonic()
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a real minus sign is no reason to fail
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    options = parser.parse_args(arguments)
    options.began, options.argv = began, ["nearfar", *arguments]
    try:
        with _steady_output(), _orderly_end():
            return int(options.run(options) or 0)
    except KeyboardInterrupt:
        print("nearfar: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"nearfar: error: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _steady_output() -> Iterator[None]:
    """Go on, in silence, when the reader of our output has gone."""
    if sys.stdout is None:  # closed from the start
        yield
        return
    from nearfar.evaluation.progress import Steady

    steady: Any = Steady(sys.stdout)
    with redirect_stdout(steady):
        try:
            yield
        finally:
            steady.flush()


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Take a request to end, as batch systems send it, like Ctrl-C: write what there is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


# compare


def _compare(options: argparse.Namespace) -> int:
    has_report = find_spec("jinja2") is not None
    if options.out is not None and not has_report:
        raise ImportError("--out needs jinja2; run: pip install 'nearfar[app]'")
    out, journal = _places(options)
    from nearfar.evaluation.journal import unclaim

    try:
        return _run_comparison(options, out, journal, has_report)
    finally:
        unclaim(journal)


def _run_comparison(options: argparse.Namespace, out: Path, journal: Path, has_report: bool) -> int:
    # Only now: these imports take a second.
    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.compare import DEFAULT_BUDGET, compare_tables

    terminal = sys.stdout is not None and sys.stdout.isatty()
    fancy = terminal and find_spec("rich") is not None
    budget = options.time_budget
    if budget is None and options.repeats is None:
        budget = DEFAULT_BUDGET
    progress = _progress(fancy, budget)
    n_before = _n_lines(journal)
    if options.unlabelled:
        result = _compare_unlabelled(options, journal, progress, budget)
        return _finish(options, result, out, journal, n_before, budget, fancy, has_report)
    if options.color is not None or options.components is not None:
        raise ValueError("--color and --components are for embeddings: add --unlabelled.")
    given = {"labels": options.labels, "target": options.target}
    table = read_table(options.data, groups=options.groups, time=options.time, **given)
    test = None
    if options.test is not None:
        target = table.target if options.labels is None else None
        try:
            test = read_table(options.test, target=target, groups=options.groups)
        except ValueError as error:
            own = " A test file brings its own labels: a column, or the key y." * bool(
                options.labels
            )
            raise ValueError(f"--test: {error}{own}") from error
        table.messages += [f"{test.name}: {message}" for message in test.messages]
    result = compare_tables(
        table,
        test,
        methods=options.methods,
        scoring=options.scoring,
        scale=options.scale,
        repeats=options.repeats,
        time_budget=budget,
        tuning=options.tuning,
        min_gain=options.min_gain,
        keep=options.keep,
        drop=options.drop,
        random_state=options.seed,
        context=not options.no_context,
        n_jobs=options.jobs,
        isolate=not options.in_process,
        journal=journal,
        progress=progress,
        began=options.began,
        argv=options.argv,
        show_rows=not options.no_rows,
    )
    return _finish(options, result, out, journal, n_before, budget, fancy, has_report)


def _compare_unlabelled(
    options: argparse.Namespace, journal: Path, progress: Any, budget: float | None
) -> Any:
    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.compare import compare_unlabelled

    for name in ("groups", "time", "test", "scoring", "tuning"):
        if getattr(options, name) is not None:
            hint = " To leave its column out, use --drop." if name in ("groups", "time") else ""
            raise ValueError(f"--{name} needs labels, and --unlabelled compares without.{hint}")
    table = read_table(
        options.data, target=options.target, labels=options.labels, need_target=False
    )
    return compare_unlabelled(
        table,
        methods=options.methods,
        scale=options.scale,
        repeats=options.repeats,
        time_budget=budget,
        min_gain=options.min_gain,
        keep=options.keep,
        drop=options.drop,
        color=options.color,
        n_components=2 if options.components is None else options.components,
        random_state=options.seed,
        context=not options.no_context,
        n_jobs=options.jobs,
        isolate=not options.in_process,
        journal=journal,
        progress=progress,
        began=options.began,
        argv=options.argv,
        show_rows=not options.no_rows,
    )


def _finish(
    options: argparse.Namespace,
    result: Any,
    out: Path,
    journal: Path,
    n_before: int,
    budget: float | None,
    fancy: bool,
    has_report: bool,
) -> int:
    """Write the files, then print."""
    # Files first: the terminal may be gone, or not know a character. The report's name is ours:
    # checked before the run, or written by the run that is resumed.
    if has_report:
        result.to_html(out, force=True)
    if options.json is not None:
        result.to_json(options.json, force=True)
    if result.complete:
        journal.unlink(missing_ok=True)
    _print_result(result, fancy)
    if has_report:
        print(f"\nReport: {out}")
    else:
        print("\nFor the HTML report: pip install 'nearfar[app]'")
    protocol = result.document["protocol"]
    if budget is not None:
        print(
            "The same folds and settings again, however long it takes: "
            f"--repeats {protocol['repeats']}"
            + (f" --tuning {protocol['tuning']}" if protocol["tuning"] != "none" else "")
            + " without --time-budget"
        )
    if options.json is not None:
        print(f"Numbers: {options.json}")
    if journal.exists():
        # Of a method without a single fold the same time would bring no more.
        stuck = _n_lines(journal) <= n_before or any(
            method["status"] == "unfinished" and not method["folds_done"]
            for method in result.document["methods"]
        )
        short = result.document["status"] == "time budget reached" and stuck
        print(f"To go on: {_resume_command(options, out, budget if short else None)}")
    return 130 if result.document["status"] == "interrupted" else 0


def _n_lines(journal: Path) -> int:
    """Lines of a journal; what was finished, and the first."""
    try:
        return max(1, journal.read_bytes().count(b"\n"))
    except OSError:
        return 1


def _print_result(result: Any, fancy: bool) -> None:
    if fancy:
        from nearfar.live import show

        show(result)
    else:
        # The data, the warnings and the plan were printed before the run.
        print("\n" + str(result).split("\n\n", 1)[1])
    if not result.code:
        return
    print("\nTo repeat it with scikit-learn:\n")
    print("\n".join(f"    {line}" if line else "" for line in result.code.splitlines()))


def _progress(fancy: bool, budget: float | None) -> Any:
    if fancy:
        from nearfar.live import LiveProgress

        return LiveProgress(budget)
    from nearfar.evaluation.progress import PlainProgress

    return PlainProgress(sys.stdout)


def _places(options: argparse.Namespace) -> tuple[Path, Path]:
    """Where the report and the journal go.

    Refuses at once what would overwrite a file or cannot be written, and claims the journal, so
    that another run in this folder takes another name.
    """
    from nearfar.evaluation.journal import claim, in_use, unclaim

    replaced = options.force or options.resume
    if options.json is not None:
        _check_place(options.json, "--json", replaced)
    if options.out is None:
        out = _resumable() if options.resume else Path("report.html")
    else:
        out = options.out
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out {out}: the report is HTML; end its name with .html.")
        _check_place(out, "--out", replaced)
    number = 1
    while True:
        journal = out.with_suffix(".journal")
        _refuse_one_name(options, out, journal)
        if options.resume:
            if not journal.exists():
                raise ValueError(f"There is nothing to resume: {journal} does not exist.")
            return out, journal
        if options.force and not in_use(journal):
            journal.unlink(missing_ok=True)
        try:
            claimed = claim(journal)
        except OSError as error:
            raise ValueError(_cannot_write(out, "--out", error)) from error
        # Looked for only now: a run that was ending may just have written it.
        if claimed and (options.force or not out.exists()):
            return out, journal
        if claimed:
            unclaim(journal)
        elif options.force:
            raise ValueError(f"{journal} belongs to a comparison that is still running.")
        elif options.out is not None:
            raise ValueError(
                f"{journal} holds a comparison that is unfinished or still running: add --resume "
                "to go on, or --force to start anew."
            )
        number += 1
        out = Path(f"report-{number}.html")


def _check_place(path: Path, option: str, replaced: bool) -> None:
    """Refuse a file that is there, or could not be written."""
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file in it.")
    if path.exists() and not replaced:
        raise ValueError(f"{path} exists; choose another {option}, or add --force.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option}: there is no folder {path.parent}.")
    there = path.exists()
    try:
        with open(path, "ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise ValueError(_cannot_write(path, option, error)) from error


def _cannot_write(path: Path, option: str, error: OSError) -> str:
    return (
        f"{path} cannot be written ({error.strerror}); choose with {option} a file in a folder "
        "where you may write."
    )


def _refuse_one_name(options: argparse.Namespace, out: Path, journal: Path) -> None:
    if options.json is None:
        return
    json = os.path.realpath(options.json)
    for path, what in ((out, "the report"), (journal, "the journal"), (options.data, "the data")):
        if json == os.path.realpath(path):
            raise ValueError(f"--json {options.json} is {what}; choose another name.")


def _resumable() -> Path:
    from nearfar.evaluation.journal import in_use

    found = [path for path in Path().glob("report*.journal") if not in_use(path)]
    if not found:
        raise ValueError("There is nothing to resume: no report*.journal in this folder.")
    return max(found, key=lambda path: path.stat().st_mtime).with_suffix(".html")


def _resume_command(options: argparse.Namespace, out: Path, budget: float | None) -> str:
    """The command to go on with; with a larger budget where this one was too small."""
    kept = [word for word in options.argv if word not in ("--resume", "--force")]
    if options.out is None:
        kept += ["--out", str(out)]
    if budget is not None:
        for i in range(len(kept) - 1, 0, -1):
            if kept[i].partition("=")[0] == "--time-budget":
                del kept[i : i + (1 if "=" in kept[i] else 2)]
        kept += ["--time-budget", f"{max(60, 4 * budget):g}"]
    return shlex.join([*kept, "--resume"])


# embed


def _embed(options: argparse.Namespace) -> int:
    if find_spec("jinja2") is None:
        raise ImportError("the page needs jinja2; run: pip install 'nearfar[app]'")
    _check_embed_places(options)
    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.embedding import embed_table, make_embedder
    from nearfar.extras import require
    from nearfar.report.embedding import write_embedding_document

    learner = make_embedder(options.method, options.components, options.neighbors, options.settings)
    if options.save is not None:
        require("skops.io", "app")
    table = read_table(
        options.data,
        target=options.target,
        labels=options.labels,
        need_target=False,
        guess_target=True,
    )
    result = embed_table(
        table,
        learner,
        scale=options.scale,
        keep=options.keep,
        drop=options.drop,
        color=options.color,
        image_shape=options.images,
        show_rows=not options.no_rows,
        # A saved learner has the components that were asked for, and no more.
        whole_spectrum=options.save is None,
        progress=_fit_progress(),
        argv=options.argv,
    )
    if result.stopped:
        print("Stopped: writing the best so far. Ctrl-C once more ends without it.")
    write_embedding_document(result.document, options.out, force=True)
    if options.csv is not None:
        names = [f"component_{i}" for i in range(result.coordinates.shape[1])]
        _write_coordinates(dict(zip(names, result.coordinates.T, strict=True)), options.csv)
    if options.save is not None:
        from nearfar.persistence import save

        metadata = {"method": options.method, "data": table.name, "target": table.target}
        save(result.chain, options.save, force=True, metadata=metadata)
    _print_embedding(result.document)
    print(f"\nPage: {options.out}")
    if options.csv is not None:
        print(f"Coordinates: {options.csv}")
    if options.save is not None:
        print(f"Saved: {options.save} (it holds the training rows, as they are or mapped)")
    return 130 if result.stopped else 0


def _check_embed_places(options: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    if options.out is None:
        options.out = Path("embedding.html")
        number = 1
        while options.out.exists() and not options.force:
            number += 1
            options.out = Path(f"embedding-{number}.html")
    if options.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {options.out}: the page is HTML; end its name with .html.")
    if options.csv is not None and options.csv.suffix.lower() not in _COORDINATE_FILES:
        names = f"{', '.join(_COORDINATE_FILES[:-1])} or {_COORDINATE_FILES[-1]}"
        raise ValueError(f"--csv {options.csv}: end the name with {names}.")
    taken = {os.path.realpath(options.data): "the data"}
    for option in ("out", "csv", "save"):
        path = getattr(options, option)
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in taken:
            raise ValueError(f"--{option} {path} is {taken[place]}; choose another name.")
        taken[place] = f"what --{option} writes"
        _check_place(path, f"--{option}", options.force)


_COORDINATE_FILES = (".csv", ".tsv", ".parquet", ".npy")


def _fit_progress() -> Any:
    if sys.stdout is not None and sys.stdout.isatty() and find_spec("rich") is not None:
        from nearfar.live import LiveFit

        return LiveFit()
    from nearfar.evaluation.progress import PlainFitProgress

    return PlainFitProgress(sys.stdout)


def _print_embedding(document: dict[str, Any]) -> None:
    for warning in document["warnings"]:
        print(f"Warning: {warning}")
    print(f"\n{document['answer']['text']}")
    print(f"\nCertificate: {document['certificate']['text']}")
    print(f"\nQuality: {document['quality']['text']}")
    for measure in document["quality"]["measures"]:
        print(f"  {measure['label']:<20} {measure['value']:.3f}")
    values = document["spectrum"]
    print(f"\nSpectrum: {values['text']}")
    if values["values"]:
        shares = [f"{100 * share:.1f} %" for share in values["shares"]]
        shown = shares or [f"{value:.3g}" for value in values["values"]]
        more = ", ..." if len(shown) > 10 or values["more"] else ""
        print(f"  {', '.join(shown[:10])}{more}")


# fit, transform, neighbors


def _fit(options: argparse.Namespace) -> int:
    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.chain import find_method, fit_chain
    from nearfar.extras import require
    from nearfar.persistence import save

    # Before the work, not after.
    _check_place(options.save, "--save", options.force)
    find_method(options.method, options.scale)
    require("skops.io", "app")
    table = read_table(
        options.data,
        target=options.target,
        labels=options.labels,
        groups=options.groups,
        time=options.time,
    )
    chain, notes = fit_chain(
        table, options.method, scale=options.scale, keep=options.keep, drop=options.drop
    )
    for line in [*table.messages, *notes]:
        print(line)
    metadata = {"method": options.method, "data": table.name, "target": table.target}
    save(chain, options.save, force=options.force, metadata=metadata)
    print(f"Saved: {options.save} (it holds the training rows, as they are or mapped)")
    return 0


def _load_chain(path: Path) -> Any:
    from sklearn.pipeline import Pipeline

    from nearfar.persistence import load

    chain = load(path)
    if not isinstance(chain, Pipeline) or not {"knn", "learner"} & set(chain.named_steps):
        raise ValueError(
            f"{path} holds a {type(chain).__name__}, not a chain made by nearfar fit or embed."
        )
    return chain


def _transform(options: argparse.Namespace) -> int:
    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.chain import map_rows

    _check_output(options, (".parquet", ".csv", ".tsv", ".npy"))
    chain = _load_chain(options.model)
    points = map_rows(chain, read_table(options.input, need_target=False), str(options.input))
    _write_coordinates({f"component_{i}": part for i, part in enumerate(points.T)}, options.output)
    print(f"Wrote {points.shape[0]:,} rows of {points.shape[1]} to {options.output}")
    return 0


def _neighbors(options: argparse.Namespace) -> int:
    import numpy as np

    from nearfar.datasets.tables import read_table
    from nearfar.evaluation.chain import map_rows
    from nearfar.summaries.exact_search import kneighbors

    if options.output is not None:
        _check_output(options, (".csv", ".tsv", ".parquet"))
    chain = _load_chain(options.model)
    index = map_rows(chain, read_table(options.index, need_target=False), str(options.index))
    queries = map_rows(chain, read_table(options.query, need_target=False), str(options.query))
    if not 1 <= options.k <= len(index):
        raise ValueError(
            f"-k {options.k}: it must be from 1 to the {len(index)} rows of the index."
        )
    distances, rows = kneighbors(index, queries, n_neighbors=options.k)
    columns = {
        "query": np.repeat(np.arange(len(queries)), options.k),
        "rank": np.tile(np.arange(1, options.k + 1), len(queries)),
        "row": rows.ravel(),
        "distance": distances.ravel(),
    }
    if options.output is None or options.output.suffix.lower() != ".parquet":
        columns["distance"] = np.array([f"{distance:.6g}" for distance in distances.ravel()])
    if options.output is None:
        _write_csv(sys.stdout, columns, ",")
        return 0
    _write_columns(columns, options.output)
    print(f"Wrote the neighbours of {len(queries):,} rows to {options.output}")
    return 0


def _check_output(options: argparse.Namespace, suffixes: tuple[str, ...]) -> None:
    path = options.output
    if path.suffix.lower() not in suffixes:
        names = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise ValueError(f"{path}: end the name with {names}.")
    _check_place(path, "-o", options.force)


def _write_coordinates(columns: dict[str, Any], path: Path) -> None:
    """Columns of numbers by the ending of the name."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        np.save(path, np.column_stack(list(columns.values())))
    else:
        _write_columns(columns, path)


def _write_columns(columns: dict[str, Any], path: Path) -> None:
    """A table by the ending of its name."""
    if path.suffix.lower() == ".parquet":
        from nearfar.extras import require

        require("pyarrow", "app")
        require("pandas", "app").DataFrame(columns).to_parquet(path, index=False)
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        _write_csv(file, columns, "\t" if path.suffix.lower() == ".tsv" else ",")


def _write_csv(stream: Any, columns: dict[str, Any], separator: str) -> None:
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    # As Python's own numbers: the shortest text that gives the same number again.
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


# methods


def _methods(options: argparse.Namespace) -> int:
    from nearfar.evaluation.methods import DEFAULT, baselines, known_learners

    found = known_learners()
    width = max(map(len, found))
    print("Start here (what `nearfar compare` tries):")
    for name in DEFAULT:
        print(_method_line(name, found[name], width))
    rooms: dict[str, list[str]] = {}
    for name, learner in found.items():
        parts = learner.__module__.split(".")
        room = parts[1] if parts[0] == "nearfar" else f"from the package {parts[0]}"
        rooms.setdefault(room, []).append(name)
    for room, names in rooms.items():
        print(f"\n{room}:")
        for name in names:
            print(_method_line(name, found[name], width))
    print("\nThe name of a family stands for all its learners: --methods discriminant")
    print("\nplain distances, for `nearfar fit --method`:")
    for method in baselines():
        print(f"  {method.name:<{width}} {method.label}")
    print(f"  {'reference':<{width}} the best of these, as tuning finds it")
    return 0


def _method_line(name: str, learner: Any, width: int) -> str:
    tags = learner.learner_tags
    words = [tags.kind, "labels" if tags.supervised else "no labels"]
    words += ["linear"] * tags.linear + [tags.input] * (tags.input != "vectors")
    first = (learner.__doc__ or "").strip().partition("\n")[0]
    first = re.sub(r":\w+:`([^`]*)`|``([^`]*)``", r"\1\2", first)
    return f"  {name.lower():<{width}} {first} [{', '.join(words)}]"


# Arguments


def _parser() -> argparse.ArgumentParser:
    import nearfar

    parser = argparse.ArgumentParser(
        prog="nearfar",
        description="Learn distances, and find out whether they are worth it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"nearfar {nearfar.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_compare(commands)
    _add_embed(commands)
    _add_model_commands(commands)
    methods = commands.add_parser("methods", help="list the learners", description="List learners.")
    methods.set_defaults(run=_methods)
    return parser


_DATA_HELP = (
    "a CSV, TSV or Parquet table, a .npy or .npz file (keys X, y, groups, time, feature_names, "
    "target_names, image_shape), or one of digits, wine, iris, breast_cancer"
)


def _add_compare(commands: Any) -> None:
    command = commands.add_parser(
        "compare",
        help="which distance should I use on my data, and is it worth it?",
        description="Compare learned distances with the best plain one on held-out folds, and say "
        "which to use. With --unlabelled, compare embeddings by the neighbours they keep.",
    )
    command.set_defaults(run=_compare)
    add = command.add_argument
    add("data", metavar="DATA", help=_DATA_HELP)
    _add_target(command)
    add(
        "--unlabelled",
        "--unlabeled",
        action="store_true",
        help="use no labels: rank embeddings (PCA, Isomap, MVU, ...) by the nearest neighbours of "
        "held-out rows that they keep",
    )
    add("--components", type=_number(int, 1), metavar="N", help="dimensions of the embeddings (2)")
    add("--color", "--colour", metavar="COL", help="colours their pictures; no feature")
    add("--groups", metavar="COL", help="rows with equal values are never on both sides of a fold")
    add("--time", metavar="COL", help="train on the past, test on what follows")
    add("--test", metavar="FILE", help="a fixed test file instead of folds")
    add("--methods", metavar="A,B", help="learners or families to compare (see: nearfar methods)")
    add("--scoring", metavar="NAME", help="a scorer of scikit-learn, such as f1_macro")
    _add_scale(command, "auto")
    add("--repeats", type=_number(int, 1), metavar="N", help="run so many × 5 folds, however long")
    add(
        "--time-budget",
        type=_number(float, 1),
        metavar="SECONDS",
        help="stop then; default 120 unless --repeats is given",
    )
    add("--tuning", choices=("full", "holdout", "k"), help="how much is tried inside each fold")
    add(
        "--min-gain",
        type=_number(float, 0),
        default=0.05,
        metavar="SHARE",
        help="least relative gain worth a recommendation (default 0.05)",
    )
    add("--seed", type=_number(int, 0), default=0, metavar="N", help="seed of the folds (0)")
    add("--jobs", type=_number(int, 1), metavar="N", help="worker processes at once (all cores)")
    add(
        "--in-process",
        action="store_true",
        help="no worker processes: quicker to start, but nothing can be killed or measured",
    )
    add("--no-context", action="store_true", help="leave out trees and logistic regression")
    add("--no-rows", action="store_true", help="keep the values of rows out of the report")
    add("--out", type=Path, metavar="FILE", help="the HTML report (default report.html)")
    add("--json", type=Path, metavar="FILE", help="every number, fold by fold")
    add("--resume", action="store_true", help="go on with an interrupted comparison")
    add("--force", action="store_true", help="overwrite files that exist")


def _add_embed(commands: Any) -> None:
    command = commands.add_parser(
        "embed",
        help="what do my data look like in two or three dimensions, and can I trust it?",
        description="Embed the rows of a table in few dimensions, draw them, and say how good the "
        "picture is.",
    )
    command.set_defaults(run=_embed)
    add = command.add_argument
    add("data", metavar="DATA", help=_DATA_HELP)
    add(
        "--method",
        default="mvu",
        metavar="NAME",
        help="mvu (default), variational-mvu, landmark-mvu, isomap, lle, laplacian-eigenmaps, pca "
        "...; a wrong name lists all",
    )
    add(
        "--components",
        type=_number(int, 1),
        default=2,
        metavar="N",
        help="dimensions (2); the page draws up to three",
    )
    add("--neighbors", type=_number(int, 1), metavar="K", help="neighbours of each row")
    add(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="another parameter of the method, such as constraints=equality",
    )
    _add_target(command)
    add("--color", metavar="COL", help="the column to colour by (default: the labels)")
    add("--images", type=_shape, metavar="HxW", help="rows are images of this height and width")
    _add_scale(command, "auto", "auto standardises columns of unlike spread (default)")
    add("--no-rows", action="store_true", help="keep the values of rows out of the page")
    add("--out", type=Path, metavar="FILE", help="the page (default embedding.html)")
    add("--csv", type=Path, metavar="FILE", help="the coordinates: .csv, .tsv, .parquet or .npy")
    add("--save", type=Path, metavar="MODEL", help="the model file, for: nearfar transform")
    add("--force", action="store_true", help="overwrite files that exist")


def _shape(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"(\d+)[x×,](\d+)(?:[x×,](\d+))?", text.strip().lower())
    sizes = tuple(int(size) for size in found.groups() if size) if found else ()
    if not sizes or min(sizes) < 1 or (len(sizes) == 3 and sizes[2] != 3):
        raise argparse.ArgumentTypeError(f"{text!r} is no height and width, such as 28x28")
    return sizes


def _add_model_commands(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="fit one method and save the chain from raw table to neighbours",
        description="Tune k and the method's settings by cross-validation, fit on all rows, save.",
    )
    fit.set_defaults(run=_fit)
    fit.add_argument("data", metavar="DATA", help=_DATA_HELP)
    _add_target(fit)
    fit.add_argument("--method", required=True, metavar="NAME", help="see: nearfar methods")
    fit.add_argument("--groups", metavar="COL", help="kept together while tuning; no feature")
    fit.add_argument("--time", metavar="COL", help="tune on what follows the past; no feature")
    _add_scale(fit, "auto")
    fit.add_argument("--save", type=Path, required=True, metavar="MODEL", help="the model file")
    fit.add_argument("--force", action="store_true", help="overwrite it if it exists")

    transform = commands.add_parser(
        "transform",
        help="map rows with a saved model",
        description="Map rows into the space where the learned distance is the Euclidean one.",
    )
    transform.set_defaults(run=_transform)
    transform.add_argument("model", type=Path, metavar="MODEL")
    transform.add_argument("--input", required=True, metavar="FILE", help="rows to map")
    transform.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help=".parquet, .csv, .tsv, .npy",
    )
    transform.add_argument("--force", action="store_true", help="overwrite it if it exists")

    neighbors = commands.add_parser(
        "neighbors",
        help="nearest rows by the learned distance",
        description="For each query the nearest rows of an index, by the learned distance.",
    )
    neighbors.set_defaults(run=_neighbors)
    neighbors.add_argument("model", type=Path, metavar="MODEL")
    neighbors.add_argument("--index", required=True, metavar="FILE", help="rows to find")
    neighbors.add_argument("--query", required=True, metavar="FILE", help="rows to find them for")
    neighbors.add_argument("-k", type=_number(int, 1), default=5, metavar="N", help="how many (5)")
    neighbors.add_argument("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv, .parquet")
    neighbors.add_argument("--force", action="store_true", help="overwrite it if it exists")


def _add_target(command: argparse.ArgumentParser) -> None:
    labels = command.add_mutually_exclusive_group()
    labels.add_argument("--target", metavar="COL", help="the column with the labels")
    labels.add_argument("--labels", metavar="FILE", help="a file with the labels")
    command.add_argument("--keep", action="append", default=[], metavar="COL", help="use it anyway")
    command.add_argument("--drop", action="append", default=[], metavar="COL", help="leave it out")


def _add_scale(
    command: argparse.ArgumentParser, default: str, automatic: str = "auto tunes it (default)"
) -> None:
    command.add_argument(
        "--scale",
        choices=("auto", "none", "standard", "unit"),
        default=default,
        help=f"scaling before the learners; {automatic}",
    )


def _number(kind: type, low: float) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} must be at least {low:g}")
        return value

    return parse


if __name__ == "__main__":
    raise SystemExit(main())
