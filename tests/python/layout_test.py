"""python/gemmtune/_library.py has the structures and words of the C headers: a compiler prints sizes and offsets."""

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from gemmtune import _library as c

INCLUDE = Path(__file__).resolve().parents[2] / "include"


class Layout(unittest.TestCase):
    def test_structures_are_those_of_the_header(self):
        lines = ["#include <gemmtune/c.h>", "#include <stdio.h>", "int main(void) {"]
        expected = []
        for name, structure in c.structures.items():
            lines.append(f'  printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {c.ctypes.sizeof(structure)}")
            for member, *_ in structure._fields_:
                lines.append(f'  printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), '
                             f"sizeof((({name}*)0)->{member}));")
                field = getattr(structure, member)
                expected.append(f"{name}.{member} {field.offset} {field.size}")
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "layout.c"
            source.write_text("\n".join([*lines, "  return 0;", "}", ""]))
            subprocess.run([os.environ.get("CC", "cc"), "-I", str(INCLUDE), str(source), "-o", f"{folder}/layout"], check=True)
            printed = subprocess.run([f"{folder}/layout"], check=True, capture_output=True, text=True).stdout
        self.assertEqual(printed.splitlines(), expected)

    def test_no_member_of_the_header_is_missing(self):
        header = (INCLUDE / "gemmtune" / "c.h").read_text()
        header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
        for name, structure in c.structures.items():
            body = re.search(r"typedef struct %s \{(.*?)\} %s;" % (name, name), header, flags=re.S).group(1)
            members = [re.search(r"(\w+)\s*$", one).group(1) for one in body.split(";") if one.strip()]
            self.assertEqual(members, [member for member, *_ in structure._fields_], name)

    def test_words_are_those_of_the_enumerations(self):
        header = (INCLUDE / "gemmtune" / "enumerations.h").read_text()
        for enumeration, words in (("Type", c.types), ("Operation", c.operations), ("QuantType", c.quant_types),
                                   ("Activation", c.activations)):
            body = re.search(r"enum class %s \{(.*?)\}" % enumeration, header, flags=re.S).group(1)
            self.assertEqual(tuple(re.findall(r"\w+", body)), words)


if __name__ == "__main__":
    unittest.main()
