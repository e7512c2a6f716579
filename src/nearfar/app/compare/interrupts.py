"""Ctrl-C and requests to end: the first is heard, and then what there is is written in peace."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Interrupts:
    """While it lasts, the first Ctrl-C or request to end raises KeyboardInterrupt, and no other.

    Whoever is asked to end asks again when nothing seems to happen, and batch systems do it by
    themselves; a second interrupt must not cost the report that the first one asked for.

    Handlers of signals belong to the main thread; in another nothing is changed. A program that
    handles Ctrl-C its own way, or was told to ignore it, goes on to do so.
    """

    def __init__(self, *, requests: bool = False) -> None:
        #: Whether one has come.
        self.heard = False
        self._deaf = False
        self._requests = requests
        self._before: dict[int, Any] = {}

    def ignore(self) -> None:
        """What there is is being written: from now on none is heard."""
        self._deaf = True

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            usual = (signal.default_int_handler, signal.SIG_DFL)
            for number in (signal.SIGINT, *([signal.SIGTERM] if self._requests else [])):
                if number == signal.SIGTERM or signal.getsignal(number) in usual:
                    self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._deaf or self.heard:
            return
        self.heard = True
        raise KeyboardInterrupt
