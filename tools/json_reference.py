#!/usr/bin/env python3
"""Writes docs/json.md, every key of the documents that commands print, from docs/json.schema.json. A key without a description is an error.

Usage: json_reference.py [--check]     --check: exit code 1 if the page differs, and nothing is written
"""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
SCHEMA = DOCS / "json.schema.json"
PAGE = DOCS / "json.md"
HEAD = """# What `--json` prints

Each command with `--json` prints one document. A document has the keys of its table here and no others; a test holds the commands to
[json.schema.json](json.schema.json) (JSON Schema 2020-12), from which `tools/json_reference.py` makes this page. A key with `?` may be
absent. `null` stands for a number that was not measured. What may change: [stability.md](stability.md).

An error has a document too: [An error](#an-error). `gemmtune tune --events FILE` writes the events at the end of the page, one a line
([report.md](report.md)).

"""


def anchor(title):
    """What a heading is called in a link."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in "_- ")
    return kept.replace(" ", "-")


class Reference:
    def __init__(self, schema):
        self.parts = schema["$defs"]
        self.documents = [entry["$ref"].rsplit("/", 1)[1] for entry in schema["anyOf"]]

    def part(self, schema):
        return self.parts[schema["$ref"].rsplit("/", 1)[1]]

    def link(self, schema):
        title = self.part(schema)["title"]
        return f"[{title}](#{anchor(title)})"

    def type_of(self, schema):
        """The type in words, and the object whose keys follow in the table (None: none)."""
        if "$ref" in schema:
            return self.link(schema), None
        if "anyOf" in schema:
            words, inner = self.type_of(schema["anyOf"][0])
            others = ("null" if one.get("type") == "null" else self.type_of(one)[0] for one in schema["anyOf"][1:])
            return " or ".join([words, *others]), inner
        if "const" in schema or "enum" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            return " ".join("null" if value is None else f"`{json.dumps(value)}`" for value in values), None
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if kinds[0] == "array":
            words, inner = self.type_of(schema["items"])
            return " or ".join([f"list of {words}", *kinds[1:]]), inner
        if kinds[0] == "object" and isinstance(schema.get("additionalProperties"), dict):
            words, inner = self.type_of(schema["additionalProperties"])
            return f"object of names, each {words}", inner
        return " or ".join(kinds), schema if "properties" in schema else None

    def rows(self, schema, path=""):
        for key, value in schema.get("properties", {}).items():
            name = path + key
            if not value.get("description"):
                sys.exit(f"{SCHEMA}: {name}: no description")
            words, inner = self.type_of(value)
            mark = "" if key in schema.get("required", []) else "?"
            yield f"| `{name}`{mark} | {words} | {value['description']} |"
            if inner is not None:
                is_list = "array" in json.dumps(value.get("type", ""))
                is_map = isinstance(value.get("additionalProperties"), dict)
                yield from self.rows(inner, f"{name}{'[]' if is_list else '.*' if is_map else ''}.")

    def section(self, name, level):
        schema = self.parts[name]
        if not schema.get("title") or not schema.get("description"):
            sys.exit(f"{SCHEMA}: {name}: no title or no description")
        text = f"{level} {schema['title']}\n\n{schema['description']}"
        others = [f"those of {self.link(other)}" for other in schema.get("allOf", [])]
        others += [f"with `{key}` those of {self.link(other)}" for key, other in schema.get("dependentSchemas", {}).items()]
        if others:
            text += f" Its keys are {', '.join(others)}" + (", and these:" if schema.get("properties") else ".")
        rows = list(self.rows(schema))
        if rows:
            text += f"\n\n<!-- table {name} -->\n| key | type | meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n<!-- end -->"
        return text + "\n\n"

    def page(self):
        text = HEAD + "## Documents\n\n"
        text += "".join(self.section(name, "###") for name in self.documents if not name.startswith("event_"))
        text += "## Parts\n\n" + "".join(self.section(name, "###") for name in self.parts if name not in self.documents)
        text += "## Events\n\n" + "".join(self.section(name, "###") for name in self.documents if name.startswith("event_"))
        return text.rstrip("\n") + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    made = Reference(json.loads(SCHEMA.read_text(encoding="utf-8"))).page()
    if not sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != made:
        sys.exit(f"{PAGE}: differs from {SCHEMA.name}; run tools/json_reference.py")


if __name__ == "__main__":
    main()
