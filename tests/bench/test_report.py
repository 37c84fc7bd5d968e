"""Figures become rows: medians, ratios, verdicts."""

from bench import report
from bench.peers.said import orphans
from bench.results import Results


def found() -> Results:
    results = Results(about={})
    line = results.line("append", "append 1")
    line.figures = {"pgbench": [1000.0, 900.0, 5000.0], "turnlog": [450.0], "bare ASGI": [4500.0]}
    return results


def test_a_ratio_is_of_medians_and_is_held_against_its_target() -> None:
    (row,) = report.sheets(found())[0].rows
    assert row == ("append 1", "1", "450/s", "1,000/s", "0.45", "4,500/s", "0.10", "0.40 / 0.50", "holds")


def test_the_tables_of_a_document_are_replaced_and_the_rest_stays() -> None:
    document = "before\n<!-- tables: begin -->\nold\n<!-- tables: end -->\nafter\n"
    renewed = report.into(document, "new\n")
    assert "old" not in renewed
    assert renewed.startswith("before\n")
    assert renewed.endswith("<!-- tables: end -->\nafter\n")
    assert report.into(renewed, "new\n") == renewed


def test_a_result_without_its_call_before_it_is_an_orphan() -> None:
    assert orphans([("call", "a"), ("result", "a")]) == 0
    assert orphans([("result", "a"), ("call", "a"), ("other", "")]) == 1
