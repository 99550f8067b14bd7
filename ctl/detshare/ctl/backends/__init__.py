# SPDX-License-Identifier: Apache-2.0
"""Backends: ways of learning about programs and of acting on them."""
