"""`python -m kplane_core` is `kplane`."""

import sys

from kplane_core.cli import main

sys.exit(main())
