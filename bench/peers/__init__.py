"""Other libraries that keep an agent's messages in PostgreSQL, each behind the same small shim in a process of its own.

These modules run in virtual environments of their own, without turnlog's dependencies, so they import nothing of it.
"""
