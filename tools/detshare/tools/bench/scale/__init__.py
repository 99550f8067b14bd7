# SPDX-License-Identifier: Apache-2.0
"""``detshare bench scale``: the daemon with a thousand programs and a hundred thousand events a second."""
