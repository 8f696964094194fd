#!/usr/bin/env python3
"""Requests of mixed lengths against vLLM's OpenAI server on loopback: errors, memory, and whether outputs are those of an offline engine.

Usage: server_requests.py MODEL [--requests 10000] [--seconds S] [--distinct 200] [--at-once 32] [NAME[:VARIABLE=VALUE[,...]] ...]

Run it in vLLM's environment. For each NAME (one, `plug-in`, if none is given) it starts an offline engine and then a server with these variables,
for example `stock:GEMMTUNE_VLLM=0 tuned:GEMMTUNE_CONFIG_A16W16=tuned.csv`. Requests are drawn from --distinct ones, whose prompts have 1 to
--longest tokens and whose outputs have 1 to 48; several begin with the same tokens, so that prefixes are found in the cache. Prefix caching and chunked
prefill are on. The offline engine gets each distinct request once, all in one batch.

It prints a table with a line for each NAME, and the samples as JSON: requests per second, errors (the first one in words), the share of outputs that are
equal to those offline, and the memory of the server's processes (MiB of proportional set size) and of the GPU (all that is used of it, if nvidia-smi is
there), at the beginning and at each tenth of the requests. --seconds ends each NAME after that time, whatever was reached: no further request is sent, those
on their way are awaited for half a minute, and the table says how many were asked. Exit status 1 if a request failed or a process ended."""

