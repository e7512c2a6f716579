"""Python processes that begin with the library imported, which otherwise takes them seconds.

Each is forked, as the command says, from one that has imported everything and done nothing. The
tests of the application start theirs so (``conftest.py``); those of what a process imports, or of
how it begins, ask for ``fresh_processes``.
"""

import ctypes
import gc
import importlib
import io
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import types

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_servers = []


class WarmPopen(subprocess.Popen):
    """``subprocess.Popen`` that forks where the command is ``python -m module`` or ``-c code``."""

    def __init__(self, args, **options):
        self._warm = _program(args, options)
        super().__init__(args, **options)

    def _execute_child(self, *given):
        if self._warm is None:
            return super()._execute_child(*given)
        pass_fds, cwd, env = given[4:7]
        p2cread, _, _, c2pwrite, _, errwrite = given[10:16]
        streams = [p2cread, c2pwrite, errwrite]
        streams = [i if stream == -1 else stream for i, stream in enumerate(streams)]
        request = self._warm | {
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "umask": _umask(),
            "ignored": [number for number in SIGNALS if signal.getsignal(number) == signal.SIG_IGN],
            "fds": [0, 1, 2, *pass_fds],
        }
        self.pid = _server().start(request, [*streams, *pass_fds])
        self._child_created = True
        self._close_pipe_fds(*given[10:16])


def _program(args, options):
    """What to run, if it is Python and can be forked."""
    if sys.platform != "linux" or options.keys() & {"shell", "preexec_fn", "executable", "umask"}:
        return None
    words = [os.fspath(word) for word in args] if isinstance(args, list | tuple) else [""]
    flags = [word for word in words[1:3] if word in ("-P", "-u")]
    how, *rest = words[1 + len(flags) :] or [""]
    if words[0] != sys.executable or how not in ("-c", "-m") or not rest:
        return None
    session = bool(options.get("start_new_session"))
    return {"how": how, "what": rest[0], "argv": rest, "flags": flags, "session": session}


def _umask():
    old = os.umask(0)
    os.umask(old)
    return old


class _Server:
    """The process that is forked."""

    def __init__(self, control):
        self._control = control

    def start(self, request, fds):
        """The number of a new process, which is a child of ours."""
        data = pickle.dumps(request)
        # The one that forks it ends at once, so that it falls to us.
        _be_reaper(True)
        try:
            self._control.sendall(len(data).to_bytes(8, "little") + data)
            socket.send_fds(self._control, [b"!"], fds)
            answer = self._control.recv(8, socket.MSG_WAITALL)
        finally:
            _be_reaper(False)
        if len(answer) < 8:
            raise RuntimeError("the process that others are forked from has ended")
        return int.from_bytes(answer, "little")


def _server():
    if not _servers:
        _servers.append(_started())
    return _servers[0]


def _started():
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(filter(None, sys.path))
    with theirs:
        subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": path},
        )
    return _Server(ours)


def _be_reaper(yes):
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0):
        raise OSError("prctl")


# In the process that is forked


NEEDED = (
    *("sklearn.datasets", "sklearn.model_selection", "nearfar.app.cli.models"),
    *("nearfar.app.compare.driver", "nearfar.app.embed", "nearfar.app.report.html"),
)


def _import_all():
    for name in NEEDED:
        importlib.import_module(name)
    importlib.import_module("nearfar").all_estimators()


def _serve(control):
    """Wait for requests; returns, with one, in the new processes alone."""
    while head := control.recv(8, socket.MSG_WAITALL):
        request = pickle.loads(control.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL))
        _, fds, _, _ = socket.recv_fds(control, 1, 64)
        inward, outward = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                control.close()
                os.close(inward)
                _settle(request, fds, outward)
                return request
            os._exit(0)
        os.close(outward)
        for fd in fds:
            os.close(fd)
        os.waitpid(between, 0)
        control.sendall(os.read(inward, 8))
        os.close(inward)
    return None


def _settle(request, fds, outward):
    """Take the place that the request describes, and then say who we are."""
    if request["session"]:
        os.setsid()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN if number in request["ignored"] else signal.SIG_DFL)
    if signal.SIGINT not in request["ignored"]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Out of the way first: a number may be both one that came and one that is wanted.
    top = 3 + max([*fds, outward, *request["fds"]])
    moved = [os.dup2(fd, top + i) for i, fd in enumerate([*fds, outward])]
    for fd in {*fds, outward}:
        os.close(fd)
    for fd, number in zip(moved, request["fds"], strict=False):
        os.dup2(fd, number)
    os.write(moved[-1], os.getpid().to_bytes(8, "little"))
    for fd in moved:
        os.close(fd)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    tempfile.tempdir = None
    unbuffered = "-u" in request["flags"]
    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)))
    sys.stdout = _text(1, unbuffered)
    sys.stderr = _text(2, True)


def _text(fd, unbuffered):
    encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
    errors = errors or ("backslashreplace" if fd == 2 else "strict")
    stream = io.BufferedWriter(io.FileIO(fd, "wb", closefd=False))
    lines = unbuffered or os.isatty(fd)
    return io.TextIOWrapper(stream, encoding, errors, line_buffering=lines)


def _run(request):
    sys.argv[:] = ["-c" if request["how"] == "-c" else request["what"], *request["argv"][1:]]
    if "-P" not in request["flags"]:
        sys.path.insert(0, request["cwd"])
    if request["what"] != "nearfar.app.compare.worker":  # which forks by itself
        _own_server()
    if request["how"] == "-m":
        runpy.run_module(request["what"], run_name="__main__", alter_sys=True)
    else:
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(request["what"], "<string>", "exec"), vars(module))


def _own_server():
    """One that is as clean as we are now, for the processes that we shall start."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        _be_server(theirs)
        sys.exit()
    theirs.close()
    _servers[:] = [_Server(ours)]
    subprocess.Popen = WarmPopen


def _be_server(control):
    if (program := _serve(control)) is not None:
        _run(program)


if __name__ == "__main__":
    _import_all()
    gc.freeze()
    _be_server(socket.socket(fileno=int(sys.argv[1])))
