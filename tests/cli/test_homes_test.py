"""Every CTest entry has a home of its own in the build folder.

Usage: test_homes_test.py CTEST BUILD_FOLDER"""

import json
import subprocess
import sys

ctest, build = sys.argv[1:3]
listed = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True).stdout
tests = json.loads(listed)["tests"]
assert len(tests) > 50, f"{len(tests)} tests: expected all of the project"
without = []
for test in tests:
    properties = {each["name"]: each["value"] for each in test.get("properties", [])}
    changes = properties.get("ENVIRONMENT_MODIFICATION", [])
    if f"HOME=set:{build}/test-home/{test['name']}" not in changes or "XDG_CACHE_HOME=unset:" not in changes:
        without.append(test["name"])
assert not without, f"the user's home is that of: {', '.join(without)}; add tests with gemmtune_add_test()"
print(len(tests), "tests, each with a home of its own")
