"""How often a key may be used: a bucket of tokens for each, in this process."""

import math
from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from throttled import MemoryStore, RateLimiterType, Throttled
from throttled.rate_limiter import per_duration

# Buckets in memory. One that is full again is forgotten, so this many keys would have to be busy at the same time.
_MOST_BUCKETS = 10_000
# A rate is so many requests in so many whole seconds.
_LONGEST_PERIOD = 3600


class Taken(NamedTuple):
    """What came of asking for a token: headers to answer with, and when to come again if there was none."""

    headers: Mapping[str, str]
    retry_seconds: int | None


class Rates:
    """A bucket for each key: it holds ``burst`` requests, and fills by ``limit`` a second.

    The library calls its exact form GCRA: a bucket that fills all the time, where its "token bucket" fills once a
    second, which would let nothing in at less than one request a second.
    """

    def __init__(self, *, limit: float, burst: int | None) -> None:
        """Without ``burst`` a bucket holds what comes in in a second, and one request at least."""
        rate = Fraction(limit).limit_denominator(_LONGEST_PERIOD)
        self._burst = burst or max(1, math.ceil(limit))
        self._throttle = Throttled(
            using=RateLimiterType.GCRA.value,
            quota=per_duration(timedelta(seconds=rate.denominator), rate.numerator, self._burst),
            store=MemoryStore(options={"MAX_SIZE": _MOST_BUCKETS}),
        )
        # The window of the draft's policy: in that time the whole quota comes in again.
        self._policy = f'"key";q={self._burst};w={max(1, math.ceil(self._burst / limit))}'

    def take(self, prefix: str) -> Taken:
        """Take a token from a key's bucket."""
        found = self._throttle.limit(prefix)
        state = found.state
        headers = {
            "RateLimit-Policy": self._policy,
            "RateLimit": f'"key";r={max(0, state.remaining)};t={math.ceil(state.reset_after)}',
        }
        return Taken(headers, max(1, math.ceil(state.retry_after)) if found.limited else None)
