"""Worker processes, one a method: started afresh, with one BLAS thread, killed at the deadline."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import Counter, deque
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from threadpoolctl import ThreadpoolController

from nearfar.app.compare.folds import Work
from nearfar.app.compare.handing import Parcel, pack
from nearfar.app.compare.methods import Method
from nearfar.app.compare.pair_shelf import CORES
from nearfar.app.compare.worker import (
    RUNNING,
    GarbledError,
    dumps,
    own_peak,
    reason,
    receive,
    send,
)

_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "NUMEXPR_NUM_THREADS",
    ),
    "1",
)
# Elsewhere a fork is unsafe once numerical libraries are loaded, or unknown.
_FORKS = sys.platform == "linux"
# Seconds for a process that can no longer be heard to end by itself, so that its end is known.
_LAST_WORDS = 5.0
# Seconds that an answer may take from its first byte to its last.
_WHOLE_ANSWER = 120.0
# How often the process that starts the workers may be lost.
_MOST_TEMPLATES = 3
_NO_TEMPLATE = "the process that starts the workers was killed"
Event = tuple[str, dict[str, Any]]


class ProcessPool:
    """A process for each method; events come in the order they happen.

    Not multiprocessing: its spawned children run the user's script again unless that is guarded,
    cannot load classes defined in a notebook, and read the number of BLAS threads too late. On
    Linux the processes are forked from a fresh one that has imported everything and done nothing,
    which saves more than a second and 150 MB for each method.
    """

    def __init__(self, problem: Work) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nearfar-"))
        folder = str(self._folder)
        try:
            self._parcel = pack(problem, None if _FORKS else self._folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._remove = weakref.finalize(self, _tidy, folder, self._parcel)
        path = self._folder / "problem.pickle"
        path.write_bytes(dumps(self._parcel))
        self._paths = {
            "sys_path": sys.path,
            "folder": folder,
            "problem": str(path),
            "inodes": self._parcel.inodes,
        }
        self._events: queue.Queue[Event] = queue.Queue()
        self._processes: dict[str, _Spawned | _Forked] = {}
        self._bases: dict[str, int | None] = {}
        self._template: _Template | None = None
        self._n_templates = self._n_started = self._cores_each = 0
        #: How many tasks each method was given: only the answer to the last one counts.
        self._numbers: Counter[str] = Counter()

    def start(self, method: Method) -> None:
        """Start the process of a method; its first event is "ready", "failed" or "died"."""
        log = self._folder / f"{self._n_started}.log"
        self._n_started += 1
        name = method.name
        try:
            process = self._process(log)
        except _TemplateDiedError as error:
            self._events.put((name, {"kind": "died", "reason": str(error)}))
            return
        except Exception as error:
            self._events.put((name, {"kind": "failed", "reason": reason(error)}))
            return
        self._processes[name] = process
        try:
            send(process.stdin, method)
        except OSError:
            pass  # it died: its end is an event
        except Exception as error:  # what cannot be pickled
            self._events.put((name, {"kind": "failed", "reason": reason(error)}))
            return
        threading.Thread(target=self._listen, args=(name, process, log), daemon=True).start()

    def _process(self, log: Path) -> _Spawned | _Forked:
        """A new process; where the template was killed, from a new one."""
        if not _FORKS:
            return _Spawned(self._paths, log)
        while True:
            try:
                if self._template is None:
                    if self._n_templates >= _MOST_TEMPLATES:
                        raise _TemplateDiedError(_NO_TEMPLATE)
                    self._n_templates += 1
                    number = self._parcel.file
                    self._template = _Template(
                        self._paths,
                        self._folder / "template.log",
                        [number] if isinstance(number, int) else [],
                    )
                return self._template.fork(log)
            except _TemplateDiedError:
                if self._template is not None:
                    self._template.close()
                    self._template = None
                if self._n_templates >= _MOST_TEMPLATES:
                    raise

    def give(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        """Hand a task to the process of a method."""
        self._numbers[name] += 1
        task = {"kind": kind, "number": self._numbers[name], "arguments": arguments}
        # It died, or its streams are closed already: its end is an event.
        with suppress(OSError, ValueError):
            send(self._processes[name].stdin, task)

    def share_cores(self, each: int) -> None:
        """Say how many cores each process has now for what methods share; it reads that there."""
        if each != self._cores_each:
            self._cores_each = each
            with suppress(OSError):  # then it is one
                (self._folder / CORES).write_bytes(bytes([min(max(each, 1), 255)]))

    def next_event(self, timeout: float | None) -> Event | None:
        """The next event, or None when none came in time."""
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def stop(self, name: str) -> float | None:
        """Kill the process of a method; MB it had used at most, if known."""
        process = self._processes.pop(name, None)
        if process is None:
            return None
        peak, base = own_peak(self._parcel.inodes, process.pid), self._bases.get(name)
        _kill(process)
        return None if peak is None or base is None else max(0, peak - base) / 2**20

    def close(self) -> None:
        """Kill what is left."""
        for name in list(self._processes):
            self.stop(name)
        if self._template is not None:
            self._template.close()
        self._remove()

    def _listen(self, name: str, process: _Spawned | _Forked, log: Path) -> None:
        while True:
            deadline = _Deadline(process)
            try:
                event = receive(process.stdout, deadline.start)
            except (EOFError, OSError, ValueError):  # the pipe is closed
                self._events.put((name, {"kind": "died"} | self._end(process, log, deadline)))
                return
            except Exception as error:
                why = f"its answer cannot be read: {reason(error)}"
                if isinstance(error, GarbledError):
                    why = f"its answer cannot be read: {error}"
                self._events.put((name, {"kind": "died", "reason": why}))
                _kill(process)
                process.wait(_LAST_WORDS)
                return
            finally:
                deadline.cancel()
            if event["kind"] == "ready":
                self._bases[name] = event["base"]
            if event.get("number") in (None, self._numbers[name]):
                self._events.put((name, event))

    def _end(self, process: _Spawned | _Forked, log: Path, deadline: _Deadline) -> dict[str, Any]:
        """Why a process can no longer be heard, and whether that is no fault of its own."""
        if deadline.passed:
            process.wait(_LAST_WORDS)
            return {"reason": "its answer stopped in the middle"}
        # It is ending, and how must be known before we end it; or it let go of the pipe.
        code = process.wait(_LAST_WORDS)
        _kill(process)
        if code is None and process.orphaned:
            return {"reason": _NO_TEMPLATE, "orphan": True}
        process.wait(_LAST_WORDS)
        if code is None:
            return {"reason": "its process closed the connection"}
        return {"reason": _death(code, log), "ended_itself": code >= 0}


class _Deadline:
    """Ends a process whose answer has begun and does not come to its end."""

    def __init__(self, process: _Spawned | _Forked) -> None:
        self._process, self.passed = process, False
        self._timer = threading.Timer(_WHOLE_ANSWER, self._pass)
        self._timer.daemon = True
        self.start, self.cancel = self._timer.start, self._timer.cancel

    def _pass(self) -> None:
        self.passed = True
        _kill(self._process)


def _tidy(folder: str, parcel: Parcel) -> None:
    parcel.close()
    shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=1)
def _numerical_libraries(n_modules: int) -> ThreadpoolController:
    """Found once, not for each task; anew when a module was imported, which may bring another."""
    return ThreadpoolController()


class LocalPool:
    """The same in this process, one task after the other: nothing can be killed."""

    def __init__(self, problem: Work) -> None:
        self._problem = problem
        self._methods: dict[str, Method] = {}
        self._events: deque[Event] = deque()

    def start(self, method: Method) -> None:
        """Note the method."""
        self._methods[method.name] = method
        self._events.append((method.name, {"kind": "ready"}))

    def give(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        """Do the task now."""
        work = self._problem.pilot if kind == "pilot" else self._problem.run_fold
        try:
            with _numerical_libraries(len(sys.modules)).limit(limits=1):  # as in a worker
                value = work(self._methods[name], **arguments)
            event: dict[str, Any] = {"kind": "done", "value": value, "peak": None}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a method does not end a comparison
            event = {"kind": "failed", "reason": reason(error), "peak": None}
        self._events.append((name, event))

    def share_cores(self, each: int) -> None:
        """Nothing to do: what is shared here knows its threads."""

    def next_event(self, timeout: float | None) -> Event | None:
        """The next event, if there is one."""
        return self._events.popleft() if self._events else None

    def stop(self, name: str) -> float | None:
        """Forget the method."""
        self._methods.pop(name, None)
        return None

    def close(self) -> None:
        """Nothing to do."""


class _Spawned:
    """A process started from nothing."""

    orphaned = False

    def __init__(self, paths: dict[str, Any], log: Path) -> None:
        with open(log, "wb") as file:
            self._process = _popen([], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
        assert self._process.stdin is not None and self._process.stdout is not None
        self.stdin, self.stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid
        send(self.stdin, paths)

    def hang_up(self) -> None:
        """Nothing to do: killed, it closes its ends of the pipes."""

    def wait(self, seconds: float) -> int | None:
        """Its exit code, or None if it has not ended by then."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class _TemplateDiedError(RuntimeError):
    """The process that starts the workers was killed."""


