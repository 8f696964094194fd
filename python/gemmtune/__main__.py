"""`python -m gemmtune ...` is `gemmtune ...` of this Python's package."""

from .program import main

main()
