"""Statements about a tenant's sessions, or about those of all tenants."""

from collections.abc import Callable
from typing import Final

from sqlalchemy import TextClause, text

# Stands where a statement says whose sessions it is about.
OF_TENANT: Final = "(of tenant)"


def for_tenants(sql: str) -> Callable[[str | None], TextClause]:
    """Return what chooses a statement: the one about a tenant, or for None the one about everybody.

    They are two, for one with a condition that may hold for everybody would find no session by the index of tenants.
    """
    of_one, of_all = (text(sql.replace(OF_TENANT, condition)) for condition in ("tenant = :tenant", "true"))
    return lambda tenant: of_all if tenant is None else of_one
