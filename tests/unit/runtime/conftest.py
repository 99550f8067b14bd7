# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

# importmode=importlib puts no folder on the path; programs.py is shared by the tests of this one
sys.path.insert(0, str(Path(__file__).parent))
