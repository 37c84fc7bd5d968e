"""Which sessions are due, as the table itself says."""

from tests.conftest import Service, rows, settings_for
from tests.talk import Talk, turns

POLICY = {"window": {"rule": "last_turns", "size": 2}, "trigger": {"type": "turn_count", "threshold": 6}}


def test_an_append_updates_its_session_in_place_unless_it_makes_it_due(database_url: str) -> None:
    with Service(settings_for(database_url)) as service, service.client() as http:
        talk = Talk(http, "s")
        http.put(talk.path, json={"policy": POLICY})
        for number in range(1, 11):
            talk.append(*turns(1, first=number))
        assert [one["session_id"] for one in http.get("/v1/compact/due").json()["data"]] == ["s"]
    # Connections report what they did when they end, which the service has seen to. Only the seventh turn, which passes
    # the mark, had to touch an index.
    assert updates(database_url) == (10, 9)


def updates(url: str) -> tuple[int, int]:
    """Return how many times session rows were updated, and how many of these in place."""
    (found,) = rows(url, "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'sessions'")
    return found["n_tup_upd"], found["n_tup_hot_upd"]
