"""``python -m nearfar.evaluation.worker``: one method's process, fed through its standard input.

Messages are pickles, each behind its length. They come from the process that started this one.
"""

from __future__ import annotations

import io
import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, Any

_LENGTH = struct.Struct("<Q")


def dumps(message: Any) -> bytes:
    """Pickle by value what lives in a script or notebook, which a new process cannot import."""
    try:
        import cloudpickle
    except ImportError:  # joblib before 1.6 brings its own
        from joblib.externals import cloudpickle
    data: bytes = cloudpickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return data


def send(stream: IO[bytes], message: Any) -> None:
    """Write one message."""
    data = dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; EOFError at the end."""
    return pickle.loads(_exactly(stream, _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]))


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
    """Serve until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    inward = os.fdopen(os.dup(0), "rb")
    outward = os.fdopen(os.dup(1), "wb")
    # What a method prints must not run into the messages.
    os.dup2(2, 1)
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), write_through=True)
    try:
        paths = receive(inward)
        sys.path[:] = paths["sys_path"]
        problem = pickle.loads(Path(paths["problem"]).read_bytes())
        method = receive(inward)
        from nearfar.evaluation.folds import pilot, run_fold

        base = peak_bytes()
        send(outward, {"kind": "ready", "base": base})
    except EOFError:
        return
    except BaseException as error:
        send(outward, {"kind": "failed", "reason": reason(error), "trace": traceback.format_exc()})
        return
    while True:
        try:
            task = receive(inward)
        except EOFError:
            return
        try:
            work = pilot if task["kind"] == "pilot" else run_fold
            value = work(problem, method, **task["arguments"])
            answer: dict[str, Any] = {"kind": "done", "value": value}
        except BaseException as error:
            answer = {"kind": "failed", "reason": reason(error), "trace": traceback.format_exc()}
        answer["peak"] = _above(base)
        send(outward, answer)


def _end_with_parent(parent: int) -> None:
    """End when the one who started us has gone, even in the middle of a fit."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _above(base: int | None) -> float | None:
    """MB beyond what the process held with the data loaded."""
    peak = peak_bytes()
    return None if peak is None or base is None else max(0, peak - base) / 2**20


def reason(error: BaseException) -> str:
    """One line that says what went wrong."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__


if __name__ == "__main__":
    main()
