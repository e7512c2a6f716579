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
from pathlib import Path
from typing import Any

from nearfar.app.compare.folds import Work
from nearfar.app.compare.methods import Method
from nearfar.app.compare.worker import RUNNING, dumps, peak_bytes, reason, receive, send

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
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / "problem.pickle"
        path.write_bytes(dumps(problem))
        folder = str(self._folder)
        self._paths = {"sys_path": sys.path, "folder": folder, "problem": str(path)}
        self._events: queue.Queue[Event] = queue.Queue()
        self._processes: dict[str, _Spawned | _Forked] = {}
        self._bases: dict[str, int | None] = {}
        self._template: _Template | None = None
        self._n_started = 0
        #: How many tasks each method was given: only the answer to the last one counts.
        self._numbers: Counter[str] = Counter()

    def start(self, method: Method) -> None:
        """Start the process of a method; its first event is "ready" or "failed"."""
        log = self._folder / f"{self._n_started}.log"
        self._n_started += 1
        try:
            process = self._process(log)
            self._processes[method.name] = process
            send(process.stdin, method)
        except BrokenPipeError:
            pass  # it died: its end is an event
        except Exception as error:  # what cannot be pickled, for one
            self._events.put((method.name, {"kind": "failed", "reason": reason(error)}))
            return
        threading.Thread(target=self._listen, args=(method.name, process, log), daemon=True).start()

    def _process(self, log: Path) -> _Spawned | _Forked:
        if not _FORKS:
            return _Spawned(self._paths, log)
        if self._template is None:
            self._template = _Template(self._paths, self._folder / "template.log")
        return self._template.fork(log)

    def give(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        """Hand a task to the process of a method."""
        self._numbers[name] += 1
        task = {"kind": kind, "number": self._numbers[name], "arguments": arguments}
        with suppress(BrokenPipeError):  # it died: its end is an event
            send(self._processes[name].stdin, task)

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
        peak, base = peak_bytes(process.pid), self._bases.get(name)
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
            try:
                event = receive(process.stdout)
            except (EOFError, OSError, ValueError):  # the pipe is closed
                # It is ending, and how must be known before we end it; or it let go of the pipe.
                code = process.wait(_LAST_WORDS)
                _kill(process)
                why = "its process closed the connection" if code is None else _death(code, log)
                self._events.put((name, {"kind": "died", "reason": why}))
                process.wait(_LAST_WORDS)
                return
            except Exception as error:
                why = f"its answer cannot be read: {reason(error)}"
                self._events.put((name, {"kind": "died", "reason": why}))
                _kill(process)
                process.wait(_LAST_WORDS)
                return
            if event["kind"] == "ready":
                self._bases[name] = event["base"]
            if event.get("number") in (None, self._numbers[name]):
                self._events.put((name, event))


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
            value = work(self._methods[name], **arguments)
            event: dict[str, Any] = {"kind": "done", "value": value, "peak": None}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: a method does not end a comparison
            event = {"kind": "failed", "reason": reason(error), "peak": None}
        self._events.append((name, event))

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


class _Template:
    """A process that has imported everything, to be forked."""

    def __init__(self, paths: dict[str, Any], log: Path) -> None:
        self._control, theirs = socket.socketpair()
        with theirs, open(log, "wb") as file:
            number = theirs.fileno()
            self._process = _popen(
                [str(number)],
                stdin=subprocess.DEVNULL,  # a learner that asks for input gets none
                stdout=file,
                stderr=file,
                pass_fds=(number,),
            )
        self._lock = threading.Lock()
        try:
            with self._control.makefile("wb") as outward, self._control.makefile("rb") as inward:
                send(outward, paths)
                receive(inward)
        except (EOFError, OSError) as error:
            raise RuntimeError(_death(self._process.wait(), log)) from error

    def fork(self, log: Path) -> _Forked:
        """A new process."""
        ours, theirs = socket.socketpair()
        with theirs, open(log, "wb") as file:
            return _Forked(self._ask(b"fork", [theirs.fileno(), file.fileno()]), ours, self)

    def exit_status(self, pid: int) -> int:
        """How a process ended, or RUNNING."""
        return self._ask(pid.to_bytes(8, "little"), [])

    def _ask(self, data: bytes, fds: list[int]) -> int:
        with self._lock:
            socket.send_fds(self._control, [data], fds)
            answer = self._control.recv(8, socket.MSG_WAITALL)
        if len(answer) < 8:
            raise RuntimeError("the process that starts the workers has died")
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
            return None  # the template was closed: everything was told to end
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


def _death(code: int, log: Path) -> str:
    """Why a process ended that was not told to."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = "; out of memory?" if name == "SIGKILL" else ""
        text = f"its process was ended by {name}{hint}"
    else:
        text = f"its process ended with exit code {code}"
    try:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
    except OSError:
        last = []
    return f"{text} ({last[0][:200]})" if last else text
