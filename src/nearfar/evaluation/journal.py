"""Results on disk as they come, so that an interrupted comparison can go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Journal:
    """A file of JSON lines: first what was compared, then a line for each finished fold.

    Parameters
    ----------
    path : Path
        The file.
    fingerprint : str
        Of data and settings: a journal of others is refused.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint = path, fingerprint
        self.tuning: str | None = None
        self.results: dict[str, dict[int, dict[str, Any]]] = {}
        self._begun = False

    def read(self) -> Journal:
        """Take in what was done before."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            header = json.loads(lines[0]) if lines else {}
            known = header["nearfar_journal"] == 1
        except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} is not a journal of nearfar compare.") from error
        if not known:
            raise ValueError(f"{self.path} was written by a newer version of nearfar.")
        if header["fingerprint"] != self.fingerprint:
            raise ValueError(
                f"{self.path} is of another comparison: the data, the methods or the settings "
                "differ. Start anew with another --out, or with --force."
            )
        self.tuning = header["tuning"]
        for line in lines[1:]:
            try:
                record = json.loads(line)
            except ValueError:
                break  # cut off in the middle of a line
            self.results.setdefault(record["method"], {})[record["result"]["fold"]] = record[
                "result"
            ]
        return self

    def begin(self, tuning: str) -> None:
        """Write the header and what is known already."""
        if self._begun:
            return
        self._begun = True
        header = {"nearfar_journal": 1, "fingerprint": self.fingerprint, "tuning": tuning}
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(json.dumps(header) + "\n")
            for method, results in self.results.items():
                for result in results.values():
                    file.write(json.dumps({"method": method, "result": result}) + "\n")

    def add(self, method: str, result: dict[str, Any]) -> None:
        """Write one finished fold."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"method": method, "result": result}) + "\n")
