#!/usr/bin/env python3
"""Runs ctest in a build folder and prints 'N passed, N failed, N skipped' as its last line; exits 1 on failures.

An entry of a GoogleTest program counts with each of its test cases (from BUILD_FOLDER/test-reports/ENTRY.xml, where its
GTEST_OUTPUT lets it write), any other CTest entry and a program that died before it could write counts as one.

A change in the user's own folders of gemmtune while the tests run is one more failure.

Usage: run_tests.py BUILD_FOLDER [ctest arguments ...]
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path


def count_cases(report):
    """(passed, failed, skipped) of one GoogleTest XML report, or None where it cannot be read."""
    passed = failed = skipped = 0
    try:
        cases = xml.parse(report).getroot().iter("testcase")
    except (OSError, xml.ParseError):
        return None
    for case in cases:
        if case.get("status") != "run":
            continue  # disabled
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def count_entry(entry, reports):
    """(passed, failed, skipped) of one CTest entry of the JUnit report."""
    ok = entry.get("status") == "run"
    if entry.get("status") in ("notrun", "disabled"):
        return 0, 0, 1
    cases = count_cases(reports / (entry.get("name") + ".xml"))
    if cases is None or (not ok and cases[1] == 0):  # no GoogleTest, or it died (a crash, a timeout)
        return (1, 0, 0) if ok else (0, 1, 0)
    return cases


def users_folders():
    """Where gemmtune keeps what is the user's: tuned files and compiled kernels."""
    for variable, below in (("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config")):
        base = os.environ.get(variable, "")
        yield (Path(base) if base.startswith("/") else Path.home() / below) / "gemmtune"


def contents(folders):
    """Path, size and time of everything in folders that may not be there."""
    found = {}
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            try:
                state = path.lstat()
            except OSError:
                continue
            found[str(path)] = (state.st_size, state.st_mtime_ns)
    return found


def environment_of_tests():
    """The user's, without what leads tests to the user's tuned files and kernels. Homes are CTest's to set (cmake/layers.cmake)."""
    return {name: value for name, value in os.environ.items()
            if name != "GEMMTUNE_CACHE_DIR" and not name.startswith(("GEMMTUNE_CONFIG", "AITER_CONFIG"))}


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        is_asked = sys.argv[1:2] in (["-h"], ["--help"])
        print(__doc__, file=sys.stdout if is_asked else sys.stderr)
        return 0 if is_asked else 2
    build = Path(sys.argv[1]).resolve()
    reports = build / "test-reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    shutil.rmtree(build / "test-home", ignore_errors=True)
    folders = list(users_folders())
    before = contents(folders)
    junit = reports / "ctest-junit.xml"
    # A sixth of the time tests wait: for a lock, for a kernel that hangs, for a signal. Those that time run alone.
    cores = os.cpu_count() or 1
    jobs = str(cores + (cores + 1) // 2)
    command = ["ctest", "--test-dir", str(build), "--output-on-failure", "--output-junit", str(junit), "-j", jobs]
    code = subprocess.run(command + sys.argv[2:], env=environment_of_tests(), check=False).returncode
    after = contents(folders)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    for path in changed:
        print(f"run_tests.py: {path}: changed while the tests ran, by one of them or by another gemmtune of this user")
    totals = [0, 1 if changed else 0, 0]
    try:
        entries = list(xml.parse(junit).getroot().iter("testcase"))
    except (OSError, xml.ParseError) as error:
        print(f"run_tests.py: no report of ctest ({error})", file=sys.stderr)
        return 1
    for entry in entries:
        totals = [a + b for a, b in zip(totals, count_entry(entry, reports))]
    failed = totals[1] > 0 or code != 0
    sys.stdout.flush()
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
