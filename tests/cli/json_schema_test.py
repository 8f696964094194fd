"""Every document that a command prints with --json, and every line of `tune --events`, is of docs/json.schema.json, and no key of the
schema is left that no command prints.

Usage: json_schema_test.py PROGRAM SIMULATED_PROGRAM FAULTY_PROGRAM      exit status 77: this Python has no jsonschema
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import jsonschema
except ImportError:
    print("SKIPPED: needs jsonschema (python3-jsonschema)")
    sys.exit(77)

PROGRAM, SIMULATED, FAULTY = (str(Path(path).resolve()) for path in sys.argv[1:4])
ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
SCHEMA = json.loads((ROOT / "docs" / "json.schema.json").read_text(encoding="utf-8"))
PARTS = SCHEMA["$defs"]
QUICK = ["--libtype", "tiled,skinny", "--budget", "60", "--iters", "5", "--quiet"]
BF16 = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
# Keys that no command prints here, and what they need.
ELSEWHERE = {
    "cache_list.kernels": "kernels of a GPU",
    "devices.backends.devices.bus_id": "a GPU",
    "devices.backends.devices.libraries.passed_over": "a library that is too old",
    "event_problem_revised": "rows whose finals are some minutes old",
    "tune.confirmations": "the same",
    "new_row.instead_of": "a kernel that wins on one routing and loses on another",
    "new_row.no_routings": "a mixture that cannot run on another routing",
    "tuned_problem.default_fault": "a library that is wrong",
    "weight_result.refusals": "a weight that no family takes",
}

# Keys that a command prints if its budget ends at some moment, or the processor has a kernel whose bits of a row depend on M.
SOMETIMES = ("event_problem_settled", "new_row.no_joules", "journal_export.no_bits")


def validator(name):
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": PARTS})


def keys_of(schema, path):
    """(path, key) of each key of a part of the schema."""
    for key, value in schema.get("properties", {}).items():
        yield f"{path}.{key}"
        yield from keys_of(value, f"{path}.{key}")
    for inner in [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", [])]:
        if isinstance(inner, dict):
            yield from keys_of(inner, path)


def note_keys(value, schema, path, seen):
    """Adds the keys of the schema that `value` has."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return note_keys(value, PARTS[name], name, seen)
    for inner in schema.get("anyOf", []):
        if value is not None:
            note_keys(value, inner, path, seen)
    if isinstance(value, list) and "items" in schema:
        for item in value:
            note_keys(item, schema["items"], path, seen)
    if not isinstance(value, dict):
        return None
    for inner in [*schema.get("allOf", []), *(part for key, part in schema.get("dependentSchemas", {}).items() if key in value)]:
        note_keys(value, inner, path, seen)
    for key, item in value.items():
        if key in schema.get("properties", {}):
            seen.add(f"{path}.{key}")
            note_keys(item, schema["properties"][key], f"{path}.{key}", seen)
        elif isinstance(schema.get("additionalProperties"), dict):
            note_keys(item, schema["additionalProperties"], path, seen)
    return None


