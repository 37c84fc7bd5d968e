"""The results as tables: on the terminal, and in Markdown for docs/performance.md."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from bench import targets
from bench.parts.peers import ratios
from bench.results import BARE, PGBENCH, TURNLOG, Line, Results

# These parts have figures of many kinds in a line instead of contenders.
_WIDE: Final = {"cost": "Costs of one operation, one client", "buffers": "Buffers of a view", "disk": "On disk"}
_MISSED: Final = "misses"
_WHOLE: Final = 100  # from here on a figure has no decimals


class Sheet(NamedTuple):
    """A table before it is drawn."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def sheets(results: Results) -> list[Sheet]:
    """Return everything that was found, as tables."""
    made = [_speed(results)]
    peers = [line for line in results.lines if line.part == "peers"]
    if peers:
        made.append(_turned("Beside its peers, one caller, in ms", peers))
        against: list[tuple[str, ...]] = [(name, f"{ratio:.1f}×", target) for name, ratio, target in ratios(peers)]
        made.append(Sheet("Times faster than its peers", ("", "turnlog", "must / aim"), against))
    for part, title in _WIDE.items():
        lines = [line for line in results.lines if line.part == part]
        if lines:
            made.append(_wide(title, lines))
    return [sheet for sheet in (made[0], _growth(results), *made[1:]) if sheet.rows]


def _growth(results: Results) -> Sheet:
    """Compare the longer logs with the first, by latency: a view should not know how long its log is."""
    lines = [line for line in results.lines if line.part == "view" and line.clients == 1]
    first = next((line.median(TURNLOG) for line in lines if line.operation == "view of 40"), None)
    rows: list[tuple[str, ...]] = []
    for line in lines:
        rate = line.median(TURNLOG)
        if first and rate and line.operation.startswith("view of 40, of"):
            rows.append((line.operation, f"{first / rate:.2f}×", "1.3 / 1.1"))
    return Sheet("A view by the length of its log, against 1,000 events", ("", "takes", "must / aim"), rows)


def _speed(results: Results) -> Sheet:
    columns = ("operation", "clients", "turnlog", "pgbench", "ratio", "bare ASGI", "ratio", "must / aim", "")
    lines = [line for line in results.lines if line.part not in {"peers", *_WIDE}]
    return Sheet("Speed", columns, [_row(line) for line in lines])


def _row(line: Line) -> tuple[str, ...]:
    others = [who for who in line.figures if who not in {TURNLOG, PGBENCH, BARE}]
    return (
        line.operation,
        str(line.clients),
        _figure(line, TURNLOG),
        _figure(line, PGBENCH),
        _ratio(line, PGBENCH),
        _figure(line, BARE),
        _ratio(line, BARE),
        targets.words(line.operation, line.clients),
        _verdict(line) or ", ".join(f"{who} {_number(line.median(who))}" for who in others),
    )


def _verdict(line: Line) -> str:
    target, reached = targets.ratio(line.operation, line.clients), line.ratio(TURNLOG, PGBENCH)
    if target is None or reached is None:
        return ""
    return "reaches the aim" if reached >= target.aim else "holds" if reached >= target.must else _MISSED


def _figure(line: Line, who: str) -> str:
    found = line.median(who)
    return "" if found is None else f"{_number(found)} {line.unit}".replace(" /s", "/s")


def _ratio(line: Line, to: str) -> str:
    found = line.ratio(TURNLOG, to)
    return "" if found is None else f"{found:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= _WHOLE else f"{value:.3g}"


def _wide(title: str, lines: Sequence[Line]) -> Sheet:
    kinds = list(dict.fromkeys(kind for line in lines for kind in line.figures))
    rows = [
        (line.operation, *(_number(line.median(kind)) + line.notes.get(kind, "") for kind in kinds)) for line in lines
    ]
    return Sheet(title, ("", *kinds), rows)


def _turned(title: str, lines: Sequence[Line]) -> Sheet:
    """Make a table with a row for each contender."""
    who = list(dict.fromkeys(kind for line in lines for kind in line.figures))
    rows = [(one, *(_number(line.median(one)) + line.notes.get(one, "") for line in lines)) for one in who]
    return Sheet(title, ("", *(line.operation for line in lines)), rows)


def show(results: Results, console: Console) -> None:
    """Print the tables."""
    for sheet in sheets(results):
        table = Table(title=sheet.title, title_justify="left")
        for number, name in enumerate(sheet.columns):
            table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)
    console.print(_others(results))
    for line in results.skipped:
        console.print(f"skipped: {line}", style="yellow", markup=False)


def _others(results: Results) -> str:
    share = results.about.get("others")
    return "" if share is None else f"Other programs took {share:.0%} of the machine meanwhile."


def markdown(results: Results) -> str:
    """Return the tables in Markdown, with what they were made on."""
    about = results.about
    machine, versions = about["machine"], about["versions"]
    lines = [
        f"Made on {about['when']} at commit `{about['commit']}`: {machine['cpu']}, {machine['cores']} cores,"
        f" {machine['memory_gb']} GB, {machine['system']}; Python {versions['python']}, PostgreSQL"
        f" {versions['postgres']}; {about['rounds']} rounds of {about['seconds']:g} s. {_others(results)}",
        "",
    ]
    for sheet in sheets(results):
        lines += [f"### {sheet.title}", "", _markdown_row(sheet.columns)]
        lines.append("|" + "|".join("---" if n == 0 else "---:" for n, _ in enumerate(sheet.columns)) + "|")
        lines += [*(_markdown_row(row) for row in sheet.rows), ""]
    lines += [f"Skipped: {line}." for line in results.skipped]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def into(document: str, tables: str) -> str:
    """Put the tables between the two marks of a document."""
    begin, end = "<!-- tables: begin -->", "<!-- tables: end -->"
    before, _, rest = document.partition(begin)
    return f"{before}{begin}\n\n{tables}\n{end}{rest.partition(end)[2]}"
