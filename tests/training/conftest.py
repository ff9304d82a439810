"""Workers import the experiments of these tests by name, so their folder is on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
