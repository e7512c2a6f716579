"""``nearfar compare``."""

from __future__ import annotations

import argparse
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import cannot_write, check_place, refuse_shared_names
from nearfar.app.cli.options import (
    DATA_HELP,
    add_images,
    add_pairs,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    add_then,
    number,
)


def add_compare(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "compare",
        help="which distance should I use on my data, and is it worth it?",
        description="Compare learned distances with the best plain one on held-out folds, and say "
        "which to use. With --task regression, by how well neighbours predict a number. With "
        "--pairs, by pairs of rows judged alike or different instead of labels. With --unlabelled, "
        "compare embeddings by the neighbours they keep. With --set-id, compare dissimilarities of "
        "sets of vectors.",
        argument_default=argparse.SUPPRESS,
    )
    command.set_defaults(run=_compare, parser=command, commands=commands)
    # Names and defaults are those of the question.
    _add_data(command.add_argument_group("data"))
    _add_methods(command.add_argument_group("methods"))
    _add_protocol(command.add_argument_group("protocol"))
    _add_output(command.add_argument_group("output"))


def _add_data(group: Any) -> None:
    add = group.add_argument
    add("data", metavar="DATA", help=DATA_HELP)
    add_target(group)
    add_pairs(group)
    add_sets(group)
    add_rows(group)
    add_images(group)
    add(
        "--groups",
        metavar="COL",
        help="rows, or sets, with equal values (a speaker, a subject) are never on both sides of a "
        "fold",
    )
    add("--time", metavar="COL", help="train on the past, test on what follows")
    add("--test", metavar="FILE", help="a fixed test file instead of folds")
    add(
        "--report-by",
        metavar="COL",
        help="report errors by the groups of this column; no feature",
    )
    add(
        "--unlabelled",
        "--unlabeled",
        action="store_true",
        help="use no labels: rank embeddings (PCA, Isomap, MVU, ...) by the nearest neighbours of "
        "held-out rows that they keep",
    )
    add(
        "--color",
        "--colour",
        metavar="COL",
        help="with --unlabelled: the column that colours the pictures; no feature",
    )


def _add_methods(group: Any) -> None:
    add = group.add_argument
    add("--methods", metavar="A,B", help="learners or families to compare (see: nearfar methods)")
    add(
        "--without",
        metavar="A,B",
        help="learners or classifiers that are not to be compared (lmnn, trees)",
    )
    add(
        "--no-context",
        dest="context",
        action="store_false",
        help="leave out trees and logistic regression",
    )
    add_scale(group, "auto")
    add_then(group)
    add(
        "--components",
        dest="n_components",
        type=number(int, 1),
        metavar="N",
        help="with --unlabelled: dimensions of the embeddings (2)",
    )


def _add_protocol(group: Any) -> None:
    add = group.add_argument
    add(
        "--time-budget",
        type=number(float, 1),
        metavar="SECONDS",
        help="stop then; default 120 unless --repeats is given",
    )
    add(
        "--sample",
        type=_sample,
        metavar="N|none",
        help="compare on N rows, drawn by class; none: on all rows. Default: all, or as many as "
        "can be tested in the time given",
    )
    add("--repeats", type=number(int, 1), metavar="N", help="run so many × 5 folds, however long")
    add(
        "--tuning",
        choices=("full", "holdout", "k"),
        help="what is tried inside each training fold: k and up to 4 settings a method by 3 folds "
        "(full) or on a quarter held out (holdout), or k alone; default: what the time allows",
    )
    add(
        "--scoring",
        metavar="NAME",
        help="a scorer of scikit-learn, such as f1_macro; default: the error, balanced where "
        "classes are of unlike size",
    )
    add(
        "--min-gain",
        type=number(float, 0),
        metavar="SHARE",
        help="least relative gain worth a recommendation (default 0.05)",
    )
    add(
        "--seed",
        dest="random_state",
        type=number(int, 0),
        metavar="N",
        help="seed of the folds (0)",
    )
    add(
        "--jobs",
        dest="n_jobs",
        type=number(int, 1),
        metavar="N",
        help="worker processes at once (all cores)",
    )
    add(
        "--in-process",
        dest="isolate",
        action="store_false",
        help="no worker processes: quicker to start, but nothing can be killed or measured",
    )


