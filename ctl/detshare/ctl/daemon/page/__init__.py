# SPDX-License-Identifier: Apache-2.0
"""The page: a live view of the machine for a browser, and the few verbs that it has."""
