"""Compaction over HTTP."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.api.asking import HELLO, pointers, problem
from tests.conftest import Service, settings_for
from tests.talk import Talk, assistant, custom, developer, seqs_in, system, tool, turns, user

FIELDS = {
    "status",
    "reason",
    "detail",
    "version",
    "boundary",
    "covered",
    "pinned",
    "preserved",
    "summary",
    "tokens",
    "over_budget",
}
LAST_TURN = {"rule": "last_turns", "size": 1}


def tens(*said: dict[str, Any], tokens: int = 10) -> list[dict[str, Any]]:
    """Return messages as events of ten tokens each."""
    return [one if "type" in one else {"message": one, "token_count": tokens} for one in said]


@pytest.fixture
def four(talk: Talk) -> Talk:
    """Four turns of two events, 80 tokens: seqs 1 to 8."""
    talk.append(*tens(*turns(4)))
    return talk


def compact(talk: Talk, body: Any = None) -> httpx.Response:
    return talk.http.post(talk.path + "/compact", json=body)


def unchanged(answer: dict[str, Any], reason: str) -> dict[str, Any]:
    """Check that an answer says in full that nothing happened, and return it."""
    assert set(answer) == FIELDS
    assert (answer["status"], answer["reason"]) == ("unchanged", reason)
    assert answer["detail"]
    assert answer["boundary"] is answer["summary"] is None
    assert answer["covered"] == answer["preserved"] == {"ranges": [], "events": 0}
    assert answer["pinned"] == []
    assert answer["tokens"]["before"] == answer["tokens"]["after"]
    assert answer["tokens"]["saved"] == 0
    return answer


# Windows.


def test_an_applied_compaction_says_what_it_did(talk: Talk) -> None:
    talk.append(*tens(system("p"), *turns(3)), custom())
    answer = talk.compact(last_turns=1)
    assert answer == {
        "status": "applied",
        "reason": None,
        "detail": None,
        "version": 9,
        "boundary": 9,
        "covered": {"ranges": [[2, 5]], "events": 4},
        "pinned": [1],
        "preserved": {"ranges": [[6, 7]], "events": 2},
        "summary": None,
        "tokens": {"before": 70, "after": 30, "saved": 40},
        "over_budget": False,
    }
    assert talk.seqs() == [1, 6, 7]
    assert len(talk.log()) == 9


WINDOWS = [
    ({"rule": "last_turns", "size": 1}, [1, 2, 3, 4, 5, 6]),
    ({"rule": "last_turns", "size": 3}, [1, 2]),
    ({"rule": "last_turns", "size": 4}, None),  # fits
    ({"rule": "last_turns", "size": 10**30}, None),  # by far
    ({"rule": "last_events", "size": 2}, [1, 2, 3, 4, 5, 6]),
    ({"rule": "last_events", "size": 3}, [1, 2, 3, 4, 5, 6]),  # forward to the next turn
    ({"rule": "last_events", "size": 4}, [1, 2, 3, 4]),
    ({"rule": "last_events", "size": 1}, [1, 2, 3, 4, 5, 6]),  # the newest turn always stays
    ({"rule": "last_events", "size": 8}, None),
    ({"rule": "token_budget", "size": 20}, [1, 2, 3, 4, 5, 6]),  # exactly
    ({"rule": "token_budget", "size": 39}, [1, 2, 3, 4, 5, 6]),  # almost two turns
    ({"rule": "token_budget", "size": 40}, [1, 2, 3, 4]),
    ({"rule": "token_budget", "size": 79}, [1, 2]),
    ({"rule": "token_budget", "size": 80}, None),
]


@pytest.mark.parametrize(("window", "covered"), WINDOWS, ids=str)
def test_a_window_keeps_the_newest_turns(four: Talk, window: dict[str, Any], covered: list[int] | None) -> None:
    answer = compact(four, {"window": window}).json()
    if covered is None:
        unchanged(answer, "fits-window")
        assert four.session()["version"] == 8
        return
    assert answer["status"] == "applied"
    assert seqs_in(answer["covered"]["ranges"]) == covered
    assert answer["covered"]["events"] == len(covered)
    assert seqs_in(answer["preserved"]["ranges"]) == [seq for seq in range(1, 9) if seq not in covered]
    assert answer["preserved"]["events"] == 8 - len(covered)
    assert answer["tokens"] == {"before": 80, "after": 80 - 10 * len(covered), "saved": 10 * len(covered)}
    assert four.seqs() == seqs_in(answer["preserved"]["ranges"])


def test_a_budget_that_the_newest_turn_exceeds_is_said_to_be_exceeded(talk: Talk) -> None:
    talk.append(*tens(*turns(2)), *tens(*turns(1, first=3), tokens=500))
    answer = talk.compact(token_budget=100)
    assert (answer["status"], answer["over_budget"]) == ("applied", True)
    assert talk.seqs() == [5, 6]
    assert unchanged(talk.compact(token_budget=100), "newest-turn-only")["over_budget"] is True
    assert talk.get("/compactions")["data"][0]["over_budget"] is True


def test_superseded_system_messages_are_covered_with_the_turns(talk: Talk) -> None:
    talk.append(*tens(system("old"), *turns(2), developer("new"), *turns(1, first=3)))
    answer = talk.compact(last_turns=1)
    assert answer["covered"] == {"ranges": [[1, 5]], "events": 5}
    assert answer["pinned"] == [6]
    assert talk.seqs() == [6, 7, 8]


def test_the_preamble_stays(talk: Talk) -> None:
    talk.append(*tens(assistant("welcome"), system("p"), *turns(2)))
    answer = talk.compact(last_turns=1)
    assert sorted(answer["pinned"]) == [1, 2]
    assert talk.seqs() == [2, 1, 5, 6]


def test_custom_events_are_never_covered(talk: Talk) -> None:
    talk.append(*tens(user("q1"), custom(), assistant("a1"), *turns(1, first=2)))
    answer = talk.compact(last_turns=1)
    assert answer["covered"]["events"] == 2
    assert [event["covered"] for event in talk.log()] == [True, False, True, False, False, False]


def test_coverage_only_grows(four: Talk) -> None:
    first = four.compact(last_turns=3)
    second = four.compact(last_turns=1)
    assert first["covered"]["ranges"] == [[1, 2]]
    assert second["covered"] == {"ranges": [[3, 6]], "events": 4}
    payloads = [event["payload"] for event in four.log(types="COMPACTION")]
    assert [payload["covered"] for payload in payloads] == [[[1, 2]], [[1, 6]]]
    assert [payload["newly_covered"] for payload in payloads] == [[[1, 2]], [[3, 6]]]
    unchanged(four.compact(last_turns=1), "fits-window")


# Triggers, on four turns of 80 tokens.
YES, NO = {"type": "turn_count", "threshold": 3}, {"type": "turn_count", "threshold": 4}
TRIGGERS = [
    (None, True),  # a call by hand compacts
    ({"type": "always"}, True),
    (YES, True),  # more than 3 turns
    (NO, False),  # not more than 4
    ({"type": "token_count", "threshold": 80}, True),  # at least 80 tokens
    ({"type": "token_count", "threshold": 81}, False),
    ({"type": "token_count", "threshold": 10**30}, False),
    ({"type": "any", "of": [NO, YES]}, True),
    ({"type": "any", "of": [NO]}, False),
    ({"type": "all", "of": [YES, {"type": "always"}]}, True),
    ({"type": "all", "of": [YES, NO]}, False),
    ({"type": "any", "of": [{"type": "all", "of": [YES, NO]}, {"type": "any", "of": [NO]}]}, False),
    ({"type": "all", "of": [{"type": "any", "of": [NO, YES]}, {"type": "all", "of": [YES]}]}, True),
]


@pytest.mark.parametrize(("trigger", "fires"), TRIGGERS, ids=str)
@pytest.mark.parametrize("dry_run", [False, True])
def test_nothing_happens_until_the_trigger_fires(
    four: Talk, trigger: dict[str, Any] | None, fires: bool, dry_run: bool
) -> None:
    answer = compact(four, {"window": LAST_TURN, "trigger": trigger, "dry_run": dry_run}).json()
    if fires:
        assert answer["status"] == ("planned" if dry_run else "applied")
    else:
        unchanged(answer, "trigger-not-fired")
        assert four.session()["version"] == 8


def test_triggers_nest_as_deeply_as_json_may(four: Talk) -> None:
    trigger = YES
    for _ in range(45):
        trigger = {"type": "all", "of": [trigger]}
    assert compact(four, {"window": LAST_TURN, "trigger": trigger}).json()["status"] == "applied"
    assert four.log(types="COMPACTION")[0]["payload"]["trigger"] == trigger


def test_a_trigger_looks_at_the_view_and_not_at_the_log(four: Talk) -> None:
    four.compact(last_turns=2)
    answer = compact(four, {"window": LAST_TURN, "trigger": {"type": "turn_count", "threshold": 2}}).json()
    unchanged(answer, "trigger-not-fired")


# Why nothing happens.


def test_an_empty_log_has_no_turn(http: httpx.Client, talk: Talk) -> None:
    http.put(talk.path)
    answer = unchanged(talk.compact(last_turns=1), "no-turn")
    assert (answer["version"], answer["tokens"]["before"]) == (0, 0)


def test_a_view_without_a_user_message_has_no_turn(talk: Talk) -> None:
    talk.append(*tens(system("p"), assistant("a"), assistant("b"), custom()))
    unchanged(talk.compact(last_events=1), "no-turn")


def test_the_newest_turn_alone_is_never_cut(talk: Talk) -> None:
    talk.append(*tens(user("q"), assistant("a"), assistant("b"), assistant("c")))
    unchanged(talk.compact(last_events=1), "newest-turn-only")
    unchanged(talk.compact(token_budget=15), "newest-turn-only")


def test_a_tool_call_is_never_parted_from_its_result(talk: Talk) -> None:
    talk.append(*tens(user("q1"), assistant(None, c1="f"), user("q2"), tool("c1", "r"), assistant("a")))
    unchanged(talk.compact(last_turns=1), "no-safe-cut")
    talk.append(*tens(*turns(1, first=3)))
    answer = talk.compact(last_turns=1)
    assert answer["covered"]["ranges"] == [[1, 5]]


def test_a_blank_summary_is_none(four: Talk) -> None:
    for text in ("", " ", "\n\t\u00a0"):
        body = {"window": LAST_TURN, "summarizer": {"type": "text", "text": text}}
        unchanged(compact(four, body).json(), "summarizer-declined")
    assert four.session()["version"] == 8


def test_a_summary_that_is_as_long_as_what_it_covers_is_not_taken(four: Talk) -> None:
    for dry_run in (True, False):
        body = {
            "window": LAST_TURN,
            "summarizer": {"type": "text", "text": "word " * 80},
            "dry_run": dry_run,
        }
        unchanged(compact(four, body).json(), "does-not-shrink")
    assert four.session()["version"] == 8


def test_a_plan_on_a_view_that_another_compaction_replaced_has_lost(four: Talk) -> None:
    four.compact(last_turns=3)
    answer = unchanged(four.compact(last_turns=1, expected_version=8), "lost-race")
    assert answer["version"] == 9
    assert answer["tokens"]["before"] == four.session()["view"]["tokens"] == 60


def test_of_two_compactions_of_the_same_version_one_is_applied(service: Service, four: Talk) -> None:
    gate = threading.Barrier(4)

    def run(size: int) -> dict[str, Any]:
        with service.client() as client:
            gate.wait()
            found: dict[str, Any] = Talk(client, four.id).compact(last_turns=size, expected_version=8)
            return found

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(run, (1, 2, 3, 1)))

    assert sorted(answer["reason"] or "" for answer in answers) == ["", "lost-race", "lost-race", "lost-race"]
    assert len(four.log(types="COMPACTION")) == 1


# Summaries.


def test_a_summary_that_is_brought_along_takes_the_place_of_the_turns(talk: Talk) -> None:
    talk.append(*tens(system("p"), *turns(3), tokens=500))
    answer = talk.compact(last_turns=1, summary="They asked twice.\0 Ünïcödé")

    assert answer["status"] == "applied"
    assert answer["summary"] == "They asked twice.\0 Ünïcödé"
    assert (answer["boundary"], answer["version"]) == (8, 10)
    assert answer["covered"] == {"ranges": [[2, 5]], "events": 4}
    view = talk.view()
    assert [event["seq"] for event in view["events"]] == [1, 9, 10, 6, 7]
    question, summary = view["events"][1:3]
    assert (question["synthetic"], summary["synthetic"]) == (True, True)
    assert (question["message"]["role"], summary["message"]["role"]) == ("user", "assistant")
    assert summary["message"]["content"] == answer["summary"]
    assert question["metadata"] == summary["metadata"] == {"boundary": 8}
    assert answer["tokens"]["before"] == 3500
    assert answer["tokens"]["after"] == view["token_count"] == talk.session()["view"]["tokens"]
    assert answer["tokens"]["saved"] == 3500 - view["token_count"]
    assert view["turns"] == 1


def test_a_new_summary_covers_the_old_one(talk: Talk) -> None:
    talk.append(*tens(*turns(2), tokens=500))
    talk.compact(last_turns=1, summary="first")
    talk.append(*tens(*turns(2, first=3), tokens=500))
    answer = talk.compact(last_turns=1, summary="second")
    # The earlier boundary, seq 5, lies inside the range and is no message, so it is not counted.
    assert answer["covered"] == {"ranges": [[3, 9]], "events": 6}
    assert [event["seq"] for event in talk.view()["events"]] == [13, 14, 10, 11]
    assert "first" not in talk.texts()


def test_a_plain_window_keeps_the_summary(talk: Talk) -> None:
    talk.append(*tens(*turns(2), tokens=500))
    talk.compact(last_turns=1, summary="first")
    talk.append(*tens(*turns(1, first=3), tokens=500))
    answer = talk.compact(last_turns=1)
    assert answer["pinned"] == [6, 7]
    assert talk.seqs() == [6, 7, 8, 9]


def test_a_summary_is_of_the_version_that_it_names(talk: Talk) -> None:
    talk.append(*tens(*turns(3), tokens=500))
    talk.append(*tens(*turns(2, first=4), tokens=500))
    answer = talk.compact(last_turns=1, summary="of three turns", expected_version=6)
    assert (answer["status"], answer["boundary"]) == ("applied", 11)
    assert answer["covered"]["ranges"] == [[1, 4]]
    assert talk.seqs() == [12, 13, 5, 6, 7, 8, 9, 10]
    assert talk.session()["view"]["turns"] == 3


def test_a_version_that_is_not_there_yet_is_a_conflict(four: Talk) -> None:
    for version in (9, 2**62, 2**63 - 1):
        answer = compact(four, {"window": LAST_TURN, "expected_version": version})
        assert problem(answer, 412, "version-conflict")["current_version"] == 8
    assert four.session()["version"] == 8


def test_a_server_without_a_model_says_so(four: Talk) -> None:
    answer = compact(four, {"window": LAST_TURN, "summarizer": {"type": "llm"}})
    assert pointers(answer) == ["/summarizer"]
    assert "summarizer" in answer.json()["detail"]
    assert four.session()["version"] == 8


def test_appends_go_on_during_compactions(service: Service, four: Talk) -> None:
    def append(number: int) -> int:
        with service.client() as client:
            return int(Talk(client, four.id).append(*tens(*turns(1, first=number)))["version"])

    def run(_: int) -> str:
        with service.client() as client:
            return str(Talk(client, four.id).compact(last_turns=2)["status"])

    with ThreadPoolExecutor(8) as pool:
        compacting = pool.map(run, range(12))
        versions = list(pool.map(append, range(5, 45)))
        outcomes = list(compacting)

    assert set(outcomes) <= {"applied", "unchanged"}
    log = four.log()
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert len(set(versions)) == 40
    asked = [event["message"]["content"] for event in log if event["type"] == "MESSAGE"]
    assert {f"question {number}" for number in range(1, 45)} <= set(asked)
    view = four.view()
    assert four.session()["view"] == {
        "events": len(view["events"]),
        "turns": view["turns"],
        "tokens": view["token_count"],
        "boundary": view["boundary"],
    }


# Dry runs.


@pytest.mark.parametrize("summary", [None, "short"])
def test_a_dry_run_tells_what_would_happen_and_writes_nothing(talk: Talk, summary: str | None) -> None:
    talk.append(*tens(system("p"), *turns(3), tokens=500))
    before, log = talk.session(), talk.log()

    planned = talk.compact(last_turns=1, summary=summary, dry_run=True)

    assert set(planned) == FIELDS
    assert (planned["status"], planned["reason"], planned["boundary"]) == ("planned", None, None)
    assert planned["version"] == 7
    assert talk.session() == before
    assert talk.log() == log
    assert talk.get("/compactions")["data"] == []
    applied = talk.compact(last_turns=1, summary=summary)
    for same in ("covered", "pinned", "preserved", "summary", "tokens", "over_budget"):
        assert planned[same] == applied[same]


def test_a_dry_run_of_a_model_that_is_not_there_is_refused_too(four: Talk) -> None:
    answer = compact(four, {"window": LAST_TURN, "summarizer": {"type": "llm"}, "dry_run": True})
    assert pointers(answer) == ["/summarizer"]


# What is wrong with a request.
BAD: list[tuple[Any, str]] = [
    ({}, ""),  # no window, no policy anywhere
    ({"window": None}, ""),  # the same, said aloud
    ({"dry_run": True}, ""),  # of what?
    ({"trigger": {"type": "always"}}, "/window"),  # a trigger alone is no compaction
    ({"summarizer": {"type": "text", "text": "x"}}, "/window"),  # nor is a summary
    ({"window": {}}, "/window/rule"),  # without a rule
    ({"window": []}, "/window"),  # no object
    ({"window": "last_turns"}, "/window"),
    ({"window": {"rule": "last_turns"}}, "/window/size"),  # without a size
    ({"window": {"rule": "LAST_TURNS", "size": 1}}, "/window/rule"),  # names are exact
    ({"window": {"rule": None, "size": 1}}, "/window/rule"),
    ({"window": {"rule": "last_turns", "size": 0}}, "/window/size"),  # of nothing
    ({"window": {"rule": "last_turns", "size": -1}}, "/window/size"),
    ({"window": {"rule": "last_turns", "size": 1.5}}, "/window/size"),
    ({"window": {"rule": "last_turns", "size": "1"}}, "/window/size"),
    ({"window": {"rule": "last_turns", "size": True}}, "/window/size"),
    ({"window": {"rule": "last_turns", "size": None}}, "/window/size"),
    ({"window": {**LAST_TURN, "extra": 1}}, "/window/extra"),
    ({"window": LAST_TURN, "extra": 1}, "/extra"),
    ({"window": LAST_TURN, "policy": {}}, "/policy"),
    ({"window": LAST_TURN, "trigger": {}}, "/trigger/type"),  # of what type?
    ({"window": LAST_TURN, "trigger": []}, "/trigger"),
    ({"window": LAST_TURN, "trigger": {"type": "moon"}}, "/trigger/type"),
    ({"window": LAST_TURN, "trigger": {"type": 1}}, "/trigger/type"),
    ({"window": LAST_TURN, "trigger": {"type": "always", "threshold": 1}}, "/trigger/threshold"),
    ({"window": LAST_TURN, "trigger": {"type": "turn_count"}}, "/trigger/threshold"),
    ({"window": LAST_TURN, "trigger": {"type": "turn_count", "threshold": 0}}, "/trigger/threshold"),
    ({"window": LAST_TURN, "trigger": {"type": "token_count", "threshold": "9"}}, "/trigger/threshold"),
    ({"window": LAST_TURN, "trigger": {"type": "any"}}, "/trigger/of"),
    ({"window": LAST_TURN, "trigger": {"type": "any", "of": []}}, "/trigger/of"),
    ({"window": LAST_TURN, "trigger": {"type": "all", "of": {}}}, "/trigger/of"),
    ({"window": LAST_TURN, "trigger": {"type": "all", "of": [YES, {"type": "x"}]}}, "/trigger/of/1/type"),
    (
        {"window": LAST_TURN, "trigger": {"type": "any", "of": [YES, {"type": "all", "of": [{"type": "turn_count"}]}]}},
        "/trigger/of/1/of/0/threshold",
    ),
    ({"window": LAST_TURN, "summarizer": {}}, "/summarizer/type"),
    ({"window": LAST_TURN, "summarizer": {"type": "magic"}}, "/summarizer/type"),
    ({"window": LAST_TURN, "summarizer": {"type": "text"}}, "/summarizer/text"),
    ({"window": LAST_TURN, "summarizer": {"type": "text", "text": 7}}, "/summarizer/text"),
    ({"window": LAST_TURN, "summarizer": {"type": "text", "text": None}}, "/summarizer/text"),
    ({"window": LAST_TURN, "summarizer": {"type": "text", "text": "x", "model": "m"}}, "/summarizer/model"),
    ({"window": LAST_TURN, "summarizer": {"type": "llm", "url": "http://x"}}, "/summarizer/url"),
    ({"window": LAST_TURN, "summarizer": {"type": "llm", "max_tokens": 0}}, "/summarizer/max_tokens"),
    ({"window": LAST_TURN, "dry_run": "yes"}, "/dry_run"),
    ({"window": LAST_TURN, "dry_run": None}, "/dry_run"),
    ({"window": LAST_TURN, "expected_version": -1}, "/expected_version"),
    ({"window": LAST_TURN, "expected_version": "8"}, "/expected_version"),
    ({"window": LAST_TURN, "expected_version": 2**63}, "/expected_version"),
    ([], ""),  # no object
]


@pytest.mark.parametrize(("body", "pointer"), BAD, ids=lambda value: str(value)[:80])
def test_every_bad_field_is_named_and_nothing_is_written(four: Talk, body: Any, pointer: str) -> None:
    assert pointers(compact(four, body)) == [pointer]
    assert four.session()["version"] == 8


def test_a_summary_that_is_no_text_is_refused(four: Talk) -> None:
    body = '{"window":{"rule":"last_turns","size":1},"summarizer":{"type":"text","text":"\\ud800 half of a character"}}'
    answer = four.http.post(four.path + "/compact", content=body, headers={"Content-Type": "application/json"})
    assert pointers(answer) == ["/summarizer/text"]


# Policies.


def test_an_empty_body_runs_the_sessions_policy(http: httpx.Client, four: Talk) -> None:
    http.patch(four.path, json={"policy": {"window": {"rule": "last_turns", "size": 2}, "trigger": YES}})
    answer = four.http.post(four.path + "/compact").json()
    assert (answer["status"], answer["covered"]["ranges"]) == ("applied", [[1, 4]])
    unchanged(compact(four, {}).json(), "trigger-not-fired")


def test_what_is_asked_for_by_hand_comes_before_the_policy(http: httpx.Client, four: Talk) -> None:
    http.patch(four.path, json={"policy": {"window": {"rule": "last_turns", "size": 4}, "trigger": NO}})
    assert four.compact(last_turns=3)["covered"]["ranges"] == [[1, 2]]


def test_a_policy_can_be_tried_out(http: httpx.Client, four: Talk) -> None:
    http.patch(four.path, json={"policy": {"window": LAST_TURN}})
    assert compact(four, {"dry_run": True}).json()["status"] == "planned"
    assert four.session()["version"] == 8


def test_a_policy_with_a_model_needs_one(http: httpx.Client, four: Talk) -> None:
    http.patch(four.path, json={"policy": {"window": LAST_TURN, "summarizer": {"type": "llm"}}})
    assert pointers(compact(four, {})) == ["/summarizer"]


@pytest.fixture
def default_policy(database_url: str) -> Iterator[httpx.Client]:
    """A service whose default policy keeps two turns."""
    policy = '{"window": {"rule": "last_turns", "size": 2}, "trigger": {"type": "turn_count", "threshold": 3}}'
    with Service(settings_for(database_url, default_policy=policy)) as service, service.client() as client:
        yield client


def test_a_session_without_a_policy_has_the_servers(default_policy: httpx.Client) -> None:
    talk = Talk(default_policy, "s")
    talk.append(*tens(*turns(4)))
    assert talk.session()["policy"] is None
    answer = default_policy.post(talk.path + "/compact").json()
    assert (answer["status"], answer["covered"]["ranges"]) == ("applied", [[1, 4]])
    assert default_policy.get("/v1/capabilities").json()["defaults"]["policy"] is True


def test_a_sessions_own_policy_comes_before_the_servers(default_policy: httpx.Client) -> None:
    talk = Talk(default_policy, "s")
    talk.append(*tens(*turns(4)))
    default_policy.patch(talk.path, json={"policy": {"window": {"rule": "last_turns", "size": 3}}})
    assert default_policy.post(talk.path + "/compact").json()["covered"]["ranges"] == [[1, 2]]


# The list.


def test_compactions_are_listed_newest_first_as_they_were_answered(talk: Talk) -> None:
    answers = []
    for number in range(1, 5):
        talk.append(*tens(*turns(2, first=2 * number), tokens=500))
        if number == 3:
            answers.append(talk.compact(last_turns=2, summary="of all before"))
        else:
            answers.append(talk.compact(last_turns=1))
    assert [answer["status"] for answer in answers] == ["applied"] * 4

    page = talk.get("/compactions")

    assert set(page) == {"data", "has_more", "next_cursor"}
    assert page["data"] == answers[::-1]
    assert (page["has_more"], page["next_cursor"]) == (False, None)


def test_the_list_of_compactions_has_pages(talk: Talk) -> None:
    for number in range(1, 6):
        talk.append(*tens(*turns(2, first=2 * number)))
        talk.compact(last_turns=1)
    whole = talk.get("/compactions")["data"]
    assert [one["boundary"] for one in whole] == sorted((one["boundary"] for one in whole), reverse=True)
    for limit in (1, 2, 4, 5):
        found: list[Any] = []
        params: dict[str, Any] = {"limit": limit}
        while True:
            page = talk.get("/compactions", params=params)
            assert len(page["data"]) <= limit
            found += page["data"]
            if not page["has_more"]:
                assert page["next_cursor"] is None
                break
            params["cursor"] = page["next_cursor"]
        assert found == whole


def test_a_session_that_was_never_compacted_has_none(talk: Talk) -> None:
    talk.append(HELLO)
    assert talk.get("/compactions") == {"data": [], "has_more": False, "next_cursor": None}


@pytest.mark.parametrize("limit", [0, -1, 1001, "x"])
def test_a_limit_out_of_range_is_refused(talk: Talk, limit: Any) -> None:
    talk.append(HELLO)
    assert pointers(talk.http.get(talk.path + "/compactions", params={"limit": limit})) == ["limit"]
