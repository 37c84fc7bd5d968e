"""An attempt at a compaction that calls a summarizer."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

Status: TypeAlias = Literal["running", "applied", "unchanged", "failed", "abandoned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt. ``status`` is running, applied, unchanged, failed, or abandoned: its holder died or was stopped.

    ``boundary`` is the newest one when it began. ``alive`` says of a running one that its holder lives.
    """

    attempt_id: int
    started_at: datetime
    ended_at: datetime | None
    alive: bool
    version: int
    boundary: int | None
    status: Status
    reason: str | None
    error: str | None
    model: str
    prompt: str
    calls: int
    input_tokens: int
    output_tokens: int
