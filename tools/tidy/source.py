"""Reads C++ for the rules: the code without comments and strings, and the functions in it."""

import bisect
import re
from dataclasses import dataclass

# In this order: what begins first at a place decides what the characters after it mean.
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<number>\b[0-9](?:'?[0-9a-zA-Z_.])*)
      | (?P<char>'(?:\\.|[^'\\\n])+')""",
    re.VERBOSE | re.DOTALL,
)

SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum)\b")
FUNCTION_TAIL = re.compile(
    r"""\)\s*(?:(?:const\b|noexcept(?:\s*\([^()]*\))?|override\b|final\b|mutable\b|&&?
                  |->[\s\w:<>,*&]+|requires\b.*|:\s.*)\s*)*$""",
    re.VERBOSE | re.DOTALL,
)


def blank(text):
    """The same number of lines and columns, with nothing on them."""
    return re.sub(r"[^\n]", " ", text)


def strip_comments_and_strings(text):
    """C++ code with every comment and literal blanked; lines and columns stay where they are."""

    def replace(match):
        return match.group(0) if match.lastgroup == "number" else blank(match.group(0))

    return TOKEN.sub(replace, text)


@dataclass
class Function:
    """A function definition: what stands before its body, and the lines of the body's braces."""

    header: str
    first_line: int
    last_line: int

    def lines(self):
        return self.last_line - self.first_line + 1

    def parameters(self):
        """The number of parameters in the first top-level pair of parentheses of the header."""
        header = re.sub(
            r"\[\[.*?\]\]|\boperator\s*\(\s*\)|\bnoexcept\s*\([^()]*\)", " ", self.header
        )
        header = strip_template_prefix(header)
        start = header.find("(")
        if start < 0:
            return 0
        round_depth, angle_depth, commas = 0, 0, 0
        inside = ""
        for char in header[start:]:
            round_depth += char in "([{"
            round_depth -= char in ")]}"
            angle_depth += char == "<"
            angle_depth -= char == ">"
            if round_depth == 0:
                break
            commas += char == "," and round_depth == 1 and angle_depth <= 0
            inside += char
        return commas + 1 if inside.strip("( \n\t") not in ("", "void") else 0


def strip_template_prefix(header):
    """The header without `template <...>` at its front."""
    match = re.match(r"\s*template\s*<", header)
    while match:
        depth, end = 1, match.end()
        while end < len(header) and depth:
            depth += {"<": 1, ">": -1}.get(header[end], 0)
            end += 1
        header = header[end:]
        match = re.match(r"\s*template\s*<", header)
    return header


def opens_function(header):
    """Does this text before a brace, at namespace or class level, begin a function?"""
    plain = strip_template_prefix(header)
    before_parenthesis = plain.split("(")[0]
    if "=" in before_parenthesis and "operator" not in before_parenthesis:
        return False
    return bool(FUNCTION_TAIL.search(plain))


def opens_scope(header):
    plain = strip_template_prefix(header)
    return bool(SCOPE.search(plain.split("(")[0])) or plain.strip() in ("extern", "")


def functions(code):
    """The function definitions of stripped code. Trusts clang-format: ' {' opens a block."""
    line_starts = [0] + [i + 1 for i, char in enumerate(code) if char == "\n"]
    found, stack, header_start = [], [], 0
    inside = (
        0  # Blocks that are open within the present function; 0 means at namespace or class level.
    )
    for i, char in enumerate(code):
        if char == "{":
            initializer = i > 0 and not code[i - 1].isspace()
            if inside:
                stack.append(None)
                inside += 1
            elif initializer:
                stack.append("initializer")
            else:
                header = re.sub(
                    r"^[ \t]*#.*(?:\\\n.*)*$", "", code[header_start:i], flags=re.MULTILINE
                )
                header = re.sub(r"\b(?:public|protected|private)\s*:(?!:)", "", header)
                if opens_function(header):
                    stack.append((header, i))
                    inside = 1
                else:
                    stack.append("scope" if opens_scope(header) else "initializer")
                    header_start = i + 1
        elif char == "}" and stack:
            top = stack.pop()
            if inside:
                inside -= 1
                if isinstance(top, tuple):
                    first, last = (bisect.bisect_right(line_starts, at) for at in (top[1], i))
                    found.append(Function(top[0].strip(), first, last))
                    header_start = i + 1
            elif top == "scope":
                header_start = i + 1
        elif char == ";" and not inside and "initializer" not in stack:
            header_start = i + 1
    return found
