#!/usr/bin/env python3
"""Real vLLM on random weights: several engines on one GPU, started at once, asked in turns.

Usage: vllm_engines.py [--tp N] [--expert-parallel] [--cases SEQUENCES:OUT:IN[,...]] [--logprobs N] MODEL SECONDS NAME[:VARIABLE=VALUE[,...]] ...
       the first NAME is the baseline; a second one with the same variables shows how far two equal engines are apart
       vllm_engines.py worker MODEL SHARE N EXPERT_PARALLEL
--tp: GPUs that each engine has; all engines are on the same ones. --expert-parallel: they divide the experts, not each expert. --cases: sequences, tokens
that each generates, and tokens of its prompt, in place of the cases of docs/vllm_measured.md. --logprobs: of N prompts of 64 tokens in one batch, how far
the log-probabilities of the likeliest five tokens of four steps are from the baseline's. The last lines have the baseline with one prompt at a time: other M.
MODEL: a folder with config.json, and weights or none. Without them vLLM draws them, which does for bf16; bench/quantized_model.py writes both kinds of
folders. Run it in vLLM's environment, with gemmtune's plug-in installed; logs go to OUT (/tmp). It prints the kernels that each engine logs. For each
case and engine it prints tokens a second, the median of paired ratios with its 95 % interval (order statistics), and how many sequences have the
baseline's tokens.
"""
import argparse
import glob
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

# sequences, tokens out, tokens in
CASES = [(1, 64, 32), (8, 64, 32), (16, 64, 32), (64, 64, 32), (1, 1, 128), (1, 1, 512), (1, 1, 1500)]
ROUND_SECONDS = 0.2  # of an engine and a case in a round: prompts, whose times vary with the host's, are asked up to ten times in turns
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"


