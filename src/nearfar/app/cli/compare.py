"""``nearfar compare``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import cannot_write, check_place, refuse_shared_names
from nearfar.app.cli.options import (
    DATA_HELP,
    DATA_NOTES,
    add_force,
    add_hidden,
    add_images,
    add_open,
    add_pairs,
    add_quiet,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    add_then,
    add_time,
    number,
)
from nearfar.app.cli.output import (
    is_terminal,
    open_page,
    print_message,
    print_outcome,
    print_warning,
    writes_json,
)
from nearfar.app.cli.parser import EXIT_CODES

_COMMON = (
    *("--target", "--id", "--drop", "--groups", "--time-column", "--methods", "--time-budget"),
    *("--repeats", "--out", "--save", "--json", "--dry-run"),
)
_EXAMPLES = (
    ("compare wine", "Compare the default methods on a built-in dataset."),
    (
        "compare table.csv --target kind --id name --save model.nf",
        "Compare on your own table, and save the recommended model.",
    ),
    (
        "compare table.csv --target kind --dry-run",
        "Check how the columns are read, and run nothing.",
    ),
)
_NOTES = f"""\
{DATA_NOTES}
{EXIT_CODES}
With --exit-code: 0 use the learned distance, 10 keep the standard one,
11 inconclusive, 12 not finished (the time budget ended before every method
finished, or there is no answer).
"""
#: Exit codes of --exit-code by verdict.
_VERDICT_CODES = {"use": 0, "keep": 10, "inconclusive": 11}
_NOT_FINISHED = 12


def add_compare(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "compare",
        help="test whether a learned distance beats the best standard one",
        description="Compare learned distances with the best standard distance on held-out folds, "
        "and report which to use.",
        argument_default=argparse.SUPPRESS,
        common=_COMMON,
        examples=_EXAMPLES,
        guide="compare.rst",
        notes=_NOTES,
    )
    command.set_defaults(run=_compare, commands=commands)
    # The question has the same names, and the defaults.
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
        help="group column, such as the speaker: all rows of a group are in the same fold",
    )
    add_time(group, "time column: train on earlier rows, test on later ones")
    add("--test", metavar="FILE", help="test on this file instead of on folds")
    add(
        "--report-by",
        metavar="COL",
        help="report the error for each value of this column, which is not used as a feature",
    )
    add_hidden(
        group,
        "--unlabelled",
        "--unlabeled",
        dest="unlabelled",
        action="store_true",
        help="use no labels: compare embeddings (PCA, Isomap, MVU, ...) by the fraction of nearest "
        "neighbors of held-out rows that they keep",
    )
    add_hidden(
        group,
        "--colour",
        "--color",
        metavar="COL",
        help="with --unlabeled: column that colors the plots, not used as a feature",
    )


def _add_methods(group: Any) -> None:
    add = group.add_argument
    add(
        "--methods",
        metavar="A,B",
        help="methods or families to compare (list them with: nearfar methods)",
    )
    add(
        "--without",
        metavar="A,B",
        help="methods to leave out, such as lmnn or trees",
    )
    add(
        "--no-context",
        dest="context",
        action="store_false",
        help="leave out trees and logistic regression, which are shown for context",
    )
    add_scale(group, "auto")
    add_then(group)
    add(
        "--components",
        dest="n_components",
        type=number(int, 1),
        metavar="N",
        help="with --unlabeled: number of dimensions of the embeddings (default 2)",
    )


def _add_protocol(group: Any) -> None:
    add = group.add_argument
    add(
        "--time-budget",
        type=number(float, 1),
        metavar="SECONDS",
        help="stop after this time (default 120, or no limit with --repeats)",
    )
    add(
        "--sample",
        type=_sample,
        metavar="N|none",
        help="number of rows to compare on, drawn by class; none uses all rows (default: as many "
        "as the time budget allows)",
    )
    add(
        "--repeats",
        type=number(int, 1),
        metavar="N",
        help="number of repeats of 5-fold cross-validation (default: as the time budget allows)",
    )
    add(
        "--tuning",
        choices=("full", "holdout", "k"),
        metavar="LEVEL",
        help="tuning within each training fold: full (k and up to 4 settings per method, 3 inner "
        "folds), holdout (the same on a 25%% holdout) or k (only k); default: as the time budget "
        "allows",
    )
    add(
        "--scoring",
        metavar="NAME",
        help="scikit-learn scorer, such as f1_macro (default: error rate, balanced if class sizes "
        "differ much)",
    )
    add(
        "--min-gain",
        type=number(float, 0),
        metavar="FRACTION",
        help="smallest relative gain that is worth a recommendation (default 0.05)",
    )
    add(
        "--seed",
        dest="random_state",
        type=number(int, 0),
        metavar="N",
        help="random seed of the folds (default 0)",
    )
    add(
        "-j",
        "--jobs",
        dest="n_jobs",
        type=number(int, 1),
        metavar="N",
        help="number of worker processes (default: one per core)",
    )
    add(
        "--in-process",
        dest="isolate",
        action="store_false",
        help="start no worker processes: methods cannot be stopped in time, and their memory is "
        "not measured",
    )
    add(
        "--dry-run",
        action="store_true",
        default=False,
        help="print how each column is read and what would run, and stop",
    )


def _add_output(group: Any) -> None:
    add = group.add_argument
    add(
        "-o",
        "--out",
        type=Path,
        default=None,
        metavar="FILE",
        help="HTML report (default report.html)",
    )
    add(
        "--json",
        type=Path,
        default=None,
        metavar="FILE",
        help="write all numbers as JSON; - writes them to standard output",
    )
    add(
        "--save",
        type=Path,
        default=None,
        metavar="MODEL",
        help="fit the recommended method to all rows and save it, for nearfar predict",
    )
    add(
        "--no-rows",
        dest="show_rows",
        action="store_false",
        help="do not show values of rows or names of sets in the report",
    )
    add(
        "--code",
        action="store_true",
        default=False,
        help="print the Python code that repeats the result (the report contains it, too)",
    )
    add_open(group)
    add_quiet(group, "print only the answer, and warnings")
    add(
        "--exit-code",
        action="store_true",
        default=False,
        help="return the answer as the exit code (see the list below)",
    )
    add("--resume", action="store_true", default=False, help="continue an interrupted comparison")
    add_force(group)


def _sample(text: str) -> int | str | None:
    return text if text == "auto" else None if text == "none" else number(int, 1)(text)


def _compare(options: argparse.Namespace) -> int:
    if options.dry_run:
        return _dry_run(options)
    has_report = find_spec("jinja2") is not None
    if options.out is not None and not has_report:
        raise ImportError("--out needs jinja2. Run: pip install 'nearfar[app]'")
    if options.save is not None:
        from nearfar.extras import import_optional

        import_optional("skops.io", "app")  # before the work, not after
    out, journal = places(options)
    from nearfar.app.compare.journal import unclaim

    try:
        return _run_comparison(options, out, journal, has_report)
    finally:
        unclaim(journal)


def _dry_run(options: argparse.Namespace) -> int:
    from nearfar.app.cli.dry_run import dry_run_lines

    print("\n".join(dry_run_lines(_question(options))))
    return 0


def _question(options: argparse.Namespace, journal: Path | None = None) -> Any:
    # Imported here because it takes a second.
    from nearfar.app.compare.question import Question
    from nearfar.datasets.tables import DataFile

    return Question.of(vars(options), X=DataFile(options.data), journal=journal)


def _run_comparison(options: argparse.Namespace, out: Path, journal: Path, has_report: bool) -> int:
    from nearfar.app.compare.driver import compared
    from nearfar.app.compare.interrupts import Interrupts

    question = _question(options, journal)
    n_before = _n_lines(journal)
    with Interrupts(requests=True) as interrupts:
        result, kind = compared(
            question,
            progress=_progress(options, question.budget),
            began=options.began,
            argv=options.argv,
            interrupts=interrupts,
        )
        result.document["next"] = _next(options, result, kind)
        # Files first: the terminal may have gone. The name of the report was checked before the
        # run, or belongs to the run that is resumed.
        if has_report:
            from nearfar.app.report import write

            write(result.document, out, force=True)
        if options.json is not None and not writes_json(options):
            result.to_json(options.json, force=True)
        if result.complete:
            journal.unlink(missing_ok=True)
        _print_summary(options, result)
        _print_paths(options, out if has_report else None)
        if journal.exists():
            _print_resume(options, result, out, question.budget, _n_lines(journal) <= n_before)
    code = _exit_code(options, result)
    try:
        if options.save is not None and not _save(options, result, kind):
            code = code if code == 130 else 2
    finally:  # also if the fit is interrupted
        _print_answer(options, result)
        _print_next(options, result.document, question.budget)
    if options.open and has_report:
        open_page(out)
    return code


def _exit_code(options: argparse.Namespace, result: Any) -> int:
    if result.document["status"] == "interrupted":
        return 130
    if not options.exit_code:
        return 0
    if not result.complete or result.chain is None:
        return _NOT_FINISHED
    return _VERDICT_CODES[result.document["answer"]["verdict"]]


def _next(options: argparse.Namespace, result: Any, kind: Any) -> list[dict[str, str]]:
    """Return the commands that use the answer."""
    from nearfar.app.cli.again import next_steps

    if result.chain is None or _why_not_savable(result.chain):
        return []
    chosen = result.chain.chosen
    return next_steps(options, result.document, chosen, kind.command, kind.table.noun)


def _why_not_savable(chain: Any) -> str:
    """Return why a model file cannot hold a pipeline, or an empty text if it can."""
    from nearfar.app.cli.models import check_kept

    try:
        check_kept(chain.pipeline(), chain.chosen.method.label)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


def _save(options: argparse.Namespace, result: Any, kind: Any) -> bool:
    """Fit the recommended method to all rows and save it. Return False if there is none."""
    from nearfar.app.cli.models import save_chain

    document = result.document
    why = "no fold was finished" if result.chain is None else _why_not_savable(result.chain)
    if document["status"] == "interrupted":
        why = "the comparison was interrupted"
    if why:
        print_warning(f"no model was saved: {why}.")
        return False
    chosen = result.chain.chosen
    notes = [chosen.words()] if chosen.words() else []
    notes += ["the baseline"] * (chosen.method.role == "baseline")
    notes += ["the result is inconclusive"] * (_VERDICT_CODES[document["answer"]["verdict"]] == 11)
    setting = f" ({', '.join(notes)})" if notes else ""
    n_rows, noun = len(kind.training()[0]), kind.table.noun
    print_message(options, f"Fitting {chosen.method.label}{setting} to all {n_rows:,} {noun}s.")
    save_chain(options, kind, chosen)
    return True


# What is printed: the table, paths, the answer, and the next commands


def _print_summary(options: argparse.Namespace, result: Any) -> None:
    """Print the table, or the JSON document in its place."""
    if writes_json(options):
        print(json.dumps(result.document, indent=1, allow_nan=False))
    if options.quiet or writes_json(options):
        return
    if _is_fancy():
        from nearfar.app.live import show

        show(result)
    else:  # the data, the warnings and the plan were printed before the run
        print("\n" + result.summary_text(data=False))
    if options.code and result.code:
        print("\nPython code that repeats the result:\n")
        print("\n".join(f"    {line}" if line else "" for line in result.code.splitlines()))


def _print_paths(options: argparse.Namespace, out: Path | None) -> None:
    if out is None:
        print_outcome(options, "\nFor the HTML report: pip install 'nearfar[app]'")
    else:
        print_outcome(options, f"\nReport: {out}")
    if options.json is not None and not writes_json(options):
        print_outcome(options, f"Numbers: {options.json}")


def _print_resume(
    options: argparse.Namespace, result: Any, out: Path, budget: float | None, no_progress: bool
) -> None:
    """Print the command that continues the run."""
    # If a method did not finish a single fold, it needs a larger budget.
    stuck = no_progress or any(
        method["status"] == "unfinished" and not method["folds_done"]
        for method in result.document["methods"]
    )
    short = result.document["status"] == "time budget reached" and stuck
    command = resume_command(options, out, budget if short else None)
    if options.quiet:
        print_warning(f"the comparison is not finished. To resume: {command}")
    else:
        print_outcome(options, f"To resume: {command}")


def _print_answer(options: argparse.Namespace, result: Any) -> None:
    """Print the answer, in color on a terminal."""
    print_outcome(options, "")
    if writes_json(options):
        print_outcome(options, result.answer)
    elif _is_fancy():
        from nearfar.app.live import show_answer

        show_answer(result)
    else:
        print(result.answer)


def _is_fancy() -> bool:
    """Return whether standard output is a terminal that shows colors."""
    return is_terminal(sys.stdout) and find_spec("rich") is not None


def _print_next(
    options: argparse.Namespace, document: dict[str, Any], budget: float | None
) -> None:
    """Print at most three commands, each below a line of explanation."""
    from nearfar.app.cli.again import same_again

    steps = [(step["text"], step["command"]) for step in document["next"]]
    if budget is not None:
        again = shlex.join(same_again(options, document))
        steps.append(("Repeat the same folds and settings without a time limit", again))
    if not steps or options.quiet or writes_json(options):
        return
    print("\nNext:")
    for text, command in steps:
        print(f"  {text}:\n    {command}")


def _n_lines(journal: Path) -> int:
    """Return the number of lines of a journal, at least 1 for its first line."""
    try:
        return max(1, journal.read_bytes().count(b"\n"))
    except OSError:
        return 1


def _progress(options: argparse.Namespace, budget: float | None) -> Any:
    from nearfar.app.progress import PlainProgress, QuietProgress

    if options.quiet:
        return QuietProgress(budget=budget)
    if is_terminal(sys.stderr) and find_spec("rich") is not None:
        from nearfar.app.live import LiveProgress

        return LiveProgress(budget)
    return PlainProgress(budget=budget)


def places(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the paths of the report and the journal.

    Raises before the run if a file would be overwritten or cannot be written. Claims the journal,
    so that another run in this folder chooses another name.
    """
    from nearfar.app.compare.journal import claim, unclaim

    replaced = options.force or options.resume
    for option in ("json", "save"):
        path = getattr(options, option)
        if path is not None and str(path) != "-":
            check_place(path, f"--{option}", replaced)
    if options.out is None:
        out = _resumable() if options.resume else Path("report.html")
    else:
        out = options.out
        if out.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"--out {out}: the report is HTML, so its name must end with .html.")
        check_place(out, "--out", replaced)
    number = 1
    while True:
        journal = out.with_suffix(".journal")
        refuse_shared_names(options, ("json", "save"), report=out, journal=journal)
        if options.resume:
            if not journal.exists():
                raise ValueError(f"--resume: nothing to resume, {journal} does not exist.")
            return out, journal
        try:
            claimed = claim(journal, anew=options.force)
        except OSError as error:
            raise ValueError(cannot_write(out, "--out", error)) from error
        # Checked after the claim, because a run that was ending may have written the report.
        if claimed and (options.force or not out.exists()):
            return out, journal
        if claimed:
            unclaim(journal)
        elif options.force:
            raise ValueError(f"{journal} belongs to a comparison that is still running.")
        elif options.out is not None:
            raise ValueError(
                f"{journal} belongs to a comparison that is unfinished or still running. Add "
                "--resume to continue it, or --force to start again."
            )
        number += 1
        out = Path(f"report-{number}.html")


def _resumable() -> Path:
    """Return the report of the newest journal that no other run uses."""
    from nearfar.app.compare.journal import in_use

    found = [path for path in Path().glob("report*.journal") if not in_use(path)]
    if not found:
        raise ValueError("--resume: nothing to resume, this folder has no report*.journal.")
    return max(found, key=lambda path: path.stat().st_mtime).with_suffix(".html")


def resume_command(options: argparse.Namespace, out: Path, budget: float | None) -> str:
    """Return the command that continues the run, with a larger time budget if one is passed."""
    from nearfar.app.cli.again import without

    gone = ["--resume", "--force"] + ["--time-budget"] * (budget is not None)
    kept = without(options.parser, options.argv, gone)
    if options.out is None:
        kept += ["--out", str(out)]
    if budget is not None:
        kept += ["--time-budget", f"{max(60, 4 * budget):g}"]
    return shlex.join([*kept, "--resume"])