class Documents(unittest.TestCase):
    maxDiff = None
    seen = set()  # of all tests
    commands = set()

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="gemmtune-json-")))
        # Of its own: other programs' timing locks are not waited for.
        self.environment = {**os.environ, "GEMMTUNE_CONFIG_DIR": str(self.folder / "config"), "GEMMTUNE_CACHE_DIR": str(self.folder / "cache"),
                            "XDG_RUNTIME_DIR": str(self.folder)}

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def run_program(self, program, *words, codes=(0,)):
        done = subprocess.run([program, *map(str, words)], cwd=self.folder, env=self.environment, text=True, capture_output=True, check=False,
                              timeout=300)
        self.assertIn(done.returncode, codes, (words, done.stdout[-2000:], done.stderr[-2000:]))
        return done.stdout

    def expect(self, name, document):
        errors = [f"{error.json_path}: {error.message[:400]}" for error in validator(name).iter_errors(document)]
        self.assertEqual(errors, [], name)
        note_keys(document, {"$ref": f"#/$defs/{name}"}, name, self.seen)
        return document

    def of(self, name, *words, program=SIMULATED, codes=(0,)):
        self.commands.add(words[0])
        return self.expect(name, json.loads(self.run_program(program, *words, "--json", codes=codes)))

    def tune(self, name, *words, **more):
        return self.of(name, "tune", *words, *QUICK, **more)

    def powercap(self):
        """A processor package whose energy counter stands: the simulated device has its own."""
        package = self.folder / "powercap" / "intel-rapl:0"
        package.mkdir(parents=True)
        for name, text in {"name": "package-0", "max_energy_range_uj": "1000000", "energy_uj": "0"}.items():
            (package / name).write_text(text + "\n", encoding="utf-8")
        self.environment["GEMMTUNE_POWERCAP_DIR"] = str(package.parent)

    def tuned(self, *ms):
        """A tuned file of small shapes."""
        path = str(self.folder / "tuned.csv")
        self.run_program(SIMULATED, "tune", "-m", ",".join(map(str, ms)), "-n", "64", "-k", "64", "-o", path, *QUICK)
        return path

    def test_tune(self):
        words = ["-m", "1,4", "-n", "64", "-k", "64"]
        self.tune("tune", *words, "-o", "t.csv", "--events", "e.jsonl", "--keep", "--confirmations", "2")
        for line in (self.folder / "e.jsonl").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            self.expect("event_" + event["event"], event)
        self.tune("tune_dry_run", *words, "-o", "t.csv", "--dry-run")
        (self.folder / "lists").mkdir()
        self.write("lists/bf16_untuned_gemm.csv", "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
                   "1,64,64,False,torch.bfloat16,torch.bfloat16,False,False\n")
        self.write("lists/a8w8_blockscale_untuned_gemm.csv", "M,N,K\n1,128,128\n")
        self.of("tune_operations", "tune", "-i", "lists", "-o", "tables/", "--budget", "60", "--iters", "5", "--quiet")
        self.tune("tune_list", *words, "-o", "s.csv", "--shard", "1/2", "--list")
        self.tune("tune_m_range", *words[2:], "--m-range", "1:8", "--m-regret", "50", "-o", "r.csv")
        self.of("tune_m_range", "tune", "-n", "64", "-k", "64", "--m-range", "1:8", "--budget", "0.001", "-o", "q.csv", "--quiet", codes=(0, 1))
        self.tune("tune", "-i", self.write("layers.csv", "M,N,K,layer\n4,64,64,o_proj\n"), "-o", "l.csv")
        self.tune("tune", "--gemm_size_file", self.write("sizes.yaml", "- {M: 16, N: 16, K: 16}\n"), "--compare", "-o", "out.yaml")
        self.of("bench", "tune", "--run_config", "t.csv", "--quiet")
        self.tune("tune_operator", *words, "-o", "t.csv", "--compare")

    def test_tune_of_buckets_energy_and_routings(self):
        shapes = self.write("shapes.csv", BF16 + "".join(f"{m},64,64,False,torch.bfloat16,torch.bfloat16,False,False\n" for m in (1, 9, 300)))
        self.tune("tune", "-i", shapes, "-o", "configs", "--buckets", "--confirmations", "1")
        self.powercap()
        self.tune("tune", "-i", shapes, "-o", "joules.csv", "--objective", "energy")
        self.of("tune", "tune", "-m", "4", "-n", "64", "-k", "64", "--objective", "energy", "--libtype", "skinny,onednn", "-o", "more_joules.csv",
                "--quiet")
        trace = self.write("recorded.routing", "gemmtune routing 1\nexperts 4\ntopk 2\n0 1\n3 1\n1 2\n")
        self.of("tune", "tune", "--op", "fused_moe", "-m", "8", "-n", "32", "-k", "64", "--expert", "4", "--topk", "2", "--routing", "zipf",
                "--routing-trace", trace, "-o", "tuned_fmoe.csv", "--iters", "3", "--confirmations", "1", "--quiet")

    def test_tune_of_faulty_kernels(self):
        self.of("tune", "tune", "-m", "3,4", "-n", "64", "-k", "64", "-o", "t.csv", "--budget", "5", "--quiet", program=FAULTY, codes=(0, 1))
        sizes = "".join(f"- {{M: {m}, N: 64, K: 64, kernelName: {name}, dtype_a: bf16, dtype_b: bf16, dtype_c: bf16}}\n"
                        for m, name in ((3, "good_fast_r1"), (4, "wrong_r1"), (5, "gone_r1")))
        faults = ["--op", "a16w16", "--budget", "5", "--quiet"]
        self.of("tune", "tune", "-m", "5", "-n", "64", "-k", "64", "-o", "none.csv", "--libtype", "wrong", *faults, program=FAULTY, codes=(1,))
        table = self.tuned_of("good_fast_r1", "wrong_r1")
        self.of("check", "check", table, "--quiet", program=FAULTY, codes=(1,))
        self.of("merge", "merge", table, "-o", "marked.csv", "--confirm=mark", "--quiet", program=FAULTY, codes=(1,))
        results = ["tune", "--gemm_size_file", self.write("results.yaml", sizes), "--quiet"]
        self.of("tune_results", *results, "--compare_wo_tuning", program=FAULTY, codes=(1,))
        self.of("tune_benchmark", *results, "--benchmark", "-o", "times.csv", program=FAULTY, codes=(1,))

    def test_before_and_after_tuning(self):
        tuned = self.tuned(1, 4, 8)
        self.of("worth", "worth", tuned, "--seconds", "2", "--quiet")
        self.of("worth", "worth", tuned, "--seconds", "0.001", "--quiet", codes=(0, 1))
        self.of("bench", "bench", tuned, "--rounds", "3", "--quiet")
        self.of("check", "check", tuned, "--quiet")
        self.of("check_kernel", "check", "-m", "4", "-n", "64", "-k", "64")
        self.of("report", "report", tuned, "-o", "page.html")
        self.of("journal_list", "journal", "list", tuned)
        lines = self.run_program(SIMULATED, "journal", "export", tuned, "--json").splitlines()
        for line in lines:
            self.expect("journal_export", json.loads(line))
        self.assertGreater(len(lines), 20)
        self.of("journal_prune", "journal", "prune", tuned, "--keep", "0")
        self.of("hunt", "hunt", "--budget", "0.1", "--quiet", program=PROGRAM)
        self.of("hunt", "hunt", "--budget", "3", "--libtype", "wrong", "--quiet", program=FAULTY, codes=(0, 1))

    def test_bit_classes(self):
        path = str(self.folder / "rows.csv")
        self.of("tune", "tune", "-m", "1,4", "-n", "64", "-k", "64", "-o", path, "--invariant", "rows", "--libtype", "tiled,onednn", "--iters", "2", "--quiet")
        for line in self.run_program(SIMULATED, "journal", "export", path, "--json").splitlines():
            self.expect("journal_export", json.loads(line))
        self.of("invariant", "check", path, "--invariant", "--quiet")
        self.of("check_kernel", "check", "-m", "4", "-n", "64", "-k", "64", "--libtype", "tiled", "--invariant")
        self.of("invariant", "hunt", "--invariant", "--budget", "1", "--quiet", codes=(0, 1))

    def test_lookup(self):
        tuned = self.tuned(1, 4, 8)
        words = ["lookup", tuned, "-n", "64", "-k", "64"]
        self.of("lookup", *words, "-m", "3")
        self.of("lookup_list", *words, "-m", "3,4")
        moe = DATA / "tables" / "tuned_fmoe.csv"
        requests = self.write("requests.csv", "family,file,request\n"
                              f"a16w16,{tuned},gfx=gfx950;cu_num=256;M=1;N=2048;K=3072;bias=False;dtype=torch.bfloat16;outdtype=torch.bfloat16;scaleAB=False;bpreshuffle=False\n"
                              f"a16w16,{tuned},gfx=gfx950;cu_num=256;M=-1;N=2048;K=3072\n"
                              f"fused_moe,{moe},gfx=gfx950;{self.moe_request(moe)}\n"
                              f"a16w16,{tuned},gfx=gfx950;cu_num=256;M=1;N=64;K=64;bias=False;dtype=nvfp4_bf16;outdtype=torch.bfloat16;scaleAB=False;bpreshuffle=False\n")
        self.of("lookup_requests", "lookup", "--requests", requests, codes=(0, 1))

    def tuned_of(self, *kernels):
        """A table of the faulty device, of which these kernels are said to be the best."""
        path = self.folder / "claims.csv"
        self.run_program(FAULTY, "tune", "-m", ",".join(str(3 + i) for i in range(len(kernels))), "-n", "64", "-k", "64", "-o", path, "--libtype",
                         "vendor,good_fast,good_slow", "--quiet")
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        at = head.split(",").index("kernelName")
        rows = [line.split(",") for line in lines]
        for row, kernel in zip(rows, kernels):
            row[at] = kernel
        path.write_text("\n".join([head, *(",".join(row) for row in rows)]) + "\n", encoding="utf-8")
        return path

    @staticmethod
    def moe_request(table):
        """The key of the table's first row."""
        head, row = (line.split(",") for line in table.read_text(encoding="utf-8").splitlines()[:2])
        key = head[:head.index("block_m")]
        return ";".join(f"{name}={value}" for name, value in zip(key, row))

    def dense_table(self):
        """Neighbours in M with one winner."""
        head = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw\n"
        return self.write("dense.csv", head + "".join(f"gfx950,256,{m},512,512,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,{5 + m},one,0.0,,\n"
                                                      for m in (16, 32, 48)))

    def test_shards(self):
        for shard in ("1/2", "2/2"):
            self.run_program(SIMULATED, "tune", "-m", "1,4", "-n", "64", "-k", "64", "-o", "s.csv", "--shard", shard, *QUICK)
        self.of("merge", "merge", "s.1of2.csv", "--expect-shards", "2", "--allow", "missing,unanswered", "-o", "merged.csv", "--quiet", codes=(1,))

    def test_tables(self):
        tuned = self.tuned(1, 4, 8)
        every_kind = DATA / "audit" / "every_kind_bf16_tuned_gemm.csv"
        self.of("audit", "audit", every_kind, "--fix", "clean.csv", codes=(0, 1))
        self.of("merge", "merge", tuned, "-o", "merged.csv", "--compress", "--confirm", "--rounds", "3", "--quiet")
        self.of("merge", "merge", self.dense_table(), "-o", "ranges.csv", "--compress", "--quiet")
        self.of("convert", "convert", tuned, "--to", "untuned", "-o", "untuned.csv", codes=(0, 1))
        self.of("convert", "convert", f"{tuned}:{every_kind}", "--to", "untuned", "-o", "untuned.csv", codes=(0, 1))
        self.of("diff", "diff", tuned, "clean.csv", codes=(1,))
        self.of("coverage", "coverage", tuned, tuned, codes=(0, 1))
        for name in ("gemm_perf", "moe_perf", "moe_ranks_perf"):
            self.of("audit", "audit", DATA / "aic" / f"{name}.csv", codes=(0, 1))
        self.of("coverage", "coverage", self.dense_table(), self.dense_table(), "--gfx", "gfx950", "--cu_num", "256", codes=(0, 1))
        self.of("coverage", "coverage", DATA / "untuned" / "bf16_untuned_gemm.csv", every_kind, "--gfx", "gfx950", "--cu_num", "256", codes=(0, 1))
        configs = DATA / "triton" / "configs"
        self.of("merge_configs", "merge", configs, "-o", "configs/", "--quiet", codes=(0, 1))
        self.of("diff_configs", "diff", configs, DATA / "triton" / "audit", codes=(1,))
        self.of("audit", "audit", configs, codes=(0, 1))
        self.of("check", "check", configs, "--quiet", codes=(0, 1))

    def test_shapes_devices_and_caches(self):
        self.of("shapes", "shapes", "--model", "llama-3.2-1b", "--nsets", "1", "--layers", program=PROGRAM)
        self.of("shapes", "shapes", DATA / "untuned" / "dirty.csv", codes=(0, 1))
        self.of("shapes", "shapes", "--from-log", DATA / "logs" / "server.log", codes=(0, 1))
        self.of("devices", "devices", program=PROGRAM)
        self.of("explain", "explain", "-m", "16", "-n", "64", "-k", "64", "--space", "tiled", "--table", self.tuned(16))
        self.of("cache_list", "cache", "list")
        self.of("cache_warm", "cache", "warm", self.tuned(4))
        self.of("cache_clear", "cache", "clear")

    def test_errors(self):
        self.of("error", "tune", "--buget", "3", codes=(2,))
        self.of("error", "lookup", "nofile.csv", "-m", "1", "-n", "64", "-k", "64", codes=(2,))

    def test_errata(self):
        self.environment["GEMMTUNE_ERRATA"] = str(DATA / "errata" / "onednn-test.json")
        self.of("devices", "devices", program=PROGRAM)
        self.of("explain", "explain", "-m", "8", "-n", "64", "-k", "471", program=PROGRAM)


