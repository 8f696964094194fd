#!/usr/bin/env python3
"""How long tuning takes on many GPUs or CPUs, simulated on recorded costs: shards of `tune --shard`, dealt by the program itself,
and the dynamic balance of gemmtune.ray, with and without lost nodes.

A shape takes what `--list` predicts for it, times the ratio of recorded to predicted seconds of a shape of a recording, drawn by a
seeded generator; a node is up to 3.5 % slower or faster than another. Prints CSV: how many times as long as the bound (all work
shared out evenly, or the longest shape) each way takes, the median and the largest of the seeds.

Usage: tools/simulate_shards.py PROGRAM [--nodes 8,64,1000] [--shapes 192,10000,100000] [--seeds 5] [--kinds GPU,CPU]
"""

import argparse
import collections
import csv
import heapq
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORDINGS = {"GPU": ROOT / "tests/data/recordings/gpu/cuda-h200.jsonl.gz", "CPU": ROOT / "tests/data/recordings/cpu-amx.jsonl.gz"}
ITEMS_PER_NODE = 16  # as gemmtune.ray
START_SECONDS = 2.0  # of a process: the program, its worker, reading the list
NODE_SPEED = 0.035  # to either side
LOST_SHARE = 0.01
RESTART_SECONDS = 60.0  # until a scheduler has started a lost task again


def listed(program, words, kind):
    backend = ["--backend", "cpu" if kind == "CPU" else "cuda"] if "--replay" not in words else []
    done = subprocess.run([program, "tune", *words, *backend, "--list", "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def recorded_ratios(program, recording, kind):
    """Recorded seconds over predicted ones, scaled to a mean of 1; and the seconds that one predicted second is."""
    predicted = {shape["problem"]: shape["predicted_seconds"]
                 for shape in listed(program, ["--replay", str(recording), "--shard", "1/1"], kind)["shapes"]}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "tune", "--replay", recording, "-o", f"{folder}/a.csv", "--confirmations", "1", "--json", "-q"],
                              capture_output=True, text=True, check=True)
    took = {shape["problem"]: shape["seconds"] for shape in json.loads(done.stdout)["problems"]}
    scale = sum(took.values()) / sum(predicted.values())
    return [took[problem] / predicted[problem] / scale for problem in predicted], scale


