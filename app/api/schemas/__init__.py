"""The JSON of requests and answers, by noun."""

from app.api.schemas.compactions import Compaction, CompactionList, CompactionRequest, Purged, PurgeRequest, RangesOut
from app.api.schemas.events import (
    AppendedEvent,
    Event,
    EventList,
    NewEvent,
    NewEvents,
    OpenToolCall,
    Receipt,
    View,
    ViewWarning,
)
from app.api.schemas.operations import Capabilities, ChatMemory, Health, NewMessages, Problem, ProblemPlace
from app.api.schemas.sessions import FoundSession, NewSession, Session, SessionChange, SessionList, ViewFigures

__all__ = [
    "AppendedEvent",
    "Capabilities",
    "ChatMemory",
    "Compaction",
    "CompactionList",
    "CompactionRequest",
    "Event",
    "EventList",
    "FoundSession",
    "Health",
    "NewEvent",
    "NewEvents",
    "NewMessages",
    "NewSession",
    "OpenToolCall",
    "Problem",
    "ProblemPlace",
    "PurgeRequest",
    "Purged",
    "RangesOut",
    "Receipt",
    "Session",
    "SessionChange",
    "SessionList",
    "View",
    "ViewFigures",
    "ViewWarning",
]
