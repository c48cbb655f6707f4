#!/usr/bin/env python3
"""Tests tidy with small bad trees: each rule speaks, at the right line, and only there."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import source  # noqa: E402

TIDY = Path(__file__).resolve().parent / "tidy.py"
LAYERS = """# Layers.
sluice_library(base)
sluice_library(memory  base)
sluice_library(app memory base)
"""


def header(*lines):
    return "\n".join(("// A header.", "#pragma once", *lines)) + "\n"


def long_function(lines):
    return "int f() {\n" + "  g();\n" * (lines - 2) + "}"


class TidyTest(unittest.TestCase):
    """Each test lays a small tree and looks at what tidy says of it."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.write("CMakeLists.txt", LAYERS)

    def write(self, path, text):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def tidy(self, *files):
        done = subprocess.run(
            [sys.executable, TIDY, "--root", self.root, *files],
            capture_output=True,
            text=True,
            check=False,
        )
        messages = done.stdout.splitlines()[:-1]
        self.assertEqual(done.stderr, "")
        self.assertEqual(done.returncode, 1 if messages else 0)
        return messages

    def expect(self, *beginnings):
        """Exactly these findings, each given by its beginning `file:line: rule`."""
        messages = self.tidy()
        self.assertEqual(
            [":".join(message.split(":")[:3]) for message in messages], list(beginnings), messages
        )

    def test_a_good_tree_is_silent(self):
        self.write("src/base/error.h", header("int f();"))
        self.write("src/memory/map.h", header('#include "base/error.h"'))
        self.write(
            "docs/tour.md",
            "# Tour\n\nSee `src/base/error.h:f` and `src/memory/`.\n```\n# no title\n```\n",
        )
        self.expect()

    def test_layer_violations_are_found(self):
        self.write("src/memory/map.h", header())
        self.write("src/base/error.h", header('#include "memory/map.h"'))
        self.expect("src/base/error.h:3: layer")

    def test_includes_are_written_from_src_and_exist(self):
        self.write(
            "src/base/a.h",
            header('#include "b.h"', '#include "base/none.h"', '#include "../base/a.h"'),
        )
        self.expect("src/base/a.h:3: include", "src/base/a.h:4: include", "src/base/a.h:5: include")

    def test_a_header_guards_itself(self):
        self.write("src/base/a.h", "// A header.\nint f();\n")
        self.expect("src/base/a.h:1: pragma-once")

    def test_the_subject_comes_first(self):
        self.write("src/base/a.cc", "int f() { return 1; }\n")
        self.write("tools/a", "#!/usr/bin/env bash\nset -e\n")
        self.write("tools/b.py", "import os\n")
        self.expect("src/base/a.cc:1: subject", "tools/a:1: subject", "tools/b.py:1: subject")

    def test_limits(self):
        self.write("src/base/a.cc", "// A.\n" + "int a;  // " + "x" * 90 + "\n")
        self.write("src/base/b.cc", "// B.\n" + "int b;\n" * 400)
        self.write("src/base/c.cc", "// C.\n" + long_function(61) + "\n" + long_function(60) + "\n")
        self.write(
            "src/base/d.cc",
            "// D.\nint f(int a, int b, int c, int d, int e, int f) {\n}\n"
            "int g(std::map<int, int> a, int b, int c, int d, int e) {\n}\n",
        )
        self.write("tools/e.py", '"""E."""\n\n\ndef f():\n' + "    g()\n" * 60)
        self.expect(
            "src/base/a.cc:2: line-length",
            "src/base/b.cc:1: file-length",
            "src/base/c.cc:2: function-length",
            "src/base/d.cc:2: parameters",
            "tools/e.py:4: function-length",
        )

    def test_banned_words_by_folder(self):
        bad = [
            "auto* p = reinterpret_cast<int*>(q);",
            "close(fd);",
            "::munmap(p, 1);",
            "int* n = new int;",
            "delete n;",
            "free(n);",
            "volatile int v;",
            'std::printf("x");',
            "std::cout << 1;",
            "throw 1;",
            'auto s = fmt::format("x");',
            "using namespace std;",
            "assert(v);",
        ]
        self.write("src/app/a.cc", "// A.\n" + "\n".join(bad) + "\n")
        rules = [
            "cast",
            "raw-close",
            "raw-mmap",
            "raw-new",
            "raw-delete",
            "malloc",
            "volatile",
            "throw",
            "using-namespace",
            "assert",
        ]
        self.assertEqual(sorted(rules), sorted(m.split(": ")[1] for m in self.tidy()))
        self.write("src/app/a.cc", "// A.\n")
        self.write("src/memory/a.cc", "// A.\n" + "\n".join(bad) + "\n")
        rules = [
            "malloc",
            "volatile",
            "print",
            "print",
            "throw",
            "fmt",
            "using-namespace",
            "assert",
        ]
        self.assertEqual(sorted(rules), sorted(m.split(": ")[1] for m in self.tidy()))

    def test_words_in_comments_strings_and_other_meanings_are_free(self):
        self.write(
            "src/app/a.cc",
            "// reinterpret_cast and throw, new and delete\n"
            'const char* s = "throw new volatile";\n'
            'const char* r = R"(delete "this" throw)";\n'
            "struct A { A(const A&) = delete; void close(); };\n"
            "void A::close() { socket_.close(); peer->close(); static_assert(1 + 1'000 > 2); }\n",
        )
        self.expect()

    def test_macros(self):
        self.write(
            "src/base/a.h",
            header("#define CHECK(x) (x)", "#define MIN(a, b) ((a) < (b) ? (a) : (b))"),
        )
        self.expect("src/base/a.h:4: macro")

    def test_words_left_open_and_paths_of_a_machine(self):
        self.write(
            "docs/a.md", "# A\n" + "TO" + "DO: this\nsee /wo" + "rk/main/x and src/wo" + "rk/x\n"
        )
        self.expect("docs/a.md:2: left-open", "docs/a.md:3: machine")

    def test_references_of_pages(self):
        self.write("src/base/a.h", header("int real();"))
        self.write(
            "docs/a.md",
            "# A\n`src/base/a.h:real` `src/base/a.h:unreal` `src/base/none.h`\n"
            "`src/FOLDER/NAME.h`\n# B\n",
        )
        self.expect("docs/a.md:2: reference", "docs/a.md:2: reference", "docs/a.md:1: title")

    def test_exceptions_only_shrink(self):
        self.write("src/base/a.cc", "// A.\nvolatile int a;\nvolatile int b;\n")
        exceptions = "tools/tidy/exceptions.txt"
        self.write(exceptions, "volatile src/base/a.cc 2  # Because.\n")
        self.expect()
        self.write(exceptions, "volatile src/base/a.cc 1  # Because.\n")
        self.expect("src/base/a.cc:2: volatile", "src/base/a.cc:3: volatile")
        self.write(exceptions, "volatile src/base/a.cc 3  # Because.\n")
        self.expect("tools/tidy/exceptions.txt:1: ratchet")
        self.write(
            exceptions, "volatile src/base/a.cc 2\nthrow src/base/a.cc 1\ncast src/base/b.cc 1\n"
        )
        self.expect("tools/tidy/exceptions.txt:2: ratchet", "tools/tidy/exceptions.txt:3: ratchet")

    def test_named_files_only(self):
        self.write("src/base/a.cc", "// A.\nvolatile int a;\n")
        self.write("src/base/b.cc", "// B.\nvolatile int b;\n")
        self.assertEqual(len(self.tidy("src/base/b.cc")), 1)


