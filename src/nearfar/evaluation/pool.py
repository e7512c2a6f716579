"""Worker processes, one a method: started afresh, with one BLAS thread, killed at the deadline."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from nearfar.evaluation.folds import Problem, pilot, run_fold
from nearfar.evaluation.methods import Method
from nearfar.evaluation.worker import dumps, peak_bytes, reason, receive, send

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
Event = tuple[str, dict[str, Any]]


class ProcessPool:
    """A process for each method; events come in the order they happen.

    Not multiprocessing: its spawned children run the user's script again unless that is guarded,
    cannot load classes defined in a notebook, and read the number of BLAS threads too late.
    """

    def __init__(self, problem: Problem) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nearfar-"))
        self._problem = self._folder / "problem.pickle"
        self._problem.write_bytes(dumps(problem))
        self._events: queue.Queue[Event] = queue.Queue()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._bases: dict[str, int | None] = {}

    def start(self, method: Method) -> None:
        """Start the process of a method; its first event is "ready" or "failed"."""
        log = open(self._folder / f"{len(self._processes)}.log", "wb")  # noqa: SIM115
        process = subprocess.Popen(
            # -P: a random.py in the current folder is none of the worker's business.
            [sys.executable, "-P", "-m", "nearfar.evaluation.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | _ONE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        log.close()
        self._processes[method.name] = process
        threading.Thread(
            target=self._listen, args=(method.name, process, Path(log.name)), daemon=True
        ).start()
        try:
            assert process.stdin is not None
            send(process.stdin, {"sys_path": sys.path, "problem": str(self._problem)})
            send(process.stdin, method)
        except BrokenPipeError:
            pass  # it died: its end is an event
        except Exception as error:
            self._events.put((method.name, {"kind": "failed", "reason": reason(error)}))
            self.stop(method.name)

    def give(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        """Hand a task to the process of a method."""
        stream = self._processes[name].stdin
        assert stream is not None
        with suppress(BrokenPipeError):  # it died: its end is an event
            send(stream, {"kind": kind, "arguments": arguments})

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
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        assert process.stdout is not None
        while True:
            try:
                event = receive(process.stdout)
            except Exception:  # the pipe is closed
                code = process.wait()
                self._events.put((name, {"kind": "died", "reason": _death(code, log)}))
                return
            if event["kind"] == "ready":
                self._bases[name] = event["base"]
            self._events.put((name, event))


class LocalPool:
    """The same in this process, one task after the other: nothing can be killed."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._methods: dict[str, Method] = {}
        self._events: deque[Event] = deque()

    def start(self, method: Method) -> None:
        """Note the method."""
        self._methods[method.name] = method
        self._events.append((method.name, {"kind": "ready"}))

    def give(self, name: str, kind: str, arguments: dict[str, Any]) -> None:
        """Do the task now."""
        work = pilot if kind == "pilot" else run_fold
        try:
            value = work(self._problem, self._methods[name], **arguments)
            event: dict[str, Any] = {"kind": "done", "value": value, "peak": None}
        except Exception as error:
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


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        # A session of its own: what it started goes with it.
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
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
