"""Results on disk as they come, so that an interrupted comparison can go on."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import os
import secrets
import zlib
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any

import joblib

from nearfar.app.compare.methods import Method
from nearfar.app.compare.plan import Plan
from nearfar.app.compare.splits import INNER_SPLITS
from nearfar.words import join_names

_FORMAT = 2


class Journal:
    """A file of JSON lines: first what was compared, then a line for each finished fold.

    Each line carries a checksum; one that was damaged, or has another form, costs that fold only.
    While a comparison runs it holds the file, so that no other writes into it. A new first line is
    written to a file beside, which then takes the place of the old one: at no moment is there less
    on the disk than was known.

    Parameters
    ----------
    path : Path
        The file. An empty one is as good as none: its name was claimed, no more.
    fingerprint : str
        Of data and settings: a journal of others is refused.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        #: What was to be run; None of a new journal.
        self.plan: Plan | None = None
        self.results: dict[str, dict[int, dict[str, Any]]] = {}
        #: What must be said of it.
        self.notes: list[str] = []
        self._file: IO[bytes] | None = None
        self._written: dict[str, Any] | None = None

    def read(self, methods: Collection[str] | None = None) -> Journal:
        """Take in what was done before; results of other than these methods are left out."""
        file = self._hold()
        if _held_anew(self.path):
            return self  # what is there will be replaced
        file.seek(0)
        lines = file.read().splitlines()
        try:
            if lines:
                self._read_header(lines[0])
        except ValueError:
            self.close()
            raise
        damaged = strange = 0
        unknown: set[str] = set()
        for line in lines[1:]:
            record = _record(line)
            if record is None:
                damaged += 1
            elif not _is_result(record):
                strange += 1
            elif methods is not None and record[0] not in methods:
                unknown.add(record[0])
            else:
                method, result = record
                self.results.setdefault(method, {})[result["fold"]] = result
        name = self.path.name
        if damaged:
            self.notes.append(
                f"{name}: damaged lines left out: {damaged}; what they held is run again."
            )
        if strange:
            self.notes.append(
                f"{name}: lines of another form left out: {strange}; what they held is run again."
            )
        if unknown:
            self.notes.append(
                f"{name}: results of methods that are not compared were left out: "
                f"{join_names(sorted(unknown))}."
            )
        return self

    def _read_header(self, line: bytes) -> None:
        try:
            header = json.loads(line)
            format_, fingerprint = header["nearfar_journal"], header["fingerprint"]
            given = header.get("plan") if format_ == _FORMAT else None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{self.path} is not a journal of nearfar compare, or its first line is damaged. "
                "Start anew with another name, or with --force."
            ) from error
        if format_ != _FORMAT:
            raise ValueError(f"{self.path} was written by another version of nearfar.")
        if fingerprint != self.fingerprint:
            raise ValueError(
                f"{self.path} is of another comparison: the data, the methods or the settings "
                "differ. Start anew with another --out, or with --force."
            )
        self.plan = self._read_plan(given)

    def _read_plan(self, given: Any) -> Plan:
        try:
            plan = Plan(**dict(given) | {"left_out": tuple(given["left_out"])})
            sound = (
                plan.tuning in INNER_SPLITS
                and type(plan.repeats) is int
                and plan.repeats > 0
                and (plan.rows is None or type(plan.rows) is int)
                and all(isinstance(name, str) for name in plan.left_out)
            )
        except (TypeError, KeyError, ValueError):
            sound = False
        if not sound:
            raise ValueError(f"{self.path} holds a plan that cannot be read: {str(given)[:80]}.")
        return plan

    def agree(self, given: dict[str, Any]) -> None:
        """Refuse what the user asks for now if the results so far were made by something else."""
        for name, wanted in given.items():
            had = getattr(self.plan, name)
            if wanted not in (None, had):
                raise ValueError(
                    f"{self.path} holds results with the {name} {had!r}; they cannot go on with "
                    f"{wanted!r}. Leave that out, or start anew with another name."
                )

    def begin(self, plan: Plan) -> None:
        """Write the plan and what is known already; a plan that grew may be written again."""
        kept = plan.kept()
        if kept == self._written:
            return
        header = {"nearfar_journal": _FORMAT, "fingerprint": self.fingerprint, "plan": kept}
        known = [
            _line(method, result)
            for method, results in self.results.items()
            for result in results.values()
        ]
        old = self._hold()
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.tmp")
        try:
            file = open(beside, "x+b")  # noqa: SIM115  held until the end
            try:
                file.write(b"".join([json.dumps(header).encode() + b"\n", *known]))
                file.flush()
                os.fsync(file.fileno())
                _lock(file)  # nobody else knows its name
                _take_place(old, file, beside, self.path)
            except BaseException:
                file.close()
                raise
        finally:
            beside.unlink(missing_ok=True)
        self._file = _reopened(file, self.path)
        self.plan, self._written = plan, kept

    def add(self, method: str, result: dict[str, Any]) -> None:
        """Write one finished fold."""
        self.results.setdefault(method, {})[result["fold"]] = result
        file = self._hold()
        file.seek(0, os.SEEK_END)
        file.write(_line(method, result))
        file.flush()

    def close(self) -> None:
        """Let go of the file; of an empty one nothing is left."""
        if self._file is not None:
            file, self._file = self._file, None
            _claims.pop(os.path.realpath(self.path), None)
            _let_go(file, self.path)

    def _hold(self) -> IO[bytes]:
        if self._file is None:
            file = _take_over(self.path) or _held(self.path, "a+b")
            if file is None:
                raise ValueError(
                    f"{self.path} belongs to a comparison that is still running. Wait for it, or "
                    "choose another name."
                )
            self._file = file
        return self._file


