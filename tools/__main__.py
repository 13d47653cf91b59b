"""``python -m convreg.tools VERB`` where convreg is installed, ``python -m tools VERB`` in a checkout."""

import sys

from convreg.tools.cli import main

sys.exit(main())
