"""A notebook whose packages are not installed is left out of a run."""

import runpy
from pathlib import Path

collect_ignore = runpy.run_path(str(Path(__file__).with_name("regenerate.py")))["lacking"]()
