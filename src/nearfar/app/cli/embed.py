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
    add_images,
    add_parameters,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    number,
    read_data,
)


def add_embed(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "embed",
        help="what do my data look like in two or three dimensions, and can I trust it?",
        description="Embed the rows of a table in few dimensions, draw them, and say how good the "
        "picture is.",
    )
    command.set_defaults(run=_embed)
    data = command.add_argument_group("data")
    data.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_target(data)
    add_sets(data)
    add_rows(data)
    data.add_argument(
        "--groups", metavar="COL", help="of sets: a column that is no feature, for --color"
    )
    data.add_argument(
        "--color",
        "--colour",
        metavar="COL",
        help="the column to colour by (default: the labels)",
    )
    add_images(data)
    method = command.add_argument_group("method")
    method.add_argument(
        "--method",
        metavar="NAME",
        help="mvu (default), variational-mvu, landmark-mvu, isomap, lle, laplacian-eigenmaps, pca "
        "... (see: nearfar methods); of images gta, or gtda, which learns from labels. For sets of "
        "vectors: set-embedding, whose dissimilarity is --set metric=hellinger, for instance "
        "(default bhattacharyya_riemann)",
    )
    method.add_argument(
        "--components",
        type=number(int, 1),
        default=2,
        metavar="N",
        help="dimensions (2); the page draws up to three",
    )
    method.add_argument(
        "--neighbors", type=number(int, 1), metavar="K", help="neighbours of each row"
    )
    add_parameters(method, "constraints=equality")
    add_scale(method, "auto", "auto standardises columns of unlike spread (default)")
    output = command.add_argument_group("output")
    add = output.add_argument
    add("--out", type=Path, metavar="FILE", help="the page (default embedding.html)")
    add("--csv", type=Path, metavar="FILE", help="the coordinates: .csv, .tsv, .parquet or .npy")
    add("--save", type=Path, metavar="MODEL", help="the model file, for: nearfar transform")
    add("--no-rows", action="store_true", help="keep the values of rows out of the page")
    add("--force", action="store_true", help="overwrite files that exist")


def _embed(options: argparse.Namespace) -> int:
    if find_spec("jinja2") is None:
        raise ImportError("the page needs jinja2; run: pip install 'nearfar[app]'")
    _check_embed_places(options)
    from nearfar.app.embed.embedding import embed_table
    from nearfar.app.embed.kinds.choice import kind_of
    from nearfar.app.embed.kinds.kind import Wishes
    from nearfar.app.embed.methods import make_embedder
    from nearfar.app.report import write_embedding_document
    from nearfar.app.tables.reading import noun_of_file
    from nearfar.datasets.tables import DataFile
    from nearfar.extras import require

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
        require("skops.io", "app")
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
        # A saved learner has the components that were asked for, and no more.
        whole_spectrum=options.save is None,
        progress=_fit_progress(),
        argv=options.argv,
    )
    if result.stopped:
        print("Stopped: writing the best so far. Ctrl-C once more ends without it.")
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
    _print_embedding(result.document)
    print(f"\nPage: {options.out}")
    if options.csv is not None:
        print(f"Coordinates: {options.csv}")
    if options.save is not None:
        print(f"Saved: {options.save} (it holds the {kind.kept})")
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
    if options.csv is not None:
        endings = (".csv", ".tsv", ".parquet", *([] if options.ids is not None else [".npy"]))
        check_ending(options.csv, endings, "--csv ")
    refuse_shared_names(options, ("out", "csv", "save"))
    for option in ("out", "csv", "save"):
        path = getattr(options, option)
        if path is not None:
            check_place(path, f"--{option}", options.force)


def _fit_progress() -> Any:
    if sys.stdout is not None and sys.stdout.isatty() and find_spec("rich") is not None:
        from nearfar.app.live import LiveFit

        return LiveFit()
    from nearfar.app.progress import PlainFitProgress

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
