"""``python -m nearfar.app.compare.worker``: the process of a method.

Messages are pickles, each behind its length. They come from the process that started this one.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from nearfar.app.compare.handing import import_cloudpickle, mapped_bytes

_LENGTH = struct.Struct("<Q")
#: Bytes of a message, at most: what says it is longer is no message.
LONGEST = 2**31


class GarbledError(Exception):
    """What came is no message."""


def dumps(message: Any) -> bytes:
    """Pickle by value what lives in a script or notebook, which a new process cannot import."""
    data: bytes = import_cloudpickle().dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return data


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes], begun: Callable[[], Any] | None = None) -> Any:
    """Read one message; EOFError at the end. ``begun`` is called when its first byte is there."""
    head = _exactly(stream, 1)
    if begun is not None:
        begun()
    size = _LENGTH.unpack(head + _exactly(stream, _LENGTH.size - 1))[0]
    if size > LONGEST:
        raise GarbledError(f"a message of {size:,} bytes was announced")
    return pickle.loads(_exactly(stream, size))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def peak_bytes(pid: int | str = "self") -> int | None:
    """High-water mark of a process's memory; None where the system does not tell."""
    try:
        # Not ru_maxrss: on Linux a new process inherits that of the one that started it.
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    if pid == "self":
        try:
            import resource
        except ImportError:
            return None
        unit = 1 if sys.platform == "darwin" else 1024
        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit
    return None


def main() -> None:
    """Serve one method; or with a socket's number as argument, be the template of many."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    if len(sys.argv) > 1:
        _be_template(socket.socket(fileno=int(sys.argv[1])))
        return
    inward = os.fdopen(os.dup(0), "rb")
    outward = os.fdopen(os.dup(1), "wb")
    # What a method reads or prints must not run into the messages.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    try:
        paths = receive(inward)
    except EOFError:
        return
    try:
        problem = _load_problem(paths)
    except BaseException as error:
        send(outward, {"kind": "failed", "reason": reason(error)})
        return
    _serve(problem, paths["inodes"], inward, outward)
    _tidy(paths)


def _tidy(paths: dict[str, Any]) -> None:
    """Remove the folder of one who was killed; who lives ends us before we come here."""
    shutil.rmtree(paths["folder"], ignore_errors=True)


def _load_problem(paths: dict[str, Any]) -> Any:
    sys.path[:] = paths["sys_path"]
    from nearfar.app.compare import folds  # noqa: F401  all that is needed, before any task

    problem = pickle.loads(Path(paths["problem"]).read_bytes()).open()
    problem.share_in(paths["folder"])
    return problem


def _be_template(control: socket.socket) -> None:
    """Import and load once, then fork a process for each method that is asked for.

    Nothing runs here that could leave threads or locks behind. A request comes with the socket and
    the log of the new process and is answered by its pid; a pid is answered by its exit status, or
    by RUNNING.
    """
    with control.makefile("rb") as inward, control.makefile("wb") as outward:
        paths = receive(inward)
        problem = _load_problem(paths)
        send(outward, "loaded")
    while True:
        data, fds, _, _ = socket.recv_fds(control, 8, 2)
        if not data:
            _tidy(paths)
            return
        if not fds:
            answer = _exit_status(int.from_bytes(data, "little"))
        else:
            answer = os.fork()
            if answer == 0:
                os.setsid()
                os.dup2(fds[1], 2)
                os.dup2(2, 1)
                control.close()
                streams = os.fdopen(os.dup(fds[0]), "rb"), os.fdopen(fds[0], "wb")
                _serve(problem, paths["inodes"], *streams)
                os._exit(0)
            for fd in fds:
                os.close(fd)
        control.sendall(answer.to_bytes(8, "little"))


#: The answer of the template for a process that has not ended.
RUNNING = 2**63 - 1


def _exit_status(pid: int) -> int:
    ended, status = os.waitpid(pid, os.WNOHANG)
    return status if ended else RUNNING


def _serve(problem: Any, inodes: Sequence[int], inward: IO[bytes], outward: IO[bytes]) -> None:
    """Receive a method, then do its tasks until there are no more."""
    own = os.getpid()
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        method = receive(inward)
    except EOFError:
        return
    except BaseException as error:
        send(outward, {"kind": "failed", "reason": reason(error)})
        return
    problem.warm_up()
    base = own_peak(inodes)
    send(outward, {"kind": "ready", "base": base})
    while True:
        try:
            task = receive(inward)
        except EOFError:
            return
        try:
            work = problem.pilot if task["kind"] == "pilot" else problem.run_fold
            value = work(method, **task["arguments"])
            answer: dict[str, Any] = {"kind": "done", "value": value}
        except BaseException as error:
            answer = {"kind": "failed", "reason": reason(error)}
        if os.getpid() != own:
            os._exit(0)  # a method forked and let the copy run on
        answer["peak"], answer["number"] = _above(base, inodes), task["number"]
        send(outward, answer)


def _end_with_parent(parent: int) -> None:
    """End when the one who started us has gone, even in the middle of a fit."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def own_peak(inodes: Sequence[int], pid: int | str = "self") -> int | None:
    """High-water mark of a process's memory without the pages of the data that all share."""
    peak = peak_bytes(pid)
    return None if peak is None else max(0, peak - mapped_bytes(inodes, pid))


def _above(base: int | None, inodes: Sequence[int]) -> float | None:
    """MB beyond what the process held with the data loaded and everything common to all in use.

    What a method imports only when it fits counts as its own.
    """
    peak = own_peak(inodes)
    return None if peak is None or base is None else max(0, peak - base) / 2**20


def reason(error: BaseException) -> str:
    """One line that says what went wrong."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = "its message cannot be shown"
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


if __name__ == "__main__":
    main()
