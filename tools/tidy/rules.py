"""The rules. Each is a function that yields (line, rule, what to do) for one file."""

import ast
import re

import source

LINE_LIMIT = 100
FILE_LIMIT = 400
FUNCTION_LIMIT = 60
PARAMETER_LIMIT = 5
BLOB_LIMIT = 256 * 1024

MACROS = {"TRY", "CHECK"}


def call_of(names):
    """Matches calls of C functions of these names, but neither members nor declarations."""
    return rf"(?:(?<![\w.>:])(?<!\w )|\breturn )(?:::)?(?:{names})\s*\(\s*[^)\s]"


# (rule, pattern in code without comments and strings, folders where it may stand, what to do)
BANNED = [
    (
        "cast",
        r"\breinterpret_cast\b",
        {"memory"},
        "only memory/ turns numbers into pointers: use its types",
    ),
    ("raw-close", call_of("close"), {"base", "memory"}, "own the descriptor with UniqueFd"),
    ("raw-mmap", call_of("mmap|munmap|mremap"), {"base", "memory"}, "use memory::Mapping"),
    (
        "raw-new",
        r"(?<!operator )\bnew\b(?!\s*\()|\bnew\s*\(",
        {"base", "memory"},
        "use a container or make_unique",
    ),
    (
        "raw-delete",
        r"(?<!= )(?<!=)(?<!operator )\bdelete\b",
        {"base", "memory"},
        "let a smart pointer delete",
    ),
    ("malloc", r"\b(?:malloc|calloc|realloc|free)\s*\(", set(), "use a container or make_unique"),
    ("volatile", r"\bvolatile\b", set(), "use memory::Shared<T> or std::atomic"),
    ("atomic-ref", r"\batomic_ref\b", {"memory"}, "use memory::Shared<T>"),
    (
        "print",
        r"\bf?printf\s*\(|\bf?puts\s*\(|\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b",
        {"app"},
        "only app/ prints: return an error, or count",
    ),
    (
        "fmt",
        r"\bfmt::|#\s*include\s*<fmt/",
        {"app", "control"},
        "text is made in control/ and app/ only",
    ),
    ("throw", r"\bthrow\b", set(), "return a Result"),
    ("using-namespace", r"\busing\s+namespace\b", set(), "name what you use"),
    ("assert", r"(?<!_)\bassert\s*\(", set(), "CHECK for our own invariants, an Error for input"),
]

# Put together from pieces, so that these lines do not break their own rule.
LEFT_OPEN = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
MACHINE_PATH = re.compile(
    r"(?<![\w.])/(?:wo"
    + r"rk/|tmp/s"
    + r"l/)|\b(?:deb\.deb"
    + r"ian\.org|registry\.np"
    + r"mjs\.org)"
)
DOC_REFERENCE = re.compile(r"`((?:src|tests|tools|bench|cmake)/[\w./-]+)(?::([\w:~]+))?(?:\(\))?`")


def check_text(file):
    """Rules for every text file."""
    for number, line in enumerate(file.lines, 1):
        if LEFT_OPEN.search(line):
            yield number, "left-open", "finish it or refuse it with an error; then remove the word"
        if MACHINE_PATH.search(line):
            yield number, "machine", "a path or host of one machine: write a relative path"
        if line != line.rstrip() and file.kind != "md":
            yield number, "trailing-space", "remove the blanks at the end of the line"
    if len(file.text) > BLOB_LIMIT:
        yield 1, "blob", f"{len(file.text)} bytes in one file: make it by a script instead"


def check_limits(file):
    """Line and file lengths, and the comment that says the subject, for every kind of code."""
    for number, line in enumerate(file.lines, 1):
        if len(line) > LINE_LIMIT:
            yield number, "line-length", f"{len(line)} columns, the limit is {LINE_LIMIT}: break it"
    if len(file.lines) > FILE_LIMIT:
        yield 1, "file-length", f"{len(file.lines)} lines, the limit is {FILE_LIMIT}: split it"
    head = [line for line in file.lines[:3] if not line.startswith("#!") and line.strip()]
    marks = {"cc": ("// ",), "py": ('"""', "# "), "sh": ("# ",), "cmake": ("# ",)}[file.kind]
    if not head or not head[0].startswith(marks):
        yield 1, "subject", "begin the file with a comment that says its subject in one sentence"


def check_functions(file):
    """Length and number of parameters of every function."""
    for function in source.functions(file.code):
        if function.lines() > FUNCTION_LIMIT:
            yield (
                function.first_line,
                "function-length",
                f"{function.lines()} lines, the limit is {FUNCTION_LIMIT}: give a part a name",
            )
        if function.parameters() > PARAMETER_LIMIT:
            yield (
                function.first_line,
                "parameters",
                f"{function.parameters()} parameters, the limit is {PARAMETER_LIMIT}: use a struct",
            )


def check_python(file):
    """Length of Python functions."""
    for node in ast.walk(ast.parse(file.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LIMIT:
                yield (
                    node.lineno,
                    "function-length",
                    f"{length} lines, the limit is {FUNCTION_LIMIT}: give a part a name",
                )


def check_includes(file, layers, exists):
    """Includes of src/ follow the layer table; every header guards itself."""
    folder = file.folder()
    for number, line in enumerate(file.lines, 1):
        match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1)
        if folder is None:
            continue
        layer = target.split("/")[0] if "/" in target else None
        if layer not in layers:
            yield number, "include", f'write "{target}" from src/ on: "virtio/ring.h"'
        elif layer != folder and layer not in layers[folder]:
            allowed = ", ".join(layers[folder]) or "nothing else"
            yield (
                number,
                "layer",
                f"{folder}/ must not include {layer}/ (it may include {allowed}): "
                "declare an interface in the lower folder, or move the code up",
            )
        elif not exists(f"src/{target}"):
            yield number, "include", f"there is no src/{target}"
    if file.path.endswith(".h") and "#pragma once" not in file.lines:
        yield 1, "pragma-once", "write #pragma once after the subject comment"


def check_banned(file):
    """Words with a better replacement, and macros."""
    folder = file.folder()
    for number, line in enumerate(file.code.split("\n"), 1):
        macro = re.match(r"\s*#\s*define\s+(\w+)", line)
        if macro and macro.group(1) not in MACROS:
            yield number, "macro", f"{macro.group(1)}: use a function, a template or a constant"
        if folder is None:
            continue
        for rule, pattern, allowed, advice in BANNED:
            if folder not in allowed and re.search(pattern, line):
                yield number, rule, advice


def check_page(file, read):
    """Documentation: one title, and every reference to a file or a name in a file is true."""
    titles, fenced = 0, False
    for number, line in enumerate(file.lines, 1):
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("# "):
            titles += 1
        for path, name in DOC_REFERENCE.findall(line):
            if "NAME" in path or "FOLDER" in path:  # A pattern, not a file.
                continue
            text = read(path)
            if text is None:
                yield number, "reference", f"there is no {path}"
            elif name and not re.search(rf"\b{re.escape(name.split('::')[-1])}\b", text):
                yield number, "reference", f"{path} does not contain {name}"
    if titles != 1:
        yield 1, "title", f"{titles} titles; a page has one line that begins with '# '"
