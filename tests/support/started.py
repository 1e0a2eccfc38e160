"""What runs from entering a `with` block to leaving it, and is closed even when its start fails."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Started(ABC):
    """A context manager of something that is started and closed."""

    @abstractmethod
    def start(self) -> Self:
        """Returns when it can be used."""

    @abstractmethod
    def close(self) -> None:
        """End it and remove what it made. Also of one whose start failed half-way, or that was never started."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