class _Template:
    """A process that has imported everything, to be forked."""

    def __init__(self, paths: dict[str, Any], log: Path, files: list[int]) -> None:
        self._control, theirs = socket.socketpair()
        with theirs, open(log, "wb") as file:
            number = theirs.fileno()
            self._process = _popen(
                [str(number)],
                stdin=subprocess.DEVNULL,  # a learner that asks for input gets none
                stdout=file,
                stderr=file,
                pass_fds=(number, *files),
            )
        self._lock = threading.Lock()
        try:
            with self._control.makefile("wb") as outward, self._control.makefile("rb") as inward:
                send(outward, paths)
                receive(inward)
        except (EOFError, OSError) as error:
            self._control.close()
            code = self._process.wait()
            kind = _TemplateDiedError if code < 0 else RuntimeError
            raise kind(_death(code, log, "the process that starts the workers")) from error

    def fork(self, log: Path) -> _Forked:
        """A new process."""
        ours, theirs = socket.socketpair()
        with theirs, open(log, "wb") as file:
            try:
                pid = self._ask(b"fork", [theirs.fileno(), file.fileno()])
            except (OSError, _TemplateDiedError) as error:
                ours.close()
                if isinstance(error, _TemplateDiedError):
                    raise
                raise _TemplateDiedError(_NO_TEMPLATE) from error
            return _Forked(pid, ours, self)

    def exit_status(self, pid: int) -> int:
        """How a process ended, or RUNNING."""
        return self._ask(pid.to_bytes(8, "little"), [])

    def _ask(self, data: bytes, fds: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._control, [data], fds)
            answer = self._control.recv(8, socket.MSG_WAITALL)
        if len(answer) < 8:
            raise _TemplateDiedError(_NO_TEMPLATE)
        return int.from_bytes(answer, "little")

    def close(self) -> None:
        """End it."""
        self._control.close()
        self._process.kill()
        self._process.wait()


