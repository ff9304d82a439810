"""`python -m heedful` is the `heedful` command."""

import sys

from .cli import main

sys.exit(main())
