# SPDX-License-Identifier: Apache-2.0
"""A real browser without a screen, and a stage for it: the tests of the page, and its pictures."""
