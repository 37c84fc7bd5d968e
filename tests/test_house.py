"""The code keeps to the sizes that keep it readable: when one pinches, an idea is missing."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(path for path in (ROOT / "app").rglob("*.py"))

LONGEST_MODULE = 250
LONGEST_FUNCTION = 40


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_and_its_functions_fit_on_a_few_screens(module: Path) -> None:
    source = module.read_text()
    assert len(source.splitlines()) <= LONGEST_MODULE
    long = [f"{function.name}: {lines}" for function, lines in functions(source) if lines > LONGEST_FUNCTION]
    assert not long


def functions(source: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, int]]:
    """Return every function with its number of lines, docstring and decorators left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body[0]
            signature = node.body[0].lineno - node.lineno
            yield node, signature + (node.end_lineno or 0) - first.lineno + 1
