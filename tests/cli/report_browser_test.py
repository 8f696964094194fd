"""The page of `gemmtune report` in headless Chromium: what the browser shows against the data block, clicks, filters, pages of every
size, with hostile names, on a phone, in the dark, on paper and without JavaScript. Exits 77 (skipped) where there is no Chromium.

Usage: report_browser_test.py PROGRAM SIMULATED_PROGRAM
"""

import json
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import chromium  # noqa: E402
from report_test import HEADER, HOSTILE, OWN, OfARun, Report, column, many_rows, records, row  # noqa: E402

for name in [name for name in dir(OfARun) if name.startswith("test_")]:  # they need no browser
    delattr(OfARun, name)

SHOWN = "[...document.querySelectorAll('#t-rows tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
TITLES = "[...document.querySelectorAll('#t-rows thead th')].map(cell => cell.textContent.replace(/ [↑↓]$/, ''))"


class InBrowser(OfARun):
    def setUp(self):
        super().setUp()
        Report.setUp(self)

    def page(self, *words):
        self.report(*words)
        return self.folder / "report.html"

    def test_a_run(self):
        self.folder = self.run_folder
        page = self.page("tuned.csv", "--profile", "profile.csv", "--capture", "shapes.csv", "--op", "a16w16", "--base", "profile.csv")
        _, tables = self.report("tuned.csv", "--profile", "profile.csv", "--capture", "shapes.csv", "--op", "a16w16")
        rows = records(tables["rows"])
        with chromium.Chromium() as browser:
            for width, dark, media in [(1280, False, ""), (390, True, ""), (800, False, "print")]:
                browser.open(page, width=width, dark=dark, media=media)
                self.assertEqual(browser.evaluate("document.body.dataset.ready"), "yes")
                self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), width)
            browser.open(page)
            charts = browser.evaluate("[...document.querySelectorAll('.chart')].filter(chart => chart.innerHTML === '').map(chart => chart.id)")
            self.assertEqual([chart for chart in charts if chart not in ("chart-by-m", "chart-ties", "chart-seconds", "chart-changes")], [])
            self.assert_rows_are_the_data(browser, rows)
            # A click shows the row, its command and its competitors.
            shown = browser.evaluate("document.querySelector('#t-rows tbody tr').dataset.row")
            browser.evaluate("document.querySelector('#t-rows tbody tr').click()")
            detail = browser.evaluate("document.getElementById('detail').textContent")
            clicked = rows[int(shown)]
            self.assertIn(clicked["kernel"], detail)
            command = browser.evaluate("document.querySelector('#detail .command code').textContent")
            self.assertTrue(command.startswith("gemmtune check --problem 'a16w16 m="), command)
            for each in records(tables["competitors"]):
                if int(each["row"]) == int(shown):
                    self.assertIn(each["kernel"], detail)
            browser.evaluate("document.getElementById('detail').close()")
            self.assertFalse(browser.evaluate("Boolean(document.querySelector('#detail[open]'))"))
            # A click on a point does the same.
            opened = browser.evaluate("""(() => {
                const svg = document.querySelector('#chart-roofline svg');
                const mark = [...svg.querySelectorAll('path')].at(-1).getAttribute('d').match(/^M([\\d.]+),([\\d.]+)/);
                const box = svg.getBoundingClientRect(), scale = box.width / svg.viewBox.baseVal.width;
                const at = {clientX: box.left + mark[1] * scale, clientY: box.top + mark[2] * scale, bubbles: true};
                svg.dispatchEvent(new MouseEvent('mousemove', at));
                const tip = document.querySelector('#chart-roofline .tip').textContent;
                svg.dispatchEvent(new MouseEvent('click', at));
                return [tip, document.getElementById('detail') && document.getElementById('detail').textContent];
            })()""")
            self.assertIn(" µs", opened[0])
            self.assertIsNotNone(opened[1])
            self.assertEqual(browser.problems, [])
        # The command works as it stands.
        words = command.split("'")
        done = self.run_program("check", "--problem", words[1], "--kernel", words[2].split()[-1], program=sys.argv[2])
        self.assertEqual(done.returncode, 0)

    def assert_rows_are_the_data(self, browser, rows):
        titles = browser.evaluate(TITLES)
        names = browser.evaluate("JSON.parse(document.getElementById('report-data').textContent).tables.find(table => table.id === 'rows').columns.map(column => [column.title, column.name, column.decimals, column.detail])")
        by_title = {title: (name, decimals) for title, name, decimals, detail in names if not detail}
        indices = browser.evaluate("[...document.querySelectorAll('#t-rows tbody tr')].map(row => Number(row.dataset.row))")
        self.assertEqual(len(indices), min(50, len(rows)))
        for index, cells in zip(indices, browser.evaluate(SHOWN)):
            for title, cell in zip(titles, cells):
                name, decimals = by_title[title]
                value = rows[index][name]
                if value is None or isinstance(value, str):
                    self.assertEqual(cell, value or "")
                else:
                    self.assertAlmostEqual(float(cell), value, delta=0.51 * 10**-decimals if decimals >= 0 else 1e-9, msg=(title, index))

    def test_sorting_filtering_and_views(self):
        self.write("tuned.csv", many_rows(700) + row(1, 5, "other device").replace("gfx950,256", "gfx942,304"))
        self.report("tuned.csv")
        _, tables = self.report("tuned.csv")
        rows = records(tables["rows"])
        with chromium.Chromium() as browser:
            browser.open(self.folder / "report.html")
            self.assert_rows_are_the_data(browser, rows)

            def filtered(text):
                browser.evaluate(f"""(() => {{ const input = document.querySelector('#t-rows input');
                    input.value = {json.dumps(text)}; input.dispatchEvent(new Event('input')); }})()""")
                return browser.evaluate("document.querySelector('#t-rows .pages').textContent")

            here = [each for each in rows if each["view"].startswith("gfx950")]
            wanted = [each for each in here if each["m"] == 16 and each["verdict"] == "win" and each["speedup"] > 1.3]
            self.assertRegex(filtered("m=16 verdict=win speedup>1.3"), rf"of {len(wanted)} \({len(here)} in all\)")
            near = [each for each in here if each["verdict"] == "win" and each["speedup_low"] is not None and each["speedup_low"] <= 1]
            self.assertRegex(filtered("verdict=win speedup_low<=1"), f"of {len(near)} ")
            self.assertRegex(filtered("kernel_7_ with"), f"of {sum('kernel_7_' in each['kernel'] for each in here)} ")
            self.assertRegex(filtered("nothing has this"), "^0–0 of 0 ")
            filtered("")
            sort = "[...document.querySelectorAll('#t-rows th button')].find(button => button.textContent.startsWith('speed-up')).click()"
            browser.evaluate(sort)
            speedups = sorted((each["speedup"] for each in here if each["speedup"] is not None), reverse=True)
            at = browser.evaluate(TITLES).index("speed-up")
            self.assertEqual([float(cells[at]) for cells in browser.evaluate(SHOWN)], speedups[:50])
            browser.evaluate(sort)
            self.assertEqual(float(browser.evaluate(SHOWN)[0][at]), speedups[-1])
            browser.evaluate("document.querySelector('#t-rows .pages button:last-child').click()")
            self.assertIn("51–100 of", browser.evaluate("document.querySelector('#t-rows .pages').textContent"))
            # Another device: its one row.
            browser.evaluate("(() => { const view = document.getElementById('view'); view.value = 'gfx942/304 a16w16'; view.dispatchEvent(new Event('change')); })()")
            self.assertEqual(len(browser.evaluate(SHOWN)), 1)
            self.assertIn("other device", str(browser.evaluate(SHOWN)))
            # The choice outlives loading the page again, which a page does that follows a run.
            browser.open(self.folder / "report.html")
            self.assertEqual(browser.evaluate("document.getElementById('view').value"), "gfx942/304 a16w16")
            self.assertEqual(browser.problems, [])

    def test_pages_of_every_size_open_quickly(self):
        with chromium.Chromium() as browser:
            for rows, limit in [(0, 2), (1, 2), (20000, 2), (54000, 6)]:
                self.write("a_bf16_tuned_gemm.csv", many_rows(rows))
                page = self.page("a_bf16_tuned_gemm.csv")
                seconds = limit
                for _ in range(8):  # other tests may have the cores
                    seconds = min(seconds, browser.open(page))
                    if seconds < limit:
                        break
                print(f"{rows} rows: {seconds:.2f} s, {page.stat().st_size / 1e6:.1f} MB", flush=True)
                self.assertLess(seconds, limit)
                self.assertEqual(browser.evaluate("document.body.dataset.ready"), "yes")
                self.assertEqual(browser.evaluate("document.querySelectorAll('#t-rows tbody tr').length"), min(50, rows))
            self.assertEqual(browser.problems, [])

    def test_a_phone_scrolls_down_alone_and_the_largest_device_comes_first(self):
        compared = row(1, 5, "k", own=",0.1,10,d,2,win,0").replace("gfx950,256", "gfx942,304")
        self.write("tuned.csv", HEADER + OWN + "\n" + compared + "".join(row(1 << i, 5, "a_rather_long_kernel_name_" * 4, own=",,,,,,") for i in range(9)))
        page = self.page("tuned.csv")
        with chromium.Chromium() as browser:
            browser.open(page, width=390)
            self.assertLessEqual(browser.evaluate("document.documentElement.scrollWidth"), 390)
            self.assertLessEqual(browser.evaluate("Math.max(...[...document.querySelectorAll('select')].map(one => one.getBoundingClientRect().right))"), 390)
            self.assertEqual(browser.evaluate("document.getElementById('view').value"), "gfx950/256 a16w16")
            self.assertEqual(browser.evaluate("document.querySelector('main > *').id"), "next")
            self.assertEqual(browser.problems, [])

    def test_hostile_names_are_texts(self):
        self.write("tuned.csv", HEADER + "\n" + "".join(row(1 << i, 5, name) for i, name in enumerate(HOSTILE)))
        page = self.page("tuned.csv")
        with chromium.Chromium() as browser:
            browser.evaluate("window.alert = () => console.error('alert')")
            for scripts in (True, False):
                browser.open(page, scripts=scripts)
            browser.open(page)
            for index in range(len(HOSTILE)):
                browser.evaluate(f"document.querySelector('#t-rows tr[data-row=\"{index}\"]').click()")
                command = browser.evaluate("document.querySelector('#detail .command code').textContent")
                self.assertTrue(command.startswith("gemmtune lookup --problem "), command)
                browser.evaluate("document.getElementById('detail').close()")
            texts = browser.evaluate("[...document.querySelectorAll('#t-rows td.kernel')].map(cell => cell.textContent)")
            self.assertIn(HOSTILE[0], texts)
            self.assertEqual(browser.evaluate("document.querySelectorAll('img').length"), 0)
            self.assertEqual(browser.evaluate("document.querySelectorAll('script').length"), 2)
            self.assertEqual(browser.problems, [])

    def test_numbers_that_are_not_finite_draw_nothing(self):
        numbers = ["2.0", "inf", "nan", "1e308", "1.1"]
        self.write("tuned.csv", HEADER + OWN + "\n" + "".join(row(1 << i, 5, f"k{i}", own=f",inf,10,d,{number},win,0") for i, number in enumerate(numbers)))
        with chromium.Chromium() as browser:
            browser.open(self.page("tuned.csv"))
            paths = browser.evaluate("[...document.querySelectorAll('.chart path')].map(path => path.getAttribute('d'))")
            self.assertGreater(len(paths), 0)
            self.assertEqual([path for path in paths if "NaN" in path or "Infinity" in path], [])
            self.assertEqual(browser.problems, [])

    def test_without_javascript_the_tables_are_there(self):
        self.write("tuned.csv", many_rows(230))
        page = self.page("tuned.csv")
        with chromium.Chromium() as browser:
            browser.open(page, scripts=False)
            document = browser.call("DOM.getDocument", depth=-1)["root"]["nodeId"]
            rows = browser.call("DOM.querySelectorAll", nodeId=document, selector="#t-rows tbody tr")["nodeIds"]
            self.assertEqual(len(rows), 200)
            more = browser.call("DOM.querySelector", nodeId=document, selector="#t-rows .more")["nodeId"]
            self.assertIn("The first 200 of 230 rows", browser.call("DOM.getOuterHTML", nodeId=more)["outerHTML"])
            # A page that follows a run loads itself again without a script, too.
            self.assertEqual(browser.problems, [])


if __name__ == "__main__":
    if chromium.program() is None:
        print("skipped: no Chromium (apt-get install chromium, or set GEMMTUNE_CHROMIUM)")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
