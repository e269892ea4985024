"""Run pytest on an x86-64 processor as if it had no AVX.

    python tests/no_vector_instructions.py tests/property/test_selection.py tests/oracle     # arguments go to pytest

The settings are environment variables, so that processes started by tests have them too. Before the run, a separate
process shows that each library obeys, because NumPy, for example, only warns of a name that it does not know.
docs/decisions/processors.md says which results are equal with and without vector instructions.
"""

from __future__ import annotations

import os
import subprocess
import sys

OFF = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",  # the BLAS of PyTorch's wheels
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",  # the BLAS of the wheels of NumPy and SciPy
}
CHECK = """
import ctypes
import numpy as np, scipy.linalg, torch
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
assert __cpu_dispatch__
assert not [name for name in __cpu_dispatch__ if __cpu_features__[name]], "NumPy"
assert torch.backends.cpu.get_cpu_capability() == "DEFAULT", "PyTorch"
for path in {line.split()[-1] for line in open("/proc/self/maps") if "openblas" in line}:
    library = ctypes.CDLL(path)
    name = "scipy_openblas_get_corename"
    get_core = getattr(library, name if hasattr(library, name) else name + "64_")
    get_core.restype = ctypes.c_char_p
    assert get_core() == b"Nehalem", path
torch.ones(40, 40) @ torch.ones(40, 40)
torch.nn.functional.conv2d(torch.ones(1, 8, 32, 32).to_mkldnn(), torch.ones(8, 8, 3, 3).to_mkldnn())
"""


def environment() -> dict[str, str]:
    """Return this process's environment with the vector instructions of NumPy and the other libraries turned off."""
    from numpy._core._multiarray_umath import __cpu_dispatch__

    return {**os.environ, **OFF, "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__)}


def assert_off(off: dict[str, str]) -> None:
    """Raise AssertionError or CalledProcessError if a library still uses AVX."""
    command, verbose = [sys.executable, "-W", "error", "-c", CHECK], {"MKL_VERBOSE": "1", "ONEDNN_VERBOSE": "1"}
    lines = subprocess.run(command, env=off | verbose, check=True, capture_output=True, text=True).stdout.splitlines()
    heads = [line for line in lines if line.startswith("MKL_VERBOSE oneMKL") or ",cpu,isa:" in line]
    assert len(heads) == 2, lines
    assert not [line for line in heads if "AVX" in line or "Advanced Vector" in line], heads


if __name__ == "__main__":
    settings = environment()
    assert_off(settings)
    sys.exit(subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]], env=settings).returncode)