def worker(model, share, ranks, expert_parallel):
    from vllm import LLM, SamplingParams, TokensPrompt
    begin = time.time()
    engine = LLM(model, load_format="auto" if glob.glob(f"{model}/*.safetensors") else "dummy", skip_tokenizer_init=True, dtype="bfloat16",
                 gpu_memory_utilization=share, max_model_len=2048, max_num_seqs=64, seed=0, enable_prefix_caching=False,
                 max_num_batched_tokens=8192, kv_cache_memory_bytes=3 << 30,
                 tensor_parallel_size=ranks, enable_expert_parallel=expert_parallel)
    vocabulary = json.load(open(f"{model}/config.json"))["vocab_size"]
    print(f"engine up in {time.time() - begin:.0f} s", flush=True)
    print("READY", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == "report":
            print("RESULT", json.dumps(engine.collective_rpc("report_of_gemmtune")), flush=True)
            continue
        if words[0] == "logprobs":
            prompts = [TokensPrompt(prompt_token_ids=[(i * 101 + j * 17 + i * j) % (vocabulary - 10) + 5 for j in range(64)]) for i in range(int(words[1]))]
            asked = SamplingParams(max_tokens=4, ignore_eos=True, temperature=0, logprobs=5, detokenize=False)
            answers = [engine.generate(group, asked, use_tqdm=False) for group in ([prompts] if words[2] == "together" else [[one] for one in prompts])]
            print("RESULT", json.dumps([[{token: one.logprob for token, one in step.items()} for step in answer.outputs[0].logprobs]
                                        for group in answers for answer in group]), flush=True)
            continue
        sequences, out, tokens = map(int, words)
        prompts = [TokensPrompt(prompt_token_ids=[(i * 37 + j * 11) % (vocabulary - 10) + 5 for j in range(tokens)]) for i in range(sequences)]
        begin = time.perf_counter()
        done = engine.generate(prompts, SamplingParams(max_tokens=out, ignore_eos=True, temperature=0, detokenize=False), use_tqdm=False)
        print("RESULT", json.dumps([time.perf_counter() - begin, [list(one.outputs[0].token_ids) for one in done]]), flush=True)


class Engine:
    def __init__(self, model, name, variables, words):
        self.name, self.ready = name, threading.Event()
        self.process = subprocess.Popen([sys.executable, __file__, "worker", model, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env={**os.environ, **variables}, start_new_session=True)
        self.results = []
        self.arrived = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        log = open(f"{os.environ.get('OUT', '/tmp')}/{self.name}.log", "w")
        for line in self.process.stdout:
            if line.startswith("RESULT"):
                with self.arrived:
                    self.results.append(json.loads(line[7:]))
                    self.arrived.notify()
                continue
            log.write(line)
            log.flush()
            if "gemmtune" in line or "Error" in line or "Selected" in line or "Using" in line and ("Kernel" in line or "backend" in line) or line.startswith("engine"):
                print(f"{self.name}: {line.rstrip()[:300]}", flush=True)
            if line.startswith("READY"):
                self.ready.set()
        self.ready.set()
        with self.arrived:
            self.results.append(None)
            self.arrived.notify()

    def ask(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        with self.arrived:
            while not self.results:
                self.arrived.wait()
            found = self.results.pop(0)
        if found is None:
            sys.exit(f"{self.name}: the engine ended")
        return found

    def end(self):
        """With the processes of its ranks, which would keep the GPUs' memory."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def interval(values):
    """95 % of the median, by order statistics."""
    ordered = sorted(values)
    n = len(ordered)
    half = 0.98 * math.sqrt(n)
    low, high = max(0, int(n / 2 - half)), min(n - 1, math.ceil(n / 2 + half) - 1)
    return ordered[low], ordered[high]


def cases_of(text):
    cases = [tuple(map(int, case.split(":"))) for case in text.split(",")]
    if any(len(case) != 3 or min(case) < 1 for case in cases):
        raise ValueError
    return cases


def distances(mine, theirs):
    """Of the log-probabilities that two engines give to one token after the same tokens, of all prompts: those of the first token, those of the next."""
    first, later = [], []
    for steps, others in zip(mine, theirs):
        for number, (a, b) in enumerate(zip(steps, others)):
            (later if number else first).extend(abs(value - b[token]) for token, value in a.items() if token in b)
            if max(a, key=a.get) != max(b, key=b.get):
                break
    return first, later


def say_distances(engines, prompts):
    """Prints how far log-probabilities are apart."""
    baseline = engines[0].ask(f"logprobs {prompts} together")
    others = [(engine.name, engine.ask(f"logprobs {prompts} together")) for engine in engines[1:]]
    others.append((f"{engines[0].name}, one prompt at a time", engines[0].ask(f"logprobs {prompts} alone")))
    for name, other in others:
        for step, apart in zip(("first token", "next three"), distances(baseline, other)):
            if apart:
                print(f"log-probabilities, {prompts} prompts, {step}: {name} from {engines[0].name}: mean {statistics.fmean(apart):.5f}, "
                      f"most {max(apart):.5f}, equal {sum(one == 0 for one in apart)} of {len(apart)}", flush=True)


def main(model, seconds, specs, ranks, expert_parallel, cases, prompts):
    engines = []
    try:
        compare(engines, model, seconds, specs, cases, prompts, (str(round(0.86 / len(specs), 2)), str(ranks), str(int(expert_parallel))))
    finally:
        for engine in engines:
            engine.end()


def compare(engines, model, seconds, specs, cases, prompts, words):
    for spec in specs:  # at once: kv_cache_memory_bytes keeps their memory apart
        name, _, variables = spec.partition(":")
        engines.append(Engine(model, name, dict(one.split("=", 1) for one in variables.split(",") if one), words))
        if os.environ.get("TOGETHER", "1") != "1":
            engines[-1].ready.wait()
    for engine in engines:
        engine.ready.wait()
    if prompts:
        say_distances(engines, prompts)
    same, turns, times = {}, {}, {case: [[] for _ in engines] for case in cases}
    for case in cases:
        tokens = [engine.ask("%d %d %d" % case)[1] for engine in engines]
        same[case] = [sum(a == b for a, b in zip(tokens[0], other)) for other in tokens]
        turns[case] = max(1, min(10, round(ROUND_SECONDS / max(engine.ask("%d %d %d" % case)[0] for engine in engines))))
    end, round_number = time.time() + seconds, 0
    while time.time() < end or round_number < 20 and time.time() < end + 30:
        for case in cases:
            for turn in range(turns[case]):
                for place in range(len(engines)):
                    index = (round_number + turn + place) % len(engines)
                    times[case][index].append(engines[index].ask("%d %d %d" % case)[0])
        round_number += 1
    print(f"{round_number} rounds")
    for case in cases:
        print(f"{case[0]} sequences, {case[1]} out, {case[2]} in: asked {len(times[case][0])} times")
        for index, engine in enumerate(engines):
            rate = case[0] * case[1] / statistics.median(times[case][index])
            ratios = [a / b for a, b in zip(times[case][0], times[case][index])]
            low, high = interval(ratios)
            print(f"{case[0]} sequences, {case[1]} out, {case[2]} in: {engine.name} {rate:.1f} tokens/s, ratio {statistics.median(ratios):.4f} "
                  f"({low:.4f} to {high:.4f}), same tokens {same[case][index]} of {case[0]}", flush=True)
    for engine, spec in zip(engines[1:], specs[1:]):
        if "GEMMTUNE_VLLM=0" in spec.partition(":")[2].split(","):
            continue  # it has no plug-in to ask
        for report in engine.ask("report"):
            left = report.pop("left")
            print(engine.name, json.dumps({**report, "ours": len(report["ours"]), "left": len(left), "why": sorted(set(left.values()))}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "1")
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--tp", type=int, default=1)
        parser.add_argument("--expert-parallel", action="store_true")
        parser.add_argument("--cases", type=cases_of, default=CASES, help="SEQUENCES:OUT:IN[,...], each 1 or more")
        parser.add_argument("--logprobs", type=int, default=0, metavar="N")
        parser.add_argument("model")
        parser.add_argument("seconds", type=float)
        parser.add_argument("engines", nargs="+")
        asked = parser.parse_args()
        main(asked.model, asked.seconds, asked.engines, asked.tp, asked.expert_parallel, asked.cases, asked.logprobs)
