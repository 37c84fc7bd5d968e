"""One of a service's connections to the database falls silent, as when a firewall has forgotten it; the others live."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from app.storage.sessions import key_of
from tests.api.asking import problem
from tests.conftest import Service, settings_for
from tests.journeys import clusters
from tests.journeys.hammering import quickly
from tests.journeys.proxy import Proxy
from tests.journeys.replayed import check_session
from tests.talk import Talk, user

# What docs/reliability.md promises where packets vanish without a word, and after that.
DROPPED, RETURNED = 10.0, 5.0
ASKING = 8


class Scene:
    """A service whose pools are full of connections, behind a proxy."""

    def __init__(self, proxy: Proxy, service: Service) -> None:
        self.proxy = proxy
        self.service = service

    def ask(self, name: str, event_id: str, *, reads: bool) -> httpx.Response:
        """Read a session's view, or append to it, within the time that is promised."""
        with self.service.client() as own:
            began = time.monotonic()
            path = f"/v1/sessions/{name}"
            body = {"events": [{"id": event_id, "message": user(event_id)}]}
            answer = own.get(f"{path}/view") if reads else own.post(f"{path}/events", json=body)
            assert time.monotonic() - began < DROPPED, f"{event_id} took {time.monotonic() - began:.1f} seconds"
        assert answer.status_code in {200, 201, 503}, answer.text
        if answer.status_code == 503:
            problem(answer, 503, "unavailable")
        return answer

    def many(self, names: list[str], prefix: str, rounds: int) -> list[int]:
        """Read and append to sessions from several clients at once, and return what they got."""

        def work(number: int) -> list[int]:
            return [
                self.ask(names[number % len(names)], f"{prefix}-{number}-{at}", reads=at % 2 == 0).status_code
                for at in range(rounds)
            ]

        with ThreadPoolExecutor(ASKING) as threads:
            return [status for statuses in threads.map(work, range(ASKING)) for status in statuses]

    def pool_is_idle(self) -> bool:
        use: dict[str, int] = self.service.app.state.context.database.pool_use()
        return set(use.values()) == {0}


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with (
        clusters.running() as cluster,
        Proxy(cluster.socket) as proxy,
        Service(settings_for(proxy.url())) as service,
    ):
        yield Scene(proxy, service)


@pytest.mark.parametrize("reads", [True, False], ids=["a-read", "an-append"])
@pytest.mark.parametrize("after", [False, True], ids=["question-lost", "answer-lost"])
def test_only_who_meets_the_dead_connection_waits_and_then_everybody_is_answered(
    scene: Scene, reads: bool, after: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    names = [f"{'read' if reads else 'write'}-{after}-{number}" for number in range(3)]
    met = f"met-{names[0]}"
    with scene.service.client() as http:
        talks = [Talk(http, name) for name in names]
        lone = Talk(http, met)
        for talk in (*talks, lone):
            talk.append(user("first"))
        assert set(scene.many(names, "before", 4)) <= {200, 201}
        # The first connection that carries this session's key, or this event's id.
        scene.proxy.silence_at(key_of("default", met).bytes if reads else b"the-lost-one", after=after)
        with ThreadPoolExecutor(2) as threads:
            lost = threads.submit(scene.ask, met, "the-lost-one", reads=reads)
            assert scene.proxy.marked.wait(10)
            # It is noticed by the one who waits for it; nobody else has to do with it.
            meanwhile = threads.submit(scene.many, names, "meanwhile", 6)
            assert set(meanwhile.result()) <= {200, 201}
            assert lost.result().status_code in {200, 503}
        quickly(lambda: set(scene.many(names, f"later-{time.monotonic()}", 2)) <= {200, 201}, RETURNED)
        again = scene.ask(met, "the-lost-one", reads=reads)
        assert again.status_code in {200, 201}
        assert len(check_session(lone)) == (1 if reads else 2)
        for talk in talks:
            assert len([one for one in check_session(talk) if one["id"].startswith("meanwhile")]) in {6, 9}
        quickly(scene.pool_is_idle, RETURNED)
    said = capfd.readouterr().err
    assert "[error" not in said, said
    assert "Traceback" not in said, said
