# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
from pathlib import Path

# importmode=importlib puts no folder on the path; builds.py is shared by all tests below
sys.path.insert(0, str(Path(__file__).parent))
