"""Sets of seq, written as few closed ranges."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranges:
    """A set of seq as closed ranges, ascending, with at least one seq between any two.

    Every constructor below keeps that form, so two equal sets are equal values.
    """

    pairs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, seqs: Iterable[int]) -> "Ranges":
        """Write ``seqs`` (any order, repeats allowed) as ranges."""
        pairs: list[tuple[int, int]] = []
        first = last = None
        for seq in sorted(seqs):
            if last is not None and seq <= last + 1:
                last = seq
                continue
            if first is not None and last is not None:
                pairs.append((first, last))
            first = last = seq
        return cls((*pairs, (first, last)) if first is not None and last is not None else ())

    @classmethod
    def joined(cls, pairs: Iterable[tuple[int, int]]) -> "Ranges":
        """Unite closed ranges, which may touch or overlap and come in any order."""
        result: list[tuple[int, int]] = []
        for first, last in sorted(pairs):
            if result and first <= result[-1][1] + 1:
                result[-1] = (result[-1][0], max(result[-1][1], last))
            else:
                result.append((first, last))
        return cls(tuple(result))

    def __or__(self, other: "Ranges") -> "Ranges":
        return Ranges.joined(self.pairs + other.pairs)

    def __contains__(self, seq: int) -> bool:
        return self.meets(seq, seq)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.pairs:
            yield from range(first, last + 1)

    def __bool__(self) -> bool:
        return bool(self.pairs)

    def meets(self, first: int, last: int) -> bool:
        """Say whether any seq from ``first`` to ``last`` is in the set; False when ``last < first``."""
        if last < first:
            return False
        at = bisect_right(self.pairs, last, key=lambda pair: pair[0])
        return at > 0 and self.pairs[at - 1][1] >= first

    def bridged(self, outside: "Ranges") -> "Ranges":
        """Return the fewest ranges that hold this whole set and nothing of ``outside``.

        A boundary bridges the custom events and older boundaries that lie between two covered events (they are not
        covered by it, they have never been in a view), so the number of its ranges follows the number of
        events that stay, not the length of the log.
        """
        result: list[tuple[int, int]] = []
        for first, last in self.pairs:
            if result and not outside.meets(result[-1][1] + 1, first - 1):
                result[-1] = (result[-1][0], last)
            else:
                result.append((first, last))
        return Ranges(tuple(result))


NOTHING = Ranges()
