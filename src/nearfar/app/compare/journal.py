"""Results on disk as they come, so that an interrupted comparison can go on."""

from __future__ import annotations

import hashlib
import inspect
import json
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any

import joblib

from nearfar.app.compare.methods import Method
from nearfar.app.compare.plan import Plan
from nearfar.app.compare.splits import INNER_SPLITS

_FORMAT = 2


class Journal:
    """A file of JSON lines: first what was compared, then a line for each finished fold.

    Each line carries a checksum; one that was damaged costs that fold only. While a comparison
    runs it holds the file, so that no other writes into it.

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
        self._begun = False

    def read(self) -> Journal:
        """Take in what was done before."""
        file = self._hold()
        file.seek(0)
        lines = file.read().splitlines()
        try:
            if lines:
                self._read_header(lines[0])
        except ValueError:
            self.close()
            raise
        damaged = 0
        for line in lines[1:]:
            record = _record(line)
            if record is None:
                damaged += 1
            else:
                method, result = record
                self.results.setdefault(method, {})[result["fold"]] = result
        if damaged:
            self.notes.append(
                f"{self.path.name}: damaged lines left out: {damaged}; what they held is run again."
            )
        return self

    def _read_header(self, line: bytes) -> None:
        try:
            header = json.loads(line)
            format_, fingerprint = header["nearfar_journal"], header["fingerprint"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
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
        self.plan = self._read_plan(header.get("plan"))

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
        """Write the header and what is known already."""
        if self._begun:
            return
        self._begun = True
        header = {
            "nearfar_journal": _FORMAT,
            "fingerprint": self.fingerprint,
            "plan": plan.kept(),
        }
        known = [
            _line(method, result)
            for method, results in self.results.items()
            for result in results.values()
        ]
        file = self._hold()
        file.truncate(0)
        file.write(b"".join([json.dumps(header).encode() + b"\n", *known]))
        file.flush()

    def add(self, method: str, result: dict[str, Any]) -> None:
        """Write one finished fold."""
        file = self._hold()
        file.write(_line(method, result))
        file.flush()

    def close(self) -> None:
        """Let go of the file; of an empty one nothing is left."""
        if self._file is not None:
            self._file.close()
            self._file = None
            unclaim(self.path)

    def _hold(self) -> IO[bytes]:
        if self._file is None:
            file = open(self.path, "a+b")  # noqa: SIM115  held until the end
            if not _lock(file):
                file.close()
                raise ValueError(
                    f"{self.path} belongs to a comparison that is still running. Wait for it, or "
                    "choose another name."
                )
            self._file = file
        return self._file


def claim(path: Path) -> bool:
    """Take a name for a journal; False if it is taken."""
    try:
        with open(path, "xb"):
            return True
    except FileExistsError:
        return False


def unclaim(path: Path) -> None:
    """Give a name back to which nothing was written."""
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


def _record(line: bytes) -> tuple[str, dict[str, Any]] | None:
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


# What tells one comparison from another


def identity(method: Method) -> str:
    """A method with all its settings: their parameters and the code of their classes."""
    parts = [(one.label, traits(one.scale), traits(one.estimator)) for one in method.settings]
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
