"""No secret is repeated: no password, no key, and nothing that people said, in a log line, a refusal, or an error."""

from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.api.keyed import bearer
from tests.conftest import execute
from tests.journeys import clusters
from tests.journeys.processes import Serving, run
from tests.model_server import ModelServer
from tests.talk import Talk

# Each secret has this word in it.
WORD = "xyzzy"
DATABASE = f"postgresql://somebody:{WORD}-password@127.0.0.1"
BOOTSTRAP = f"tl_public01_{WORD * 8}"
BAD_SETTINGS: list[tuple[str, dict[str, str]]] = [
    ("keys list", {"DATABASE_URL": f"{DATABASE}:1/turnlog"}),  # nothing is there
    ("serve", {"DATABASE_URL": f"{DATABASE}:port/turnlog"}),  # no URL
    ("serve", {"DATABASE_URL": DATABASE.replace("postgresql", "mysql")}),  # of something else
    ("serve", {"BOOTSTRAP_KEY": f"{WORD} too short"}),
    ("serve", {"BOOTSTRAP_KEY": BOOTSTRAP + "\n", "SUMMARIZER_API_KEY": WORD, "RATE_LIMIT": WORD, "LOG_FORMAT": WORD}),
]


def refused(command: str, settings: dict[str, str]) -> str:
    named = {f"TURNLOG_{name}": value for name, value in {"LOG_LEVEL": "debug", **settings}.items()}
    ended = run(*command.split(), "--port", "0", **named) if command == "serve" else run(*command.split(), **named)
    assert ended.returncode != 0
    assert ended.stderr, "it says what is wrong"
    return ended.stdout + ended.stderr


def test_settings_that_are_wrong_are_named_and_never_repeated(database_url: str) -> None:
    given = [(command, {"DATABASE_URL": database_url, **settings}) for command, settings in BAD_SETTINGS]
    with ThreadPoolExecutor(3) as pool:
        for said, (_, settings) in zip(pool.map(refused, *zip(*given, strict=True)), given, strict=True):
            assert WORD not in said, (settings, said)


def test_a_wrong_password_of_the_database_is_not_repeated() -> None:
    with clusters.folder("pg") as place:
        cluster = clusters.Cluster(place)
        cluster.make()
        rules = cluster.data / "pg_hba.conf"
        rules.write_text("local all somebody scram-sha-256\n" + rules.read_text())
        cluster.start()
        try:
            execute(cluster.url, "CREATE ROLE somebody LOGIN PASSWORD 'another'")
            url = cluster.url.replace("turnlog@", f"somebody:{WORD}-password@")
            said = refused("serve", {"DATABASE_URL": url})
        finally:
            cluster.stop()
        assert "password authentication failed" in cluster.said()
    assert WORD not in said


def check_refusals(http: httpx.Client) -> None:
    """Whatever is wrong with a key, a body or the model, the answer repeats nothing of it."""
    said = {"role": "user", "content": f"{WORD} said"}
    wrong = (BOOTSTRAP[:-1], f"tl_{WORD}", f"tl_public01_{'x' * 43}{WORD}")
    headers = [*map(bearer, wrong), {"Authorization": f"Basic {WORD}"}, {"Turnlog-Tenant": f"{WORD}/x"}]
    for one in headers:
        answer = http.post("/v1/sessions/s1/events", json={"events": [{"message": said}]}, headers=one)
        assert answer.is_client_error, answer.text
        assert WORD not in answer.text + repr(answer.headers)
    talk = Talk(http, "s1")
    for _ in range(3):
        talk.append(said, {"role": "assistant", "content": f"{WORD} answered " * 200})
    window = {"rule": "last_turns", "size": 1}
    for body in ({"window": window, "summarizer": {"type": "llm"}}, {"window": WORD}, WORD):
        answer = http.post(talk.path + "/compact", json=body)
        assert answer.is_error, answer.text
        assert WORD not in answer.text + repr(answer.headers)


def test_keys_and_what_people_said_are_in_no_log_line_and_no_refusal(database_url: str) -> None:
    with ModelServer(api_key="another") as model:
        settings = {
            "TURNLOG_LOG_LEVEL": "debug",
            "TURNLOG_BOOTSTRAP_KEY": BOOTSTRAP,
            "TURNLOG_SUMMARIZER_PROVIDER": "openai",
            "TURNLOG_SUMMARIZER_MODEL": "m",
            "TURNLOG_SUMMARIZER_BASE_URL": model.base_url("openai"),
            "TURNLOG_SUMMARIZER_API_KEY": f"{WORD}-key",
        }
        with Serving(database_url=database_url, **settings) as serving, serving.client() as http:
            http.headers.update(bearer(BOOTSTRAP))
            check_refusals(http)
            assert serving.terminate() == 0
        assert [WORD in request.headers["authorization"] for request in model.requests] == [True]
    assert "request.finished" in serving.output
    assert "summary.failed" in serving.output
    assert "tl_public01" in serving.output, "whose request it was"
    at = serving.output.find(WORD)
    assert at == -1, serving.output[max(0, at - 500) : at + 200]
