"""The numeric tests again, with the arithmetic of other processors.

BLAS and NumPy choose their code by the processor, and with it the last digits of every product. A
search with several optima, a tie or a rank may then come out otherwise: on the machine of a reader
and not on that of the author. OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES choose for them, so
that any machine can see it. Slow: each takes as long as the tests themselves.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# Words in names of files or folders: what these test is not arithmetic, or they start processes and
# wait for them.
OTHERS = {
    "app",
    "browser",
    "cli",
    "columns",
    "compare",
    "contributing",
    "dask",
    "distributed",
    "embed",
    "examples",
    "folds",
    "journal",
    "lines",
    "package",
    "persistence",
    "pool",
    "processors",
    "report",
    "splits",
    "tables",
}
TESTS = next(folder for folder in Path(__file__).resolve().parents if folder.name == "tests")


def numeric_tests() -> list[Path]:
    return [path for path in sorted(TESTS.rglob("test_*.py")) if not OTHERS & words(path)]


def words(path: Path) -> set[str]:
    return {*path.relative_to(TESTS).parts[:-1], *path.stem.split("_")}


def has(flag: str) -> bool:
    known = Path("/proc/cpuinfo")
    return known.exists() and flag in known.read_text().split()


def dispatched() -> str:
    """What NumPy found on this processor beyond the least it needs."""
    return " ".join(np.show_config(mode="dicts")["SIMD Extensions"].get("found", []))


PROCESSORS = {
    "Haswell": ({"OPENBLAS_CORETYPE": "Haswell"}, "avx2"),
    "Sandybridge": ({"OPENBLAS_CORETYPE": "Sandybridge"}, "avx"),
    "SkylakeX": ({"OPENBLAS_CORETYPE": "SkylakeX"}, "avx512f"),
    "plain NumPy": ({"NPY_DISABLE_CPU_FEATURES": dispatched()}, "sse2"),
}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="kernels of x86")
@pytest.mark.parametrize("name", PROCESSORS)
def test_numeric_tests_pass_with_the_arithmetic_of(name):
    settings, flag = PROCESSORS[name]
    if not has(flag):
        pytest.skip(f"this processor has no {flag}")
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *numeric_tests()],
        cwd=TESTS.parent,
        env=os.environ | one_thread | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]


def test_the_numeric_tests_are_found():
    found = {path.name for path in numeric_tests()}
    assert {"test_mgmkld.py", "test_lmnn.py", "test_mvu.py", "test_common.py"} <= found
    assert not {"test_pool.py", "test_cli.py", Path(__file__).name} & found


@pytest.mark.skipif(not has("avx2"), reason="no AVX2")
def test_the_settings_are_heard():
    # Else the slow tests would run four times the same. NumPy warns of features it does not know.
    script = (
        "import numpy, threadpoolctl; found = threadpoolctl.threadpool_info();"
        "print([blas['architecture'] for blas in found if blas['internal_api'] == 'openblas']);"
        "print(numpy.show_config(mode='dicts')['SIMD Extensions'].get('found', []))"
    )
    for name in ("Sandybridge", "plain NumPy"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            env=os.environ | PROCESSORS[name][0],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        blas, simd = done.stdout.splitlines()
        if name == "plain NumPy":
            assert simd == "[]"
        elif blas != "[]":  # another BLAS
            assert "Sandybridge" in blas
