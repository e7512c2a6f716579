"""``nearfar compare --dry-run``: how the data are read and what would run."""

from __future__ import annotations

from typing import Any

from nearfar.words import join_names

#: Columns listed by name for each use; the further ones are counted.
_LISTED = 30


def dry_run_lines(question: Any) -> list[str]:
    """Return the columns, warnings, methods and protocol of a comparison that is not run."""
    from nearfar.app.compare.driver import outline

    prepared, schedule, undecided = outline(question)
    kind = prepared.kind
    dropped = set(kind.left_out())
    lines = kind.lines(prepared.data, prepared.warned, prepared.scheme)
    return [
        *(line for line in lines if line not in dropped),
        "",
        "Columns:",
        *_column_lines(kind),
        "",
        "Methods:",
        *_method_lines(prepared.methods, schedule),
        "",
        *_protocol_lines(schedule, undecided),
        "Dry run: nothing was fitted and no file was written.",
    ]


def _column_lines(kind: Any) -> list[str]:
    """Return one line per column: its name and how it is used."""
    table, columns, asked = kind.table, kind.columns, kind.question
    uses = [
        (table.target, "target"),
        (table.id_name, "row ID"),
        (table.groups_name, "groups"),
        (table.time_name, "time"),
        (asked.set_id, "set ID"),
    ]
    found = [(str(name), use) for name, use in uses if name is not None]
    n_numeric = len(columns.numeric)
    found += [
        (str(name), "numeric" if i < n_numeric else "categorical")
        for i, name in enumerate(columns.names)
    ]
    found += [(str(name), f"dropped: {reason}") for name, reason in columns.dropped]
    known = {name for name, _ in found}
    unused = [str(name) for name in (*table.unused, *table.dropped) if str(name) not in known]
    found += [(name, "not used") for name in unused]
    shown: list[tuple[str, str]] = []
    counts: dict[str, int] = {}
    for name, use in found:
        counts[use] = counts.get(use, 0) + 1
        if counts[use] <= _LISTED:
            shown.append((name, use))
    width = min(40, max((len(name) for name, _ in shown), default=0))
    return [
        *(f"  {name:<{width}}  {use}" for name, use in shown),
        *(f"  and {n - _LISTED:,} more  {use}" for use, n in counts.items() if n > _LISTED),
    ]


def _method_lines(methods: Any, schedule: Any) -> list[str]:
    """Return one line per method with its number of settings."""
    tuning = schedule.tuning if schedule.plan is None else schedule.plan.tuning
    up_to = "up to " if tuning is None else ""
    width = max(len(method.label) for method in methods)
    lines = []
    for method in methods:
        n = len(method.tried(tuning or "full"))
        lines.append(f"  {method.label:<{width}}  {up_to * (n > 1)}{n} setting{'s' * (n > 1)}")
    return lines


def _protocol_lines(schedule: Any, undecided: list[str]) -> list[str]:
    """Return the protocol where the options fix it, and what a pilot run decides."""
    if schedule.plan is not None:
        limit = "" if schedule.budget is None else f" It stops after {schedule.budget:g} s."
        return [f"{line}{limit}" for line in schedule.plan.lines[:1]]
    from nearfar.app.compare.schedule import tuning_words

    fixed = schedule.scheme.words.removeprefix("1 × ")
    if schedule.repeats is not None:
        fixed = schedule.scheme_for(schedule.repeats, schedule.sample).words
    if schedule.tuning is not None:
        fixed += f"; {tuning_words(schedule.tuning, schedule.problem.tunes_k)}"
    options = ["--repeats"] * (schedule.repeats is None) + ["--tuning"] * (schedule.tuning is None)
    options += ["--sample"] * any("number of" in one and "repeats" not in one for one in undecided)
    return [
        f"Protocol: {fixed}.",
        f"A pilot run decides {join_names(undecided, quoted=False)}, so that the comparison ends "
        f"within {schedule.budget:g} s. Methods that are too slow for that may be left out. Use "
        f"{join_names(options, quoted=False)} to fix the protocol.",
    ]
