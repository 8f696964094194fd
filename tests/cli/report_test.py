"""`gemmtune report` without a browser: the data block against the tables and the CSV, its numbers against those of other commands,
hostile names, no data, one row, 54,000 rows, and the events of a run.

Usage: report_test.py PROGRAM SIMULATED_PROGRAM
"""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from html.parser import HTMLParser
from pathlib import Path

PROGRAM, SIMULATED = sys.argv[1:3]
DATA = Path(__file__).resolve().parents[1] / "data"
HEADER = "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,bw"
OWN = ",spread,default_us,default_kernel,speedup,verdict,ties"
HOSTILE = ['k</script><script>alert(1)</script>', "k<!--<script>", "k\u2028\u2029&amp;'\"", "k<img src=x onerror=alert(2)>", "k\x1b]0;t\x07\u202e"]


def row(m, us, kernel, n=512, k=512, own=""):
    name = '"' + kernel.replace('"', '""') + '"'
    return f"gfx950,256,{m},{n},{k},False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,{us},{name},0.0,,{own}\n"


def many_rows(count):
    """Own columns too, with every verdict; a thousand weights."""
    lines = [HEADER + OWN + "\n"]
    verdicts = ["win", "default", "undecided", "only", "default_wrong", "energy", "default_untimed"]
    for i in range(count):
        m, weight = 1 << (i % 14), i // 14
        verdict = verdicts[i % len(verdicts)]
        speedup = {"win": f"{1.1 + i % 7 / 10:.2f}", "default": "1.0", "undecided": "1.0", "energy": "0.98"}.get(verdict, "")
        default = f"{9 + i % 50}" if speedup else ""
        own = f",0.1,{default},default_{i % 3},{speedup},{verdict},{i % 40}"
        lines.append(row(m + (i % 14 == 13), 5 + i % 50, f"kernel_{i % 997}_with_a_long_name_of_its_own", n=512 + 64 * (weight % 60), k=512 + 64 * (weight // 60), own=own))
    return "".join(lines)


class Tables(HTMLParser):
    """The tables of a page as texts, by id; a cell's text is what a reader sees."""

    def __init__(self, html):
        super().__init__()
        self.tables, self.name, self.cell, self.scripts = {}, None, None, 0
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if attributes.get("id", "").startswith("t-"):
            self.name = attributes["id"][2:]
            self.tables[self.name] = []
        if tag == "tr" and self.name:
            self.tables[self.name].append([])
        if tag in ("td", "th") and self.name:
            self.cell = ""
        self.scripts += tag == "script"
        assert tag not in ("img", "iframe", "object", "link"), tag
        assert not any(name.startswith("on") for name in attributes), attributes

    def handle_endtag(self, tag):
        if tag in ("td", "th") and self.cell is not None:
            self.tables[self.name][-1].append(self.cell)
            self.cell = None
        if tag in ("figure", "details"):
            self.name = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data


def data_block(html):
    text = re.search(r'<script type="application/json" id="report-data">\n(.*?)</script>', html, re.S).group(1)
    return {table["id"]: table for table in json.loads(text)["tables"]}


def column(table, name):
    found = next(each for each in table["columns"] if each["name"] == name)
    return found["values"] if "values" in found else [found["words"][at] for at in found["at"]]


def records(table):
    names = [each["name"] for each in table["columns"]]
    return [dict(zip(names, values)) for values in zip(*(column(table, name) for name in names))]


class Report(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.environment = {**os.environ, "GEMMTUNE_CONFIG_DIR": str(self.folder / "config"), "XDG_RUNTIME_DIR": str(self.folder), "LC_ALL": "C.UTF-8"}

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def run_program(self, *words, code=0, program=PROGRAM):
        done = subprocess.run([program, *map(str, words)], cwd=self.folder, env=self.environment, text=True, capture_output=True, check=False)
        if code is not None:
            self.assertEqual(done.returncode, code, (words, done.stdout[-2000:], done.stderr[-2000:]))
        return done

    def report(self, *words, csv_folder=None):
        more = ["--csv", csv_folder] if csv_folder else []
        self.run_program("report", *words, "-o", "report.html", *more)
        html = (self.folder / "report.html").read_text(encoding="utf-8")
        return html, data_block(html)

    def json_of(self, *words, code=0):
        return json.loads(self.run_program(*words, "--json", code=code).stdout)


class Page(Report):
    def check_tables(self, html, tables, folder):
        """Each table of the page, its JSON and its CSV hold the same."""
        shown = Tables(html).tables
        self.assertEqual(set(shown), set(tables))
        for name, table in tables.items():
            with open(self.folder / folder / f"{name}.csv", encoding="utf-8", newline="") as file:
                lines = list(csv.reader(file))
            columns = table["columns"]
            self.assertEqual(lines[0], [each["name"] for each in columns])
            self.assertEqual(len(lines) - 1, table["rows"], name)
            visible = [i for i, each in enumerate(columns) if not each["detail"]]
            self.assertEqual(shown[name][0], [columns[i]["title"] for i in visible])
            self.assertEqual(len(shown[name]) - 1, min(200, table["rows"]), name)
            for at in range(table["rows"]):
                for i, each in enumerate(columns):
                    value = column(table, each["name"])[at]
                    cell = lines[at + 1][i]
                    if "values" in each:
                        self.assertEqual(None if cell == "" else float(cell), value, (name, each["name"]))
                    else:
                        self.assertEqual(cell, value)
                for cell, i in zip(shown[name][at + 1] if at < 200 else [], visible):
                    value = column(table, columns[i]["name"])[at]
                    if value is None or isinstance(value, str):
                        self.assertEqual(cell, value or "")
                    else:
                        digits = columns[i]["decimals"]
                        self.assertAlmostEqual(float(cell), value, delta=1e-9 if digits < 0 else 0.6 * 10**-digits + 1e-5 * abs(value), msg=(name, columns[i]["name"]))

    def test_page_data_and_csv_are_the_same(self):
        self.write("tuned.csv", many_rows(300))
        self.write("old.csv", many_rows(290).replace(",5,", ",4,"))
        self.write("shapes.csv", "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls\n1,512,512,False,torch.bfloat16,torch.bfloat16,False,False,7\n3,33,65,False,torch.bfloat16,torch.bfloat16,False,False,2\n")
        html, tables = self.report("tuned.csv", "--base", "old.csv", "--capture", "shapes.csv", csv_folder="csv")
        for name in ("summary", "by_m", "rows", "roofs", "ties", "changes", "coverage", "workload", "findings", "files"):
            self.assertIn(name, tables)
        self.check_tables(html, tables, "csv")

    def test_numbers_are_those_of_the_other_commands(self):
        shutil_copy(DATA / "audit" / "every_kind_bf16_tuned_gemm.csv", self.folder / "a_bf16_tuned_gemm.csv")
        self.write("tuned.csv", many_rows(120))
        self.write("old.csv", many_rows(100).replace("kernel_3_", "kernel_x_"))
        self.write("shapes.csv", "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,calls\n1,512,512,False,torch.bfloat16,torch.bfloat16,False,False,7\n3,33,65,False,torch.bfloat16,torch.bfloat16,False,False,2\n")
        audit = self.json_of("audit", "a_bf16_tuned_gemm.csv", code=1)
        _, tables = self.report("a_bf16_tuned_gemm.csv")
        self.assertEqual({each["kind"]: each["findings"] for each in records(tables["findings_summary"])}, {kind: count for kind, count in audit["summary"].items() if count})
        self.assertEqual(column(tables["findings"], "text"), [each["text"] for each in audit["findings"]])
        diff = self.json_of("diff", "old.csv", "tuned.csv", code=1)
        coverage = self.json_of("coverage", "shapes.csv", "--table", "tuned.csv", "--gfx", "gfx950", "--cu_num", "256", code=1)
        _, tables = self.report("tuned.csv", "--base", "old.csv", "--capture", "shapes.csv", "--tokens", "4")
        changes = {each["kind"]: each["keys"] for each in records(tables["changes_summary"])}
        self.assertEqual(changes.pop("as before"), diff["equal"])
        self.assertEqual(changes, {kind: count for kind, count in diff["summary"]["a16w16"].items() if count})
        for level in records(tables["coverage"]):
            told = coverage["levels"][level["level"]]
            self.assertEqual((level["shapes"], level["calls"]), (told["shapes"], told["calls"]))
            self.assertAlmostEqual(level["us"], told["us"], delta=1e-4 * told["us"])
        # M = 1 of 512 x 512 is the first row: 5 µs, 1.1 times as fast, 7 calls; 4 tokens.
        workload = records(tables["workload"])[0]
        self.assertAlmostEqual(workload["saved_us_per_token"], 7 * 5 * 0.1 / 4, delta=1e-4)
        self.assertEqual(workload["tokens_from"], "--tokens")
        lines = csv.DictReader((self.folder / "tuned.csv").read_text().splitlines())
        speedups = [float(line["speedup"]) for line in lines if line["speedup"]]
        mean = 1.0
        for each in speedups:
            mean *= each ** (1 / len(speedups))
        self.assertAlmostEqual(records(tables["summary"])[0]["geometric_mean_speedup"], mean, delta=1e-4)

    ENVIRONMENT = {"device": "AMD Instinct MI350X", "gfx": "gfx950", "cu_num": 256, "backend": "hip", "libraries": {"hipBLASLt": "1.2", "ROCm": "7.0"},
                   "policy": "cache=weights-cold", "observations": {"recorded": "2026-11-02T03:04:05Z", "memory_roof_gbs": 5000.0}}

    def test_the_header_says_what_was_measured_and_no_folder(self):
        os.makedirs(self.folder / "secret_place")
        path = self.folder / "secret_place" / "tuned.csv"
        lines = (HEADER + OWN).rstrip() + ",env\n" + "".join(row(1 << i, 5, f"k{i}", own=f",0.1,10,d,2,{verdict},0").rstrip("\n") + ",e1\n"
                                                             for i, verdict in enumerate(["win", "undecided", "win"]))
        path.write_text(lines, encoding="utf-8")
        (self.folder / "secret_place" / "tuned.csv.env.json").write_text(json.dumps({"e1": self.ENVIRONMENT}), encoding="utf-8")
        html, tables = self.report(path.absolute())
        self.assertIn("<title>GEMM tuning report: AMD Instinct MI350X, a16w16 bf16</title>", html)
        header = html[html.index("<header>"):html.index("</header>")]
        for part in ("3 rows in tuned.csv", "AMD Instinct MI350X (gfx950, 256 compute units)", "ROCm 7.0, hipBLASLt 1.2", "measured 2026-11-02", "cache=weights-cold"):
            self.assertIn(part, header)
        self.assertNotIn("secret_place", html)
        steps = records(tables["next_steps"])
        self.assertEqual(steps[0]["command"], "export GEMMTUNE_CONFIG_A16W16=tuned.csv")
        self.assertEqual(steps[1]["rows"], 1)
        self.assertRegex(steps[1]["command"], "gemmtune tune --problem 'a16w16 m=2 .*' --all -o tuned.csv")
        self.assertLess(html.index('id="next"'), html.index('id="gain"'))
        roof = records(tables["roofs"])[0]
        self.assertEqual((roof["gigabytes"], roof["memory_from"], roof["compute_from"]), (5000, "the run", "the best row here"))
        for tflops, origin in ((1e-9, "the best row here"), (900.0, "the run")):
            measured = {**self.ENVIRONMENT, "observations": {**self.ENVIRONMENT["observations"], "compute_roof": {"tflops": tflops, "problem": "", "kernelName": ""}}}
            path.with_name("tuned.csv.env.json").write_text(json.dumps({"e1": measured, "e2": {"observations": {"compute_roof": {"tflops": 1e6}}}}), encoding="utf-8")
            _, tables = self.report(path)
            roof = records(tables["roofs"])[0]
            self.assertEqual(roof["compute_from"], origin)
            self.assertEqual(roof["tflops"] == 900, origin == "the run")
        _, tables = self.report(path, "--peak", "1000")
        self.assertEqual(records(tables["roofs"])[0]["compute_from"], "--peak")
        _, tables = self.report(path, "--bandwidth", "7000")
        self.assertEqual(records(tables["roofs"])[0]["memory_from"], "--bandwidth")
        html, _ = self.report(path, "--title", "Llama <8B>")
        self.assertIn("<h1>Llama &lt;8B&gt;</h1>", html)

    def test_two_files_side_by_side(self):
        self.write("a.csv", HEADER + "\n" + row(1, 5, "first") + row(2, 6, "alone"))
        self.write("b.csv", HEADER + "\n" + row(1, 10, "second"))
        _, tables = self.report("a.csv", "b.csv")
        beside, = records(tables["side_by_side"])
        self.assertEqual((beside["first_us"], beside["second_us"], beside["ratio"]), (5, 10, 2))
        self.assertEqual((beside["first_kernel"], beside["second_kernel"]), ("first", "second"))
        self.assertNotIn("side_by_side", self.report("a.csv")[1])

    def test_json_is_the_page_s_tables(self):
        self.write("tuned.csv", many_rows(30))
        document = self.json_of("report", "tuned.csv", "-o", "report.html")
        self.assertEqual(document["command"], "report")
        self.assertEqual(document["output"], str((self.folder / "report.html").resolve()))
        page = data_block((self.folder / "report.html").read_text(encoding="utf-8"))
        self.assertEqual({table["id"]: table for table in document["tables"]}, page)
        self.assertIn("--json and -o -", self.run_program("report", "tuned.csv", "--json", "-o", "-", code=2).stderr)

    def test_hostile_names_are_escaped(self):
        self.write("tuned.csv", HEADER + "\n" + "".join(row(1 << i, 5, name) for i, name in enumerate(HOSTILE)))
        html, tables = self.report("tuned.csv", csv_folder="csv")
        self.assertEqual(Tables(html).scripts, 2)
        self.assertEqual(html.count("</script"), 2)
        self.assertNotIn("<!--", html)
        self.assertNotIn("<img", html)
        for raw in ("\u2028", "\u202e", "\x1b", "\x07"):
            self.assertNotIn(raw, html.split("report-data")[1])
        self.assertNotIn("\x1b", html)
        self.check_tables(html, tables, "csv")
        self.assertIn(HOSTILE[0], column(tables["rows"], "kernel"))

    def test_without_rows_and_with_one(self):
        self.write("bf16_tuned_gemm.csv", HEADER + "\n")
        html, tables = self.report("bf16_tuned_gemm.csv")
        self.assertEqual(tables["rows"]["rows"], 0)
        self.assertIn("All rows", html)
        self.write("one.csv", HEADER + "\n" + row(16, 7.5, "a kernel"))
        html, tables = self.report("one.csv", csv_folder="csv")
        self.check_tables(html, tables, "csv")
        self.assertEqual(column(tables["rows"], "us"), [7.5])
        # 2 * 16 * 512 * 512 operations in 7.5 µs.
        self.assertAlmostEqual(column(tables["rows"], "tflops")[0], 2 * 16 * 512 * 512 / 7.5e6, delta=1e-5)
        self.assertAlmostEqual(column(tables["rows"], "floor_share")[0], 1, delta=1e-6)
        _, tables = self.report("one.csv", "--peak", "100", "--bandwidth", "1000")
        traffic = 2 * (16 * 512 + 512 * 512 + 16 * 512)
        self.assertAlmostEqual(column(tables["rows"], "floor_share")[0], traffic / 1e6 / 7.5, delta=1e-5)

    def test_54000_rows(self):
        self.write("tuned.csv", many_rows(54000))
        begin = time.monotonic()
        html, tables = self.report("tuned.csv")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(tables["rows"]["rows"], 54000)
        self.assertLess(len(html), 30e6)
        self.assertEqual(len(Tables(html).tables["rows"]) - 1, 200)

    def test_a_journal_that_cannot_be_read_costs_its_parts(self):
        self.write("tuned.csv", HEADER + "\n" + row(1, 5, "k"))
        self.write("tuned.csv.journal", "this is no journal" * 1000)
        done = self.run_program("report", "tuned.csv", "-o", "r.html")
        self.assertIn("tuned.csv.journal", done.stderr)
        self.assertIn("passed over", done.stderr)
        done = self.run_program("report", "tuned.csv", "--journal", "tuned.csv.journal", "-o", "r2.html", code=2)
        self.assertFalse((self.folder / "r2.html").exists())

    def test_a_row_without_a_finite_number_empties_no_gain(self):
        numbers = ["2.0", "inf", "nan", "1e308"]
        self.write("tuned.csv", HEADER + OWN + "\n" + "".join(row(1 << i, 5, f"k{i}", own=f",inf,10,d,{number},win,0") for i, number in enumerate(numbers)))
        _, tables = self.report("tuned.csv")
        mean, = column(tables["summary"], "geometric_mean_speedup")
        self.assertIsNotNone(mean)
        self.write("tuned.csv", HEADER + OWN + "\n" + "".join(row(1 << i, 5, f"k{i}", own=f",inf,10,d,{number},win,0") for i, number in enumerate(numbers[:3])))
        _, tables = self.report("tuned.csv")
        self.assertEqual(column(tables["summary"], "geometric_mean_speedup"), [2])

    def test_the_page_replaces_no_side_file_and_no_file_of_another_kind(self):
        self.write("tuned.csv", HEADER + "\n" + row(1, 5, "k"))
        self.write("notes.txt", "mine\n")
        for name in ("tuned.csv.journal", "tuned.csv.env.json", "tuned.csv.lock", "tuned.csv.shard.json"):
            done = self.run_program("report", "tuned.csv", "-o", name, code=2)
            self.assertIn(f"-o {name}: is the name of", done.stderr)
            self.assertFalse((self.folder / name).exists())
        done = self.run_program("report", "tuned.csv", "-o", "notes.txt", code=2)
        self.assertIn("-o notes.txt: is there and is not a page", done.stderr)
        self.run_program("report", "tuned.csv", "-o", "page.html")
        self.run_program("report", "tuned.csv", "-o", "page.html")

    def test_bad_words_are_errors_and_leave_nothing(self):
        self.write("tuned.csv", HEADER + "\n" + row(1, 5, "k"))
        self.write("list.csv", "M,N,K\n1,2,3\n")
        before = (self.folder / "tuned.csv").read_text()
        for words, said in [(["-o", "r.html"], "no files"), (["none.csv", "-o", "r.html"], "none.csv"), (["tuned.csv", "-o", "tuned.csv"], "tuned.csv"),
                            (["list.csv", "-o", "r.html"], "list.csv"), (["tuned.csv", "-o", "none/r.html"], "none"),
                            (["tuned.csv", "--profile", "tuned.csv", "-o", "r.html"], "expected a profile"), (["tuned.csv", "--journal", "tuned.csv", "-o", "r.html"], "tuned.csv"),
                            (["tuned.csv", "--follow", "e", "-o", "r.html"], "--follow"), (["tuned.csv", "--base", "none.csv", "-o", "r.html"], "none.csv"),
                            (["tuned.csv", "--capture", "none.csv", "-o", "r.html"], "none.csv"), (["tuned.csv", "--tokens", "-1"], "--tokens")]:
            done = self.run_program("report", *words, code=2)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "r.html").exists(), words)
        self.assertEqual((self.folder / "tuned.csv").read_text(), before)


class OfAiter(Report):
    """AITER's own tables, where they are (as tests/support/fixtures.h finds them)."""

    def test_every_table_is_a_report(self):
        folder = Path(os.environ.get("GEMMTUNE_FIXTURES") or Path(__file__).resolve().parents[3] / "shared" / "fixtures")
        if not (folder / "MANIFEST.csv").exists():
            self.assertNotIn("fixtures", os.environ.get("GEMMTUNE_REQUIRE", ""))
            self.skipTest("no fixtures: set GEMMTUNE_FIXTURES")
        configs = folder / "aiter" / "configs"
        files = [path for path in sorted(configs.rglob("*tuned*.csv")) if "untuned" not in path.name]
        self.assertGreater(len(files), 10)
        html, tables = self.report(*files)
        rows = 0
        for path in files:
            rows += self.json_of("audit", path, "--kinds", "malformed", code=None)["files"][0]["rows"]
        self.assertEqual(tables["rows"]["rows"], rows)
        self.assertGreater(rows, 10000)
        views = column(tables["summary"], "view")
        self.assertIn("gfx950/256 a8w8_blockscale", views)
        self.assertIn("gfx942/80 fused_moe", views)
        self.assertNotIn("parameters", tables)
        self.assertEqual(Tables(html).scripts, 2)


class OfARun(Report):
    """A run on the simulated CPU leaves a tuned file, its journal, a profile and events."""

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.run_folder = Path(cls.holder.name)
        environment = {**os.environ, "GEMMTUNE_CONFIG_DIR": cls.holder.name + "/config", "XDG_RUNTIME_DIR": cls.holder.name}
        shapes = "M,N,K,dtype,calls\n" + "".join(f"{m},{n},256,torch.float32,3\n" for n in (256, 512) for m in (1, 16, 64))
        (cls.run_folder / "shapes.csv").write_text(shapes)
        subprocess.run([SIMULATED, "tune", "-i", "shapes.csv", "--op", "a16w16", "-o", "tuned.csv", "-o2", "profile.csv", "--events", "events.jsonl", "--libtype",
                        "tiled,skinny,onednn", "--budget", "60", "--iters", "5", "-q"], cwd=cls.run_folder, env=environment, check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def setUp(self):
        super().setUp()
        self.folder = self.run_folder

    def test_journal_gives_intervals_competitors_and_the_search(self):
        html, tables = self.report("tuned.csv", "--profile", "profile.csv", csv_folder="csv")
        Page.check_tables(self, html, tables, "csv")
        for name in ("competitors", "search_by_candidates", "search_by_seconds", "parameters", "errors", "runs", "environment"):
            self.assertIn(name, tables)
        rows = records(tables["rows"])
        measured = [each for each in rows if each["interval_of"] == "row"]
        self.assertGreater(len(measured), 0)
        for each in measured:
            self.assertLessEqual(each["speedup_low"], each["speedup_high"])
            self.assertGreater(each["rounds"], 0)
        with_competitors = set(column(tables["competitors"], "row"))
        self.assertEqual(with_competitors, set(range(len(rows))))
        for each in records(tables["competitors"]):
            self.assertNotEqual(each["kernel"], rows[int(each["row"])]["kernel"])
        curve = column(tables["search_by_candidates"], "median_ratio")
        self.assertEqual(curve, sorted(curve, reverse=True))
        self.assertEqual(curve[-1], 1)
        summary = records(tables["summary"])[0]
        self.assertNotIn("saved_us", summary)  # nobody calls each shape once
        self.assertLessEqual(summary["speedup_low"], summary["geometric_mean_speedup"])
        self.assertLessEqual(summary["geometric_mean_speedup"], summary["speedup_high"])
        self.assertAlmostEqual(column(tables["search_by_seconds"], "gain")[-1], summary["geometric_mean_speedup"], delta=1e-3, msg="chart and card")
        candidates = records(tables["candidates"])
        self.assertEqual({each["shape"] for each in candidates}, {f"{int(each['m'])}x{int(each['n'])}x{int(each['k'])} f32" for each in rows})
        self.assertEqual(min(each["ratio"] for each in candidates), 1)
        self.assertTrue(all(re.fullmatch(r"(\w+=[^ ]+ ?)*", each["settings"]) for each in candidates))
        listed = self.json_of("journal", "list", "tuned.csv")["runs"]
        self.assertEqual(column(tables["runs"], "candidates"), [each["candidates"] for each in listed])

    def test_journal_beside_the_file_is_read_and_another_is_named(self):
        _, own = self.report("tuned.csv")
        _, named = self.report("tuned.csv", "--journal", "tuned.csv.journal")
        self.assertEqual(own["competitors"], named["competitors"])
        (self.folder / "alone").mkdir(exist_ok=True)
        shutil_copy(self.folder / "tuned.csv", self.folder / "alone" / "tuned.csv")
        _, alone = self.report("alone/tuned.csv")
        self.assertNotIn("competitors", alone)
        _, profile = self.report("alone/tuned.csv", "--profile", "profile.csv")
        self.assertIn("competitors", profile)

    def test_events_give_the_rows_of_the_file(self):
        _, followed = self.follow(self.folder / "events.jsonl")
        _, file = self.report("tuned.csv")
        key = lambda each: (each["m"], each["n"], each["k"])
        wanted = {key(each): (each["kernel"], each["verdict"], each["ties"]) for each in records(file["rows"])}
        self.assertEqual({key(each): (each["kernel"], each["verdict"], each["ties"]) for each in records(followed["rows"])}, wanted)
        self.assertEqual(column(followed["run"], "ended"), ["yes"])
        self.assertEqual(column(followed["run"], "done"), [6])

    def follow(self, events):
        self.run_program("report", "--follow", events, "-o", "followed.html")
        html = (self.folder / "followed.html").read_text(encoding="utf-8")
        return html, data_block(html)

    def test_a_page_follows_the_run(self):
        lines = (self.folder / "events.jsonl").read_text().splitlines(keepends=True)
        done = next(i for i, line in enumerate(lines) if '"problem_done"' in line or '"problem_settled"' in line)
        growing = self.folder / "growing.jsonl"
        page = self.folder / "live.html"
        growing.unlink(missing_ok=True)
        page.unlink(missing_ok=True)
        process = subprocess.Popen([PROGRAM, "report", "--follow", growing, "-o", page], cwd=self.folder, env=self.environment, stderr=subprocess.PIPE)

        def wait_for(condition):
            end = time.monotonic() + 300
            while time.monotonic() < end:
                if page.exists() and condition(page.read_text(encoding="utf-8")):
                    return
                time.sleep(0.05)
            self.fail("the page did not come")

        try:
            wait_for(lambda html: 'data-refresh="3"' in html)  # before the run has begun
            growing.write_text("".join(lines[:done]) + lines[done][:40])  # a line that is being written
            wait_for(lambda html: data_block(html)["run"]["rows"] == 1 and column(data_block(html)["run"], "shapes") == [6])
            tables = data_block(page.read_text(encoding="utf-8"))
            self.assertEqual((tables["rows"]["rows"], column(tables["run"], "done")), (0, [0]))
            # A busy machine may have put every shape aside by then.
            in_work = {}
            for event in map(json.loads, lines[:done]):
                if event["event"] in ("problem_started", "problem_paused"):
                    in_work[event["index"]] = event["event"] == "problem_started"
            self.assertEqual(tables.get("in_work", {"rows": 0})["rows"], sum(in_work.values()))
            with growing.open("a") as file:
                file.write(lines[done][40:] + "".join(lines[done + 1:]))
            process.wait(300)
        finally:
            process.kill()
            process.communicate()
        html = page.read_text(encoding="utf-8")
        self.assertIn('data-refresh="0"', html)
        self.assertEqual(data_block(html)["rows"]["rows"], 6)

    def test_ctrl_c_ends_following_with_a_page(self):
        page = self.folder / "interrupted.html"
        process = subprocess.Popen([PROGRAM, "report", "--follow", "no.jsonl", "-o", page], cwd=self.folder, env=self.environment, stderr=subprocess.PIPE)
        end = time.monotonic() + 300
        while not page.exists() and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(300), 0)
        process.communicate()
        self.assertIn('data-refresh="0"', page.read_text(encoding="utf-8"))  # nobody writes it again

    def test_a_line_that_is_no_event_is_named_and_left_out(self):
        self.write("bad.jsonl", '{"event":"run_started","waiting":[0]}\nM,N,K\n{"event":"problem_done","index":0,"problem":"?"}\n{"event":"run_ended"}\n')
        done = self.run_program("report", "--follow", "bad.jsonl", "-o", "bad.html", code=1)
        self.assertIn("bad.jsonl:2: is no event", done.stderr)
        self.assertIn("bad.jsonl:3: ", done.stderr)
        html = (self.folder / "bad.html").read_text(encoding="utf-8")
        self.assertIn('data-refresh="0"', html)
        run = data_block(html)["run"]
        self.assertEqual((column(run, "skipped"), column(run, "ended")), ([2], ["yes"]))

    def test_a_file_of_another_kind_is_not_followed(self):
        self.write("bad.jsonl", "M,N,K\n1,2,3\n")
        done = self.run_program("report", "--follow", "bad.jsonl", "-o", "other.html", code=2)
        self.assertIn("bad.jsonl:1: is no event", done.stderr)

    def test_a_run_that_never_begins_is_an_error(self):
        done = self.run_program("report", "--follow", "misspelt.jsonl", "-o", "misspelt.html", code=2)
        self.assertIn("misspelt.jsonl: there is no such file after 5 s", done.stderr)
        done = self.run_program("report", "--follow", ".", "-o", "folder.html", code=2)
        self.assertIn("--follow .: is no file", done.stderr)


def shutil_copy(source, target):
    Path(target).write_bytes(Path(source).read_bytes())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
