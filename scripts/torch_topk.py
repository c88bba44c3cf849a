#!/usr/bin/env python3
"""Times torch.topk on a GPU, to be compared with the time of Baton's
selection: the 0.1% largest magnitudes of a vector of normal f32.

    scripts/torch_topk.py [ELEMENTS...]     default: 64 Mi

Prints one line of JSON for each size. Exits with 77 where PyTorch or a GPU is
missing."""

import json
import statistics
import sys

REPETITIONS = 20


def time_us(torch, work):
    times = []
    work()
    for _ in range(REPETITIONS):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(1000 * begin.elapsed_time(end))
    return statistics.median(times)


def main():
    try:
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
        return 77
    if not torch.cuda.is_available():
        print("skipped: PyTorch finds no GPU")
        return 77
    for count in [int(size) for size in sys.argv[1:]] or [64 << 20]:
        magnitudes = torch.randn(count, device="cuda").abs()
        k = count // 1000 + 1
        row = {
            "part": "select",
            "what": "torch.topk",
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "bytes": 4 * count,
            "k": k,
            "median_us": time_us(
                torch, lambda: torch.topk(magnitudes, k, sorted=False)),
        }
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