class Keys(unittest.TestCase):
    """After the documents."""

    def test_every_command_with_json_is_held_to_the_schema(self):
        manual = subprocess.run([PROGRAM, "man"], text=True, capture_output=True, check=True).stdout
        sections = re.findall(r'^\.SH "gemmtune ([^"]+)"\n(.*?)(?=^\.SH |\Z)', manual, re.M | re.S)
        self.assertEqual({name for name, text in sections if "\\-\\-json" in text}, Documents.commands)

    def test_every_key_is_printed(self):
        keys = {key for name, part in PARTS.items() for key in keys_of(part, name)}
        self.assertGreater(len(keys), 300)
        unseen = {key for key in keys - Documents.seen if not any(f"{key}.".startswith(f"{name}.") for name in (*ELSEWHERE, *SOMETIMES))}
        self.assertEqual(unseen, set())
        self.assertEqual({name for name in ELSEWHERE if not any(f"{key}.".startswith(f"{name}.") for key in keys - Documents.seen)}, set(),
                         "keys that are listed and are printed")

    def test_an_unknown_key_is_refused(self):
        document = {"command": "journal prune", "pruned": 1}
        self.assertEqual(list(validator("journal_prune").iter_errors(document)), [])
        self.assertNotEqual(list(validator("journal_prune").iter_errors({**document, "more": 1})), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
