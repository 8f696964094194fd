#!/usr/bin/env python3
"""Tunes a list of dense shapes on a GPU and prints what came out: a row a shape, geometric means by group of M, clocks and
versions, what a call costs the host, what compiling a kernel takes. An interrupted or timed-out run is gone on with by the
same command (--limit-seconds 240 twice shows a list in two halves). Exit code 1 where shapes are still missing, 2 without a GPU.

Usage: bench_gpu.py BUILD_FOLDER [--shapes shapes/llm_dense_192.csv] [--dtype bf16|fp8] [--groups 1:64] [--every N]
                    [--accuracy default|fast|both] [--limit-seconds S] [--plain] [--packed] [--out FOLDER] [--json FILE] [--csv FOLDER] [--record]
                    [-- words for gemmtune tune]
"""

import argparse
import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
GROUPS = [("M 1-16", 1, 16), ("M 32-64", 17, 64), ("M 128-512", 65, 512), ("M 1024-", 513, 1 << 40)]
# Of an H200: products and copies that one such GPU reached. --tflops and --terabytes for another one.
TFLOPS = {"bf16": 790.0, "fp8": 1580.0}
TERABYTES = 4.3
# Spread over the sizes; whole spaces of these are recorded.
RECORDED = [(1, 1280, 8192), (16, 1280, 8192), (16, 7168, 8192), (64, 8192, 1024), (64, 7168, 8192), (128, 2112, 7168),
            (256, 7168, 2048), (512, 1280, 8192), (512, 4096, 7168), (1024, 8192, 1024), (2048, 7168, 2048), (4096, 2112, 7168)]


def fail(text):
    print(f"bench_gpu: {text}", file=sys.stderr)
    sys.exit(2)