# Who a journal belongs to


@dataclass
class _Claim:
    file: IO[bytes] | None
    #: Whether what is there is to be replaced.
    anew: bool


#: Names that this process holds for a comparison that has not begun.
_claims: dict[str, _Claim] = {}


def claim(path: Path, *, anew: bool = False) -> bool:
    """Take a name for a journal, and hold it; False if it is taken.

    Parameters
    ----------
    path : Path
        The file.
    anew : bool
        Take it also if there is a journal that nobody holds. It stays as it is until the new
        comparison has a first line to put in its place.
    """
    key = os.path.realpath(path)
    if key in _claims:
        return False
    try:
        file = _held(path, "a+b" if anew else "x+b")
    except FileExistsError:
        return False
    if file is None:
        return False
    _claims[key] = _Claim(file, anew)
    return True


def unclaim(path: Path) -> None:
    """Give a name back; nothing is left of a file to which nothing was written."""
    found = _claims.pop(os.path.realpath(path), None)
    if found is not None and found.file is not None:
        _let_go(found.file, path)
        return
    with suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def in_use(path: Path) -> bool:
    """Whether a comparison that is still running holds the journal."""
    try:
        with open(path, "rb") as file:
            return not _lock(file)
    except OSError:
        return False


def _take_over(path: Path) -> IO[bytes] | None:
    """The file that was claimed for a comparison which now begins."""
    found = _claims.get(os.path.realpath(path))
    if found is None:
        return None
    file, found.file = found.file, None
    return file


def _held_anew(path: Path) -> bool:
    found = _claims.get(os.path.realpath(path))
    return found is not None and found.anew


def _held(path: Path, mode: str) -> IO[bytes] | None:
    """The file, opened and held; None if another holds it."""
    while True:
        file: IO[bytes] = open(path, mode)  # noqa: SIM115  held until the end
        if not _lock(file):
            file.close()
            return None
        if _is_there(file, path):
            return file
        file.close()  # it was replaced or removed before we held it