def shape_list(count, path):
    """Weights of language models from 1 B to 400 B parameters under 1 to 8 ranks, each at many M."""
    if count == 192:
        return ROOT / "shapes/llm_dense_192.csv"
    weights = collections.OrderedDict()
    for hidden in range(1024, 8193, 64):
        for ranks in (1, 2, 4, 8):
            for n, k in ((hidden * 5 // 4 // ranks, hidden), (hidden, hidden // ranks), (hidden * 7 // ranks, hidden),
                         (hidden, hidden * 7 // 2 // ranks)):
                weights[(max(16, n // 16 * 16), max(16, k // 16 * 16))] = None
    ms = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
    ms = sorted({other for m in ms for other in (m, m + 5, m + 11, m * 3 // 4 + 1, m * 5 // 8 + 7)})
    generator = random.Random(11)
    rows = [(m, n, k) for n, k in weights for m in ms]
    generator.shuffle(rows)
    if len(rows) < count:
        sys.exit(f"{len(rows)} shapes, expected at least {count}")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["M", "N", "K", "dtype"])
        writer.writerows([*row, "torch.bfloat16"] for row in sorted(rows[:count], key=lambda row: (row[1], row[2], row[0])))
    return path


def by_shard(listing):
    shards = [[] for _ in range(listing["shards"])]
    for place, shape in enumerate(listing["shapes"]):
        shards[shape["shard"] - 1].append(place)
    return shards


def static_makespan(shards, seconds, speeds, lost):
    """Each node a shard. A lost one is started again on the first node that is free: it goes on at the shape that it was at."""
    free, restarts = [], []
    for node, shard in enumerate(shards):
        work = START_SECONDS + sum(seconds[shape] for shape in shard) * speeds[node]
        if node not in lost:
            heapq.heappush(free, (work, node))
            continue
        at, gone = lost[node] * work, START_SECONDS
        rest = 0.0
        for shape in shard:
            if gone + seconds[shape] * speeds[node] > at:
                rest += seconds[shape]
            gone += seconds[shape] * speeds[node]
        restarts.append((at + RESTART_SECONDS, rest))
    end = max(work for work, _ in free)
    for at, rest in sorted(restarts):
        idle, node = heapq.heappop(free)
        done = max(at, idle) + START_SECONDS + rest * speeds[node]
        heapq.heappush(free, (done, node))
        end = max(end, done)
    return end


def dynamic_makespan(items, seconds, predicted, speeds, lost, horizon):
    """Nodes take the item with the largest predicted cost. A lost node loses the item that it was at; it does not come back."""
    waiting = [(-sum(predicted[shape] for shape in item), index) for index, item in enumerate(items)]
    heapq.heapify(waiting)
    costs = [sum(seconds[shape] for shape in item) for item in items]
    events = [(0.0, node, None) for node in range(len(speeds))]  # when the node is free, after which item
    heapq.heapify(events)
    ends_at = {node: share * horizon for node, share in lost.items()}
    idle, done, end = [], 0, 0.0
    while done < len(items):
        now, node, item = heapq.heappop(events)
        if item is not None and node in ends_at and now > ends_at[node]:
            heapq.heappush(waiting, (-sum(predicted[shape] for shape in items[item]), item))  # an actor that died is seen at once
            if idle:
                heapq.heappush(events, (ends_at[node], idle.pop(), None))
            continue
        if item is not None:
            done += 1
            end = max(end, now)
        if node in ends_at and now >= ends_at[node]:
            continue
        if not waiting:
            idle.append(node)
            continue
        _, index = heapq.heappop(waiting)
        finish = now + START_SECONDS + costs[index] * speeds[node]
        if node in ends_at and finish > ends_at[node]:
            heapq.heappush(events, (max(now, ends_at[node]) + 1e-9, node, index))
        else:
            heapq.heappush(events, (finish, node, index))
    return end


def simulate(program, kind, nodes, path, ratios, scale, seeds):
    words = ["-i", str(path), "--op", "a16w16"]
    static = listed(program, [*words, "--shard", f"all/{nodes}"], kind)
    items_count = min(len(static["shapes"]), ITEMS_PER_NODE * nodes)
    dynamic = listed(program, [*words, "--shard", f"all/{items_count}"], kind)
    predicted = [shape["predicted_seconds"] for shape in static["shapes"]]
    assert [shape["problem"] for shape in static["shapes"]] == [shape["problem"] for shape in dynamic["shapes"]]
    shards, items = by_shard(static), by_shard(dynamic)
    results = collections.defaultdict(list)
    for seed in range(seeds):
        generator = random.Random(seed)
        seconds = [cost * scale * generator.choice(ratios) for cost in predicted]
        speeds = [1 + generator.uniform(-NODE_SPEED, NODE_SPEED) for _ in range(nodes)]
        # At least one node, of which there are few.
        lost = {node: generator.random() for node in generator.sample(range(nodes), max(1, round(LOST_SHARE * nodes)))}
        bound = max(sum(seconds) / sum(1 / speed for speed in speeds), max(seconds) * min(speeds))
        results["bound_s"].append(bound)
        results["predicted_balance"].append(max(load["predicted_seconds"] for load in static["loads"]) * nodes / sum(predicted))
        rows = [list(range(node, len(seconds), nodes)) for node in range(nodes)]
        results["round_robin"].append(static_makespan(rows, seconds, speeds, {}) / bound)
        results["static"].append(static_makespan(shards, seconds, speeds, {}) / bound)
        results["dynamic"].append(dynamic_makespan(items, seconds, predicted, speeds, {}, bound) / bound)
        results["static_lost"].append(static_makespan(shards, seconds, speeds, lost) / bound)
        results["dynamic_lost"].append(dynamic_makespan(items, seconds, predicted, speeds, lost, bound) / bound)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--nodes", default="8,64,1000")
    parser.add_argument("--shapes", default="192,10000,100000")
    parser.add_argument("--kinds", default="GPU,CPU")
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    out = csv.writer(sys.stdout)
    out.writerow(["kind", "shapes", "nodes", "bound_s", "predicted_balance", "round_robin", "round_robin_max", "static", "static_max", "dynamic", "dynamic_max", "static_lost",
                  "static_lost_max", "dynamic_lost", "dynamic_lost_max"])
    with tempfile.TemporaryDirectory() as folder:
        for kind in arguments.kinds.split(","):
            ratios, scale = recorded_ratios(arguments.program, RECORDINGS[kind], kind)
            print(f"{kind}: ratios of recorded to predicted seconds {min(ratios):.2f} to {max(ratios):.2f}, one predicted second is "
                  f"{scale:.2f} s", file=sys.stderr)
            for count in map(int, arguments.shapes.split(",")):
                path = shape_list(count, pathlib.Path(folder) / f"shapes{count}.csv")
                for nodes in map(int, arguments.nodes.split(",")):
                    if nodes * 4 > count:
                        continue
                    results = simulate(arguments.program, kind, nodes, path, ratios, scale, arguments.seeds)
                    line = [kind, count, nodes, f"{statistics.median(results['bound_s']):.0f}", f"{results['predicted_balance'][0]:.3f}"]
                    for name in ("round_robin", "static", "dynamic", "static_lost", "dynamic_lost"):
                        line += [f"{statistics.median(results[name]):.2f}", f"{max(results[name]):.2f}"]
                    out.writerow(line)
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