class _Forked:
    """A process forked from the template."""

    def __init__(self, pid: int, channel: socket.socket, template: _Template) -> None:
        self.pid = pid
        self.stdin, self.stdout = channel.makefile("wb"), channel.makefile("rb")
        self._channel = channel
        self._template = template
        self._code: int | None = None
        #: Whether the one that forked it is gone, and so cannot tell how it ended.
        self.orphaned = False

    def hang_up(self) -> None:
        """Wake whoever waits for its answer: a stream cannot be closed while it is read."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def wait(self, seconds: float) -> int | None:
        """Its exit code, a signal negative as subprocess has it; None if it has not ended yet."""
        end = time.monotonic() + seconds
        try:
            while self._code is None:
                status = self._template.exit_status(self.pid)
                if status != RUNNING:
                    self._code = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > end:
                    return None
                else:
                    time.sleep(0.01)
        except (OSError, RuntimeError):
            self.orphaned = True  # the template was killed, or closed: everything is to end
            return None
        return self._code


def _popen(arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        # -P: a random.py in the current folder is none of the worker's business.
        [sys.executable, "-P", "-m", "nearfar.app.compare.worker", *arguments],
        env=os.environ | _ONE_THREAD | {"PYTHONPATH": path},
        start_new_session=True,
        **options,
    )


def _kill(process: _Spawned | _Forked) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if not hasattr(os, "killpg"):
            os.kill(process.pid, signal.SIGTERM)
        else:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it started goes with it
            except ProcessLookupError:  # just forked, it may not have a group of its own yet
                os.kill(process.pid, signal.SIGKILL)
    process.hang_up()
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            stream.close()


def _death(code: int, log: Path, what: str = "its process") -> str:
    """Why a process ended that was not told to."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = "; out of memory?" if name == "SIGKILL" else ""
        text = f"{what} was ended by {name}{hint}"
    else:
        text = f"{what} ended with exit code {code}"
    try:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
    except OSError:
        last = []
    return f"{text} ({last[0][:200]})" if last else text