class FunctionsTest(unittest.TestCase):
    """Finding functions in code as clang-format leaves it."""

    def found(self, code):
        return [(f.first_line, f.last_line, f.parameters()) for f in source.functions(code)]

    def test_plain_member_and_template_functions(self):
        self.assertEqual(
            self.found("namespace a {\nint f(int x) {\n  if (x) {\n  }\n}\n}\n"), [(2, 5, 1)]
        )
        self.assertEqual(
            self.found("class A : public B {\n public:\n  int f() const {\n  }\n};\n"), [(3, 4, 0)]
        )
        self.assertEqual(
            self.found("template <class T, class U>\n  requires X<T>\nauto f(T, U) -> int {\n}\n"),
            [(3, 4, 2)],
        )
        self.assertEqual(self.found("bool operator()(int a) const noexcept {\n}\n"), [(1, 2, 1)])

    def test_constructors_with_brace_initializers(self):
        self.assertEqual(
            self.found("A::A(int x)\n    : a_{x}, b_(g(1, 2, 3)) {\n  h();\n}\n"), [(2, 4, 1)]
        )

    def test_lambdas_belong_to_their_function(self):
        self.assertEqual(
            self.found("void f() {\n  auto g = [](int x) {\n  };\n}\nvoid h() {\n}\n"),
            [(1, 4, 0), (5, 6, 0)],
        )

    def test_tables_and_enums_are_no_functions(self):
        self.assertEqual(
            self.found(
                "constexpr Row kRows[] = {\n  {1, f(2)},\n};\nenum class E : int {\n  a,\n};\n"
                "TEST(A, B) {\n}\n"
            ),
            [(7, 8, 2)],
        )

    def test_macros_do_not_confuse(self):
        self.assertEqual(
            self.found("#define CHECK(x) \\\n  do { \\\n  } while (0)\nint f() {\n}\n")[-1][:2],
            (4, 5),
        )


if __name__ == "__main__":
    unittest.main()
