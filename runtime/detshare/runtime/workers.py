# SPDX-License-Identifier: Apache-2.0
"""Threads for requests that take time, with a bound of how many of one user may wait for them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Workers"]


class Workers:
    """Any thread may call."""

    def __init__(self, threads: int, name: str, most: int) -> None:
        """`most`: requests of one user that are not done."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self.most = most
        self.waiting: Counter[int] = Counter()
        """user -> requests of his that are not done"""

    def submit(self, job: Callable[..., None], *args: object) -> None:
        """Do it, for nobody in particular."""
        self._pool.submit(job, *args)

    def submit_for(self, uid: int, job: Callable[..., None], *args: object) -> bool:
        """Do it for a user; not where so many of his wait already."""
        with self._lock:
            if self.waiting[uid] >= self.most:
                return False
            self.waiting[uid] += 1

        def done(_: Future[None]) -> None:
            with self._lock:
                self.waiting[uid] -= 1
                self.waiting += Counter()  # without zeros

        self._pool.submit(job, *args).add_done_callback(done)
        return True

    def close(self) -> None:
        """Wait for what is being done; what has not begun is dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