def _add_output(group: Any) -> None:
    add = group.add_argument
    add("--out", type=Path, default=None, metavar="FILE", help="the page (default report.html)")
    add("--json", type=Path, default=None, metavar="FILE", help="every number, fold by fold")
    add(
        "--save",
        type=Path,
        default=None,
        metavar="MODEL",
        help="fit what is recommended to all rows, and keep it in this model file, for: nearfar "
        "predict",
    )
    add(
        "--no-rows",
        dest="show_rows",
        action="store_false",
        help="keep values, and names of sets, out of the report",
    )
    add("--resume", action="store_true", default=False, help="go on with an interrupted comparison")
    add("--force", action="store_true", default=False, help="overwrite files that exist")


def _sample(text: str) -> int | str | None:
    return text if text == "auto" else None if text == "none" else number(int, 1)(text)


def _compare(options: argparse.Namespace) -> int:
    has_report = find_spec("jinja2") is not None
    if options.out is not None and not has_report:
        raise ImportError("--out needs jinja2; run: pip install 'nearfar[app]'")
    if options.save is not None:
        from nearfar.extras import require

        require("skops.io", "app")  # before the work, not after
    out, journal = places(options)
    from nearfar.app.compare.journal import unclaim

    try:
        return _run_comparison(options, out, journal, has_report)
    finally:
        unclaim(journal)


def _run_comparison(options: argparse.Namespace, out: Path, journal: Path, has_report: bool) -> int:
    # Only now: these imports take a second.
    from nearfar.app.compare.driver import compared
    from nearfar.app.compare.interrupts import Interrupts
    from nearfar.app.compare.question import Question
    from nearfar.datasets.tables import DataFile

    question = Question.of(vars(options), X=DataFile(options.data), journal=journal)
    terminal = sys.stdout is not None and sys.stdout.isatty()
    fancy = terminal and find_spec("rich") is not None
    progress = _progress(fancy, question.budget)
    n_before = _n_lines(journal)
    with Interrupts(requests=True) as interrupts:
        result, kind = compared(
            question,
            progress=progress,
            began=options.began,
            argv=options.argv,
            interrupts=interrupts,
        )
        result.document["next"] = _next(options, result, kind)
        code = _finish(options, result, out, journal, n_before, question.budget, fancy, has_report)
    if options.save is not None and not _save(options, result, kind):
        code = code or 2
    _print_next(options, result.document, question.budget)
    return code


def _next(options: argparse.Namespace, result: Any, kind: Any) -> list[dict[str, str]]:
    """What to do with the answer."""
    from nearfar.app.cli.again import next_steps

    if result.chain is None or _not_kept(result.chain):
        return []
    chosen = result.chain.chosen
    return next_steps(options, result.document, chosen, kind.command, kind.table.noun)


def _not_kept(chain: Any) -> str:
    """Why a model file cannot keep a chain; nothing if it can."""
    from nearfar.app.cli.models import check_kept

    try:
        check_kept(chain.pipeline(), chain.chosen.method.label)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


def _save(options: argparse.Namespace, result: Any, kind: Any) -> bool:
    """Fit what is recommended to all rows, and save it; whether there was such."""
    from nearfar.app.cli.models import save_chain

    document = result.document
    why = "no fold was done" if result.chain is None else _not_kept(result.chain)
    if document["status"] == "interrupted":
        why = "the comparison was interrupted"
    if why:
        print(f"\nNot saved: {why}.")
        return False
    verdict, chosen = document["answer"]["verdict"], result.chain.chosen
    so = {"keep": ", the standard distance", "inconclusive": ", the standard distance for now"}
    if chosen.method.role != "baseline":
        so = {"inconclusive": ", for now"}
    words = chosen.words()
    print(
        f"\nFitting to all {len(kind.training()[0]):,} {kind.table.noun}s: {chosen.method.label}"
        f"{f' ({words})' if words else ''}{so.get(verdict, '')}."
    )
    save_chain(options, kind, chosen)
    return True


