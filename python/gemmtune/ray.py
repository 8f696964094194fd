"""Tunes a list of shapes on a Ray cluster: `python3 -m gemmtune.ray -i shapes.csv -o tuned.csv`.

The list is dealt into many more shards than there are workers (`gemmtune tune --shard I/N`); each worker, an actor with a GPU
of its own, takes the next one when it is free. A shard whose worker is lost is given to another one, a straggler is started a
second time once no shard waits, and the first result counts. Results come to this process, so nodes need no common disk; the
table is written while they come, and at the end by `gemmtune merge --expect-shards`, which refuses what is not whole. The
same command goes on with the shards that are in OUTPUT.shards.

Needs ray and the gemmtune program on every node: --gemmtune, else that of the Python package there, else the one on PATH.
"""

import argparse
import ctypes
import importlib.util
import json
import pathlib
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import ray
from ray.exceptions import GetTimeoutError, RayActorError

ENDINGS = ["", ".env.json", ".journal", ".shard.json"]  # of the files of a shard
SHARDS_PER_WORKER = 16


def find_program(given):
    """The gemmtune program of this node."""
    if given:
        return given
    package = importlib.util.find_spec("gemmtune")
    for folder in package.submodule_search_locations if package else []:
        program = pathlib.Path(folder) / "bin" / "gemmtune"
        if program.is_file():
            return str(program)
    program = shutil.which("gemmtune")
    if program is None:
        raise FileNotFoundError("no gemmtune program: give --gemmtune, install the package or put it on PATH")
    return program


