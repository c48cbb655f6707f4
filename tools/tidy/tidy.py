#!/usr/bin/env python3
"""Checks the style rules that a program can check; prints `file:line: rule: what to do`.

Use: tidy.py [--root DIRECTORY] [FILE...]     (no file: the whole tree)

Exceptions stand in tools/tidy/exceptions.txt, which may only shrink: a needless one is an error.
"""

import argparse
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import rules  # noqa: E402
import source  # noqa: E402

TOP_FOLDERS = (
    "src",
    "include",
    "tests",
    "bench",
    "tools",
    "docs",
    "examples",
    "packaging",
    "cmake",
    ".ci",
)
SKIPPED_FOLDERS = {"__pycache__", "build", "corpus", ".git"}
COUNTED = {"file-length", "function-length", "line-length", "parameters"}


class File:
    """One file: path, kind, text, lines, and for C++ the code without comments and strings."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.kind = kind_of(path, text)
        self.code = source.strip_comments_and_strings(text) if self.kind == "cc" else ""

    def folder(self):
        """The folder of src/ that holds the file, or None."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def kind_of(path, text):
    name = path.rsplit("/", 1)[-1]
    if name.endswith((".h", ".cc")):
        return "cc"
    if name.endswith(".py") or text.startswith("#!/usr/bin/env python3"):
        return "py"
    if name.endswith(".sh") or text.startswith(("#!/usr/bin/env bash", "#!/bin/sh", "#!/bin/bash")):
        return "sh"
    if name.endswith(".cmake") or name in ("CMakeLists.txt", "Makefile"):
        return "cmake"
    return "md" if name.endswith(".md") else "text"


def read_layers(root):
    """The layer table, from the sluice_library() lines of CMakeLists.txt."""
    layers = {}
    for line in (root / "CMakeLists.txt").read_text(encoding="utf-8").splitlines():
        match = re.match(r"sluice_library\((\w+)([\w\s]*)\)", line)
        if match:
            layers[match.group(1)] = match.group(2).split()
    return layers


def find_files(root):
    """Every file of the tree that the rules are about."""
    found = [path.name for path in root.iterdir() if path.is_file()]
    for top in TOP_FOLDERS:
        for folder, folders, names in os.walk(root / top):
            folders[:] = sorted(set(folders) - SKIPPED_FOLDERS)
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return sorted(found)


class Tree:
    """The repository as the rules see it."""

    def __init__(self, root):
        self.root = root
        self.layers = read_layers(root)

    def read(self, path):
        """The text of a file; "" for a folder or what is not text, None where there is nothing."""
        full = self.root / path
        if full.is_dir():
            return ""
        try:
            return full.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return ""
        except OSError:
            return None

    def check(self, path):
        """All findings in one file, as (line, rule, text)."""
        text = self.read(path)
        if not text:
            return []
        file = File(path, text)
        findings = list(rules.check_text(file))
        if file.kind in ("cc", "py", "sh", "cmake"):
            findings += rules.check_limits(file)
        if file.kind == "cc":
            findings += rules.check_functions(file)
            findings += rules.check_includes(file, self.layers, lambda p: (self.root / p).exists())
            findings += rules.check_banned(file)
        if file.kind == "py":
            findings += rules.check_python(file)
        if file.kind == "md":
            findings += rules.check_page(file, self.read)
        return findings


def read_exceptions(root):
    """{(rule, path): number of findings allowed} and the line each stands on."""
    allowed, lines = {}, {}
    path = root / "tools" / "tidy" / "exceptions.txt"
    if path.exists():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            words = line.split("#")[0].split()
            if words:
                rule, file, count = words
                allowed[rule, file], lines[rule, file] = int(count), number
    return allowed, lines


def report(tree, paths, whole_tree):
    """The messages for these files, exceptions applied."""
    allowed, lines = read_exceptions(tree.root)
    messages = []
    for path in paths:
        by_rule = {}
        for line, rule, text in tree.check(path):
            by_rule.setdefault(rule, []).append((line, text))
        for rule, findings in by_rule.items():
            limit = allowed.get((rule, path), 0)
            if len(findings) > limit:
                more = f" ({limit} allowed here)" if limit else ""
                messages += [f"{path}:{line}: {rule}: {text}{more}" for line, text in findings]
            elif len(findings) < limit:
                messages.append(
                    f"tools/tidy/exceptions.txt:{lines[rule, path]}: ratchet: {path} needs only "
                    f"{len(findings)} for {rule}: lower the number"
                )
        if not whole_tree:
            continue
        for (rule, file), number in lines.items():
            if file == path and rule not in by_rule:
                messages.append(
                    f"tools/tidy/exceptions.txt:{number}: ratchet: {path} needs no exception "
                    f"for {rule} any more: remove the line"
                )
    if whole_tree:
        for (rule, file), number in lines.items():
            if file not in paths:
                messages.append(
                    f"tools/tidy/exceptions.txt:{number}: ratchet: no {file}: remove the line"
                )
    return messages


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent.parent)
    parser.add_argument("files", nargs="*", metavar="FILE")
    options = parser.parse_args()
    tree = Tree(options.root)
    paths = options.files or find_files(options.root)
    messages = report(tree, paths, whole_tree=not options.files)
    for message in messages:
        print(message)
    print(f"tidy: {len(paths)} files, {len(messages)} findings")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