def _is_there(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False


def _let_go(file: IO[bytes], path: Path) -> None:
    with suppress(OSError, ValueError):
        if os.fstat(file.fileno()).st_size == 0 and _is_there(file, path):
            path.unlink()
    file.close()
    with suppress(OSError):  # where an open file cannot be removed
        if path.stat().st_size == 0:
            path.unlink()


def _take_place(old: IO[bytes], new: IO[bytes], beside: Path, path: Path) -> None:
    """Put the new file where the old one is, and let go of that."""
    try:
        os.replace(beside, path)
    except PermissionError:  # Windows: not while either is open
        new.close()
        old.close()
        os.replace(beside, path)
    old.close()


def _reopened(file: IO[bytes], path: Path) -> IO[bytes]:
    return open(path, "a+b") if file.closed else file


def _lock(file: IO[bytes]) -> bool:
    """Hold a file as long as it is open; False if another does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def _line(method: str, result: dict[str, Any]) -> bytes:
    body = json.dumps([method, result])
    return json.dumps({"check": _check(body), "fold": [method, result]}).encode() + b"\n"


def _check(body: str) -> int:
    return zlib.crc32(body.encode())


def _record(line: bytes) -> tuple[Any, Any] | None:
    """Method and result, or None if the line is not as it was written."""
    try:
        record = json.loads(line)
        # Numbers come back exactly, so a sound line gives the same text again.
        if record["check"] != _check(json.dumps(record["fold"])):
            return None
        method, result = record["fold"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return method, result


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_real(value) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_list_of(kind: Any) -> Any:
    return lambda value: isinstance(value, list) and all(kind(one) for one in value)


#: What every result holds, and of what form.
_NEEDED: dict[str, Any] = {
    "fold": _is_whole,
    "error": _is_number,
    "setting": lambda value: isinstance(value, str),
    "fit_seconds": _is_number,
    "predict_seconds": _is_number,
    "tune_seconds": _is_number,
    "warnings": _is_list_of(lambda value: isinstance(value, str)),
    "peak_mb": lambda value: value is None or _is_number(value),
}
#: What some hold.
_KNOWN: dict[str, Any] = {
    "inner_error": lambda value: value is None or _is_number(value),
    "k": lambda value: value is None or _is_whole(value),
    "search_seconds": lambda value: value is None or _is_number(value),
    "weights": lambda value: value is None or _is_list_of(_is_real)(value),
    "predicted": _is_list_of(_is_number),  # codes, or numbers where the target is one
    "neighbors": _is_list_of(_is_list_of(_is_whole)),
    "distances": _is_list_of(_is_real),
    "threshold": _is_real,
    "by_neighbors": lambda value: (
        isinstance(value, dict) and all(_is_real(one) for one in value.values())
    ),
    "map": lambda value: value is None or isinstance(value, dict),
    "tensors": lambda value: value is None or isinstance(value, dict),
    "local": lambda value: value is None or isinstance(value, dict),
    "kernels": lambda value: value is None or isinstance(value, dict),
    "spectrum": lambda value: value is None or _is_list_of(_is_real)(value),
}


def _is_result(record: tuple[Any, Any]) -> bool:
    """Whether a sound line holds the result of a fold."""
    method, result = record
    return (
        isinstance(method, str)
        and isinstance(result, dict)
        and all(key in result and fits(result[key]) for key, fits in _NEEDED.items())
        and all(fits(result[key]) for key, fits in _KNOWN.items() if key in result)
    )


# What tells one comparison from another


def identity(method: Method) -> str:
    """A method with all its settings: their parameters and the code of their classes."""
    parts = [
        (one.label, *(traits(part) for part in (one.scale, one.estimator, one.after)))
        for one in method.settings
    ]
    return f"{method.name}: {parts}"


def traits(thing: Any) -> str:
    """An estimator, scorer or plain value in a text that is the same in the next process.

    Parameters are told apart by value, arrays included, and classes and functions by their code: a
    learner that was mended is not the one that gave the results before.
    """
    digest = hashlib.sha256()
    for part in _parts(thing, set()):
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return f"{type(thing).__name__} {digest.hexdigest()[:16]}"


def _parts(thing: Any, seen: set[int]) -> Iterator[str]:
    if id(thing) in seen:
        return
    if isinstance(thing, FunctionType):
        seen.add(id(thing))
        yield from _code(thing.__code__)
        for value in (thing.__defaults__, thing.__kwdefaults__):
            yield from _parts(value, seen)
        for cell in thing.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                yield from _parts(cell.cell_contents, seen)
    elif isinstance(thing, type):
        seen.add(id(thing))
        for base in thing.__mro__[:-1]:
            yield f"{base.__module__}.{base.__qualname__}"
            for name, member in sorted(vars(base).items()):
                member = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(member, FunctionType) and member.__module__ == base.__module__:
                    yield name
                    # scikit-learn wraps transform in a function of its own.
                    yield from _code(inspect.unwrap(member).__code__)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield repr(key)
            yield from _parts(value, seen)
    elif isinstance(thing, list | tuple):
        yield f"{len(thing)}"
        for value in thing:
            yield from _parts(value, seen)
    elif hasattr(thing, "get_params"):
        yield from _parts(type(thing), set())
        yield from _parts(thing.get_params(deep=False), seen)
    elif callable(thing) and hasattr(thing, "__dict__"):  # a scorer
        yield from _parts(type(thing), set())
        yield from _parts(vars(thing), seen | {id(thing)})
    else:
        yield _by_value(thing)


def _by_value(thing: Any) -> str:
    try:
        return str(joblib.hash(thing))
    except Exception:  # what cannot be pickled
        return type(thing).__qualname__


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        elif not isinstance(constant, frozenset):  # their order changes
            yield repr(constant)
        else:
            yield repr(sorted(map(repr, constant)))
