"""The wheel that prepare.py built: its name and what it holds."""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

build = Path(sys.prefix).parent
wheels = list((build / "python-wheel").glob("*.whl"))
if not wheels:
    print("SKIPPED: no wheel was built, because scikit-build-core is not installed and PyPI did not answer")
    sys.exit(77)
wheel, = wheels
names = zipfile.ZipFile(wheel).namelist()
assert wheel.name.split("-")[2:4] == ["py3", "none"], f"{wheel.name}: expected a wheel of any Python"
for needed in ("gemmtune/__init__.py", "gemmtune/bin/gemmtune", "gemmtune/lib/libgemmtune.so.0", "gemmtune/lib/libgemmtune_torch.so",
               "gemmtune/data/errata/onednn-amx-odd-k.json", "gemmtune/data/shapes/llama-3.2-1b.csv",
               "gemmtune/data/models/llama-3.2-1b/config.json", "gemmtune/licenses/gemmtune"):
    assert needed in names, f"{wheel.name}: {needed} is missing"
# Each library that is not ours came from a package of the distribution, whose licence lies beside it.
if Path("/etc/debian_version").exists():
    foreign = [name for name in names if re.match(r"gemmtune/lib/lib(?!gemmtune)[^/]*\.so", name)]
    licences = zipfile.ZipFile(wheel).read("gemmtune/licenses/libraries.txt").decode()
    for name in foreign:
        library = name.rsplit("/", 1)[1]
        line = next((line for line in licences.splitlines() if line.startswith(library + ": ")), None)
        assert line, f"{wheel.name}: no licence of {library}"
        text = f"gemmtune/licenses/{line.split(': ')[1]}"
        assert text in names and zipfile.ZipFile(wheel).getinfo(text).file_size > 100, f"{wheel.name}: {text} is missing or empty"
metadata = zipfile.ZipFile(wheel).read(next(name for name in names if name.endswith("METADATA"))).decode()
assert "Requires-Dist" not in metadata, "the package requires another one"
program = zipfile.ZipFile(wheel).getinfo("gemmtune/bin/gemmtune")
assert program.external_attr >> 16 & 0o111, "gemmtune/bin/gemmtune is not executable"
assert not any(re.search(r"/libgemmtune\w*\.so\.\d+\.\d", name) for name in names), "a library is there twice"
check = Path(__file__).resolve().parents[2] / "tools" / "check_library_paths.py"
with tempfile.TemporaryDirectory() as folder:
    zipfile.ZipFile(wheel).extractall(folder)
    subprocess.run([sys.executable, check, folder], check=True)
    # The wheel's tag promises this glibc (docs/python.md).
    for file in Path(folder).rglob("*"):
        if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
            symbols = subprocess.run(["objdump", "-T", file], check=True, capture_output=True, text=True).stdout
            newest = max((tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([0-9.]+)", symbols)), default=(2,))
            assert newest <= (2, 35), f"{file.relative_to(folder)} needs glibc {'.'.join(map(str, newest))}"
as_module, = {subprocess.run(words, check=True, capture_output=True, text=True).stdout
              for words in ([sys.executable, "-m", "gemmtune", "--version"], [Path(sys.prefix) / "bin" / "gemmtune", "--version"])}
assert as_module.startswith("gemmtune "), as_module
print(wheel.name, "holds", len(names), "files")
