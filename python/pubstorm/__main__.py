"""`python -m pubstorm` is `pubstorm`."""

import sys

from pubstorm.cli import main

sys.exit(main())
