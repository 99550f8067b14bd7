# SPDX-License-Identifier: Apache-2.0
"""Turns: of the background programs of a GPU one tenant at a time may run, whenever the foreground leaves it."""
