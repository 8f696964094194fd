#!/usr/bin/env python3
"""Requests of mixed lengths against vLLM's OpenAI server on loopback: errors, memory, and whether outputs are those of an offline engine.

Usage: server_requests.py MODEL [--requests 10000] [--distinct 200] [--at-once 32] [NAME[:VARIABLE=VALUE[,...]] ...]

Run it in vLLM's environment. For each NAME (one, `plug-in`, if none is given) it starts an offline engine and then a server with these variables,
for example `stock:GEMMTUNE_VLLM=0 tuned:GEMMTUNE_CONFIG_A16W16=tuned.csv`. Requests are drawn from --distinct ones, whose prompts have 1 to
--longest tokens and whose outputs have 1 to 48; several begin with the same tokens, so that prefixes are found in the cache. Prefix caching and chunked
prefill are on. The offline engine gets each distinct request once, all in one batch.

It prints for each NAME one line of JSON: requests per second, errors (the first one in words), the share of outputs that are equal to those offline,
and the memory of the server's processes (MiB of proportional set size, at each tenth of the requests). Exit status 1 if a request failed."""

import argparse
import http.client
import json
import os
import random
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
WAIT_SECONDS = 1800  # for a server's first answer, and for any answer


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with config.json and weights")
    parser.add_argument("variants", nargs="*", default=["plug-in"], help="NAME[:VARIABLE=VALUE[,...]]")
    parser.add_argument("--requests", type=int, default=10000, help="of each server (10000)")
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


# ---- offline ----------------------------------------------------------------------------------------------------------------------------

def run_offline(asked):
    from vllm import LLM, SamplingParams, TokensPrompt
    engine = LLM(asked.model, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=asked.eager, seed=0, enable_prefix_caching=True, **ENGINE)
    requests = distinct_requests(asked)
    done = engine.generate([TokensPrompt(prompt_token_ids=prompt) for prompt, _ in requests],
                           [SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=0, detokenize=False) for _, tokens in requests], use_tqdm=False)
    print("RESULT", json.dumps([list(one.outputs[0].token_ids) for one in done]), flush=True)


def offline_outputs(asked, environment):
    command = [sys.executable, __file__, asked.model, "--offline", "--distinct", str(asked.distinct), "--longest", str(asked.longest)]
    done = subprocess.run(command + ["--eager"] * asked.eager, env=environment, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    if not found:
        sys.exit(f"the offline engine ended with exit status {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
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

    def wait(self):
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(1)
        self.end()
        sys.exit(f"the server does not answer; its log is {self.log}")

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
        try:
            os.killpg(self.process.pid, signal.SIGTERM)
            self.process.wait(timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass


class Load:
    """Threads that ask the server one request after the other."""

    def __init__(self, asked, server, expected):
        self.asked, self.server, self.expected = asked, server, expected
        self.requests = distinct_requests(asked)
        draw = random.Random(11)
        self.order = [draw.randrange(len(self.requests)) for _ in range(asked.requests)]
        self.lock, self.next, self.equal, self.errors, self.first_error, self.memory = threading.Lock(), 0, 0, 0, None, []

    def run(self):
        """Seconds for all."""
        begin = time.monotonic()
        self.memory.append(round(self.server.memory()))
        threads = [threading.Thread(target=self._ask_until_done, daemon=True) for _ in range(self.asked.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.monotonic() - begin

    def _ask_until_done(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=WAIT_SECONDS)
        while (index := self._take()) is not None:
            try:
                tokens, why = self._ask(connection, self.order[index]), None
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                tokens, why = None, f"{type(error).__name__}: {error}"
                connection.close()
            with self.lock:
                self.equal += tokens == self.expected[self.order[index]]
                self.errors += why is not None
                self.first_error = self.first_error or why

    def _take(self):
        with self.lock:
            if self.next == len(self.order):
                return None
            index, self.next = self.next, self.next + 1
        if (index + 1) % max(1, len(self.order) // 10) == 0:
            self.memory.append(round(self.server.memory()))
        return index

    def _ask(self, connection, request):
        prompt, tokens = self.requests[request]
        body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}: {text[:300]}")
        return json.loads(text)["choices"][0]["token_ids"]


def main():
    asked = options()
    if asked.offline:
        run_offline(asked)
        return 0
    failed = 0
    for variant in asked.variants:
        name, _, variables = variant.partition(":")
        environment = {**os.environ, **dict(one.split("=", 1) for one in variables.split(",") if one)}
        expected = offline_outputs(asked, environment)
        server = Server(asked, environment, f"{os.environ.get('OUT', '/tmp')}/server_{name}.log")
        try:
            server.wait()
            load = Load(asked, server, expected)
            seconds = load.run()
        finally:
            server.end()
        print(json.dumps({"name": name, "requests": asked.requests, "seconds": round(seconds, 1), "requests_per_second": round(asked.requests / seconds, 1),
                          "errors": load.errors, "first_error": load.first_error, "equal_to_offline": round(load.equal / asked.requests, 4),
                          "memory_mib": load.memory}), flush=True)
        failed += load.errors
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
