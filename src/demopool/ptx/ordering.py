"""Which accesses by other blocks come before those of a block.

A fence orders what its block did before it. In an ordinary launch, whose blocks run in any order,
it does so for all blocks from then on. In a cooperative launch blocks wait for each other, and it
does so only for blocks that have *heard* of it: the block has written a word atomically after its
fence, or through a volatile pointer, and the other one has read that word so, and fenced, before
its own access. A block tells what it has heard itself, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any


class Order:
    """``fences`` has how many there were, by every block of a launch."""

    def __init__(self, fences: Array, cooperative: bool) -> None:
        self.fences, self.cooperative = fences, cooperative
        size = 2 * fences.shape if cooperative else (0, 0)
        # By block: how many fences of each other one come before what it does now, and will come
        # before what it does after its next fence.
        self._heard, self._listened = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._told: dict[tuple[int, int], Array] = {}

    def fence(self, blocks: Array) -> None:
        """By threads of these blocks."""
        self.fences[blocks] += 1
        if self.cooperative:
            self._heard[blocks] = np.maximum(self._heard[blocks], self._listened[blocks])
            self._heard[blocks, blocks] = self.fences[blocks]

    def exchange(
        self, words: Array, blocks: Array, memory: int, *, reads: bool, writes: bool
    ) -> None:
        """Blocks read or write words of a memory in a way that others may wait for."""
        if not self.cooperative:
            return
        pairs = {(int(word), int(block)) for word, block in zip(words, blocks, strict=True)}
        for word, block in pairs if reads else ():
            told = self._told.get((memory, word))
            if told is not None:
                self._listened[block] = np.maximum(self._listened[block], told)
        for word, block in pairs if writes else ():
            # What is added to a word leaves there what it told; a store takes its place.
            told = self._told.get((memory, word)) if reads else None
            heard = self._heard[block]
            self._told[memory, word] = np.maximum(heard if told is None else told, heard)

    def before(self, of: Array, by: Array) -> Array:
        """How many fences of some blocks come before what others do now."""
        return self._heard[by, of] if self.cooperative else self.fences[of]

    def unheard(self, reads: Array, by: Array) -> Array:
        """Whether one of the reads of cells, (blocks, cells), may come after what others do now; a
        read is one more than the fences of its block at that time."""
        late = reads > self._heard[by].T
        late[by, np.arange(len(by))] = False  # of the block itself barriers decide
        return late.any(axis=0)
