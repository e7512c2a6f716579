"""``nearfar embed``."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import (
    check_ending,
    check_place,
    refuse_shared_names,
    write_coordinates,
)
from nearfar.app.cli.options import (
    DATA_HELP,
    DATA_NOTES,
    add_force,
    add_hidden,
    add_images,
    add_open,
    add_parameters,
    add_quiet,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    number,
    read_data,
)
from nearfar.app.cli.output import (
    is_terminal,
    open_page,
    print_message,
    print_outcome,
    print_warning,
)

_COMMON = (
    *("--method", "--components", "--neighbors", "--color", "--target", "--id", "--drop"),
    *("--scale", "--out", "--csv", "--save", "--open"),
)
_NOTES = f"""\
{DATA_NOTES}
Further methods: for images gta, and gtda, which uses the labels; for sets of
vectors set-embedding, whose dissimilarity is bhattacharyya_riemann unless you
change it, for example with --set metric=hellinger.
"""
_EXAMPLES = (
    ("embed wine --method isomap", "Plot a built-in dataset in two dimensions."),
    (
        "embed table.csv --method pca --color kind --csv points.csv",
        "Plot your own table, colored by a column, and write the coordinates.",
    ),
    (
        "embed table.csv --method mvu --components 3 --open",
        "Plot it in three dimensions, and open the page.",
    ),
)


def add_embed(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "embed",
        help="plot the rows in two or three dimensions, and rate the plot",
        description="Embed the rows of a table in few dimensions, plot them, and measure how well "
        "the plot preserves the data.",
        common=_COMMON,
        examples=_EXAMPLES,
        guide="embeddings.rst",
        notes=_NOTES,
    )
    command.set_defaults(run=_embed)
    data = command.add_argument_group("data")
    data.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_target(data)
    add_sets(data)
    add_rows(data)
    data.add_argument(
        "--groups",
        metavar="COL",
        help="with --set-id: column with one value per set, not used as a feature, for --color",
    )
    add_hidden(
        data,
        "--colour",
        "--color",
        metavar="COL",
        help="column that colors the plot (default: the labels)",
    )
    add_images(data)
    method = command.add_argument_group("method")
    method.add_argument(
        "--method",
        metavar="NAME",
        help="embedding method: mvu (default), isomap, lle, pca, ... (list them with: nearfar "
        "methods)",
    )
    method.add_argument(
        "--components",
        type=number(int, 1),
        default=2,
        metavar="N",
        help="number of dimensions (default 2); the page plots up to three",
    )
    method.add_argument(
        "--neighbors", type=number(int, 1), metavar="K", help="number of neighbors per row"
    )
    add_parameters(method, "constraints=equality")
    add_scale(method, "auto", "auto (standard if the spread of the columns differs, default)")
    output = command.add_argument_group("output")
    add = output.add_argument
    add("-o", "--out", type=Path, metavar="FILE", help="HTML page (default embedding.html)")
    add(
        "--csv",
        type=Path,
        metavar="FILE",
        help="write the coordinates as .csv, .tsv, .parquet or .npy",
    )
    add("--save", type=Path, metavar="MODEL", help="save the model, for nearfar transform")
    add("--no-rows", action="store_true", help="do not show values of rows on the page")
    add_open(output)
    add_quiet(output, "print only the answer, and warnings")
    add_force(output)


def _embed(options: argparse.Namespace) -> int:
    if find_spec("jinja2") is None:
        raise ImportError("The page needs jinja2. Run: pip install 'nearfar[app]'")
    _check_embed_places(options)
    from nearfar.app.embed.embedding import embed_table
    from nearfar.app.embed.kinds.choice import kind_of
    from nearfar.app.embed.kinds.kind import Wishes
    from nearfar.app.embed.methods import make_embedder
    from nearfar.app.report import write_embedding_document
    from nearfar.app.tables.reading import noun_of_file
    from nearfar.datasets.tables import DataFile
    from nearfar.extras import import_optional

    data = DataFile(options.data)
    kind = kind_of(noun_of_file(data, options.set_id))
    wishes = Wishes(
        options.scale,
        options.keep,
        options.drop,
        options.color,
        options.images,
        options.groups,
        not options.no_rows,
    )
    kind.check(wishes)
    options.method = options.method or kind.method
    learner = make_embedder(
        options.method, options.components, options.neighbors, options.settings, input=kind.input
    )
    if options.save is not None:
        import_optional("skops.io", "app")
    table = read_data(
        options,
        data,
        target=options.target,
        labels=options.labels,
        groups=options.groups,
        need_target=False,
        guess_target=True,
    )
    result = embed_table(
        table,
        learner,
        wishes,
        # A saved learner has the requested number of components only.
        whole_spectrum=options.save is None,
        progress=_fit_progress(options.quiet),
        argv=options.argv,
    )
    if result.stopped:
        print_message(
            options,
            "Interrupted: writing the best embedding so far. Press Ctrl-C again to skip this.",
        )
    write_embedding_document(result.document, options.out, force=True)
    if options.csv is not None:
        write_coordinates(result.coordinates, options.csv, kind.names(table))
    if options.save is not None:
        from nearfar.persistence import save

        metadata = {
            "method": options.method,
            "label": type(learner).__name__,
            "data": table.name,
            "unit": kind.noun,
            "n_rows": len(result.coordinates),
            "target": table.target,
        }
        save(result.chain, options.save, force=True, metadata=metadata | kind.metadata(table))
    for warning in result.document["warnings"]:
        print_warning(warning)
    if options.quiet:
        print(result.document["answer"]["text"])
    else:
        _print_embedding(result.document)
    print_outcome(options, f"\nPage: {options.out}")
    if options.csv is not None:
        print_outcome(options, f"Coordinates: {options.csv}")
    if options.save is not None:
        print_outcome(options, f"Saved: {options.save} (it holds the {kind.kept})")
    if options.open:
        open_page(options.out)
    return 130 if result.stopped else 0


def _check_embed_places(options: argparse.Namespace) -> None:
    """Raise before the work if a file cannot be written."""
    if options.out is None:
        options.out = Path("embedding.html")
        number = 1
        while options.out.exists() and not options.force:
            number += 1
            options.out = Path(f"embedding-{number}.html")
    if options.out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out {options.out}: the page is HTML, so its name must end with .html.")
    if options.csv is not None:
        endings = (".csv", ".tsv", ".parquet", *([] if options.ids is not None else [".npy"]))
        check_ending(options.csv, endings, "--csv ")
    refuse_shared_names(options, ("out", "csv", "save"))
    for option in ("out", "csv", "save"):
        path = getattr(options, option)
        if path is not None:
            check_place(path, f"--{option}", options.force)


def _fit_progress(quiet: bool) -> Any:
    from nearfar.app.progress import FitProgress, PlainFitProgress

    if quiet or sys.stderr is None:
        return FitProgress()
    if is_terminal(sys.stderr) and find_spec("rich") is not None:
        from nearfar.app.live import LiveFit

        return LiveFit()
    return PlainFitProgress(sys.stderr)


def _print_embedding(document: dict[str, Any]) -> None:
    print(f"\n{document['answer']['text']}")
    print(f"\nCertificate: {document['certificate']['text']}")
    print(f"\nQuality: {document['quality']['text']}")
    for measure in document["quality"]["measures"]:
        print(f"  {measure['label']:<20} {measure['value']:.3f}")
    values = document["spectrum"]
    print(f"\nSpectrum: {values['text']}")
    if values["values"]:
        shares = [f"{100 * share:.1f}%" for share in values["shares"]]
        shown = shares or [f"{value:.3g}" for value in values["values"]]
        more = ", ..." if len(shown) > 10 or values["more"] else ""
        print(f"  {', '.join(shown[:10])}{more}")