import argparse
import http.client
import json
import math
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
ENGINE = {"max_model_len": 512, "max_num_seqs": 32, "max_num_batched_tokens": 256}
WAIT_SECONDS = 1800  # at most, for a server's first answer, and for any answer
GRACE_SECONDS = 30  # after --seconds, for requests that are on their way


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with config.json and weights")
    parser.add_argument("variants", nargs="*", default=["plug-in"], help="NAME[:VARIABLE=VALUE[,...]]")
    parser.add_argument("--requests", type=int, default=10000, help="of each server (10000)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="of each server with its offline engine, starts and all (no limit)")
    parser.add_argument("--distinct", type=int, default=200, help="different requests (200)")
    parser.add_argument("--at-once", type=int, default=32, help="requests that wait for their answer (32)")
    parser.add_argument("--longest", type=int, default=400, help="tokens of the longest prompt (400)")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--offline", action="store_true", help=argparse.SUPPRESS)  # the offline engine's process
    return parser.parse_intermixed_args()


def distinct_requests(asked):
    """(prompt as ids, tokens to generate) of each."""
    draw, vocabulary = random.Random(7), json.loads((Path(asked.model) / "config.json").read_text())["vocab_size"]
    beginnings = [[draw.randrange(5, vocabulary) for _ in range(asked.longest)] for _ in range(8)]
    requests = []
    for _ in range(asked.distinct):
        length = min(asked.longest, max(1, int(draw.lognormvariate(4, 1.2))))
        shared = draw.choice((0, 0, length // 2, length - 1))
        requests.append((draw.choice(beginnings)[:shared] + [draw.randrange(5, vocabulary) for _ in range(length - shared)], draw.randrange(1, 49)))
    return requests


class Ended(Exception):
    """A process that ended, or --seconds that were over before the first request."""


def seconds_to(until):
    return max(0.0, min(WAIT_SECONDS, until - time.monotonic()))


def end_session(process):
    """A process that began a session, and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            pass


# ---- offline ----------------------------------------------------------------------------------------------------------------------------

def run_offline(asked):
    from vllm import LLM, SamplingParams, TokensPrompt
    engine = LLM(asked.model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=asked.eager, seed=0, enable_prefix_caching=True, **ENGINE)
    requests = distinct_requests(asked)
    done = engine.generate([TokensPrompt(prompt_token_ids=prompt) for prompt, _ in requests],
                           [SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False) for _, tokens in requests], use_tqdm=False)
    print("RESULT", json.dumps([list(one.outputs[0].token_ids) for one in done]), flush=True)


def offline_outputs(asked, environment, until, log):
    """The tokens of each distinct request. Raises Ended."""
    command = [sys.executable, __file__, asked.model, "--offline", "--distinct", str(asked.distinct), "--longest", str(asked.longest)]
    with open(log, "w+", encoding="utf-8") as output:
        process = subprocess.Popen(command + ["--eager"] * asked.eager, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            process.wait(timeout=seconds_to(until))
        except subprocess.TimeoutExpired:
            raise Ended(f"--seconds were over before the offline engine's answers; its log is {log}") from None
        finally:
            end_session(process)
        output.seek(0)
        found = [line for line in output if line.startswith("RESULT")]
    if not found:
        raise Ended(f"the offline engine ended with exit status {process.returncode}; its log is {log}")
    return json.loads(found[0][7:])


# ---- the server -------------------------------------------------------------------------------------------------------------------------

class Server:
    """vLLM's OpenAI server as a process group of its own; its log is `log`."""

    def __init__(self, asked, environment, log):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        engine = [word for name, value in ENGINE.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", asked.model, "--served-model-name", "model", "--host", "127.0.0.1",
             "--port", str(self.port), "--skip-tokenizer-init", "--dtype", "bfloat16", "--seed", "0", "--enable-prefix-caching",
             "--disable-uvicorn-access-log", *engine, *["--enforce-eager"] * asked.eager],
            env=environment, stdout=open(log, "w", encoding="utf-8"), stderr=subprocess.STDOUT, start_new_session=True)

    def wait(self, until):
        """Until it answers. Raises Ended."""
        end = time.monotonic() + seconds_to(until)
        while time.monotonic() < end and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            time.sleep(1)
        raise Ended(f"the server does not answer; its log is {self.log}")

    def memory(self):
        """MiB of all its processes; pages that they share count once."""
        found = 0
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(place.name)) == self.process.pid:
                    found += sum(int(line.split()[1]) for line in (place / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
            except (OSError, ValueError):  # it has ended
                continue
        return found / 1024

    def end(self):
        end_session(self.process)


def gpu_memory():
    """MiB that all processes use of the server's first GPU, or None without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return None
    done = subprocess.run(["nvidia-smi", f"--id={os.environ.get('CUDA_VISIBLE_DEVICES', '0').split(',')[0]}", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip().isdigit() else None


class Load:
    """Threads that ask the server one request after the other."""

    def __init__(self, asked, server, expected, until):
        self.asked, self.server, self.expected, self.until = asked, server, expected, until
        self.requests = distinct_requests(asked)
        draw = random.Random(11)
        self.order = [draw.randrange(len(self.requests)) for _ in range(asked.requests)]
        self.lock, self.next, self.answered, self.equal, self.errors, self.first_error = threading.Lock(), 0, 0, 0, 0, None
        self.memory, self.gpu = [], []

    def run(self):
        """Seconds for all."""
        self._sample()
        begin = time.monotonic()
        threads = [threading.Thread(target=self._ask_until_done, daemon=True) for _ in range(self.asked.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=None if self.until == math.inf else max(0.0, self.until + GRACE_SECONDS - time.monotonic()))
        seconds = time.monotonic() - begin
        self._sample()
        with self.lock:
            if self.answered < self.next:
                self.errors += self.next - self.answered
                self.first_error = self.first_error or f"{self.next - self.answered} requests without an answer {GRACE_SECONDS} s after --seconds"
        return seconds

    def _sample(self):
        self.memory.append(round(self.server.memory()))
        if (used := gpu_memory()) is not None:
            self.gpu.append(used)

    def _ask_until_done(self):
        while (index := self._take()) is not None:
            try:
                tokens, why = self._ask(self.order[index]), None
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                tokens, why = None, f"{type(error).__name__}: {error}"
            with self.lock:
                self.answered += 1
                self.equal += tokens == self.expected[self.order[index]]
                self.errors += why is not None
                self.first_error = self.first_error or why

    def _take(self):
        with self.lock:
            if self.next == len(self.order) or time.monotonic() > self.until:
                return None
            index, self.next = self.next, self.next + 1
        if index and index % max(1, len(self.order) // 10) == 0:  # the others go on meanwhile
            self._sample()
        return index

    def _ask(self, request):
        prompt, tokens = self.requests[request]
        body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        # One connection a request: the server closes those that are idle for 5 s, and one that is closed meanwhile would count as an error.
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WAIT_SECONDS)
        try:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json", "Connection": "close"})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {text[:300]}")
        return json.loads(text)["choices"][0]["token_ids"]


def measured(asked, name, variables):
    """What a server with these variables did. Raises Ended."""
    environment, folder = {**os.environ, **variables}, os.environ.get("OUT", "/tmp")
    until = time.monotonic() + asked.seconds
    expected = offline_outputs(asked, environment, until, f"{folder}/offline_{name}.log")
    server = Server(asked, environment, f"{folder}/server_{name}.log")
    try:
        server.wait(until)
        load = Load(asked, server, expected, until)
        seconds = load.run()
    finally:
        server.end()
    return {"name": name, "requests": load.next, "seconds": round(seconds, 1), "requests_per_second": round(load.next / seconds, 1), "errors": load.errors,
            "first_error": load.first_error, "equal_to_offline": round(load.equal / max(1, load.next), 4), "memory_mib": load.memory, "gpu_mib": load.gpu}


def from_to(samples):
    return f"{samples[0]} to {samples[-1]}, at most {max(samples)}" if samples else "-"


def main():
    asked = options()
    if asked.offline:
        run_offline(asked)
        return 0
    found, ended = [], []
    for variant in asked.variants:
        name, _, variables = variant.partition(":")
        try:
            found.append(measured(asked, name, dict(one.split("=", 1) for one in variables.split(",") if one)))
            print(json.dumps(found[-1]), flush=True)
        except Ended as why:
            ended.append(f"{name}: {why}")
    print(f"\n| | requests of {asked.requests} | seconds | requests/s | errors | equal to offline | server, MiB | GPU, MiB |\n|" + " --- |" * 8)
    for one in found:
        print(f"| {one['name']} | {one['requests']} | {one['seconds']} | {one['requests_per_second']} | {one['errors']} | {one['equal_to_offline']} | "
              f"{from_to(one['memory_mib'])} | {from_to(one['gpu_mib'])} |")
    for why in ended + [f"{one['name']}: {one['first_error']}" for one in found if one["errors"]]:
        print(why)
    return 1 if ended or any(one["errors"] for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
