"""``python -m comad`` is ``comad``."""

import sys

from comad.cli import main

sys.exit(main())
