# SPDX-License-Identifier: Apache-2.0
"""Recorded programs, said to a driver again: ``python -m detshare.tools.replay TRACE`` (see `convert` and `run`)."""
