# SPDX-License-Identifier: Apache-2.0
"""What a report of a fault needs of this machine, in one file, without secrets."""
