"""turnlog: session memory for LLM agents over HTTP, on PostgreSQL."""

__version__ = "0.1.0"
