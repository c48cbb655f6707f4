#!/usr/bin/env python3
"""Tests the conformance page: which names count, what is missing, when the page is old."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from conformance import ids_of  # noqa: E402

TOOL = Path(__file__).resolve().parent / "conformance.py"
IDS = "[Rings]\nPKD-03  Wrap counters\nORD-P1  Barriers\n[Bugs]\nH01  Position\n"


class ConformanceTest(unittest.TestCase):
    """Each test lays a small tree."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("tools/conformance/ids.txt", IDS)
        self.write("tests/a.cc", "TEST(Packed, PKD_03_Wraps) {}\n// TEST(Packed, H01_Old) {}\n")
        self.write("docs/conformance-reasons.txt", "ORD-P1 H01: later\n")

    def write(self, path, text):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")

    def run_tool(self, *options):
        done = subprocess.run(
            [sys.executable, TOOL, "--root", self.root, *options],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_ids_in_names(self):
        self.assertEqual(ids_of("PKD_03_WrapsAtOne"), ["PKD-03"])
        self.assertEqual(ids_of("PKD_03_ORD_P1_H01_Wraps"), ["PKD-03", "ORD-P1", "H01"])
        self.assertEqual(ids_of("RefusesH01AndXPKD_03"), [])

    def test_page_and_check(self):
        self.assertEqual(self.run_tool("--check")[0], 1)
        self.assertEqual(self.run_tool()[0], 0)
        page = (self.root / "docs/conformance.md").read_text(encoding="utf-8")
        self.assertIn("| PKD-03 | Wrap counters | `Packed.PKD_03_Wraps` | `tests/a.cc` |", page)
        self.assertIn("| H01 | Position | later |", page)
        self.assertEqual(self.run_tool("--check"), (0, ""))

    def test_old_page(self):
        self.run_tool()
        self.write("tests/b.cc", "TEST_F(Packed, PKD_03_Again) {}\n")
        status, output = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertIn("out of date", output)

    def test_missing_unknown_and_needless(self):
        self.write("docs/conformance-reasons.txt", "PKD-03 XYZ-01: later\n")
        self.write("tests/b.cc", "TEST_F(Packed, PKD_99_Unknown) {}\n")
        status, output = self.run_tool()
        self.assertEqual(status, 1)
        self.assertIn("PKD-99", output)
        self.assertIn("XYZ-01 is not in", output)
        self.assertIn("PKD-03 has a test now", output)
        self.assertIn("no test and no reason in docs/conformance-reasons.txt: ORD-P1 H01", output)

    def test_scripts_count_too(self):
        self.write("tests/interop/restart.py", "def test_H01_position_survives():\n    pass\n")
        self.write("docs/conformance-reasons.txt", "ORD-P1: later\n")
        self.assertEqual(self.run_tool()[0], 0)

    def test_malformed_lists(self):
        self.write("tools/conformance/ids.txt", "[A]\nPKD-03 one blank\n")
        self.assertIn("ids.txt:2", self.run_tool()[1])
        self.write("tools/conformance/ids.txt", IDS)
        self.write("docs/conformance-reasons.txt", "PKD-03 no colon\n")
        self.assertIn("reasons.txt:1", self.run_tool()[1])


if __name__ == "__main__":
    unittest.main()
