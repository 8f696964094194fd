"""How many copies of a weight a benchmark on a CPU needs, so that no call finds its weight in a cache."""

import math
from pathlib import Path

SMALLEST_POOL = 150e6  # of a competitor, where the machine does not say what it has
LEVEL_3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")  # "491520K"


def level_3_bytes():
    """What the operating system says of the last-level cache; 0 if it says nothing. A virtual machine reports what it shares with others."""
    try:
        return int(LEVEL_3.read_text().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return 0


def copies(weight_bytes, competitors=1):
    """Of one competitor's own weight. All together fill the cache twice: a weight that two competitors share would be warm for the second."""
    each = max(SMALLEST_POOL, 2 * level_3_bytes() / competitors)
    return max(2, math.ceil(each / weight_bytes))
