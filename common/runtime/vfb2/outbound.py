"""Words that wait for one party, and travel together when they do."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from google.protobuf.message import Message

from common.rpc.chunks import CHUNK_BYTES

W = TypeVar("W", bound=Message)

# Of one message that answers: all that another one has asked for, a chunk at most.
_MOST_WORDS = 1024
_FEWEST_ASKED = 16


def most_asked(in_flight: int) -> int:
    """Return the words of one message of a dominator, two an update, who may have so many updates in flight.

    When more wait, the other side works on the first ones while the next ones travel: four to eight messages
    go round. With fewer both sides stand still in turns, more cost more than they gain (`benchmarks/vfb2`).
    """
    return max(_FEWEST_ASKED, in_flight // 4)


class Outbound(Generic[W]):
    """A queue with one reader; what is in it is bounded by what the protocol lets be in flight."""

    def __init__(self, most_words: int = _MOST_WORDS) -> None:
        """Begin empty; a message has at most so many words."""
        self._most_words = most_words
        self._waiting: deque[W] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        """Return how many words wait."""
        return len(self._waiting)

    def put(self, word: W) -> None:
        """Let a word wait for the next message."""
        self._waiting.append(word)
        self._news.set()

    def close(self) -> None:
        """End the stream after what waits."""
        self._closed = True
        self._news.set()

    def abandon(self) -> None:
        """End the stream at once: it has broken, or nobody wants it any more."""
        self._waiting.clear()
        self.close()

    async def batches(self) -> AsyncIterator[list[W]]:
        """Yield what waits, a few words at a time; while some are being sent, more may come."""
        while True:
            await self._news.wait()
            while self._waiting:
                yield self._next()
            if self._closed:
                return
            self._news.clear()

    def _next(self) -> list[W]:
        words: list[W] = []
        size = 0
        while self._waiting and len(words) < self._most_words and size < CHUNK_BYTES:
            word = self._waiting.popleft()
            size += word.ByteSize()
            words.append(word)
        return words
