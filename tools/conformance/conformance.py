#!/usr/bin/env python3
"""Writes docs/conformance.md: which test proves which requirement, and why some have none.

Use: conformance.py [--check] [--root DIRECTORY]

Tests are found by the requirement ids in their names. With --check nothing is written: the exit
status says whether the page is up to date and every requirement has a test or a written reason.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

TEST = re.compile(
    r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)",
    re.MULTILINE,
)
SCRIPT_TEST = re.compile(r"^\s*def (test_\w+)", re.MULTILINE)
ID_IN_NAME = re.compile(r"(?:(?<=_)|^)(?:([A-Z]{3})_(P?[0-9]+)|(H[0-9]{2}))(?=_|$)")
ID = re.compile(r"[A-Z]{3}-P?[0-9]+|H[0-9]{2}")

PAGE = "docs/conformance.md"
REASONS = "docs/conformance-reasons.txt"

HEAD = """# Conformance

Made by `make docs` from the names of the tests; not edited by hand. A requirement is proven by the
tests whose names carry its id. Titles are ours and short; chapters are those of virtio 1.3.
"""


@dataclass
class Requirements:
    """The ids with their titles, in sections, in the order of the file."""

    sections: list = field(default_factory=list)
    titles: dict = field(default_factory=dict)


def read_requirements(text):
    """Parses ids.txt."""
    requirements = Requirements()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("["):
            requirements.sections.append((line.strip("[]"), []))
            continue
        name, _, title = line.partition("  ")
        if not ID.fullmatch(name) or not title.strip() or not requirements.sections:
            raise ValueError(
                f"tools/conformance/ids.txt:{number}: not an id, two blanks and a title"
            )
        if name in requirements.titles:
            raise ValueError(f"tools/conformance/ids.txt:{number}: {name} stands there twice")
        requirements.titles[name] = title.strip()
        requirements.sections[-1][1].append(name)
    return requirements


def read_reasons(text):
    """Parses lines of the form `ID ID ...: reason` into {id: reason}."""
    reasons = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        names, colon, reason = line.partition(": ")
        if not colon or not reason.strip() or not all(ID.fullmatch(name) for name in names.split()):
            raise ValueError(f"{REASONS}:{number}: not `ID ...: reason`")
        for name in names.split():
            reasons[name] = reason.strip()
    return reasons


def ids_of(test_name):
    """The requirement ids in a test's name: PKD_03_X -> PKD-03, H01_X -> H01."""
    return [
        f"{family}-{number}" if family else bug
        for family, number, bug in ID_IN_NAME.findall(test_name)
    ]


def find_tests(root):
    """{id: [(suite.test, file)]} over all of tests/."""
    found = {}
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix in (".cc", ".h"):
            text = re.sub(r"//[^\n]*", "", path.read_text(encoding="utf-8"))
            named = TEST.findall(text)
        elif path.suffix == ".py":
            named = [
                (path.stem, test) for test in SCRIPT_TEST.findall(path.read_text(encoding="utf-8"))
            ]
        else:
            continue
        for suite, test in named:
            for name in ids_of(test):
                found.setdefault(name, []).append((f"{suite}.{test}", str(path.relative_to(root))))
    return found


def page(requirements, tests, reasons):
    """The text of the page."""
    proven = [name for name in requirements.titles if name in tests]
    out = [HEAD, f"{len(proven)} of {len(requirements.titles)} requirements have a test.\n"]
    for title, names in requirements.sections:
        rows = [name for name in names if name in tests]
        if not rows:
            continue
        out.append(f"## {title}\n\n| Id | Requirement | Test | File |\n|---|---|---|---|")
        for name in rows:
            named = "<br>".join(f"`{test}`" for test, _ in tests[name])
            files = "<br>".join(dict.fromkeys(f"`{path}`" for _, path in tests[name]))
            out.append(f"| {name} | {requirements.titles[name]} | {named} | {files} |")
        out.append("")
    out.append("## Without a test\n\n| Id | Requirement | Why |\n|---|---|---|")
    for name, title in requirements.titles.items():
        if name not in tests:
            out.append(f"| {name} | {title} | {reasons.get(name, '**open**')} |")
    return "\n".join(out) + "\n"


def problems(requirements, tests, reasons):
    """What is wrong apart from an old page."""
    for name in sorted(set(tests) - set(requirements.titles)):
        test, path = tests[name][0]
        yield f"{path}: {test} names {name}, which is not in tools/conformance/ids.txt"
    for name in sorted(set(reasons) - set(requirements.titles)):
        yield f"{REASONS}: {name} is not in tools/conformance/ids.txt"
    for name in sorted(set(reasons) & set(tests)):
        yield f"{REASONS}: {name} has a test now ({tests[name][0][0]}): remove the reason"
    without = [name for name in requirements.titles if name not in tests and name not in reasons]
    if without:
        yield f"no test and no reason in {REASONS}: {' '.join(without)}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say what is wrong")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent.parent)
    options = parser.parse_args()
    root = options.root
    reasons_path = root / REASONS
    try:
        requirements = read_requirements(
            (root / "tools/conformance/ids.txt").read_text(encoding="utf-8")
        )
        reasons = (
            read_reasons(reasons_path.read_text(encoding="utf-8")) if reasons_path.exists() else {}
        )
    except ValueError as error:
        print(error)
        return 1
    tests = find_tests(root)
    text = page(requirements, tests, reasons)
    wrong = list(problems(requirements, tests, reasons))
    path = root / PAGE
    if not options.check:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE}")
    elif not path.exists() or path.read_text(encoding="utf-8") != text:
        wrong.append(f"{PAGE} is out of date: run 'make docs' and commit it")
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
