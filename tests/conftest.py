"""What holds for all tests, and for the processes that they start."""

from __future__ import annotations

import os

# Two workers with a thread pool each get in each other's way; numbers do not depend on it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
