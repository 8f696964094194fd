#!/usr/bin/env python3
"""One prompt in many batches of real vLLM: are its tokens and log-probabilities the same bits in each?

Usage: vllm_batches.py MODEL [--batches 50] [--prompt 200] [--tokens 16] [--eager] [--weights random] [--share 0.9]

Run it in vLLM's environment. Each batch has other prompts, another number of them (0 to 15) and other lengths; the prompt's place among
them changes. Prefix caching is on, so most batches find a part of the prompt in the cache, and so is chunked prefill: a step takes 256 tokens.
The first batch is the prompt alone. Prints one line of JSON: batches whose tokens and whose log-probabilities equal those of the first, the first
difference, and what gemmtune's plug-in reports. Exit status 1 if a batch differs."""

import argparse
import json
import os
import random
import sys

os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with config.json")
    parser.add_argument("--batches", type=int, default=50, help="how many, the prompt alone included (50)")
    parser.add_argument("--prompt", type=int, default=200, help="tokens of the prompt (200)")
    parser.add_argument("--tokens", type=int, default=16, help="tokens that each sequence generates (16)")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--weights", choices=("auto", "random"), default="auto", help="random: the folder has no weights")
    parser.add_argument("--share", type=float, default=0.9, help="of a GPU's memory (0.9)")
    return parser.parse_args()


def start(asked):
    from vllm import LLM
    return LLM(asked.model, load_format="dummy" if asked.weights == "random" else "auto", skip_tokenizer_init=True, dtype="bfloat16", seed=0,
               gpu_memory_utilization=asked.share, enforce_eager=asked.eager, max_model_len=512, max_num_seqs=16, max_num_batched_tokens=256,
               enable_prefix_caching=True, enable_chunked_prefill=True, block_size=32)


def prompts(asked, vocabulary, batch):
    """(prompts of a batch as lists of ids, the place of the one that is compared)."""
    draw = random.Random(batch)
    others = [[draw.randrange(5, vocabulary) for _ in range(draw.choice((1, 7, 32, 100, 300)))] for _ in range(draw.randrange(16) if batch else 0)]
    compared = random.Random("prompt").choices(range(5, vocabulary), k=asked.prompt)
    place = draw.randrange(len(others) + 1)
    return others[:place] + [compared] + others[place:], place


def generate(engine, asked, vocabulary, batch):
    """(tokens, log-probabilities of the five likeliest tokens of each step, tokens that the cache had) of the prompt in a batch."""
    from vllm import SamplingParams, TokensPrompt
    all_prompts, place = prompts(asked, vocabulary, batch)
    done = engine.generate([TokensPrompt(prompt_token_ids=ids) for ids in all_prompts],
                           SamplingParams(max_tokens=asked.tokens, ignore_eos=True, temperature=0, logprobs=5, detokenize=False), use_tqdm=False)
    output = done[place].outputs[0]
    steps = [sorted((token, one.logprob) for token, one in step.items()) for step in output.logprobs]
    return list(output.token_ids), steps, done[place].num_cached_tokens


def difference(first, other):
    """The first step at which log-probabilities differ, and by how much."""
    for step, (a, b) in enumerate(zip(first, other)):
        if a != b:
            a, b = dict(a), dict(b)
            return {"step": step, "largest": max((abs(a[token] - b[token]) for token in a if token in b), default=None)}
    return None


def main():
    asked = options()
    engine = start(asked)
    vocabulary = engine.llm_engine.model_config.get_vocab_size()
    tokens, steps, _ = generate(engine, asked, vocabulary, 0)
    result = {"batches": asked.batches, "equal_tokens": 1, "equal_log_probabilities": 1, "with_cached_prefix": 0, "first_difference": None}
    for batch in range(1, asked.batches):
        other_tokens, other_steps, cached = generate(engine, asked, vocabulary, batch)
        result["with_cached_prefix"] += bool(cached)
        result["equal_tokens"] += other_tokens == tokens
        result["equal_log_probabilities"] += other_steps == steps
        found = difference(steps, other_steps)
        if found and not result["first_difference"]:
            result["first_difference"] = {"batch": batch, **found}
    if os.environ.get("GEMMTUNE_VLLM", "1") != "0":
        report = engine.collective_rpc("report_of_gemmtune")[0]
        result["gemmtune"] = {"ours": len(report["ours"]), "left": len(report["left"]), "calls": report["calls"]}
    print("RESULT", json.dumps(result), flush=True)
    return 0 if result["equal_log_probabilities"] == asked.batches else 1


if __name__ == "__main__":
    sys.exit(main())
