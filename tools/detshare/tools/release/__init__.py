# SPDX-License-Identifier: Apache-2.0
"""What is given to users: Debian packages, a wheel, a source archive. `python -m detshare.tools.release --help`."""
