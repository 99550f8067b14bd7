# SPDX-License-Identifier: Apache-2.0
"""Policies: what they see, what they may ask for."""
