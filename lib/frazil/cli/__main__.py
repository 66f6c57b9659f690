"""`python -m frazil.cli`: the same as `frazil`."""

import sys

from frazil.cli import main

sys.exit(main())
