"""Bodies to copy: the OpenAPI document shows them, and a test sends each of them."""

from typing import Any, Final

Examples = dict[str, Any]

SESSION: Final[Examples] = {
    "with-labels": {"id": "support-42", "ttl_seconds": 86400, "metadata": {"principal": "alice", "agent": "helpdesk"}},
    "compacted-by-a-scheduler": {
        "id": "support-43",
        "policy": {
            "trigger": {"type": "token_count", "threshold": 60000},
            "window": {"rule": "token_budget", "size": 20000},
            "summarizer": {"type": "llm", "max_tokens": 800},
        },
    },
}
FOUND_SESSION: Final[Examples] = {"with-labels": {"metadata": {"principal": "alice"}}}
SESSION_CHANGE: Final[Examples] = {
    "labels-and-life": {"metadata": {"agent": "billing", "ticket": None}, "ttl_seconds": 3600},
    "no-policy-of-its-own": {"policy": None},
}
APPEND: Final[Examples] = {
    "a-tool-call-and-its-result": {
        "events": [
            {"message": {"role": "user", "content": "Where is my order?"}},
            {
                "id": "evt-7",
                "metadata": {"model": "m"},
                "token_count": 31,
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": '{"id": 9}'}}
                    ],
                },
            },
            {"message": {"role": "tool", "tool_call_id": "c1", "content": "shipped"}},
            {"type": "ACME.AUDIT", "payload": {"action": "exported"}},
        ]
    },
    "openai": {"format": "openai", "messages": [{"role": "user", "content": "Where is my order?"}]},
    "openai-responses": {
        "format": "openai-responses",
        "messages": [
            {"type": "function_call", "call_id": "c1", "name": "find_order", "arguments": '{"id": 9}'},
            {"type": "function_call_output", "call_id": "c1", "output": "shipped"},
        ],
    },
    "anthropic": {
        "format": "anthropic",
        "messages": [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I will look."},
                    {"type": "tool_use", "id": "toolu_1", "name": "find_order", "input": {"id": 9}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "shipped"}]},
        ],
    },
    "gemini": {"format": "gemini", "messages": [{"role": "user", "parts": [{"text": "Where is my order?"}]}]},
}
COMPACTION: Final[Examples] = {
    "look-first": {
        "window": {"rule": "last_turns", "size": 2},
        "trigger": {
            "type": "any",
            "of": [{"type": "turn_count", "threshold": 20}, {"type": "token_count", "threshold": 1}],
        },
        "dry_run": True,
    },
    "with-a-summary-of-your-own": {
        "window": {"rule": "last_turns", "size": 1},
        "summarizer": {"type": "text", "text": "Order 1007 is with the post and due on Thursday."},
    },
}
FLEET: Final[Examples] = {"of-one-agent": {"limit": 100, "max_seconds": 30, "metadata": {"agent": "helpdesk"}}}
PURGE: Final[Examples] = {"a-thousand": {"limit": 1000}}
MEMORY: Final[Examples] = {"a-question": {"messages": [{"role": "user", "content": "Where is my order?"}]}}
