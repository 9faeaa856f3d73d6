"""`python -m worker` is `silkline`."""

from worker.cli import main

main()