def run_json(words, allowed=(0,)):
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, check=False)
    if done.returncode not in allowed:
        fail(f"{words[0]} {words[1]}: exit code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def gpu_of(program):
    found = run_json([program, "devices", "--backend", "cuda", "--json"], (0, 1, 2))
    backend = next((one for one in found.get("backends", []) if one["name"] == "cuda"), None)
    if not backend or not backend["devices"]:
        fail(f"no GPU here: {backend['why'] if backend else 'no cuda backend'}")
    return backend["devices"][0]


def write_shapes(source, options, low, high, target):
    """The list with the type and layout that are asked for, and with M from low to high."""
    with open(source, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if low <= int(row["M"]) <= high]
    if not rows:
        fail(f"{source}: no shape has M from {low} to {high}")
    rows = rows[:: options.every]
    for row in rows:
        if options.dtype == "fp8":
            row.update({"dtype": "torch.float8_e4m3fn", "outdtype": "torch.bfloat16", "scaleAB": "True"})
        if options.packed:
            row["bpreshuffle"] = "True"
    with open(target, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def tune(words, limit_seconds):
    """Seconds it took, and whether it ended by itself. After the limit it gets a SIGINT: what was decided stays."""
    begin = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
    try:
        code = process.wait(timeout=limit_seconds or None)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
    if code not in (0, 1, 130, -signal.SIGKILL):
        fail(f"gemmtune tune ended with exit code {code}")
    return time.monotonic() - begin, code in (0, 1)


def floor_microseconds(m, n, k, dtype, options):
    element = 1 if dtype == "fp8" else 2
    moved = n * k * element + m * k * element + m * n * 2
    tflops = options.tflops or TFLOPS[dtype]
    return max(2 * m * n * k / tflops / 1e6, moved / options.terabytes / 1e6)


def number(row, name):
    try:
        value = float(row.get(name) or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def read_results(table, dtype, options):
    if not table.exists():
        return []
    results = []
    with open(table, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            m, n, k = int(row["M"]), int(row["N"]), int(row["K"])
            default, us, pdl = number(row, "default_us"), number(row, "us"), number(row, "pdl_us")
            results.append({
                "m": m, "n": n, "k": k, "default_us": default, "us": us, "kernel": row["kernelName"],
                "verdict": row.get("verdict", ""), "accuracy": row.get("accuracy") or "", "floor_us": floor_microseconds(m, n, k, dtype, options),
                "ratio": default / us if default and us else None, "pdl_us": pdl, "pdl_kernel": row.get("pdl_kernelName", ""),
                # A row without a dependent launch keeps its plain kernel.
                "pdl_ratio": default / min(us, pdl or us) if default and us else None})
    return sorted(results, key=lambda one: (one["n"], one["k"], one["m"]))


def compare_with_plain(results, plain):
    """Packed weights have no default: their ratio is that of the plain weight's winner."""
    known = {(one["m"], one["n"], one["k"]): one for one in plain}
    for one in results:
        other = known.get((one["m"], one["n"], one["k"]))
        if other and other["us"] and one["us"]:
            one["default_us"] = other["us"]
            one["ratio"] = other["us"] / one["us"]
            one["pdl_ratio"] = min(other["us"], other["pdl_us"] or other["us"]) / min(one["us"], one["pdl_us"] or one["us"])


def mean(values):
    values = [value for value in values if value]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def summary(results):
    rows = []
    for name, low, high in [*GROUPS, ("all", 0, 1 << 40)]:
        chosen = [one for one in results if low <= one["m"] <= high and one["ratio"]]
        if not chosen:
            continue
        own = [one for one in chosen if not one["kernel"].startswith("cublaslt")]
        rows.append({"group": name, "m_from": min(one["m"] for one in chosen), "m_to": max(one["m"] for one in chosen),
                     "shapes": len(chosen), "ratio": mean(one["ratio"] for one in chosen),
                     "least": min(one["ratio"] for one in chosen), "pdl_ratio": mean(one["pdl_ratio"] for one in chosen),
                     "own_kernels": len(own), "share_of_floor": mean(one["floor_us"] / one["us"] for one in chosen)})
    return rows


def cell(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def print_table(results, rows):
    print("| N | K | M | default us | winner us | with PDL us | floor us | ratio | ratio PDL | winner |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for one in results:
        print(f"| {one['n']} | {one['k']} | {one['m']} | {cell(one['default_us'], 2)} | {cell(one['us'], 2)} | {cell(one['pdl_us'], 2)} "
              f"| {one['floor_us']:.2f} | {cell(one['ratio'], 3)} | {cell(one['pdl_ratio'], 3)} | {one['kernel']} |")
    print("\n| group | shapes | ratio to the default | least | ratio with PDL | own kernels win | share of the floor |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['group']} | {row['shapes']} | {cell(row['ratio'], 3)} | {cell(row['least'], 3)} | {cell(row['pdl_ratio'], 3)} "
              f"| {row['own_kernels']} | {cell(row['share_of_floor'], 2)} |")


def write_csv(path, columns, rows):
    """Columns: (name in the file, key of a row, digits of a number or None)."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(name for name, _, _ in columns)
        for row in rows:
            writer.writerow(["" if row[key] is None else row[key] if digits is None else f"{row[key]:.{digits}f}"
                             for _, key, digits in columns])


def write_tables(folder, name, report):
    """dense_<name>.csv, a row a shape, and dense_<name>_groups.csv, as bench/results/README.md describes them."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = [("M", "m", None), ("N", "n", None), ("K", "k", None), ("default_us", "default_us", 2), ("tuned_us", "us", 2),
              ("dependent_us", "pdl_us", 2), ("floor_us", "floor_us", 2), ("speedup", "ratio", 3),
              ("speedup_dependent", "pdl_ratio", 3), ("kernel", "kernel", None)]
    groups = [("dtype", "dtype", None), ("M_from", "m_from", None), ("M_to", "m_to", None), ("shapes", "shapes", None),
              ("speedup", "ratio", 3), ("min_speedup", "least", 3), ("speedup_dependent", "pdl_ratio", 3),
              ("own_kernels_win", "own_kernels", None), ("share_of_floor", "share_of_floor", 2)]
    # A shape without a dependent launch has no figure of one.
    rows = [one if one["pdl_us"] else {**one, "pdl_ratio": None} for one in report["shapes"]]
    write_csv(folder / f"dense_{name}.csv", shapes, rows)
    write_csv(folder / f"dense_{name}_groups.csv", groups, [{"dtype": report["dtype"], **group} for group in report["groups"]])


def record(build, folder, limit_seconds):
    """Whole spaces of RECORDED; a file that is there is gone on with."""
    shapes, target = folder / "recorded.csv", folder / "recorded.jsonl"
    lines = [f"{m},{n},{k},False,torch.bfloat16,torch.bfloat16,False,False" for m, n, k in RECORDED]
    shapes.write_text("M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n" + "\n".join(lines) + "\n", encoding="utf-8")
    begin = time.monotonic()
    words = [build / "bench" / "record_spaces", shapes, target, "cuda:0", "2"]
    try:
        code = subprocess.run([str(word) for word in words], timeout=limit_seconds or None, check=False).returncode
    except subprocess.TimeoutExpired:
        code = None
    whole = 0
    if target.exists():
        with open(target, encoding="utf-8") as file:
            whole = sum('"line":"finals"' in line for line in file)
    size = target.stat().st_size if target.exists() else 0
    print(f"recorded: {whole} of {len(RECORDED)} spaces, {size / 1e6:.2f} MB, {time.monotonic() - begin:.0f} s, exit code {code}: {target}")
    return {"spaces": whole, "of": len(RECORDED), "bytes": size, "file": str(target)}


def main():
    own, more = sys.argv[1:], []
    if "--" in own:
        own, more = own[: own.index("--")], own[own.index("--") + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--shapes", type=Path, default=REPOSITORY / "shapes" / "llm_dense_192.csv")
    parser.add_argument("--dtype", choices=["bf16", "fp8"], default="bf16")
    parser.add_argument("--accuracy", choices=["default", "fast", "both"], default="default",
                        help="which classes are compared: none below the library's default, all (against its fast accumulation), or first the "
                             "one, then the other, each with half of --limit-seconds")
    parser.add_argument("--every", type=int, default=1, help="only every N-th shape of the list")
    parser.add_argument("--groups", default="1:1000000", help="M from A to B, as 1:64")
    parser.add_argument("--limit-seconds", type=float, default=0, help="of this run's search; 0: none")
    parser.add_argument("--plain", action="store_true", help="no dependent launches")
    parser.add_argument("--packed", action="store_true", help="weights packed once; compared with the plain rows of an earlier run")
    parser.add_argument("--out", type=Path, help="where rows and recordings lie (default: BUILD/bench_gpu)")
    parser.add_argument("--json", type=Path, help="write everything there as JSON too; - for stdout alone")
    parser.add_argument("--csv", type=Path, help="folder for the tables of shapes and groups as CSV (bench/results/MACHINE)")
    parser.add_argument("--record", action="store_true", help="record whole spaces of twelve shapes instead of tuning")
    parser.add_argument("--no-overhead", action="store_true", help="leave out calls and compiles")
    parser.add_argument("--tflops", type=float, help="of the floor (default: an H200's)")
    parser.add_argument("--terabytes", type=float, default=TERABYTES, help="a second, of the floor")
    options = parser.parse_args(own)
    options.build = options.build.resolve()
    program = options.build / "gemmtune"
    if not program.exists():
        fail(f"{program} is not there: make build")
    low, _, high = options.groups.partition(":")
    gpu = gpu_of(program)
    folder = options.out or options.build / "bench_gpu"
    folder.mkdir(parents=True, exist_ok=True)
    if options.record:
        recorded = record(options.build, folder, options.limit_seconds)
        if options.json:
            Path(options.json).write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
        return 0 if recorded["spaces"] == recorded["of"] else 1
    reports = {}
    for accuracy in ["default", "fast"] if options.accuracy == "both" else [options.accuracy]:
        limit = options.limit_seconds / 2 if options.accuracy == "both" else options.limit_seconds
        reports[accuracy] = bench(options, more, gpu, folder, (int(low), int(high or low)), accuracy, limit)
    if not options.no_overhead:
        next(iter(reports.values()))["overhead"] = run_json([options.build / "bench" / "gpu_overhead"])
    missing = any(report["missing"] for report in reports.values())
    # One class is one report; both stand under their names.
    document = reports if len(reports) > 1 else next(iter(reports.values()))
    text = json.dumps(document, indent=2) + "\n"
    if options.json == Path("-"):
        sys.stdout.write(text)
        return 1 if missing else 0
    if options.json:
        options.json.write_text(text, encoding="utf-8")
    for report in reports.values():
        print_report(report)
    if len(reports) > 1:
        print_classes(reports)
    return 1 if missing else 0


def bench(options, more, gpu, folder, groups, accuracy, limit_seconds):
    """Tunes with --accuracy and reports what is in the table then."""
    name = options.dtype + ("_packed" if options.packed else "") + ("_fast" if accuracy == "fast" else "")
    shapes, table = folder / f"shapes_{name}.csv", folder / f"{name}_tuned_gemm.csv"
    asked = write_shapes(options.shapes, options, *groups, shapes)
    words = [options.build / "gemmtune", "tune", "-i", shapes, "-o", table, "--backend", "cuda", "--baseline", "library", "-q", *more]
    if accuracy != "default":
        words += ["--accuracy", accuracy]
    if not options.plain:
        words += ["--pdl", "allow"]
    seconds, whole = tune(words, limit_seconds)
    sizes = {(int(row["M"]), int(row["N"]), int(row["K"])) for row in asked}
    results = [one for one in read_results(table, options.dtype, options) if (one["m"], one["n"], one["k"]) in sizes]
    if options.packed:
        compare_with_plain(results, read_results(folder / f"{name.replace('_packed', '')}_tuned_gemm.csv", options.dtype, options))
    seconds_file = folder / f"seconds_{name}.json"
    runs = json.loads(seconds_file.read_text(encoding="utf-8")) if seconds_file.exists() else []
    runs.append({"seconds": seconds, "whole": whole, "shapes_after": len(results)})
    seconds_file.write_text(json.dumps(runs), encoding="utf-8")
    environment = Path(f"{table}.env.json")
    report = {"gpu": gpu, "command": [str(word) for word in words], "dtype": options.dtype, "accuracy": accuracy, "shapes": results,
              "packed": options.packed, "groups": summary(results), "runs": runs, "missing": len(sizes) - len(results),
              "environments": json.loads(environment.read_text(encoding="utf-8")) if environment.exists() else {}}
    if options.csv:
        write_tables(options.csv, name, report)
    return report


def print_classes(reports):
    """Groups by M of each class, against the library's call of the same class."""
    print("\n| accuracy | group | shapes | ratio to the library | least | ratio with PDL | below 0.99 | own kernels win |")
    print("|---|---|---|---|---|---|---|---|")
    for accuracy, report in reports.items():
        for row in report["groups"]:
            slow = sum(1 for one in report["shapes"] if one["ratio"] and one["ratio"] < 0.99 and row["m_from"] <= one["m"] <= row["m_to"])
            print(f"| {accuracy} | {row['group']} | {row['shapes']} | {cell(row['ratio'], 3)} | {cell(row['least'], 3)} | {cell(row['pdl_ratio'], 3)} "
                  f"| {slow} | {row['own_kernels']} |")


def print_report(report):
    if report["accuracy"] != "default":
        print(f"--accuracy {report['accuracy']}; default: the library's fast accumulation")
    if report["packed"]:
        print("packed weights; default: the plain weight's winner")
    print_table(report["shapes"], report["groups"])
    libraries = ", ".join(f"{one['name']} {one['version'] or 'missing'}" for one in report["gpu"]["libraries"])
    print(f"\n{report['gpu']['model']}; {libraries}")
    for name, environment in report["environments"].items():
        print(f"observed at the end of run {name}: {environment.get('observations', {})}")
    print(f"search: {sum(run['seconds'] for run in report['runs']):.0f} s in {len(report['runs'])} runs, {report['missing']} shapes missing")
    overhead = report.get("overhead")
    if overhead:
        call = overhead["call"]
        print(f"host time: {call['plan_run_ns']:.0f} ns a plan's call, {call['raw_launch_ns']:.0f} ns the kernel alone: "
              f"{call['overhead_ns']:.0f} ns more (bar 300); {call['kernel']}")
        for family, figures in overhead["compile"]["families"].items():
            print(f"compile {family}: median {figures['median_seconds']:.2f} s of {figures['kernels']}, at most {figures['max_seconds']:.2f} s "
                  f"({figures['slowest']})")
        print(f"compile: median {overhead['compile'].get('median_seconds', float('nan')):.2f} s a kernel (bar 2)")


if __name__ == "__main__":
    sys.exit(main())