def _print_next(
    options: argparse.Namespace, document: dict[str, Any], budget: float | None
) -> None:
    from nearfar.app.cli.again import same_again

    if document["next"]:
        print("\nNext:")
    for step in document["next"]:
        print(f"  {step['text']}:\n    {step['command']}")
    if budget is not None:
        again = shlex.join(same_again(options, document))
        print(f"\nThe same folds and settings again, however long it takes:\n    {again}")


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
        from nearfar.app.report import write

        write(result.document, out, force=True)
    if options.json is not None:
        result.to_json(options.json, force=True)
    if result.complete:
        journal.unlink(missing_ok=True)
    _print_result(result, fancy)
    if has_report:
        print(f"\nReport: {out}")
    else:
        print("\nFor the HTML report: pip install 'nearfar[app]'")
    if options.json is not None:
        print(f"Numbers: {options.json}")
    if journal.exists():
        # Of a method without a single fold the same time would bring no more.
        stuck = _n_lines(journal) <= n_before or any(
            method["status"] == "unfinished" and not method["folds_done"]
            for method in result.document["methods"]
        )
        short = result.document["status"] == "time budget reached" and stuck
        print(f"To go on: {resume_command(options, out, budget if short else None)}")
    return 130 if result.document["status"] == "interrupted" else 0


def _n_lines(journal: Path) -> int:
    """Lines of a journal; what was finished, and the first."""
    try:
        return max(1, journal.read_bytes().count(b"\n"))
    except OSError:
        return 1


def _print_result(result: Any, fancy: bool) -> None:
    """Print the table, the notes and the code, and the answer last."""
    from nearfar.app import live

    if fancy:
        live.show(result)
    else:
        # The data, the warnings and the plan were printed before the run.
        print("\n" + result.summary_text(data=False))
    if result.code:
        print("\nTo repeat it with scikit-learn:\n")
        print("\n".join(f"    {line}" if line else "" for line in result.code.splitlines()))
    if fancy:
        live.show_answer(result)
    else:
        print(f"\n{result.answer}")


def _progress(fancy: bool, budget: float | None) -> Any:
    if fancy:
        from nearfar.app.live import LiveProgress

        return LiveProgress(budget)
    from nearfar.app.progress import PlainProgress

    return PlainProgress(sys.stdout, budget)


def places(options: argparse.Namespace) -> tuple[Path, Path]:
    """Where the report and the journal go.

    Refuses at once what would overwrite a file or cannot be written, and claims the journal, so
    that another run in this folder takes another name.
    """
    from nearfar.app.compare.journal import claim, unclaim

    replaced = options.force or options.resume
    for option in ("json", "save"):
        if getattr(options, option) is not None:
            check_place(getattr(options, option), f"--{option}", replaced)
    if options.out is None:
        out = _resumable() if options.resume else Path("report.html")
    else:
        out = options.out
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out {out}: the report is HTML; end its name with .html.")
        check_place(out, "--out", replaced)
    number = 1
    while True:
        journal = out.with_suffix(".journal")
        refuse_shared_names(options, ("json", "save"), report=out, journal=journal)
        if options.resume:
            if not journal.exists():
                raise ValueError(f"There is nothing to resume: {journal} does not exist.")
            return out, journal
        try:
            claimed = claim(journal, anew=options.force)
        except OSError as error:
            raise ValueError(cannot_write(out, "--out", error)) from error
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


def _resumable() -> Path:
    from nearfar.app.compare.journal import in_use

    found = [path for path in Path().glob("report*.journal") if not in_use(path)]
    if not found:
        raise ValueError("There is nothing to resume: no report*.journal in this folder.")
    return max(found, key=lambda path: path.stat().st_mtime).with_suffix(".html")


def resume_command(options: argparse.Namespace, out: Path, budget: float | None) -> str:
    """The command to go on with; with a larger budget where this one was too small."""
    from nearfar.app.cli.again import without

    gone = ["--resume", "--force"] + ["--time-budget"] * (budget is not None)
    kept = without(options.parser, options.argv, gone)
    if options.out is None:
        kept += ["--out", str(out)]
    if budget is not None:
        kept += ["--time-budget", f"{max(60, 4 * budget):g}"]
    return shlex.join([*kept, "--resume"])
