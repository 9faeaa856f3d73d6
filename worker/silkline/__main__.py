"""`python -m silkline` is `silkline`."""

from silkline.cli.main import main

main()
