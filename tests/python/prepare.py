"""Makes the virtual environment BUILD/python-environment with the package in it: its wheel, built by pip from a finished
build (`GEMMTUNE_FINISHED_BUILD`), or, where scikit-build-core is neither installed nor to be had, the same files by
`cmake --install`. numpy, and PyTorch where there is one, are those of the Python that runs this script, or of the environment that
tools/torch_environment.py made for it in the user's cache folder CACHE (this script's home is another).

Usage: prepare.py SOURCE BUILD CACHE"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SETTINGS = "import site, sys; print(*[p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))], sep='\\n')"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def quiet(*command):
    """Whether a command succeeds; its output only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        print(done.stdout)
    return done.returncode == 0


def torch_packages(host, source, cache):
    """Of a Python without PyTorch: the packages of the environment that tools/torch_environment.py made for it; empty if it made none."""
    if subprocess.run([host, "-c", "import torch"], capture_output=True, check=False).returncode == 0:
        return ""
    found = subprocess.run([host, str(source / "tools" / "torch_environment.py"), "--find"], capture_output=True, text=True, check=False,
                           env={**os.environ, "XDG_CACHE_HOME": str(cache)}).stdout.strip()
    return output(found, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))") if found else ""


def main():
    source, build, cache = (Path(place).resolve() for place in sys.argv[1:4])
    host = sys.executable
    place = build / "python-environment"
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([host, "-m", "venv", str(place)], check=True)
    python = str(place / "bin" / "python")
    packages = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (packages / "host.pth").write_text(torch_packages(host, source, cache) + output(host, "-c", SETTINGS))
    wheels = build / "python-wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    offline = ["--disable-pip-version-check", "--no-deps"]
    builder = subprocess.run([python, "-c", "import scikit_build_core, packaging, pathspec"], capture_output=True, check=False)
    if builder.returncode and not quiet(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries",
                                        "0", "--timeout", "10", "scikit-build-core"):
        print("PyPI does not answer and scikit-build-core is not installed: no wheel, its files by cmake --install")
        target = packages / "gemmtune"
        shutil.copytree(source / "python" / "gemmtune", target, ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["cmake", "--install", str(build), "--component", "python", "--prefix", str(target)], check=True,
                       stdout=subprocess.DEVNULL)
        return 0
    made = quiet(python, "-m", "pip", "wheel", str(source), *offline, "--no-build-isolation", "--wheel-dir", str(wheels), "--config-settings",
                 f"cmake.define.GEMMTUNE_FINISHED_BUILD={build}", "--config-settings", f"build-dir={build}/python-wheel-build")
    if not made:
        return 1
    wheel, = wheels.glob("*.whl")
    print(wheel.name, wheel.stat().st_size, "bytes")
    return 0 if quiet(python, "-m", "pip", "install", *offline, "--no-index", str(wheel)) else 1


if __name__ == "__main__":
    sys.exit(main())