def die_with_parent():
    """A worker that Ray kills takes its program along, which may hold the GPU."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Worker:
    """Runs shards on one node, one at a time."""

    def __init__(self, program, shapes):
        self.program = find_program(program)
        self.shapes = shapes  # content of the list, or None

    def tune(self, index, count, options):
        """Exit code, end of the messages and files (by ending) of a shard."""
        with tempfile.TemporaryDirectory(prefix="gemmtune-ray-") as folder:
            folder = pathlib.Path(folder)
            output = folder / f"tuned.{index}of{count}.csv"
            words = [self.program, "tune", *options, "-o", str(output), "--shard", f"{index}/{count}", "-q"]
            if self.shapes is not None:
                (folder / "shapes.csv").write_bytes(self.shapes)
                words += ["-i", str(folder / "shapes.csv")]
            begin = time.monotonic()
            done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=die_with_parent,
                                  check=False)
            files = {ending: pathlib.Path(f"{output}{ending}").read_bytes() for ending in ENDINGS
                     if pathlib.Path(f"{output}{ending}").is_file()}
            return {"code": done.returncode, "messages": done.stderr.decode(errors="replace")[-2000:], "files": files,
                    "seconds": time.monotonic() - begin}


class Item:
    """A shard, from waiting to done."""

    def __init__(self, index, predicted):
        self.index = index
        self.predicted = predicted
        self.failures = 0
        self.running = 0  # copies
        self.done = False


class Failed(Exception):
    """The run cannot go on; the text says why."""


class Cluster:
    """The workers, and what each is at."""

    def __init__(self, arguments, shapes):
        self.arguments = arguments
        resources = ray.cluster_resources()
        gpus = arguments.gpus_per_worker
        if gpus is None:
            gpus = 1 if resources.get("GPU", 0) >= 1 else 0
        room = [resources.get("CPU", 1) // arguments.cpus_per_worker] + ([resources["GPU"] // gpus] if gpus else [])
        self.has_gpus = gpus > 0
        self.size = arguments.workers or max(1, int(min(room)))
        self.actor = ray.remote(num_cpus=arguments.cpus_per_worker, num_gpus=gpus, max_restarts=0)(Worker)
        self.shapes = ray.put(shapes)
        self.idle = [self.start() for _ in range(self.size)]
        self.work = {}  # result: (worker, item, begin)

    def start(self):
        return self.actor.remote(self.arguments.gemmtune, self.shapes)

    def give(self, item, count, options):
        worker = self.idle.pop()
        item.running += 1
        self.work[worker.tune.remote(item.index, count, options)] = (worker, item, time.monotonic())

    def next_result(self, seconds):
        """(item, result), (item, None) of a worker that was lost, or None after the time."""
        ready, _ = ray.wait(list(self.work), num_returns=1, timeout=seconds)
        if not ready:
            return None
        worker, item, _ = self.work.pop(ready[0])
        item.running -= 1
        try:
            result = ray.get(ready[0], timeout=60)
        except (RayActorError, GetTimeoutError) as error:
            say(f"shard {item.index}: its worker is lost: {str(error).splitlines()[0]}")
            self.replace(worker)
            return item, None
        self.idle.append(worker)
        return item, result

    def replace(self, worker):
        ray.kill(worker)
        self.idle.append(self.start())

    def end_copies(self, item):
        """Of a shard that is done: another worker does not go on with it."""
        for result, (worker, other, _) in list(self.work.items()):
            if other is item:
                del self.work[result]
                item.running -= 1
                self.replace(worker)


class Run:
    """Shards to their results, results to a table."""

    def __init__(self, arguments, options):
        self.arguments = arguments
        self.options = options
        self.output = pathlib.Path(arguments.output)
        self.folder = pathlib.Path(f"{arguments.output}.shards")
        self.program = find_program(arguments.gemmtune)
        self.shapes = pathlib.Path(arguments.input).read_bytes() if arguments.input else None
        self.ratios = []  # measured / predicted seconds
        self.merged_at = time.monotonic()

    def listing(self, count):
        """`tune --list` for so many shards."""
        words = [self.program, "tune", *self.options, "--shard", f"1/{count}", "--list", "--json"]
        if self.arguments.input:
            words += ["-i", self.arguments.input]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Failed(done.stderr.strip() or f"{words[0]} tune --list ended with {done.returncode}") from None

    def shard_path(self, index, ending=""):
        return self.folder / f"tuned.{index}of{self.count}.csv{ending}"

    def known(self, index, list_hash):
        """An earlier run left this shard, whole. What is no shard of this list is set aside: no merge could read it."""
        path = self.shard_path(index, ".shard.json")
        try:
            shard = json.loads(path.read_text())
            listed, state = shard["list"], shard["state"]
        except FileNotFoundError:
            if self.shard_path(index).exists():
                self.set_aside(index, f"{path} is missing")
            return False
        except (OSError, ValueError, TypeError, KeyError) as error:
            self.set_aside(index, f"{path} is no shard's file ({type(error).__name__}: {error})")
            return False
        if listed != list_hash:
            self.set_aside(index, f"{path} is of another list of shapes")
            return False
        return state == "finished"

    def set_aside(self, index, why):
        for ending in ENDINGS:
            path = self.shard_path(index, ending)
            if path.exists():
                path.replace(path.with_name(path.name + ".old"))
        say(f"shard {index}: {why}; it is tuned again, its files are kept as *.old")

    def store(self, item, result):
        """Its .shard.json last: with it the shard counts as there."""
        for ending in ENDINGS:
            if ending in result["files"]:
                target = self.shard_path(item.index, ending)
                part = target.with_name(target.name + ".part")
                part.write_bytes(result["files"][ending])
                part.replace(target)

    def merge(self, more):
        words = [self.program, "merge", f"{self.folder}/tuned.*of{self.count}.csv", "--expect-shards", str(self.count), "-o",
                 str(self.output), "--quiet", *more]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def merge_what_is_there(self):
        if time.monotonic() - self.merged_at < self.arguments.merge_seconds:
            return
        done = self.merge(["--allow", "missing,unfinished,unanswered"])
        if done.returncode not in (0, 1):
            raise Failed(done.stderr.strip() or f"{self.program} merge ended with {done.returncode}")
        self.merged_at = time.monotonic()

    def accept(self, item, result):
        if item.done:
            return
        if result is None or result["code"] not in (0, 1):
            item.failures += 1
            why = "its worker was lost" if result is None else f"exit code {result['code']}: {result['messages'].strip()}"
            if result is not None and result["code"] == 2 or item.failures > self.arguments.retries:
                raise Failed(f"shard {item.index}: {why}")
            return
        self.store(item, result)
        item.done = True
        if item.predicted > 0:
            self.ratios.append(result["seconds"] / item.predicted)
        self.merge_what_is_there()

    def straggler(self, cluster):
        """The shard that is furthest behind what shards like it took."""
        worst, worst_share = None, self.arguments.straggler
        for _, item, begin in cluster.work.values():
            if item.running > 1 or not self.ratios:
                continue
            expected = max(1.0, item.predicted * statistics.median(self.ratios))
            share = (time.monotonic() - begin) / expected
            if share > worst_share:
                worst, worst_share = item, share
        return worst

    def run(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        cluster = Cluster(self.arguments, self.shapes)
        named = any(option.startswith(("--backend", "--replay", "--evaluator")) for option in self.options)
        if not cluster.has_gpus and not named:
            self.options += ["--backend", "cpu"]  # the list is then dealt here as it is there
        shapes = self.listing(1)["shapes_in_list"]
        self.count = self.arguments.shards or max(1, min(shapes, SHARDS_PER_WORKER * cluster.size))
        listing = self.listing(self.count)
        items = [Item(load["shard"], load["predicted_seconds"]) for load in listing["loads"]]
        for item in items:
            item.done = self.known(item.index, listing["list"])
        say(f"{shapes} shapes in {self.count} shards on {cluster.size} workers; "
            f"{sum(item.done for item in items)} shards are there already")
        while not all(item.done for item in items):
            waiting = sorted((item for item in items if not item.done and not item.running), key=lambda item: -item.predicted)
            while cluster.idle and waiting:
                cluster.give(waiting.pop(0), self.count, self.options)
            slow = self.straggler(cluster) if cluster.idle and not waiting else None
            if slow:
                say(f"shard {slow.index}: takes long, is started again")
                cluster.give(slow, self.count, self.options)
            answer = cluster.next_result(1.0)
            if answer is None:
                continue
            item, result = answer
            self.accept(item, result)
            if item.done:
                cluster.end_copies(item)
                say(f"{sum(one.done for one in items)} of {self.count} shards done")
        done = self.merge(shlex.split(self.arguments.merge_options))
        sys.stderr.write(done.stderr)
        return done.returncode


def say(text):
    print(f"gemmtune.ray: {text}", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python3 -m gemmtune.ray", description=__doc__.splitlines()[0],
        epilog="Further options are those of `gemmtune tune`. Exit codes: those of `gemmtune merge`; 2 if the run failed.")
    parser.add_argument("-i", "--input", help="list of shapes, a file of this machine")
    parser.add_argument("-o", "--output", required=True, help="tuned file; shards are kept in OUTPUT.shards")
    parser.add_argument("--gemmtune", help="the program on every node")
    parser.add_argument("--address", help="of the cluster (default: RAY_ADDRESS, else one is started here)")
    parser.add_argument("--workers", type=int, help="actors (default: as many as the cluster has GPUs, else CPUs for)")
    parser.add_argument("--gpus-per-worker", type=float, help="default: 1 if the cluster has GPUs")
    parser.add_argument("--cpus-per-worker", type=float, default=1)
    parser.add_argument("--shards", type=int, help=f"parts of the list (default: {SHARDS_PER_WORKER} a worker)")
    parser.add_argument("--retries", type=int, default=3, help="of a shard whose worker was lost or failed")
    parser.add_argument("--straggler", type=float, default=3, help="times its expected seconds after which a shard is started again")
    parser.add_argument("--merge-seconds", type=float, default=30, help="between merges of what is there")
    parser.add_argument("--merge-options", default="", help='of the last merge ("--allow unanswered")')
    arguments, options = parser.parse_known_args()
    options = [option for option in options if option != "--"]
    ray.init(address=arguments.address, include_dashboard=False, log_to_driver=False)
    try:
        code = Run(arguments, options).run()
    except (Failed, OSError) as error:
        say(str(error))
        code = 2
    finally:
        ray.shutdown()
    sys.exit(code)


if __name__ == "__main__":
    main()
